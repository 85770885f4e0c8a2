//! The attributes of spans, with the names of OpenTelemetry's semantic conventions where those have one.

use contract::messages::backoff_tracker::{AttemptFailure, Refusal};
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome};
use contract::{EventReason, PodRef, TraceContext};
use image::Reference;
use spans::{KeyValue, Span};

use crate::core::{Effect, Failure, ImageFacts, PulledFacts};

/// The id of a back-off entry, the same on all nodes.
pub(super) const ENTRY: &str = "fleetpull.entry.id";
/// Whether the runtime has the image.
pub(super) const PRESENT: &str = "fleetpull.image.present";
/// How much of an image's name or of a cause a span contains.
const TEXT_MAX_BYTES: usize = 1024;

/// The attributes of a request.
#[derive(Debug)]
pub(super) struct Asked {
    image: String,
    pod: Option<PodRef>,
}

impl From<&EnsureImage> for Asked {
    fn from(ask: &EnsureImage) -> Self {
        Self { image: ask.image.clone(), pod: ask.pod.clone() }
    }
}

impl Asked {
    pub(super) fn describe(self, span: &Span) {
        span.set("rpc.system.name", "nats");
        span.set("rpc.method", "pull-coordinator/ensure");
        span.set_if_exported(move || self.attributes());
    }

    fn attributes(self) -> Vec<KeyValue> {
        let mut attributes = match Reference::parse(&self.image) {
            Ok(reference) => image_attributes(&reference),
            Err(_) => vec![KeyValue::new("container.image.name", beginning(&self.image))],
        };
        if let Some(PodRef { namespace, name, uid, .. }) = self.pod {
            attributes.extend(
                [("k8s.namespace.name", namespace), ("k8s.pod.name", name), ("k8s.pod.uid", uid)]
                    .map(|(key, value)| KeyValue::new(key, value)),
            );
        }
        attributes
    }
}

fn image_attributes(reference: &Reference) -> Vec<KeyValue> {
    let tag = reference.tag().map(|tag| KeyValue::new("container.image.tag", tag.to_owned()));
    let digest = reference.digest().map(|digest| KeyValue::new("oci.manifest.digest", digest.as_str().to_owned()));
    std::iter::once(KeyValue::new("container.image.name", reference.repository().to_owned())).chain(tag).chain(digest).collect()
}

pub(super) fn describe_attempt(span: &Span, reference: &Reference, for_all: bool) {
    if !span.is_some() {
        return;
    }
    let reference = reference.clone();
    span.set_if_exported(move || image_attributes(&reference));
    span.set("fleetpull.attempt.for_all", for_all);
    if for_all {
        // Other nodes wait for this attempt and link to its span.
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

/// Ends an attempt that was cancelled: its last caller left, or no answer came in time, which counts as a failure.
pub(super) fn describe_cancelled(span: &Span, effects: &[Effect]) {
    let Some(attempt) = span.context() else { return };
    match failure_of(attempt, effects) {
        Some(failure) => {
            span.fail(failure.class.as_str(), &failure.cause);
            span.keep();
        }
        None => span.fail("cancelled", ""),
    }
}

/// The failure of this attempt among the effects of one input: an alarm may end several attempts.
fn failure_of(attempt: TraceContext, effects: &[Effect]) -> Option<&AttemptFailure> {
    let is_same = |span: &TraceContext| span.span_id == attempt.span_id;
    effects.iter().find_map(|effect| match effect {
        Effect::Report { report, .. } if report.attempt_span.as_ref().is_some_and(is_same) => report.failure.as_ref(),
        Effect::Resolve { resolve, trace } if is_same(trace) => resolve.failure.as_ref(),
        _ => None,
    })
}

pub(super) fn describe_refusal(span: &Span, refusal: &Refusal) {
    if !span.is_some() {
        return;
    }
    describe_entry(span, refusal);
    span.set("fleetpull.held.class", refusal.class.as_str());
    span.set("fleetpull.held.cause", beginning(&refusal.cause));
    span.set("fleetpull.held.next_attempt_ms", whole(refusal.next_attempt_ms));
    span.set_some("fleetpull.held.learned_by", refusal.learned_by.as_ref().map(ToString::to_string));
    span.set("fleetpull.held.unconfirmed", refusal.unconfirmed);
}

/// Adds the entry's id, by which all spans of one entry can be found.
pub(super) fn describe_entry(span: &Span, refusal: &Refusal) {
    span.set_some(ENTRY, refusal.entry.clone());
}

/// The attributes of a span event that says why a standing pull waits.
pub(super) fn refusal_attributes(refusal: &Refusal) -> Vec<KeyValue> {
    let entry = refusal.entry.as_deref().map(entry_attribute);
    let learned_by = refusal.learned_by.as_ref().map(|node| KeyValue::new("fleetpull.held.learned_by", node.to_string()));
    let class = KeyValue::new("fleetpull.held.class", refusal.class.as_str());
    let next_attempt = KeyValue::new("fleetpull.held.next_attempt_ms", whole(refusal.next_attempt_ms));
    entry.into_iter().chain(learned_by).chain([class, next_attempt]).collect()
}

pub(super) fn entry_attribute(entry: &str) -> KeyValue {
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

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use clock::Random;
    use contract::messages::backoff_tracker::ResolveAttempt;
    use contract::{AttemptId, ClearanceId, Stage};

    use super::*;

    #[test]
    fn attempts_that_end_with_one_input_have_their_own_failures() {
        let random = &mut Random::seeded(1);
        let (first, second, other) = (TraceContext::root(random), TraceContext::root(random), TraceContext::root(random));
        let mut failed = |trace: TraceContext, cause: &str| {
            let failure = Some(AttemptFailure { cause: cause.to_owned(), ..AttemptFailure::default() });
            let (clearance, attempt) = (ClearanceId::random(random), AttemptId::random(random));
            Effect::Resolve { resolve: Box::new(ResolveAttempt { clearance, attempt, failure, stage: Stage::default() }), trace }
        };
        let effects = [failed(first, "a"), failed(second, "b")];
        let cause_of = |attempt| failure_of(attempt, &effects).map(|failure| failure.cause.as_str());
        assert_eq!((cause_of(first), cause_of(second), cause_of(other)), (Some("a"), Some("b"), None));
    }

    #[test]
    fn name_that_is_no_image_is_shown_to_its_limit_in_bytes() {
        for (image, bytes) in [("é".repeat(1_000), 1_024), (format!("a{}", "é".repeat(1_000)), 1_023), ("A:".to_owned(), 2)] {
            let attributes = Asked { image: image.clone(), pod: None }.attributes();
            assert_eq!(attributes, [KeyValue::new("container.image.name", image[..bytes].to_owned())]);
        }
    }
}
