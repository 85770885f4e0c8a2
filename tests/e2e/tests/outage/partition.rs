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
use support::faulty_link::FaultyLink;

use super::case::Case;
use super::fleet::{Healed, NamedTest, Outage, all_at_once, test_name};
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
/// A node on the side with the bus that neither finds nor confirms the failure.
const THIRD: usize = 1;
/// The longest time after the partition until both halves have the same entries. It takes less than 1 s, but all these fleets ask for it at
/// the same time, and a report that a busy bus did not take is offered again after 30 s.
const CONVERGED_WITHIN: Duration = Duration::from_secs(35);

/// How the connection to the bus is lost.
#[derive(Clone, Copy, Debug)]
enum LinkFault {
    /// Connections end, also new ones.
    Cut,
    /// Connections stay open without data.
    Silence,
}

impl LinkFault {
    fn apply_to(self, bus_link: &FaultyLink) {
        match self {
            Self::Cut => bus_link.cut(),
            Self::Silence => bus_link.fall_silent(),
        }
    }
}

#[test]
fn half_of_a_fleet_without_the_bus_does_as_well_as_kubelet_and_learns_the_rest_as_soon_as_it_is_back() {
    let tests: [NamedTest; 4] = [
        ("half cut off, back before the registry", |case| ends_early(case, LinkFault::Cut)),
        ("half cut off, back after the registry", |case| ends_late(case, LinkFault::Cut)),
        ("half receives nothing, back before the registry", |case| ends_early(case, LinkFault::Silence)),
        ("half receives nothing, back after the registry", |case| ends_late(case, LinkFault::Silence)),
    ];
    all_at_once(&tests, &Case::ALL);
}

fn ends_early(case: Case, fault: LinkFault) {
    let (place, kubelets_rule) = (Workplace::new(), KubeletsRule::of(case));
    let outage = Outage::begin_with_links(2, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(BEGINS);
    fault.apply_to(&outage.bus_links[1]);
    outage.began.until(ENDS_EARLY);
    outage.bus_links[1].heal();
    same_entry_on_both_sides(&outage);
    let healed = outage.end_outage_with_at_most(case.failing_at_most() + ATTEMPTS_EARLY * HALF as u64);
    let within = nodes_on_the_bus_are_served(&outage, healed);
    nodes_without_bus_are_served(&outage, healed, within, kubelets_rule);
    drop(command);
}

fn ends_late(case: Case, fault: LinkFault) {
    let (place, kubelets_rule) = (Workplace::new(), KubeletsRule::of(case));
    let outage = Outage::begin_with_links(2, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(BEGINS);
    fault.apply_to(&outage.bus_links[1]);
    let healed = outage.end_outage_with_at_most(case.failing_at_most() + ATTEMPTS_LATE * HALF as u64);
    let within = nodes_on_the_bus_are_served(&outage, healed);
    healed.until(ENDS_LATE);
    outage.bus_links[1].heal();
    nodes_without_bus_are_served(&outage, healed, within, kubelets_rule);
    drop(command);
}

/// Asserts that the nodes that kept the bus are served by the fleet's rule: within the returned time.
fn nodes_on_the_bus_are_served(outage: &Outage<'_>, healed: Healed) -> Duration {
    let hangs = if outage.case == Case::Hang { HANGS } else { Duration::ZERO };
    let within = outage.within(healed) + hangs;
    are_served("the half with the bus", 1..=HALF, outage, healed, within);
    within
}

/// Asserts that the other nodes are served within this time too, or by kubelet's rule if that allows more.
fn nodes_without_bus_are_served(outage: &Outage<'_>, healed: Healed, within: Duration, kubelets_rule: KubeletsRule) {
    let within = within.max(kubelets_rule.figures().served_within(Duration::ZERO));
    are_served("the half without the bus", HALF + 1..=NODES, outage, healed, within);
}

fn are_served(group: &str, nodes: RangeInclusive<usize>, outage: &Outage<'_>, healed: Healed, within: Duration) {
    let served = nodes.map(|node| outage.stored_by(node, healed)).max().unwrap_or_default();
    eprintln!("{}: {group} was served {served:.1?} after healing (within {within:.1?})", test_name());
    assert!(served <= within, "{}: {group} was served {served:.1?} after healing, not within {within:.1?}", test_name());
}

#[test]
fn missing_image_found_by_one_half_reaches_the_other_after_healing() {
    let tests: [NamedTest; 4] = [
        ("found by those cut off", |case| found_missing(case, LinkFault::Cut, NODES - 1, 0)),
        ("found by those on the bus, others cut off", |case| found_missing(case, LinkFault::Cut, 0, NODES - 1)),
        ("found by those that receive nothing", |case| found_missing(case, LinkFault::Silence, NODES - 1, 0)),
        ("found by those on the bus, others receive nothing", |case| found_missing(case, LinkFault::Silence, 0, NODES - 1)),
    ];
    all_at_once(&tests, &[Case::NotFound]);
}

/// One node finds a failure during a partition. After the partition a node of the other side has the entry: it makes an attempt for all at
/// once, and when both have reported the failure, a third node refuses without a request.
fn found_missing(case: Case, fault: LinkFault, finder: usize, confirmer: usize) {
    let place = Workplace::new();
    let outage = Outage::begin_with_links(2, &place, case, NODES);
    let image = outage.registry.image("shop/web:missing");
    let pull = |node: usize| outage.agents[node].asked(&["pull", &image, "-o", "json"]);
    let asked = || outage.registry.requests().into_iter().filter(|request| request.path.ends_with("missing")).count();
    fault.apply_to(&outage.bus_links[1]);
    let _ = pull(finder).expect(1);
    outage.bus_links[1].heal();
    same_entry_on_both_sides(&outage);
    let confirmed = pull(confirmer).expect(1).object();
    assert_eq!((&confirmed["outcome"], &confirmed["class"]), (&json!("failed"), &json!("not_found")), "{confirmed}");
    assert_eq!(asked(), 2);
    until_within("a third node knows that two nodes report it", CONVERGED_WITHIN, || {
        let reporters = |entry: &BackoffEntry| entry.key_parts.image == image && entry.reporter_count == 2;
        shared_entries(&outage.agents[THIRD]).iter().any(reporters).then_some(())
    });
    let refused = pull(THIRD).expect(4).object();
    assert_eq!((&refused["outcome"], &refused["class"]), (&json!("backoff"), &json!("not_found")), "{refused}");
    assert_eq!(refused["learned_by"], format!("n{:02}", confirmer + 1), "{refused}");
    assert_eq!(asked(), 2, "no other node has asked");
}

/// Waits until a node of each side lists the same shared entries with the same reporters.
fn same_entry_on_both_sides(outage: &Outage<'_>) {
    let watch = Watch::start();
    let (here, there) = (&outage.agents[0], &outage.agents[NODES - 1]);
    until_within("both sides hold the same entry", CONVERGED_WITHIN, || {
        let entries_of = |agent: &Agent<'_>| shared_entries(agent).iter().map(facts).collect::<Vec<_>>();
        let (here, there) = (entries_of(here), entries_of(there));
        (!here.is_empty() && here == there).then_some(())
    });
    eprintln!("{}: the same entry on both sides {:.1?} after the partition", test_name(), watch.elapsed());
}
