//! The result of a pull for one caller: its answer, its event, and its report to the back-off tracker.

use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptFailure, Refusal};
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};
use contract::{EventDetails, EventReason, FailureClass, Reason};

use super::kubelet_messages;
use super::request::{EventFields, Fact, Request, milliseconds};
use super::step::{Failure, ImageFacts, PulledFacts};

/// How long a pull took for one caller.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub(super) pull: Duration,
    pub(super) whole: Duration,
}

impl Timing {
    fn waiting(self) -> Duration {
        self.whole - self.pull
    }
}

/// The image is present; `waiting`: for how long the pull had waited when it was found, if the pull had begun.
pub(super) fn present_fact(request: &Request, facts: &ImageFacts, waiting: Option<Duration>) -> Fact {
    let fields = EventFields { size_bytes: Some(facts.size_bytes), waiting, ..EventFields::default() };
    Fact { reason: EventReason::Pulled, message: kubelet_messages::present(&request.ask.image), fields }
}

pub(super) fn succeeded(
    request: &Request,
    timing: Timing,
    pulled: &PulledFacts,
    facts: &ImageFacts,
) -> (PullOutcome, Fact, Option<AttemptFailure>) {
    let outcome = PullOutcome {
        image_ref: pulled.image_ref.clone(),
        digest: pulled.digest.clone().or_else(|| facts.digest.clone()),
        platform: pulled.platform.clone().or_else(|| facts.platform.clone()),
        size_bytes: facts.size_bytes,
        duration_ms: milliseconds(timing.pull),
        waiting_ms: milliseconds(timing.waiting()),
        auth: pulled.auth.clone(),
        ..request.outcome(OutcomeKind::Pulled)
    };
    let fields = EventFields {
        duration: Some(timing.pull),
        waiting: Some(timing.waiting()),
        size_bytes: Some(facts.size_bytes),
        ..EventFields::default()
    };
    let message = kubelet_messages::pulled(&request.ask.image, timing.pull, timing.whole, facts.size_bytes);
    (outcome, Fact { reason: EventReason::Pulled, message, fields }, None)
}

pub(super) fn failed(request: &Request, timing: Timing, failure: &Failure) -> (PullOutcome, Fact, Option<AttemptFailure>) {
    let (reason, message) = kubelet_messages::reason_of_pull_error(&request.ask.image, &failure.text);
    let outcome = PullOutcome {
        duration_ms: milliseconds(timing.pull),
        waiting_ms: milliseconds(timing.waiting()),
        auth: failure.auth.clone(),
        ..request.refused(reason, message, failure.class)
    };
    let fields =
        EventFields { duration: Some(timing.pull), waiting: Some(timing.waiting()), class: Some(failure.class), ..EventFields::default() };
    let fact = Fact { reason: EventReason::Failed, message: kubelet_messages::pull_failed(&request.ask.image, &failure.text), fields };
    (outcome, fact, Some(attempt_failure(&request.ask.image, failure)))
}

/// A failure as reported to the back-off tracker.
pub(super) fn attempt_failure(image: &str, failure: &Failure) -> AttemptFailure {
    let (reason, message) = kubelet_messages::reason_of_pull_error(image, &failure.text);
    AttemptFailure {
        class: failure.class,
        cause: format!("{reason}: {message}"),
        authoritative: failure.authoritative,
        endpoint: failure.endpoint.clone(),
        stage: failure.stage,
        no_such_platform: failure.no_such_platform,
        retry_after_ms: failure.retry_after.map(milliseconds),
    }
}

/// The pull is refused without an attempt: too soon after a failure, or the wait for the fleet is too long.
pub(super) fn backed_off(request: &Request, refusal: Refusal) -> (PullOutcome, Fact) {
    let fact = backoff_fact(request, &refusal);
    let outcome = PullOutcome {
        reason: Some(Reason::ImagePullBackOff),
        message: kubelet_messages::back_off(&request.ask.image, Some(&refusal.cause)),
        class: Some(refusal.class),
        next_attempt_ms: Some(refusal.next_attempt_ms),
        learned_ms_ago: is_of_an_attempt(&refusal).then_some(refusal.learned_ms_ago),
        learned_by: refusal.learned_by.map(String::from),
        learned_trace_id: refusal.learned_trace.map(|trace| trace.trace_id_hex()),
        ..request.outcome(OutcomeKind::Backoff)
    };
    (outcome, fact)
}

/// The event of a pull that is refused or made to wait.
pub(super) fn backoff_fact(request: &Request, refusal: &Refusal) -> Fact {
    let fields = EventFields {
        class: Some(refusal.class),
        next_attempt_ms: Some(refusal.next_attempt_ms),
        learned_by: refusal.learned_by.clone(),
        learned_ms_ago: is_of_an_attempt(refusal).then_some(refusal.learned_ms_ago),
        learned_trace: refusal.learned_trace,
        entry: refusal.entry.clone(),
        ..EventFields::default()
    };
    Fact { reason: EventReason::BackOff, message: kubelet_messages::back_off(&request.ask.image, None), fields }
}

/// The event of a pull that waits for its permit: behind `ahead` pulls of its node, or for the fleet's budget for about `budget_wait`.
pub(super) fn throttled(request: &Request, waited: Duration, ahead: u64, budget_wait: Option<Duration>) -> Fact {
    let (message, cause) = match budget_wait {
        Some(wait) => (kubelet_messages::waits_for_budget(&request.ask.image, waited, request.reference.registry(), wait), "budget"),
        None => (kubelet_messages::waits_for_slot(&request.ask.image, waited, ahead), "slots"),
    };
    let fields = EventFields {
        waiting: Some(waited),
        next_attempt_ms: budget_wait.filter(|wait| !wait.is_zero()).map(milliseconds),
        details: Some(EventDetails { cause: Some(cause.to_owned()), ..EventDetails::default() }),
        ..EventFields::default()
    };
    Fact { reason: EventReason::Throttled, message, fields }
}

/// Whether the refusal comes from a failed attempt. It does not if a caller only waited in vain for clearance or the budget.
pub(crate) fn is_of_an_attempt(refusal: &Refusal) -> bool {
    refusal.learned_by.is_some() || refusal.learned_trace.is_some() || refusal.learned_ms_ago > 0
}

/// A pull without a pod is refused because too few bytes are free.
pub(super) fn no_room(request: &Request, free: u64, keep: u64) -> (PullOutcome, Fact) {
    let text = kubelet_messages::no_room(&request.ask.image, free, keep);
    let outcome = request.refused(Reason::ErrImagePull, text.clone(), FailureClass::NodeLocal);
    let fields = EventFields { class: Some(FailureClass::NodeLocal), ..EventFields::default() };
    (outcome, Fact { reason: EventReason::Failed, message: kubelet_messages::pull_failed(&request.ask.image, &text), fields })
}

/// The caller's time-out is over.
pub(super) fn time_over(timeout_ms: Option<u64>) -> PullOutcome {
    let limit = Duration::from_millis(timeout_ms.unwrap_or_default());
    PullOutcome {
        outcome: OutcomeKind::Failed,
        timed_out: true,
        message: format!("not there within {}: the time given with --timeout is over", image::go::duration(limit)),
        class: Some(FailureClass::Unknown),
        ..PullOutcome::default()
    }
}
