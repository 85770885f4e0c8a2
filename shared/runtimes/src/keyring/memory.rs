//! What helpers answered lately, for those who only want to know whose login it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::credential::Credential;
use super::error::KeyringError;

/// How long an answer is remembered: a helper may cost a second and a call of a cloud, a rotated login is seen this late.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Answers remembered; a node asks a handful of registries. All are forgotten when there are more, which costs asking again.
const ANSWERS_MAX: usize = 256;

/// What a helper answered.
pub(super) type HelperAnswer = Result<Option<Credential>, KeyringError>;
/// Which helper, and what it was asked about.
type HelperQuestion = (String, String);
/// Locked while the helper is asked, so that all who want to know wait for one answer.
pub(super) type Slot = tokio::sync::Mutex<Option<Remembered>>;

/// An answer and when it came, on the monotonic clock.
pub(super) struct Remembered {
    answer: HelperAnswer,
    came: Duration,
}

impl Remembered {
    pub(super) fn new(answer: HelperAnswer, came: Duration) -> Self {
        Self { answer, came }
    }

    /// The answer, if it is young enough.
    pub(super) fn at(&self, now: Duration) -> Option<HelperAnswer> {
        (now.saturating_sub(self.came) < REMEMBERED).then(|| self.answer.clone())
    }
}

/// The answers of all helpers.
#[derive(Default)]
pub(super) struct HelperMemory(Mutex<BTreeMap<HelperQuestion, Arc<Slot>>>);

impl HelperMemory {
    pub(super) fn slot(&self, helper: &str, server: &str) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let question = (helper.to_owned(), server.to_owned());
        if slots.len() >= ANSWERS_MAX && !slots.contains_key(&question) {
            slots.clear();
        }
        Arc::clone(slots.entry(question).or_default())
    }
}
