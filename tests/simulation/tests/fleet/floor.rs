//! The floor: an attempt that only the node's own back-off allows comes no sooner than by kubelet's rule.
//!
//! For a node and an image, an attempt that was neither elected (the node held a lease) nor released (the failing part has lately answered
//! some node: after the last failed attempt had begun, or within a minute if the failure may mean overload) begins no sooner than kubelet's
//! delay after the last failure; the delay doubles with each such attempt that fails. A node without a bus makes no attempt that kubelet
//! would not have made by then, had it tried since the image began to fail.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checks;
use super::registry::{Behaviour, PermitFrom, PullRecord};
use super::story::Story;

const FIRST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// How long a pull that was released may wait for its permit.
const PERMIT_WITHIN: Duration = Duration::from_secs(15);
/// How long after a success an attempt counts as released.
const RELEASES_FOR: Duration = Duration::from_secs(10 + PERMIT_WITHIN.as_secs());
/// The same after a failure that may mean overload.
const SERVED_WITHIN: Duration = Duration::from_secs(60 + PERMIT_WITHIN.as_secs());

/// The floor of a node and an image: when the last attempt failed, and the delay after it.
struct Floor<'a> {
    last: &'a PullRecord,
    failed_at: Duration,
    delay: Duration,
}

/// Attempts that came too soon, with node and time.
pub fn too_soon(story: &Story) -> Vec<(usize, Duration)> {
    let mut floors: BTreeMap<(usize, &str), Floor<'_>> = BTreeMap::new();
    let mut too_soon = Vec::new();
    for one in &story.asked {
        let of = (one.node, one.image.as_str());
        let exempt = match floors.get(&of) {
            Some(floor) => {
                let elected = is_elected(story, one) || is_released(story, floor.last, one);
                let exempt = elected || is_new(story, floor.last, one) || (is_alone(story, one) && is_due_by_kubelet(story, floor, one));
                if !exempt && one.at < floor.failed_at + floor.delay {
                    too_soon.push((one.node, one.at));
                }
                exempt
            }
            None => is_elected(story, one),
        };
        let Some(over) = one.over.filter(|_| one.got != Behaviour::Serves) else {
            floors.remove(&of);
            continue;
        };
        let delay = match floors.get(&of) {
            None => FIRST_DELAY,
            Some(floor) if over > floor.failed_at + 2 * LONGEST_DELAY => FIRST_DELAY,
            Some(floor) if exempt => floor.delay,
            Some(floor) => (floor.delay * 2).min(LONGEST_DELAY),
        };
        floors.insert(of, Floor { last: one, failed_at: over, delay });
    }
    too_soon
}

fn is_elected(story: &Story, one: &PullRecord) -> bool {
    // The permit may come after the end of the lease by which the attempt was cleared.
    story.leases.may_attempt(one.node, one.at)
}

/// Whether the part that `last` failed at has answered a node lately. Of a registry that may be overloaded an answer from before the
/// failure counts as well: it serves some, so its pulls go back into the budget's queue after seconds.
fn is_released(story: &Story, last: &PullRecord, one: &PullRecord) -> bool {
    let unreached = |got: Behaviour| matches!(got, Behaviour::Refused | Behaviour::Hang);
    let may_be_overload = !matches!(last.got, Behaviour::NotFound | Behaviour::Denied | Behaviour::WrongBytes);
    // Any answer shows that a registry that was not reached is reachable.
    let shows = |other: &&PullRecord| if unreached(last.got) { !unreached(other.got) } else { other.got == Behaviour::Serves };
    let in_time = |other: &&PullRecord| may_be_overload || other.at >= last.at;
    let releases_for = if may_be_overload { SERVED_WITHIN } else { RELEASES_FOR };
    let since = |other: &&PullRecord| in_time(other) && other.at <= one.at && one.at <= other.at + releases_for;
    story.asked.iter().filter(since).any(|other| shows(&other))
}

fn is_alone(story: &Story, one: &PullRecord) -> bool {
    one.permit_from == PermitFrom::NoLeader || checks::away(story, one.node, one.at)
}

/// Whether kubelet would have tried between the last failure and this attempt, had it wanted the image since the first failure.
fn is_due_by_kubelet(story: &Story, floor: &Floor<'_>, one: &PullRecord) -> bool {
    let fails = |other: &&PullRecord| other.image == one.image && other.got != Behaviour::Serves;
    let served = story.asked.iter().filter(|other| other.image == one.image && other.got == Behaviour::Serves && other.at <= one.at);
    let healed = served.map(|other| other.at).max().unwrap_or_default();
    let Some(since) = story.asked.iter().filter(fails).map(|other| other.at).find(|at| *at >= healed) else { return true };
    let (mut due, mut delay) = (since + FIRST_DELAY, FIRST_DELAY);
    while due <= floor.last.at {
        delay = (delay * 2).min(LONGEST_DELAY);
        due += delay;
    }
    due <= one.at
}

/// Whether the node restarted meanwhile, and so has forgotten its own failures.
fn is_new(story: &Story, last: &PullRecord, one: &PullRecord) -> bool {
    story.restarts.iter().any(|(node, at)| *node == one.node && last.at <= *at && *at <= one.at)
}
