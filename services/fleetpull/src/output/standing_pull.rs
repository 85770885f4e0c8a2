//! A standing pull, as text and as JSON.

use contract::messages::pull_coordinator::{StandingPullState, StandingPullStatus};
use contract::{FailureClass, NodeName, PodRef, StandingPullId};
use serde::Serialize;

use super::refusal::Refusal;
use super::{given, one_line, units};

/// The columns of standing pulls.
pub const HEADER: [&str; 8] = ["NODE", "IMAGE", "STATE", "SINCE", "LEFT", "ATTEMPTS", "ID", "WHY"];

/// A standing pull in JSON: the names and their meaning are an interface.
#[derive(Serialize)]
struct JsonStandingPull<'a> {
    kind: &'static str,
    node: &'a NodeName,
    standing_pull: StandingPullId,
    image: &'a str,
    pod: Option<&'a PodRef>,
    platform: Option<&'a str>,
    state: StandingPullState,
    since_ms: u64,
    left_ms: u64,
    callers: u32,
    attempts: u64,
    cause: Option<&'a str>,
    class: Option<FailureClass>,
    next_attempt_ms: Option<u64>,
    learned_by: Option<&'a str>,
    learned_at: Option<String>,
    learned_trace_id: Option<&'a str>,
}

/// As JSON of the moment `now_ms` since 1970.
#[must_use]
pub fn json<'a>(node: &'a NodeName, status: &'a StandingPullStatus, now_ms: u64) -> impl Serialize + 'a {
    JsonStandingPull {
        kind: "standing_pull",
        node,
        standing_pull: status.standing_pull,
        image: &status.image,
        pod: status.pod.as_ref(),
        platform: status.platform.as_deref(),
        state: status.state,
        since_ms: status.since_ms,
        left_ms: status.left_ms,
        callers: status.callers,
        attempts: status.attempts,
        cause: given(&status.cause),
        class: status.class,
        next_attempt_ms: status.next_attempt_ms,
        learned_by: status.learned_by.as_deref(),
        learned_at: status.learned_ms_ago.map(|ago| units::rfc_3339(now_ms.saturating_sub(ago))),
        learned_trace_id: status.learned_trace_id.as_deref(),
    }
}

/// As a row of [`HEADER`].
#[must_use]
pub fn row(node: &NodeName, status: &StandingPullStatus, now_ms: u64) -> Vec<String> {
    let state = match status.state {
        StandingPullState::Held => "held",
        StandingPullState::Pulling => "pulling",
        StandingPullState::Waiting => "waiting",
    };
    vec![
        node.to_string(),
        one_line(&status.image),
        state.to_owned(),
        units::seconds(status.since_ms),
        units::seconds(status.left_ms),
        status.attempts.to_string(),
        status.standing_pull.to_string(),
        why(node, status, now_ms).unwrap_or_else(|| "-".to_owned()),
    ]
}

/// Why it waits, in a sentence; none while nothing holds it.
#[must_use]
pub fn why(node: &NodeName, status: &StandingPullStatus, now_ms: u64) -> Option<String> {
    if status.state == StandingPullState::Pulling || status.cause.is_empty() {
        return None;
    }
    // Nothing has failed: it waits for a word, or for its turn.
    let Some(class) = status.class else { return Some(format!("{node} waits: {}", one_line(&status.cause))) };
    let refusal = Refusal {
        node: node.as_str(),
        learned_by: status.learned_by.as_deref().unwrap_or_default(),
        learned_at_ms: status.learned_ms_ago.map(|ago| now_ms.saturating_sub(ago)),
        trace_id: status.learned_trace_id.as_deref().unwrap_or_default(),
        class,
        cause: &status.cause,
        next_attempt_ms: status.next_attempt_ms,
        next_by: "",
    };
    Some(refusal.sentence())
}
