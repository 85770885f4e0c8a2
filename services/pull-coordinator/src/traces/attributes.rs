//! What spans say: attributes, named as OpenTelemetry's semantic conventions have them where those know the thing.

use contract::messages::backoff_tracker::Refusal;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome};
use contract::{EventReason, PodRef};
use image::Reference;
use spans::{KeyValue, Span};

use crate::core::{Effect, Failure, ImageFacts, PulledFacts};

/// The id of a back-off entry, the same on all nodes.
pub(super) const ENTRY: &str = "fleetpull.entry.id";
/// Whether the runtime has the image.
pub(super) const PRESENT: &str = "fleetpull.image.present";
/// The longest name of an image that a span says, in bytes: longer ones are refused.
const IMAGE_MAX_BYTES: usize = 1024;

pub(super) fn describe_ask(span: &Span, ask: &EnsureImage) {
    if !span.is_some() {
        return;
    }
    let (image, pod) = (ask.image.clone(), ask.pod.clone());
    span.set_if_exported(move || {
        let mut attributes = match Reference::parse(&image) {
            Ok(reference) => of_image(&reference),
            Err(_) => vec![KeyValue::new("container.image.name", image.chars().take(IMAGE_MAX_BYTES).collect::<String>())],
        };
        if let Some(PodRef { namespace, name, uid, .. }) = pod {
            attributes.extend(
                [("k8s.namespace.name", namespace), ("k8s.pod.name", name), ("k8s.pod.uid", uid)]
                    .map(|(key, value)| KeyValue::new(key, value)),
            );
        }
        attributes
    });
}

fn of_image(reference: &Reference) -> Vec<KeyValue> {
    let tag = reference.tag().map(|tag| KeyValue::new("container.image.tag", tag.to_owned()));
    let digest = reference.digest().map(|digest| KeyValue::new("oci.manifest.digest", digest.as_str().to_owned()));
    std::iter::once(KeyValue::new("container.image.name", reference.repository().to_owned())).chain(tag).chain(digest).collect()
}

pub(super) fn describe_attempt(span: &Span, reference: &Reference, for_all: bool) {
    if !span.is_some() {
        return;
    }
    let reference = reference.clone();
    span.set_if_exported(move || of_image(&reference));
    span.set("fleetpull.attempt.for_all", for_all);
    if for_all {
        // Other nodes wait for it and link to it.
        span.keep();
    }
}

pub(super) fn describe_event(span: &Span, reason: EventReason) {
    if span.is_some() {
        span.set("fleetpull.event.reason", reason.as_str().to_owned());
    }
}

pub(super) fn describe_found(span: &Span, found: &Result<Option<ImageFacts>, Failure>) {
    match found {
        Ok(found) => span.set(PRESENT, found.is_some()),
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
    match outcome.outcome {
        OutcomeKind::Present => span.set("fleetpull.outcome", "present"),
        OutcomeKind::Pulled => span.set("fleetpull.outcome", "pulled"),
        ref other => span.set("fleetpull.outcome", other.as_str().to_owned()),
    }
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
