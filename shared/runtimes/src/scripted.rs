//! A runtime in memory with scripted answers, for tests and benchmarks of a runtime's callers.
//!
//! Images are named as a runtime gets them ([`Reference::runtime_reference`]). Without a script a pull of an absent image succeeds at once,
//! and the image is present from then on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contract::TraceContext;
use contract::messages::pull_coordinator::EndpointLogins;
use contract::messages::throttler::RegistryLimit;
use image::{Digest, Platform, Reference};
use tokio::sync::{Semaphore, watch};

use crate::keyring::KeyringError;
use crate::port::{
    ImageRuntime, ImageStatus, InspectFailure, Probe, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription, SizeEstimate,
};
use crate::progress::Progress;

/// An answer to a status call.
pub type StatusAnswer = Result<Option<ImageStatus>, InspectFailure>;
/// An answer to a pull.
pub type PullAnswer = Result<PulledImage, PullFailure>;

/// An answer to a size estimate.
pub type SizeEstimateAnswer = Result<SizeEstimate, PullFailure>;

/// The image reference that a pull without a script returns.
pub const SCRIPTED_IMAGE_REF: &str = "sha256:scripted";
/// The size of an image that was pulled without a script.
pub const SCRIPTED_SIZE_BYTES: u64 = 1_000;
/// The most calls that are recorded until they are taken; a benchmark makes millions and takes none.
const CALLS_KEPT: usize = 10_000;

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScriptedCall {
    /// A status call for this image.
    Status(String),
    /// A pull of this image.
    Pull(String),
    /// A pull of this image that was dropped before its end.
    GivenUp(String),
    /// A probe for this image's manifest.
    Probe(String),
    /// A size estimate of this image.
    EstimateSize(String),
}

/// The runtime. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct ScriptedRuntime(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified at each call.
    came: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    present: BTreeMap<String, ImageStatus>,
    status_answers: BTreeMap<String, VecDeque<StatusAnswer>>,
    pull_answers: BTreeMap<String, VecDeque<PullAnswer>>,
    held_pulls: BTreeMap<String, Arc<Semaphore>>,
    routes: BTreeMap<String, Route>,
    logins: BTreeMap<String, Vec<EndpointLogins>>,
    probes: BTreeMap<String, Probe>,
    size_estimates: BTreeMap<String, SizeEstimateAnswer>,
    stored: BTreeSet<Digest>,
    free_bytes: Option<u64>,
    /// The pulls under way, by number.
    pulling: BTreeMap<u64, (String, Progress)>,
    last_pull: u64,
    calls: Vec<ScriptedCall>,
}

impl ScriptedRuntime {
    /// A runtime without images and scripts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this image present.
    pub fn put(&self, image: &str, status: ImageStatus) {
        self.state().present.insert(image.to_owned(), status);
    }

    /// Makes this image absent.
    pub fn remove(&self, image: &str) {
        self.state().present.remove(image);
    }

    /// Scripts the answers to status calls for this image, in turn; the last one repeats. Presence does not matter then.
    pub fn answer_status(&self, image: &str, answers: impl IntoIterator<Item = StatusAnswer>) {
        self.state().status_answers.insert(image.to_owned(), answers.into_iter().collect());
    }

    /// Scripts the answers to pulls of this image, in turn; the last one repeats. A success makes the image present.
    pub fn answer_pulls(&self, image: &str, answers: impl IntoIterator<Item = PullAnswer>) {
        self.state().pull_answers.insert(image.to_owned(), answers.into_iter().collect());
    }

    /// Sets the route of this image; without it the route is unknown.
    pub fn set_route(&self, image: &str, route: Route) {
        self.state().routes.insert(image.to_owned(), route);
    }

    /// Sets the logins of a pull of this image; without it they are unknown.
    pub fn set_logins(&self, image: &str, logins: Vec<EndpointLogins>) {
        self.state().logins.insert(image.to_owned(), logins);
    }

    /// Sets the result of a probe of this image; without it a probe is not possible.
    pub fn set_probe(&self, image: &str, probe: Probe) {
        self.state().probes.insert(image.to_owned(), probe);
    }

    /// Sets the size estimate of this image; without it an estimate is not possible.
    pub fn set_size_estimate(&self, image: &str, estimate: SizeEstimateAnswer) {
        self.state().size_estimates.insert(image.to_owned(), estimate);
    }

