//! Explains what would happen to a pull now, without pulling.

use std::rc::Rc;
use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffAnswer, BackoffEntry, BackoffList, LocalKey, Pause, Refusal};
use contract::messages::pull_coordinator::{EndpointLogins, ExplainImage, Explanation};
use contract::{CallError, TraceContext, human_duration};
use image::{Platform, Reference};
use runtimes::{PullRequest, RuntimeRef};

use crate::core::bounds;
use crate::core::outcomes::is_of_an_attempt;
use crate::core::request::policy_of;
use crate::locality::Locality;
use crate::outbound::Outbound;
use crate::size_estimate;

/// The share mode of a node that refuses and delays no pull because of other nodes.
const OBSERVES: &str = "observe";

/// The inputs of an explanation.
pub(crate) struct Asked {
    pub(crate) runtime: RuntimeRef,
    pub(crate) outbound: Outbound,
    /// None when this node shares nothing.
    pub(crate) locality: Option<Rc<Locality>>,
    /// How long a caller without a standing pull waits for the fleet.
    pub(crate) waits_for_fleet: Duration,
}

/// Asks the runtime and the tracker, in the order in which a pull would.
pub(crate) async fn explain(
    Asked { runtime, outbound, locality, waits_for_fleet }: Asked,
    wanted: ExplainImage,
    in_flight: bool,
    trace: TraceContext,
) -> Result<Explanation, CallError> {
    let refused = |reason: String| CallError::Refused { reason };
    let platform = wanted.platform.as_deref();
    let too_long = bounds::check_image(&wanted.image).and_then(|()| bounds::check_names(wanted.pod.as_ref(), platform));
    too_long.map_err(|too_long| refused(too_long.to_string()))?;
    let reference = Reference::parse(&wanted.image).map_err(|error| refused(error.kubelet_message(&wanted.image)))?;
    let platform = platform.map(Platform::parse).transpose().map_err(|error| refused(error.to_string()))?;
    let blobs = size_estimate::parse_blobs(&wanted.blobs).map_err(refused)?;
    let policy = policy_of(wanted.policy, &reference);
    let mut explanation = Explanation { policy: policy.to_string(), in_flight, ..Explanation::default() };
    explanation.platform = Some(platform.clone().unwrap_or_else(Platform::host).to_string());
    match runtime.image_status(&reference, platform.as_ref()).await {
        Ok(found) => {
            explanation.present = Some(found.is_some());
            explanation.digest = found.and_then(|found| found.digest);
        }
        Err(failure) => explanation.inspect_error = Some(failure.text),
    }
    explanation.logins = runtime.logins(&reference).await.unwrap_or_else(|error| {
        vec![EndpointLogins {
            endpoint: reference.registry().to_owned(),
            none_because: Some(error.to_string()),
            ..EndpointLogins::default()
        }]
    });
    if !blobs.is_empty() {
        explanation.missing_bytes = runtime.missing_bytes(&blobs).await;
    }
    let target = match &locality {
        Some(locality) => Some(locality.target(&*runtime, &reference, platform.as_ref()).await),
        None => None,
    };
    explanation.view = target.as_ref().map(|target| target.view.clone());
    let budget = target.as_ref().map(|target| target.budget_owner.clone());
    let key = LocalKey { pod: wanted.pod, image: wanted.image.clone() };
    let refusal = outbound.check(trace, key, target, true).await;
    let list = outbound.list_backoffs(trace, wanted.image).await.unwrap_or_default();
    explanation.budget = budget.filter(|_| list.share != OBSERVES);
    match refusal {
        BackoffAnswer::Refused(refusal) => {
            explanation.waits = refusal.unconfirmed && Duration::from_millis(refusal.next_attempt_ms) <= waits_for_fleet;
            explain_refusal(&mut explanation, refusal, &list.entries);
        }
        BackoffAnswer::Allowed | BackoffAnswer::Unknown { .. } => explain_unenforced(&mut explanation, &list),
    }
    if wanted.estimate_size {
        size_estimate::add_estimate(&mut explanation, &*runtime, &PullRequest { reference, platform, trace, carried: None }).await;
    }
    explanation.verdict = explanation.in_one_sentence();
    Ok(explanation)
}

