//! A restarted node knows what the fleet knows.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Finding, Invariant, KNOWS_AGAIN, shortest_round};
use crate::plan::Act;
use crate::registry::{Behaviour, PullRecord};
use crate::story::Story;

/// An attempt within this time of a node's start counts as "at once". It is longer than a starting node waits for what the fleet knows.
const AT_ONCE: Duration = Duration::from_millis(700);

pub(super) fn kept_at_restart(story: &Story) -> Finding {
    let (mut rash, mut at) = (0, None);
    for (node, came_back) in &story.restarts {
        let disturbed = was_disturbed(story, *node, *came_back..=*came_back + AT_ONCE);
        if disturbed || lately_cut(story, *node, *came_back) || lately_wiped(story, *came_back) {
            continue;
        }
        if asks_what_is_known(story, *node, *came_back) {
            (rash, at) = (rash + 1, Some((*node, *came_back)));
        }
    }
    let what = "nodes that came back and asked for a failure known to the fleet";
    Finding { invariant: Invariant::KeptAtRestart, what, value: f64::from(rash), at_most: 0.0, at }
}

/// Whether a message of this node was lost or late in this time.
fn was_disturbed(story: &Story, node: usize, meanwhile: RangeInclusive<Duration>) -> bool {
    let from = story.disturbed.partition_point(|(at, _)| at < meanwhile.start());
    story.disturbed[from..].iter().take_while(|(at, _)| meanwhile.contains(at)).any(|(_, of)| *of == node)
}

/// Whether a restarted node asks at once for an image for which another node's attempt has just failed, before the next attempt is due.
/// An attempt does not count if other nodes cannot know its result: its node has had no line to the server since, or was suspended with
/// clearance, because a node discards results that come after its lease has run out.
fn asks_what_is_known(story: &Story, node: usize, came_back: Duration) -> bool {
    let of_app = |one: &&PullRecord| one.image == story.plan.app && one.got == story.plan.outage;
    let asks = story.asked.iter().filter(of_app).find(|one| one.node == node && one.at >= came_back);
    asks.filter(|one| one.at <= came_back + AT_ONCE).is_some_and(|own| {
        let round = Duration::from_secs_f64(due_after(story.plan.outage));
        let is_unknown = |one: &PullRecord| {
            let cut = |from: Duration, to: Duration| from <= one.at && own.at <= to;
            let suspended = |to: Duration| to <= one.at && one.at <= to + AT_ONCE;
            story.plan.away.iter().any(|(of, from, to)| *of == one.node && (cut(*from, *to) || suspended(*to)))
        };
        story.asked.iter().filter(of_app).any(|one| one.at < own.at && own.at < one.at + round && !is_unknown(one))
    })
}

fn lately_cut(story: &Story, node: usize, came_back: Duration) -> bool {
    let cut = |of: usize, from: Duration, to: Duration| of == node && from < came_back && came_back < to + KNOWS_AGAIN && to != came_back;
    story.plan.away.iter().any(|(of, from, to)| cut(*of, *from, *to))
}

/// Whether the server has lost the reports so lately that the nodes have not yet been asked to publish them again.
fn lately_wiped(story: &Story, came_back: Duration) -> bool {
    let wiped = |at: Duration| at <= came_back && came_back < at + KNOWS_AGAIN;
    story.plan.acts.iter().any(|(at, act)| *act == Act::Wipe("reports") && wiped(*at))
}

/// The seconds after which the fleet may try again: jitter shortens a step by up to a tenth, but lengthens a Retry-After.
fn due_after(outage: Behaviour) -> f64 {
    if outage == Behaviour::Limited { shortest_round(outage) } else { shortest_round(outage) * 0.9 }
}
