//! The registry fails, and in the middle of it something else goes too.

use std::time::Duration;

use e2e::{Agent, Signal, Started, Workplace};

use crate::case::Case;
use crate::fleet::{Outage, all_at_once};

/// When something else goes.
const MIDDLE: Duration = Duration::from_secs(20);
const NODES: usize = 5;
/// Without the bus each node goes by kubelet's rule from its own first failure on, at 20 s: it tries at 20, 30, 50 and 90 s. The
/// registry heals at 60 s, and an attempt may have begun late. With the bus back the fleet's own rule holds again.
const ALONE_WITHIN: Duration = Duration::from_secs(45);
/// A tag that was not there a moment before healing rests for a minute and a tenth of it, by the fleet's own cadence, and then those who
/// have reported it sit back for others: what each node finds out alone, all hear of when the bus is back.
const FOUND_MISSING_LAST: Duration = Duration::from_secs(75);
/// Kubelet tries thrice in that minute, by each node; what the fleet had asked before comes on top.
const ALONE_TRIES: u64 = 3 * NODES as u64;

#[test]
fn wishes_outlive_the_command_all_agents_and_the_server() {
    all_at_once(&[("command killed", command_killed), ("all killed", all_killed), ("bus wiped", bus_wiped)], &Case::ALL);
}

#[test]
fn without_the_bus_each_node_does_at_least_as_well_as_kubelet() {
    all_at_once(&[("bus killed", bus_killed), ("bus stands still", bus_stands_still)], &Case::ALL);
}

fn command_killed(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin(&place, case, NODES);
    kill_in_the_middle(&outage, outage.wish());
    let healed = outage.heals_after(case.failing_at_most());
    outage.all_stored(healed);
}

fn all_killed(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    kill_in_the_middle(&outage, outage.wish());
    outage.agents.iter().for_each(|agent| agent.signal(Signal::Kill));
    outage.server.restart();
    outage.agents = outage.agents.into_iter().map(Agent::kill_and_start_again).map(Agent::ready).collect();
    let healed = outage.heals_after(case.failing_at_most());
    outage.all_stored(healed);
}

/// All that the server kept is lost. What each node had said it says again.
fn bus_wiped(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    let command = outage.wish();
    outage.began.until(MIDDLE);
    outage.server.kill();
    outage.server.wipe_store();
    outage.server.restart();
    // While the server was gone each node may have tried once for itself.
    let healed = outage.heals_after(case.failing_at_most() + NODES as u64);
    outage.all_stored(healed);
    drop(command);
}

/// Within what all are served that had no bus for a while.
fn alone_within(case: Case) -> Duration {
    let cadence = if case == Case::NotFound { FOUND_MISSING_LAST } else { case.served_within() };
    cadence.max(ALONE_WITHIN)
}

fn bus_killed(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    let command = outage.wish();
    outage.began.until(MIDDLE);
    outage.server.kill();
    let healed = outage.heals_after(ALONE_TRIES + case.failing_at_most());
    outage.server.restart();
    outage.all_stored_within(alone_within(case), healed);
    drop(command);
}

/// Connections stay open and nothing comes through, as in a partition.
fn bus_stands_still(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin(&place, case, NODES);
    let command = outage.wish();
    outage.began.until(MIDDLE);
    outage.server.pause();
    let healed = outage.heals_after(ALONE_TRIES + case.failing_at_most());
    outage.server.resume();
    outage.all_stored_within(alone_within(case), healed);
    drop(command);
}

fn kill_in_the_middle(outage: &Outage<'_>, command: Started) {
    outage.began.until(MIDDLE);
    command.signal(Signal::Kill);
    command.wait();
}
