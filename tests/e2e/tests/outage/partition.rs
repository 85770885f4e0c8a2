//! Half of the fleet loses the bus, the other half keeps it.
//!
//! On the bus the fleet's rule holds, with half of the nodes. Each node that is cut off goes by kubelet's rule from its own first
//! failure on, and what it did before was the fleet's doing: its back-off begins with the partition, at 20 s. It tries then, 10 s
//! later, 20 s after that, 40 s after that: at 20, 30, 50 and 90 s. So each node that is cut off adds to the fleet's bar what
//! kubelet's rule lets it ask while the registry fails: three requests if the partition lasts until the registry has healed, two if
//! it is over at 40 s.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Agent, Watch, Workplace, until_within};
use serde_json::{Value, json};
use support::far_away::FarAway;

use crate::case::Case;
use crate::fleet::{Outage, Play, all_at_once};

const NODES: usize = 6;
const HALF: usize = NODES / 2;
/// When the partition begins, in the middle of the outage.
const BEGINS: Duration = Duration::from_secs(20);
/// When it ends, if that is before the registry heals at 60 s.
const ENDS_EARLY: Duration = Duration::from_secs(40);
/// How long after the registry it ends, if that is later.
const ENDS_LATE: Duration = Duration::from_secs(15);
/// Kubelet's tries of a node that is cut off for so long.
const TRIES_EARLY: u64 = 2;
const TRIES_LATE: u64 = 3;
/// The longest that kubelet's rule keeps a node of these which has failed three times, 40 s, and an attempt.
const KUBELET_WITHIN: Duration = Duration::from_secs(45);
/// The partition moves the fleet's tries: one may have begun just before the registry healed, and hangs for this long.
const HANGS: Duration = Duration::from_secs(10);
/// Both halves know the same within seconds of the end of the partition: by themselves in less than one, but all these fleets are
/// asked for it at the same time.
const CONVERGED_WITHIN: Duration = Duration::from_secs(15);

/// How the way to the bus is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Connections end, and so does each new one.
    Cut,
    /// Connections stay open and nothing comes through.
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
    let place = Workplace::new();
    let outage = Outage::begin_by(2, &place, case, NODES);
    let command = outage.wish();
    outage.began.until(BEGINS);
    loss.befall(&outage.ways[1]);
    outage.began.until(ENDS_EARLY);
    outage.ways[1].heal();
    same_entry_on_both_sides(&outage);
    let healed = outage.heals_after(case.failing_at_most() + TRIES_EARLY * HALF as u64);
    all_served(&outage, healed);
    drop(command);
}

fn ends_late(case: Case, loss: Loss) {
    let place = Workplace::new();
    let outage = Outage::begin_by(2, &place, case, NODES);
    let command = outage.wish();
    outage.began.until(BEGINS);
    loss.befall(&outage.ways[1]);
    let healed = outage.heals_after(case.failing_at_most() + TRIES_LATE * HALF as u64);
    healed.until(ENDS_LATE);
    outage.ways[1].heal();
    let back = Watch::start();
    all_served(&outage, healed);
    eprintln!("{}: that was {:.1?} after the partition", name(), back.elapsed());
    drop(command);
}

/// Who was on the bus all the time is served as soon as the fleet's rule says, the others as soon as kubelet's at the latest.
fn all_served(outage: &Outage<'_>, healed: Watch) {
    let hangs = if matches!(outage.case, Case::Hang) { HANGS } else { Duration::ZERO };
    let within = outage.case.served_within() + hangs;
    outage.stored_within(1..=HALF, within, healed);
    outage.stored_within(HALF + 1..=NODES, KUBELET_WITHIN.max(within), healed);
}

#[test]
fn what_one_half_finds_missing_the_other_refuses_as_soon_as_it_can_know() {
    let plays: [Play; 4] = [
        ("found by those cut off", |case| found_missing(case, Loss::Cut, NODES - 1, 0)),
        ("found by those on the bus, others cut off", |case| found_missing(case, Loss::Cut, 0, NODES - 1)),
        ("found by those who hear nothing", |case| found_missing(case, Loss::Silence, NODES - 1, 0)),
        ("found by those on the bus, others hear nothing", |case| found_missing(case, Loss::Silence, 0, NODES - 1)),
    ];
    all_at_once(&plays, &[Case::NotFound]);
}

/// One node finds out while there is a partition; when it is over, another of the other side refuses without having asked.
fn found_missing(case: Case, loss: Loss, finder: usize, refuser: usize) {
    let place = Workplace::new();
    let outage = Outage::begin_by(2, &place, case, NODES);
    loss.befall(&outage.ways[1]);
    let pull = |node: usize| outage.agents[node].asked(&["pull", &outage.image(), "-o", "json"]);
    let _ = pull(finder).expect(1);
    outage.ways[1].heal();
    same_entry_on_both_sides(&outage);
    let refused = pull(refuser).expect(4).object();
    assert_eq!((&refused["outcome"], &refused["class"]), (&json!("backoff"), &json!("not_found")), "{refused}");
    assert_eq!(refused["learned_by"], format!("n{:02}", finder + 1), "{refused}");
    assert_eq!(outage.registry.counts().failing, 1, "nobody else has asked");
}

/// Waits until a node of each side lists the same shared entry, said by the same nodes.
fn same_entry_on_both_sides(outage: &Outage<'_>) {
    let watch = Watch::start();
    let (here, there) = (&outage.agents[0], &outage.agents[NODES - 1]);
    until_within("both sides hold the same entry", CONVERGED_WITHIN, || {
        let (here, there) = (shared_entries(here), shared_entries(there));
        (!here.is_empty() && here == there).then_some(())
    });
    eprintln!("{}: the same entry on both sides {:.1?} after the partition", name(), watch.elapsed());
}

/// The shared entries that a node holds: what, and who says so. Of two failures at the same moment each side may hold another for
/// the newer one.
fn shared_entries(agent: &Agent<'_>) -> Vec<Value> {
    let entries = agent.asked(&["backoff", "list", "-o", "json"]).expect(0).objects();
    let shared = entries.into_iter().filter(|entry| entry["kind"] == "entry" && entry["shared"] == true);
    let facts = |entry: Value| {
        let reporters: BTreeSet<_> = entry["reporters"].as_array().into_iter().flatten().map(Value::to_string).collect();
        json!([entry["key"], entry["class"], reporters])
    };
    shared.map(facts).collect()
}

fn name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}
