//! The bus is slow from the beginning, or becomes slow in the middle.

use std::time::Duration;

use e2e::Workplace;

use super::case::Case;
use super::fleet::{Outage, all_at_once};
use super::knowledge::OtherRegistry;
use super::kubelet::KubeletsRule;

const NODES: usize = 5;
/// When the bus becomes slow.
const MIDDLE: Duration = Duration::from_secs(20);
/// The delay of each byte in each direction. An agent waits 250 ms for an answer of the server, and 750 ms once it knows that the server is
/// slow: one of these answers comes too late.
const LATE: Duration = Duration::from_millis(400);
/// With this delay the server's answer comes in time, but another agent's answer does not, because it takes four transfers.
const IN_TIME: Duration = Duration::from_millis(100);
/// The round trip of a bus that is slow from the beginning.
const ROUND_TRIP: Duration = Duration::from_millis(400);
/// Added to one and a half times the time on a quick bus, because a busy machine answers late: the first pull after an outage takes five
/// round trips (probe lease, slot, permit of another node's leader, report).
const BUSY_MACHINE: Duration = Duration::from_secs(2);

#[test]
fn a_slow_bus_is_no_worse_than_kubelets_rule_and_soon_over_when_it_is_fast_again() {
    all_at_once(&[("each byte 400 ms late", too_late), ("each byte 100 ms late", in_time)], &Case::ALL);
}

#[test]
fn a_bus_that_is_slow_throughout_costs_half_as_many_requests_and_half_as_much_time_again_at_most() {
    all_at_once(&[("round trips of 400 ms", throughout)], &Case::ALL);
}

fn throughout(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin_with_round_trip(ROUND_TRIP, &place, case, NODES);
    let command = outage.standing_pull();
    let healed = outage.end_outage_with_at_most(case.failing_at_most() * 3 / 2);
    let within = outage.retry_after_left(healed) + case.measured_on_a_quick_bus() * 3 / 2 + BUSY_MACHINE;
    outage.all_stored_in_time(within, healed);
    drop(command);
}

fn too_late(case: Case) {
    slow(case, LATE);
}

fn in_time(case: Case) {
    slow(case, IN_TIME);
}

fn slow(case: Case, each_byte: Duration) {
    let place = Workplace::new();
    let (kubelets_rule, other_registry) = (KubeletsRule::of(case), OtherRegistry::new());
    let outage = Outage::begin_with_links(1, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(MIDDLE);
    outage.bus_links[0].set_round_trip(each_byte * 2);
    let (healed, failing) = outage.end_outage();
    let kubelet = kubelets_rule.figures();
    kubelet.hold_for(&outage, failing);
    outage.all_stored_within(kubelet.served_within(outage.retry_after_left(healed)), healed);
    other_registry.pull_missing(&outage.agents[0]);
    outage.bus_links[0].set_round_trip(Duration::ZERO);
    other_registry.until_known_to(&outage.agents);
    drop(command);
}
