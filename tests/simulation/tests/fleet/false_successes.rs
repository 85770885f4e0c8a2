//! One node of 50 claims successes, again and again, while a registry or an image fails.

use std::time::Duration;

use backoff_tracker::core::knowledge::PlantedBug;

use super::floor;
use super::node::Planted;
use super::plan::{Act, Plan, TOOL};
use super::registry::Behaviour;
use super::story::Story;
use super::world;

const NODES: usize = 50;
/// It wants no image.
const LIAR: usize = NODES - 1;
const APP: &str = "r.example/team/app:1";
const FAILS_AT: Duration = Duration::from_secs(100);
const HEALS_AT: Duration = Duration::from_secs(280);
/// The time between two rounds of false successes, and how many there are.
const EVERY: Duration = Duration::from_secs(5);
const ROUNDS: u32 = 34;

/// One of this many false successes may cost a second request.
const SECOND_REQUEST_EACH: usize = 5;
/// How much longer than the step between two attempts a healed registry may remain unnoticed by the last node: turn, lease and permit.
const TURN: Duration = Duration::from_secs(5);
/// How long a pull that nothing hinders may take to begin.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);
/// A fleet without a quota, which limits no pulls at once.
const SEED: u64 = 4;

/// All other nodes want [`APP`] while `failing` fails, and then one after the other [`TOOL`].
fn plan(seed: u64, failing: &'static str, outage: Behaviour, lies: bool) -> Plan {
    let wanted_at = FAILS_AT + Duration::from_secs(1);
    let mut acts: Vec<(Duration, Act)> = (0..NODES).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FAILS_AT, Act::Registry(failing, outage)));
    acts.push((HEALS_AT, Act::Registry(failing, Behaviour::Serves)));
    for node in 0..LIAR {
        acts.push((wanted_at, Act::Want(node, APP)));
        acts.push((wanted_at + Duration::from_secs(10 + 3 * node as u64), Act::Want(node, TOOL)));
    }
    if lies {
        acts.extend((1..=ROUNDS).map(|round| (FAILS_AT + EVERY * round, Act::ClaimSuccesses(LIAR))));
    }
    acts.sort_by_key(|(at, _)| *at);
    Plan { outage, fails_at: FAILS_AT, app: APP, liar: LIAR, ends: HEALS_AT + Duration::from_secs(90), ..Plan::of_acts(seed, NODES, acts) }
}

/// The failing requests.
fn failing(story: &Story) -> usize {
    story.asked.iter().filter(|one| one.got != Behaviour::Serves).count()
}

/// The longest that a node waited for an image after it wanted it, and after `from`.
fn longest_wait(story: &Story, image: &'static str, from: Duration) -> Duration {
    let wanted = (0..LIAR).map(|node| (story.wanted[&(node, image)].max(from), story.served_at(node, image)));
    wanted.map(|(wanted, at)| at.map_or(Duration::MAX, |at| at.saturating_sub(wanted))).max().unwrap_or_default()
}

/// What is wrong in an outage with false successes, in which without them `without` requests fail. The longest time between two attempts
/// of the fleet is `round`.
fn broken(story: &Story, without: usize, round: Duration) -> Vec<String> {
    let (failing, most) = (failing(story), without + ROUNDS as usize + ROUNDS as usize / SECOND_REQUEST_EACH);
    let many = (failing > most).then(|| format!("{failing} failing requests, {without} without false successes"));
    let healed = longest_wait(story, APP, HEALS_AT);
    let late = (healed > round + TURN).then(|| format!("all served {healed:?} after the outage"));
    let served = longest_wait(story, TOOL, Duration::ZERO);
    let is_healthy = matches!(story.plan.outage, Behaviour::NotFound | Behaviour::Unavailable);
    let delayed = (is_healthy && served > HEALTHY_WITHIN).then(|| format!("a healthy pull waited {served:?}"));
    let too_soon = floor::too_soon(story);
    let too_soon = (!too_soon.is_empty()).then(|| format!("sooner than kubelet: {too_soon:?}"));
    eprintln!("{:?}: {failing} failing requests, {without} without false successes, served {healed:?} after it", story.plan.outage);
    [many, late, delayed, too_soon].into_iter().flatten().collect()
}

#[test]
fn false_successes_in_an_outage_cost_a_request_each_and_delay_nobody() {
    let (minute, seconds) = (Duration::from_secs(60), Duration::from_secs(8));
    let outages = [
        ("app", Behaviour::NotFound, minute),
        ("app", Behaviour::Unavailable, seconds),
        ("r.example", Behaviour::Refused, seconds),
        ("r.example", Behaviour::Hang, seconds),
    ];
    let leases_ignored = Planted { knowledge: Some(PlantedBug::LeasesIgnored), ..Planted::default() };
    let mut found = Vec::new();
    for (what, outage, round) in outages {
        let run = |lies, planted| world::run(plan(SEED, what, outage, lies), planted);
        let without = failing(&run(false, Planted::default()));
        found.extend(broken(&run(true, Planted::default()), without, round).into_iter().map(|what| format!("{outage:?}: {what}")));
        if outage == Behaviour::NotFound {
            assert_ne!(broken(&run(true, leases_ignored), without, round), [""; 0], "a planted bug shows");
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
