//! Half of the fleet loses the bus, the other half keeps it.
//!
//! On the side with the bus the fleet's rule applies, with half of the nodes. Each node that is cut off at 20 s keeps to its replica for at
//! least 15 s and at most 20 s, the time in which a bus is mostly back, and then goes by kubelet's rule: it makes an attempt between 35 and
//! 40 s, the next one 10 s later, and another 20 s after that. So it adds one request to the fleet's bar if the partition is over at 40 s,
//! and two if it lasts until the registry has healed at 60 s. By kubelet's rule alone each node makes three.

use std::ops::RangeInclusive;
use std::time::Duration;

use contract::messages::backoff_tracker::BackoffEntry;
use e2e::{Agent, Watch, Workplace, until_within};
use serde_json::json;
use support::far_away::FarAway;

use super::case::Case;
use super::fleet::{Healed, Outage, Play, all_at_once, play};
use super::knowledge::{facts, shared_entries};
use super::kubelet::KubeletsRule;

const NODES: usize = 6;
const HALF: usize = NODES / 2;
/// When the partition begins, in the middle of the outage.
const BEGINS: Duration = Duration::from_secs(20);
/// When it ends in the test in which it ends before the registry heals at 60 s.
const ENDS_EARLY: Duration = Duration::from_secs(40);
/// How long after the registry it ends in the test in which it ends later.
const ENDS_LATE: Duration = Duration::from_secs(15);
/// The attempts of a node that is cut off, if the partition ends early and if it ends late.
const ATTEMPTS_EARLY: u64 = 1;
const ATTEMPTS_LATE: u64 = 2;
/// The partition shifts the fleet's attempts: one may begin just before the registry heals, and hang for this long.
const HANGS: Duration = Duration::from_secs(10);
/// An unconfirmed failure delays the other nodes for this long. If the machine is too slow to ask them meanwhile, the round is repeated.
const UNCONFIRMED_FOR: Duration = Duration::from_secs(4);
/// The least time between the two attempts. It is a little less than `UNCONFIRMED_FOR`, because that counts from the failure of the first
/// attempt.
const WAITS_AT_LEAST: Duration = Duration::from_secs(3);
/// A node on the side with the bus that neither finds nor confirms the failure.
const THIRD: usize = 1;
const ROUNDS: u32 = 5;
/// The longest time after the partition until both halves have the same entries. It takes less than 1 s, but all these fleets ask for it at
/// the same time, and a report that a busy bus did not take is offered again after 30 s.
const CONVERGED_WITHIN: Duration = Duration::from_secs(35);

/// How the connection to the bus is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Connections end, also new ones.
    Cut,
    /// Connections stay open without data.
    Silence,
}

impl Loss {
    fn befall(self, way: &FarAway) {
        match self {
            Self::Cut => way.cut(),
            Self::Silence => way.fall_silent(),
        }
    }
}

#[test]
fn half_of_a_fleet_without_the_bus_does_as_well_as_kubelet_and_learns_the_rest_as_soon_as_it_is_back() {
    let plays: [Play; 4] = [
        ("half cut off, back before the registry", |case| ends_early(case, Loss::Cut)),
        ("half cut off, back after the registry", |case| ends_late(case, Loss::Cut)),
        ("half hears nothing, back before the registry", |case| ends_early(case, Loss::Silence)),
        ("half hears nothing, back after the registry", |case| ends_late(case, Loss::Silence)),
    ];
    all_at_once(&plays, &Case::ALL);
}