    /// Makes this blob present.
    pub fn store_blob(&self, digest: Digest) {
        self.state().stored.insert(digest);
    }

    /// Sets the free bytes; without it they are unknown.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.state().free_bytes = bytes;
    }

    /// Makes pulls of this image wait for [`Self::let_go`].
    pub fn hold(&self, image: &str) {
        self.state().held_pulls.insert(image.to_owned(), Arc::new(Semaphore::new(0)));
    }

    /// Lets one waiting pull of this image go on, or the next one that would wait.
    pub fn let_go(&self, image: &str) {
        if let Some(held) = self.state().held_pulls.get(image) {
            held.add_permits(1);
        }
    }

    /// Marks the tag as resolved for the running pulls of this image.
    pub fn resolve(&self, image: &str) {
        self.resolve_within(image, Vec::new());
    }

    /// As [`Self::resolve`], with these limits of the registry.
    pub fn resolve_within(&self, image: &str, limits: Vec<RegistryLimit>) {
        self.show(image, |progress| {
            progress.set_limits(limits.clone());
            progress.resolved(Vec::new());
        });
    }

    /// Changes the progress of the running pulls of this image.
    pub fn show(&self, image: &str, shown: impl Fn(&Progress)) {
        for (_, progress) in self.state().pulling.values().filter(|(pulled, _)| pulled == image) {
            shown(progress);
        }
    }

    /// The calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<ScriptedCall> {
        self.state().calls.clone()
    }

    /// The calls since they were last taken.
    #[must_use]
    pub fn take_calls(&self) -> Vec<ScriptedCall> {
        std::mem::take(&mut self.state().calls)
    }

    /// Waits until this call has come `count` times and was not taken.
    pub async fn wait_for(&self, call: &ScriptedCall, count: usize) {
        let mut came = self.0.came.subscribe();
        while self.state().calls.iter().filter(|one| *one == call).count() < count {
            // The sender lives as long as this runtime.
            let _ = came.changed().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, call: ScriptedCall) {
        let mut state = self.state();
        if state.calls.len() < CALLS_KEPT {
            state.calls.push(call);
        }
        drop(state);
        self.0.came.send_replace(());
    }

    /// The answer to a pull of this image; a success makes the image present.
    fn finish(&self, image: &str) -> PullAnswer {
        let mut state = self.state();
        let scripted = state.pull_answers.get_mut(image).and_then(next);
        let answer = scripted.unwrap_or_else(|| {
            Ok(PulledImage { image_ref: SCRIPTED_IMAGE_REF.to_owned(), auth: "anonymous".to_owned(), ..PulledImage::default() })
        });
        if let Ok(pulled) = &answer {
            let status = ImageStatus { image_ref: pulled.image_ref.clone(), size_bytes: SCRIPTED_SIZE_BYTES, ..ImageStatus::default() };
            state.present.insert(image.to_owned(), status);
        }
        answer
    }
}

/// The next answer; the last one stays.
fn next<T: Clone>(answers: &mut VecDeque<T>) -> Option<T> {
    if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
}

/// A pull under way; records `GivenUp` if it is dropped before its end.
struct Running<'a> {
    runtime: &'a ScriptedRuntime,
    image: &'a str,
    number: u64,
    ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.runtime.state().pulling.remove(&self.number);
        if !self.ended {
            self.runtime.note(ScriptedCall::GivenUp(self.image.to_owned()));
        }
    }
}

#[async_trait]
impl ImageRuntime for ScriptedRuntime {
    async fn image_status(&self, reference: &Reference, _: Option<&Platform>) -> StatusAnswer {
        let image = reference.runtime_reference();
        self.note(ScriptedCall::Status(image.to_owned()));
        let mut state = self.state();
        match state.status_answers.get_mut(image).and_then(next) {
            Some(answer) => answer,
            None => Ok(state.present.get(image).cloned()),
        }
    }

