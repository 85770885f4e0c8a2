//! The registry fails, and in the middle of the outage something else fails too.

use std::time::Duration;

use e2e::{Agent, Signal, Started, Workplace};

use super::case::Case;
use super::fleet::{Outage, all_at_once};
use super::knowledge::{OtherRegistry, PendingEntry};
use super::kubelet::KubeletsRule;

/// When something else fails.
const MIDDLE: Duration = Duration::from_secs(20);
/// When a node finds a failure while the bus is lost; the other nodes must learn of it as soon as the bus is back.
const ALONE: Duration = Duration::from_secs(50);
const NODES: usize = 5;
/// The index of the agent that is killed alone.
const KILLED: usize = 2;

#[test]
fn standing_pulls_outlive_the_command_all_agents_and_the_server() {
    all_at_once(&[("command killed", command_killed), ("all killed", all_killed), ("bus wiped", bus_wiped)], &Case::ALL);
}

#[test]
fn without_the_bus_nodes_do_at_least_as_well_as_by_kubelets_rule_and_know_the_same_when_it_is_back() {
    all_at_once(&[("bus killed", bus_killed), ("bus stopped", bus_stopped)], &Case::ALL);
}

/// Three cases, one of each rate of probes, because most other tests of this file kill all agents.
#[test]
fn one_agent_killed_and_started_in_an_outage_costs_no_more_requests_and_delays_nobody() {
    all_at_once(&[("one killed", one_killed)], &[Case::NotFound, Case::RateLimited, Case::Reset]);
}

fn command_killed(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin(&place, case, NODES);
    kill_in_the_middle(&outage, outage.standing_pull());
    let healed = outage.end_outage_with_at_most(case.failing_at_most());
    outage.all_stored(healed);
}

/// Entries outlive the agents and the server: no node makes an attempt before the next attempt of an entry.
fn all_killed(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    let other_registry = OtherRegistry::new();
    kill_in_the_middle(&outage, outage.standing_pull());
    let pending = matches!(case, Case::NotFound | Case::RateLimited).then(|| PendingEntry::wait_for_one(&outage));
    other_registry.pull_missing(&outage.agents[0]);
    // The command ends before the report is published. If its node is killed in between, the report is lost.
    other_registry.until_known_to(&outage.agents);
    outage.agents.iter().for_each(|agent| agent.signal(Signal::Kill));
    outage.server.restart();
    // A second node may have been confirming the entry when it was listed. Its attempt has ended with it.
    let killed = outage.registry.age();
    outage.agents = outage.agents.into_iter().map(Agent::kill_and_start_again).map(Agent::ready).collect();
    other_registry.until_known_to(&outage.agents);
    pending.iter().for_each(|pending| pending.until_listed_by_all(&outage));
    let healed = outage.end_outage_with_at_most(case.failing_at_most());
    outage.all_stored(healed);
    pending.iter().for_each(|pending| pending.assert_no_request_since(killed, &outage));
}

/// The agent goes on with its standing pull, and knows the entry before it makes an attempt.
fn one_killed(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(MIDDLE);
    let killed = outage.agents.remove(KILLED).kill_and_start_again().ready();
    outage.agents.insert(KILLED, killed);
    let healed = outage.end_outage_with_at_most(case.failing_at_most());
    outage.all_stored(healed);
    drop(command);
}

/// The server loses its store. Each node publishes its reports again, and a new node gets them too.
fn bus_wiped(case: Case) {
    let place = Workplace::new();
    let mut outage = Outage::begin(&place, case, NODES);
    let other_registry = OtherRegistry::new();
    let command = outage.standing_pull();
    outage.began.until(MIDDLE);
    other_registry.pull_missing(&outage.agents[0]);
    other_registry.until_known_to(&outage.agents);
    outage.server.kill();
    outage.server.wipe_store();
    outage.server.restart();
    let late = [Agent::start(&place, "late", &["--nats", &outage.server.url()]).ready()];
    other_registry.until_known_to(&outage.agents);
    other_registry.until_known_to(&late);
    let healed = outage.end_outage_with_at_most(case.failing_at_most());
    outage.all_stored(healed);
    drop(command);
}

fn bus_killed(case: Case) {
    without_the_bus(case, |outage| outage.server.kill(), |outage| outage.server.restart());
}

/// Connections stay open without data, as in a partition.
fn bus_stopped(case: Case) {
    without_the_bus(case, |outage| outage.server.pause(), |outage| outage.server.resume());
}

fn without_the_bus(case: Case, lose: fn(&mut Outage<'_>), find: fn(&mut Outage<'_>)) {
    let place = Workplace::new();
    let (kubelets_rule, other_registry) = (KubeletsRule::of(case), OtherRegistry::new());
    let mut outage = Outage::begin(&place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(MIDDLE);
    lose(&mut outage);
    outage.began.until(ALONE);
    other_registry.pull_missing(&outage.agents[0]);
    let (healed, failing) = outage.end_outage();
    find(&mut outage);
    other_registry.until_known_to(&outage.agents);
    let kubelet = kubelets_rule.figures();
    kubelet.hold_for(&outage, failing);
    outage.all_stored_within(kubelet.served_within(outage.retry_after_left(healed)), healed);
    drop(command);
}

fn kill_in_the_middle(outage: &Outage<'_>, command: Started) {
    outage.began.until(MIDDLE);
    command.signal(Signal::Kill);
    command.wait();
}