fn ends_early(case: Case, loss: Loss) {
    let (place, kubelets_rule) = (Workplace::new(), KubeletsRule::of(case));
    let outage = Outage::begin_by(2, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(BEGINS);
    loss.befall(&outage.ways[1]);
    outage.began.until(ENDS_EARLY);
    outage.ways[1].heal();
    same_entry_on_both_sides(&outage);
    let healed = outage.heals_after(case.failing_at_most() + ATTEMPTS_EARLY * HALF as u64);
    let within = who_kept_it_is_served(&outage, healed);
    who_lost_it_is_served(&outage, healed, within, kubelets_rule);
    drop(command);
}

fn ends_late(case: Case, loss: Loss) {
    let (place, kubelets_rule) = (Workplace::new(), KubeletsRule::of(case));
    let outage = Outage::begin_by(2, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(BEGINS);
    loss.befall(&outage.ways[1]);
    let healed = outage.heals_after(case.failing_at_most() + ATTEMPTS_LATE * HALF as u64);
    let within = who_kept_it_is_served(&outage, healed);
    healed.until(ENDS_LATE);
    outage.ways[1].heal();
    who_lost_it_is_served(&outage, healed, within, kubelets_rule);
    drop(command);
}

/// Asserts that the nodes that kept the bus are served by the fleet's rule: within the returned time.
fn who_kept_it_is_served(outage: &Outage<'_>, healed: Healed) -> Duration {
    let hangs = if outage.case == Case::Hang { HANGS } else { Duration::ZERO };
    let within = outage.within(healed) + hangs;
    are_served("who kept the bus", 1..=HALF, outage, healed, within);
    within
}

/// Asserts that the other nodes are served within this time too, or by kubelet's rule if that allows more.
fn who_lost_it_is_served(outage: &Outage<'_>, healed: Healed, within: Duration, kubelets_rule: KubeletsRule) {
    let within = within.max(kubelets_rule.figures().served_within(Duration::ZERO));
    are_served("who lost the bus", HALF + 1..=NODES, outage, healed, within);
}

fn are_served(who: &str, nodes: RangeInclusive<usize>, outage: &Outage<'_>, healed: Healed, within: Duration) {
    let served = nodes.map(|node| outage.stored_by(node, healed)).max().unwrap_or_default();
    eprintln!("{}: {who} was served {served:.1?} after healing (within {within:.1?})", play());
    assert!(served <= within, "{}: {who} was served {served:.1?} after healing, not within {within:.1?}", play());
}

#[test]
fn what_one_half_finds_missing_the_other_knows_as_soon_as_it_can() {
    let plays: [Play; 4] = [
        ("found by those cut off", |case| found_missing(case, Loss::Cut, NODES - 1, 0)),
        ("found by those on the bus, others cut off", |case| found_missing(case, Loss::Cut, 0, NODES - 1)),
        ("found by those who hear nothing", |case| found_missing(case, Loss::Silence, NODES - 1, 0)),
        ("found by those on the bus, others hear nothing", |case| found_missing(case, Loss::Silence, 0, NODES - 1)),
    ];
    all_at_once(&plays, &[Case::NotFound]);
}

/// One node finds a failure during a partition. After the partition a node of the other side has the entry: it waits, makes an attempt for
/// all, and once both have reported the failure, a third node refuses without a request.
fn found_missing(case: Case, loss: Loss, finder: usize, confirmer: usize) {
    let place = Workplace::new();
    let outage = Outage::begin_by(2, &place, case, NODES);
    let in_time = (1..=ROUNDS).any(|round| {
        let tag = format!("missing-{round}");
        let image = outage.registry.image(&format!("shop/web:{tag}"));
        let pull = |node: usize| outage.agents[node].asked(&["pull", &image, "-o", "json"]);
        let asked = || outage.registry.requests().into_iter().filter(|request| request.path.ends_with(&tag)).map(|request| request.at);
        loss.befall(&outage.ways[1]);
        let _ = pull(finder).expect(1);
        outage.ways[1].heal();
        same_entry_on_both_sides(&outage);
        if outage.registry.age() - asked().next().unwrap_or_default() >= UNCONFIRMED_FOR {
            eprintln!("{}: round {round} was too slow to see that one node's report delays, once more", play());
            return false;
        }
        let confirmed = pull(confirmer).expect(1).object();
        assert_eq!((&confirmed["outcome"], &confirmed["class"]), (&json!("failed"), &json!("not_found")), "{confirmed}");
        let times: Vec<_> = asked().collect();
        assert!(times.len() == 2 && times[1] - times[0] >= WAITS_AT_LEAST, "it knew, and waited before it asked: {times:?}");
        until_within("a third node knows that two say so", CONVERGED_WITHIN, || {
            let reporters = |entry: &BackoffEntry| entry.about.image == image && entry.reporter_count == 2;
            shared_entries(&outage.agents[THIRD]).iter().any(reporters).then_some(())
        });
        let refused = pull(THIRD).expect(4).object();
        assert_eq!((&refused["outcome"], &refused["class"]), (&json!("backoff"), &json!("not_found")), "{refused}");
        assert_eq!(refused["learned_by"], format!("n{:02}", confirmer + 1), "{refused}");
        assert_eq!(asked().count(), 2, "nobody else has asked");
        true
    });
    assert!(in_time, "{}: in none of {ROUNDS} rounds the machine was fast enough", play());
}

/// Waits until a node of each side lists the same shared entries with the same reporters.
fn same_entry_on_both_sides(outage: &Outage<'_>) {
    let watch = Watch::start();
    let (here, there) = (&outage.agents[0], &outage.agents[NODES - 1]);
    until_within("both sides hold the same entry", CONVERGED_WITHIN, || {
        let said_by = |agent: &Agent<'_>| shared_entries(agent).iter().map(facts).collect::<Vec<_>>();
        let (here, there) = (said_by(here), said_by(there));
        (!here.is_empty() && here == there).then_some(())
    });
    eprintln!("{}: the same entry on both sides {:.1?} after the partition", play(), watch.elapsed());
}
