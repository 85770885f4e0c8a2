//! What would happen to a pull now, without pulling.

use contract::messages::backoff_tracker::{BackoffAnswer, BackoffKey};
use contract::messages::pull_coordinator::{ExplainImage, Explanation, PullPolicy};
use contract::{CallError, TraceContext};
use image::Reference;
use runtimes::RuntimeRef;

use crate::core::bounds;
use crate::outbound::Outbound;

/// Looks at the runtime and at the back-off, in the order in which a pull would.
pub(crate) async fn explain(
    runtime: RuntimeRef,
    outbound: Outbound,
    wanted: ExplainImage,
    in_flight: bool,
    trace: TraceContext,
) -> Result<Explanation, CallError> {
    let too_long = bounds::check_image(&wanted.image).and_then(|()| bounds::check_names(wanted.pod.as_ref(), None));
    too_long.map_err(|too_long| CallError::Refused { reason: too_long.to_string() })?;
    let reference = Reference::parse(&wanted.image).map_err(|error| CallError::Refused { reason: error.kubelet_message(&wanted.image) })?;
    let policy = wanted.policy.unwrap_or(if reference.is_latest() { PullPolicy::Always } else { PullPolicy::IfNotPresent });
    let mut explanation = Explanation { policy: policy.to_string(), in_flight, ..Explanation::default() };
    match runtime.image_status(&reference, None).await {
        Ok(found) => explanation.present = Some(found.is_some()),
        Err(failure) => explanation.inspect_error = Some(failure.text),
    }
    let key = BackoffKey { pod: wanted.pod, image: wanted.image };
    if let BackoffAnswer::Held(held) = outbound.check(trace, key, true).await {
        explanation.next_try_ms = Some(held.next_try_ms);
        explanation.class = Some(held.class);
        explanation.cause = (!held.cause.is_empty()).then_some(held.cause);
    }
    explanation.verdict = verdict(&explanation);
    Ok(explanation)
}

/// What an explanation comes to, in one sentence.
#[must_use]
pub fn verdict(explanation: &Explanation) -> String {
    let looks = explanation.policy != PullPolicy::Always.as_str();
    let never = explanation.policy == PullPolicy::Never.as_str();
    match explanation {
        Explanation { inspect_error: Some(_), .. } if looks => {
            "it would fail with ImageInspectError: the runtime cannot say whether the image is there".to_owned()
        }
        Explanation { present: Some(true), .. } if looks => "it is on the node: nothing would be pulled".to_owned(),
        _ if never => "it would fail with ErrImageNeverPull: it is not on the node".to_owned(),
        Explanation { next_try_ms: Some(left), .. } => {
            format!("it would be refused with ImagePullBackOff for another {:.1} s", *left as f64 / 1_000.0)
        }
        Explanation { in_flight: true, .. } => "it is being pulled now: a pull would wait for that one".to_owned(),
        _ => "it would be pulled".to_owned(),
    }
}
