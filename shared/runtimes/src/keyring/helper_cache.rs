//! Caches answers of helpers, for callers that need only the identity and not a fresh login.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::credential::Credential;
use super::error::KeyringError;

/// How long an answer is cached. A helper may take a second and call a cloud; a rotated login is noticed this late.
const CACHED_FOR: Duration = Duration::from_secs(60);
/// The most cached answers; a node uses few registries. If there are more, all are dropped and asked for again.
const ANSWERS_MAX: usize = 256;

/// A helper's answer.
pub(super) type HelperAnswer = Result<Option<Credential>, KeyringError>;
/// The helper's name, and the server of the question.
type HelperQuestion = (String, String);
/// Locked during the question, so that all concurrent callers wait for one answer.
pub(super) type Slot = tokio::sync::Mutex<Option<CachedAnswer>>;

/// An answer and its time on the monotonic clock.
pub(super) struct CachedAnswer {
    answer: HelperAnswer,
    came: Duration,
}

impl CachedAnswer {
    pub(super) fn new(answer: HelperAnswer, came: Duration) -> Self {
        Self { answer, came }
    }

    /// The answer, unless it is too old.
    pub(super) fn at(&self, now: Duration) -> Option<HelperAnswer> {
        (now.saturating_sub(self.came) < CACHED_FOR).then(|| self.answer.clone())
    }
}

/// The answers of all helpers.
#[derive(Default)]
pub(super) struct HelperCache(Mutex<BTreeMap<HelperQuestion, Arc<Slot>>>);

impl HelperCache {
    pub(super) fn slot(&self, helper: &str, server: &str) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let question = (helper.to_owned(), server.to_owned());
        if slots.len() >= ANSWERS_MAX && !slots.contains_key(&question) {
            slots.clear();
        }
        Arc::clone(slots.entry(question).or_default())
    }
}