    async fn pull(&self, request: PullRequest, progress: Progress) -> PullAnswer {
        let image = request.reference.runtime_reference();
        self.note(ScriptedCall::Pull(image.to_owned()));
        let (number, held) = {
            let mut state = self.state();
            state.last_pull += 1;
            let number = state.last_pull;
            state.pulling.insert(number, (image.to_owned(), progress));
            (number, state.held_pulls.get(image).cloned())
        };
        let mut running = Running { runtime: self, image, number, ended: false };
        // The semaphore is never closed.
        if let Some(held) = held
            && let Ok(permit) = held.acquire().await
        {
            permit.forget();
        }
        running.ended = true;
        drop(running);
        self.finish(image)
    }

    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        let scripted = self.state().routes.get(reference.runtime_reference()).cloned();
        scripted.unwrap_or_else(|| Route::unknown(reference, platform))
    }

    async fn logins(&self, reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        Ok(self.state().logins.get(reference.runtime_reference()).cloned().unwrap_or_default())
    }

    async fn probe(&self, reference: &Reference, _: &TraceContext) -> Option<Probe> {
        self.note(ScriptedCall::Probe(reference.runtime_reference().to_owned()));
        self.state().probes.get(reference.runtime_reference()).cloned()
    }

    async fn estimate_size(&self, request: &PullRequest) -> Option<SizeEstimateAnswer> {
        let image = request.reference.runtime_reference();
        self.note(ScriptedCall::EstimateSize(image.to_owned()));
        self.state().size_estimates.get(image).cloned()
    }

    async fn missing_bytes(&self, blobs: &[(Digest, u64)]) -> Option<u64> {
        let state = self.state();
        Some(blobs.iter().filter(|(digest, _)| !state.stored.contains(digest)).map(|(_, bytes)| bytes).sum())
    }

    async fn free_bytes(&self) -> Option<u64> {
        self.state().free_bytes
    }

    async fn describe(&self) -> RuntimeDescription {
        RuntimeDescription { name: "scripted".to_owned(), place: "memory".to_owned(), ..RuntimeDescription::default() }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
mod tests {
    use super::*;

    fn reference(image: &str) -> Reference {
        Reference::parse(image).expect("a reference")
    }

    fn request(image: &str) -> PullRequest {
        PullRequest { reference: reference(image), platform: None, trace: TraceContext::root(&mut clock::Random::seeded(1)), carried: None }
    }

    #[tokio::test]
    async fn pull_without_a_script_makes_the_image_present() {
        let runtime = ScriptedRuntime::new();
        assert_eq!(runtime.image_status(&reference("a"), None).await, Ok(None));
        let pulled = runtime.pull(request("a"), Progress::new()).await.expect("is pulled");
        let found = runtime.image_status(&reference("a:latest"), None).await.expect("answers").expect("is there");
        assert_eq!(found.image_ref, pulled.image_ref);
        runtime.remove("a:latest");
        assert_eq!(runtime.image_status(&reference("a"), None).await, Ok(None));
        let status = ScriptedCall::Status("a:latest".to_owned());
        assert_eq!(runtime.calls(), [status.clone(), ScriptedCall::Pull("a:latest".to_owned()), status.clone(), status]);
    }

    #[tokio::test]
    async fn scripted_answers_come_in_turn_and_the_last_one_repeats() {
        let runtime = ScriptedRuntime::new();
        let fails = |text: &str| Err(PullFailure { text: text.to_owned(), ..PullFailure::default() });
        runtime.answer_pulls("a:1", [fails("one"), fails("two")]);
        for expected in ["one", "two", "two"] {
            assert_eq!(runtime.pull(request("a:1"), Progress::new()).await.expect_err("fails").text, expected);
        }
    }

    #[tokio::test]
    async fn held_pull_waits_and_a_dropped_one_is_recorded() {
        let runtime = ScriptedRuntime::new();
        runtime.hold("a:1");
        let progress = Progress::new();
        let pulling = tokio::spawn({
            let (runtime, progress) = (runtime.clone(), progress.clone());
            async move { runtime.pull(request("a:1"), progress).await }
        });
        runtime.wait_for(&ScriptedCall::Pull("a:1".to_owned()), 1).await;
        runtime.resolve("a:1");
        assert!(progress.snapshot().resolved);
        assert!(!pulling.is_finished());
        pulling.abort();
        runtime.wait_for(&ScriptedCall::GivenUp("a:1".to_owned()), 1).await;
        runtime.let_go("a:1");
        assert!(runtime.pull(request("a:1"), Progress::new()).await.is_ok());
    }
}
