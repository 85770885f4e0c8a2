//! A standing pull, as text and as JSON.

use contract::messages::pull_coordinator::{PullList, StandingPullList, StandingPullState, StandingPullStatus};
use contract::{FailureClass, NodeName, PodRef, StandingPullId};
use serde::Serialize;

use super::refusal::got;
use super::table::Cell;
use super::{given, units};

/// A standing pull in JSON. The names and their meaning are an interface.
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

/// The standing pull as JSON at `now_ms`, in milliseconds since 1970-01-01.
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

/// The standing pull as a row of `fleetpull pulls`.
#[must_use]
pub fn cells(node: &NodeName, status: &StandingPullStatus) -> Vec<Cell> {
    vec![
        Cell::from(status.image.as_str()),
        Cell::from(node.as_str()),
        Cell::from("standing"),
        Cell::nothing(),
        Cell::nothing(),
        Cell::from(waits_for(status, status.learned_by.as_deref())).or_in_short(&waits_for(status, None)),
        Cell::age(status.since_ms),
        Cell::count(status.callers.into()),
        Cell::age(status.left_ms),
        Cell::from(status.standing_pull.to_string()),
    ]
}

/// Says how many standing pulls the list of a node leaves out. None if it has all.
#[must_use]
pub fn left_out(node: &NodeName, list: &StandingPullList) -> Option<String> {
    (list.left_out > 0).then(|| format!("{node}: {} more standing pulls, which one answer does not take", list.left_out))
}

/// Says how many pulls the list of a node leaves out. None if it has all.
#[must_use]
pub fn pulls_left_out(node: &NodeName, list: &PullList) -> Option<String> {
    (list.left_out > 0).then(|| format!("{node}: {} more pulls, which one answer does not take", list.left_out))
}

/// The pulls of a node or of a fleet in figures. Each pull is running or waiting; those of standing pulls are named once more.
#[must_use]
pub fn counts(running: u64, waiting: u64, standing: u64) -> String {
    let of_standing = standing.min(running.saturating_add(waiting));
    let standing = if of_standing == 0 { String::new() } else { format!(", {of_standing} of them standing") };
    format!("{running} running, {waiting} waiting{standing}")
}

/// What the standing pull waits for, in a few words: the result of the last attempt, its node if given, and when the next one is due.
fn waits_for(status: &StandingPullStatus, learned_by: Option<&str>) -> String {
    let Some(class) = status.class.filter(|_| status.state != StandingPullState::Pulling) else {
        return match (status.state, status.cause.as_str()) {
            (StandingPullState::Pulling, _) => "its pull".to_owned(),
            (_, "") => "its turn".to_owned(),
            (_, cause) => cause.to_owned(),
        };
    };
    let mut words = got(class, &status.cause).to_owned();
    if let Some(node) = learned_by {
        words.push_str(&format!(" ({node})"));
    }
    match status.next_attempt_ms {
        // The next attempt has been requested: it waits for the node's queue, the budget or another node's attempt.
        None if status.state == StandingPullState::Waiting => format!("{words}, its turn"),
        None => words,
        Some(left_ms) => format!("{words}, {}", units::due(Some(left_ms))),
    }
}
