//! A standing wish, as text and as JSON.

use contract::NodeName;
use contract::messages::pull_coordinator::{WishState, WishStatus};
use serde::Serialize;

use super::refusal::Refusal;
use super::{one_line, units};

/// The columns of wishes.
pub const HEADER: [&str; 8] = ["NODE", "IMAGE", "STATE", "SINCE", "LEFT", "TRIES", "WISH", "WHY"];

/// A wish as JSON: beside its own fields, where it stands.
#[derive(Serialize)]
struct JsonWish<'a> {
    node: &'a NodeName,
    #[serde(flatten)]
    status: &'a WishStatus,
}

/// As JSON.
#[must_use]
pub fn json<'a>(node: &'a NodeName, status: &'a WishStatus) -> impl Serialize + 'a {
    JsonWish { node, status }
}

/// As a row of [`HEADER`].
#[must_use]
pub fn row(node: &NodeName, status: &WishStatus, now_ms: u64) -> Vec<String> {
    let state = match status.state {
        WishState::Held => "held",
        WishState::Pulling => "pulling",
        WishState::Waiting => "waiting",
    };
    vec![
        node.to_string(),
        one_line(&status.image),
        state.to_owned(),
        units::seconds(status.since_ms),
        units::seconds(status.left_ms),
        status.tries.to_string(),
        status.wish.to_string(),
        why(node, status, now_ms).unwrap_or_else(|| "-".to_owned()),
    ]
}

/// Why it waits, in a sentence; none while nothing holds it.
#[must_use]
pub fn why(node: &NodeName, status: &WishStatus, now_ms: u64) -> Option<String> {
    if status.state == WishState::Pulling || status.cause.is_empty() {
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
        next_try_ms: status.next_try_ms,
        next_by: "",
    };
    Some(refusal.sentence())
}
