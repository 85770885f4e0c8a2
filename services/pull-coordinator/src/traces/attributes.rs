//! What spans say: attributes, named as OpenTelemetry's semantic conventions have them where those know the thing.

use contract::messages::backoff_tracker::Refusal;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome};
use image::Reference;
use spans::{KeyValue, Span};

use crate::core::{Effect, Failure, ImageFacts, PulledFacts};

/// The id of a back-off entry, the same on all nodes.
pub(super) const ENTRY: &str = "fleetpull.entry.id";
/// The longest name of an image that a span says, in bytes: longer ones are refused.
const IMAGE_MAX_BYTES: usize = 1024;

pub(super) fn describe_ask(span: &Span, ask: &EnsureImage) {
    if !span.is_some() {
        return;
    }
    match Reference::parse(&ask.image) {
        Ok(reference) => describe_image(span, &reference),
        Err(_) => span.set("container.image.name", ask.image.chars().take(IMAGE_MAX_BYTES).collect::<String>()),
    }
    if let Some(pod) = &ask.pod {
        span.set("k8s.namespace.name", pod.namespace.clone());
        span.set("k8s.pod.name", pod.name.clone());
        span.set("k8s.pod.uid", pod.uid.clone());
    }
}

fn describe_image(span: &Span, reference: &Reference) {
    span.set("container.image.name", reference.repository().to_owned());
    span.set_some("container.image.tag", reference.tag().map(str::to_owned));
    span.set_some("oci.manifest.digest", reference.digest().map(|digest| digest.as_str().to_owned()));
}

pub(super) fn describe_attempt(span: &Span, reference: &Reference, for_all: bool) {
    if !span.is_some() {
        return;
    }
    describe_image(span, reference);
    span.set("fleetpull.attempt.for_all", for_all);
    if for_all {
        // Other nodes wait for it and link to it.
        span.keep();
    }
}

pub(super) fn describe_found(span: &Span, found: &Result<Option<ImageFacts>, Failure>) {
    match found {
        Ok(found) => span.set("fleetpull.image.present", found.is_some()),
        Err(failure) => span.fail(failure.class.as_str(), &failure.text),
    }
}

pub(super) fn describe_result(span: &Span, result: &Result<PulledFacts, Failure>) {
    match result {
        Ok(pulled) => {
            span.set_some("oci.manifest.digest", pulled.digest.clone());
            span.set("fleetpull.auth", pulled.auth.clone());
        }
        Err(failure) => {
            span.set_some("server.address", failure.endpoint.clone());
            span.fail(failure.class.as_str(), &failure.text);
            span.keep();
        }
    }
}

/// Cancelled because its last caller has gone, or ended as failed because no answer came in time.
pub(super) fn describe_cancelled(span: &Span, effects: &[Effect]) {
    let failure = effects.iter().find_map(|effect| match effect {
        Effect::Report { report, .. } => report.failure.as_ref(),
        Effect::Resolve { resolve, .. } => resolve.failure.as_ref(),
        _ => None,
    });
    match failure {
        Some(failure) => {
            span.fail(failure.class.as_str(), &failure.cause);
            span.keep();
        }
        None => span.fail("cancelled", ""),
    }
}

/// Why something waits or is refused.
pub(super) fn describe_held(span: &Span, held: &Refusal) {
    if !span.is_some() {
        return;
    }
    describe_entry(span, held);
    span.set("fleetpull.held.class", held.class.as_str());
    span.set("fleetpull.held.cause", held.cause.chars().take(IMAGE_MAX_BYTES).collect::<String>());
    span.set("fleetpull.held.next_attempt_ms", whole(held.next_attempt_ms));
    span.set_some("fleetpull.held.learned_by", held.learned_by.as_ref().map(ToString::to_string));
    span.set("fleetpull.held.unconfirmed", held.unconfirmed);
}

/// What one searches for to see all that has to do with it.
pub(super) fn describe_entry(span: &Span, held: &Refusal) {
    span.set_some(ENTRY, held.entry.clone());
}

/// What holds a standing pull, for an event of its span.
pub(super) fn of_held(held: &Refusal) -> Vec<KeyValue> {
    let entry = held.entry.as_deref().map(of_entry);
    let learned_by = held.learned_by.as_ref().map(|node| KeyValue::new("fleetpull.held.learned_by", node.to_string()));
    let class = KeyValue::new("fleetpull.held.class", held.class.as_str());
    let next_attempt = KeyValue::new("fleetpull.held.next_attempt_ms", whole(held.next_attempt_ms));
    entry.into_iter().chain(learned_by).chain([class, next_attempt]).collect()
}

pub(super) fn of_entry(entry: &str) -> KeyValue {
    KeyValue::new(ENTRY, entry.to_owned())
}

pub(super) fn describe_queued(span: &Span, budget_wait_ms: Option<u64>) {
    span.set_some("fleetpull.budget.expected_wait_ms", budget_wait_ms.map(whole));
}

pub(super) fn describe_outcome(span: &Span, outcome: &PullOutcome) {
    if !span.is_some() || outcome.stands {
        return;
    }
    span.set("fleetpull.outcome", outcome.outcome.as_str().to_owned());
    span.set("fleetpull.waiting_ms", whole(outcome.waiting_ms));
    span.set_some("oci.manifest.digest", outcome.digest.clone());
    span.set_some("fleetpull.failure.class", outcome.class.map(|class| class.as_str()));
    match outcome.outcome {
        OutcomeKind::Pulled | OutcomeKind::Present => span.set("rpc.response.status_code", "OK"),
        _ => {
            let reason = outcome.reason.as_ref().map_or("timeout", |reason| reason.as_str()).to_owned();
            span.set("rpc.response.status_code", reason.clone());
            span.fail(reason, &outcome.message);
            span.keep();
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
