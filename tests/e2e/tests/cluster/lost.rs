//! Servers are lost in the middle of the outage, and brought back.

use std::time::Duration;

use e2e::Workplace;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::{FAILING_AT_MOST, Fleet, NODES, SERVED_WITHIN, said};

/// Where the fleet's leases are.
const LEASES: &str = "KV_fleetpull-leases";
/// When servers are lost, in the middle of the outage.
const MIDDLE: Duration = Duration::from_secs(20);
/// When the only one that was lost is brought back.
const BACK: Duration = Duration::from_secs(40);
/// The servers that are left elect a leader of each bucket after nine seconds at the latest, and once more if the vote was split; agents
/// ask each second whether they have.
const ELECTED_WITHIN: Duration = Duration::from_secs(30);
/// While there is no leader of the leases a node goes without one, as it would without a bus: by its own back-off that began at 20 s,
/// once within an election. Seven requests were seen in these 20 s where the server led JetStream as a whole too, two where it did not.
const ALONE_WHILE_ELECTING: u64 = NODES as u64;
/// Kubelet's rule from 20 s on: a node tries at 20, 30 and 50 s.
const ALONE_ATTEMPTS: u64 = 3 * NODES as u64;
/// After three failures that rule keeps a node for 40 s at the longest, and then comes an attempt.
const ALONE_WITHIN: Duration = Duration::from_secs(45);
/// A snapshot for each agent when it comes to another server, for a change that was lost with the leader and one for the server that came
/// back, with as many to spare: no more, though there are changes all the time.
const SNAPSHOTS: u64 = 8;

#[test]
fn the_server_that_leads_the_leases_is_lost_and_the_fleet_stays_together() {
    if met(current_program()).is_none() {
        return;
    }
    let place = Workplace::new();
    let mut fleet = Fleet::begin(&place);
    let command = fleet.standing_pull();
    fleet.began.until(MIDDLE);
    let before = fleet.registry.counts().failing;
    let leader = fleet.cluster.leader_of(LEASES).expect("somebody leads the leases");
    fleet.cluster.kill(leader);
    fleet.all_on_the_bus_within(ELECTED_WITHIN);
    fleet.began.until(BACK);
    said(&format!("{before} failing requests before the loss, {} since", fleet.registry.counts().failing - before));
    fleet.cluster.restart(leader);
    let healed = fleet.heals_after(FAILING_AT_MOST + ALONE_WHILE_ELECTING);
    fleet.all_stored_within(SERVED_WITHIN, healed);
    fleet.shares_within(SERVED_WITHIN);
    for agent in &fleet.agents {
        let [gaps, snapshots] = ["shared_gaps_total", "shared_snapshots_total"].map(|counter| agent.counter(counter));
        said(&format!("{gaps} gaps, {snapshots} snapshots"));
        assert!(snapshots <= SNAPSHOTS, "{snapshots} snapshots for {gaps} gaps");
    }
    drop(command);
}

#[test]
fn without_a_quorum_each_node_does_at_least_as_well_as_kubelet_and_comes_back() {
    if met(current_program()).is_none() {
        return;
    }
    let place = Workplace::new();
    let mut fleet = Fleet::begin(&place);
    let command = fleet.standing_pull();
    fleet.began.until(MIDDLE);
    let leader = fleet.cluster.leader_of(LEASES).expect("somebody leads the leases");
    let lost = [leader, (leader + 1) % fleet.cluster.size()];
    lost.into_iter().for_each(|server| fleet.cluster.kill(server));
    let healed = fleet.heals_after(FAILING_AT_MOST + ALONE_ATTEMPTS);
    lost.into_iter().for_each(|server| fleet.cluster.restart(server));
    fleet.all_on_the_bus_within(ELECTED_WITHIN);
    fleet.all_stored_within(ALONE_WITHIN, healed);
    fleet.shares_within(SERVED_WITHIN);
    drop(command);
}