/// Adds a refusal, and the listed entry that it comes from: the entry whose last attempt it names, else one with the same cause.
fn explain_refusal(explanation: &mut Explanation, refusal: Refusal, entries: &[BackoffEntry]) {
    let same_trace = |entry: &&BackoffEntry| refusal.learned_trace.is_some() && entry.trace == refusal.learned_trace;
    let same_cause = |entry: &&BackoffEntry| entry.view == explanation.view && entry.class == refusal.class && entry.cause == refusal.cause;
    if let Some(entry) = entries.iter().find(same_trace).or_else(|| entries.iter().find(same_cause)) {
        explanation.since_ms = Some(entry.since_ms);
        explanation.binds = Some(entry.binds.clone()).filter(|binds| !binds.is_empty());
        explanation.probed_by = entry.probed_by.clone();
    }
    explanation.learned_ms_ago = is_of_an_attempt(&refusal).then_some(refusal.learned_ms_ago);
    explanation.next_attempt_ms = Some(refusal.next_attempt_ms);
    explanation.class = Some(refusal.class);
    explanation.cause = (!refusal.cause.is_empty()).then_some(refusal.cause);
    explanation.learned_by = refusal.learned_by.map(String::from);
    explanation.learned_trace_id = refusal.learned_trace.map(|trace| trace.trace_id_hex());
}

/// Adds the entry that would refuse the pull if this node enforced and sharing were not paused.
fn explain_unenforced(explanation: &mut Explanation, list: &BackoffList) {
    let Some(view) = &explanation.view else { return };
    let Some(why) = unenforced_because(list, &view.registry) else { return };
    let binds = |entry: &&BackoffEntry| entry.view.as_ref() == Some(view) && entry.binds == "everybody" && entry.next_attempt_ms > 0;
    let Some(entry) = list.entries.iter().filter(binds).max_by_key(|entry| entry.next_attempt_ms) else { return };
    let learned_by = entry.reporters.first().and_then(|name| name.parse().ok());
    let (cause, class, learned_trace) = (entry.cause.clone(), entry.class, entry.trace);
    let refusal = Refusal { cause, class, learned_by, learned_ms_ago: entry.last_ms_ago, learned_trace, ..Refusal::default() };
    explain_refusal(explanation, refusal, &list.entries);
    (explanation.next_attempt_ms, explanation.unenforced_because) = (None, Some(why));
}

/// Why entries of other nodes refuse no pull from a registry on this node. None if they do.
fn unenforced_because(list: &BackoffList, registry: &str) -> Option<String> {
    if list.share == OBSERVES {
        return Some("this node only observes".to_owned());
    }
    let concerns = |pause: &&Pause| pause.registry.as_ref().is_none_or(|paused| paused == registry);
    let pause = list.pauses.iter().filter(concerns).max_by_key(|pause| pause.left_ms)?;
    let of = pause.registry.as_deref().unwrap_or("all registries");
    Some(format!("sharing of {of} is paused for {} more", human_duration(pause.left_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_and_observation_are_distinguished() {
        let pause = |registry: Option<&str>, left_ms| Pause { registry: registry.map(str::to_owned), left_ms, by: "me@here".to_owned() };
        let list = |share: &str, pauses| BackoffList { share: share.to_owned(), pauses, ..BackoffList::default() };
        for (list, expected) in [
            (list("enforce", vec![]), None),
            (list("enforce", vec![pause(Some("other.example"), 60_000)]), None),
            (list("observe", vec![]), Some("this node only observes")),
            (list("enforce", vec![pause(Some("r.example"), 60_000)]), Some("sharing of r.example is paused for 60s more")),
            (
                list("enforce", vec![pause(Some("r.example"), 5_000), pause(None, 59_100)]),
                Some("sharing of all registries is paused for 59s more"),
            ),
        ] {
            assert_eq!(unenforced_because(&list, "r.example").as_deref(), expected, "{list:?}");
        }
    }
}
