//! The bus is slow from the beginning, or becomes slow in the middle.

use std::time::Duration;

use e2e::Workplace;

use super::case::Case;
use super::fleet::{Outage, all_at_once};
use super::knowledge::Elsewhere;
use super::kubelet::KubeletsRule;

const NODES: usize = 5;
/// When the bus becomes slow.
const MIDDLE: Duration = Duration::from_secs(20);
/// Each byte travels so long, in each direction. An answer of the server is waited for for 250 ms, once it is known to be slow for 750 ms: one of these comes too late.
const LATE: Duration = Duration::from_millis(400);
/// One answer of these comes in time, but not what another agent is asked: that takes four ways.
const IN_TIME: Duration = Duration::from_millis(100);
/// Slow from the beginning: a question and its answer.
const ROUND_TRIP: Duration = Duration::from_millis(400);
/// Served so much later than on a quick bus at most: a budget's leader that is found anew asks for 3 s what is out, and each of its questions
/// and answers takes two round trips (a known gap).
const LATER: Duration = Duration::from_secs(30);

#[test]
fn a_slow_bus_is_no_worse_than_kubelets_rule_and_soon_over_when_it_is_fast_again() {
    all_at_once(&[("each byte 400 ms late", too_late), ("each byte 100 ms late", in_time)], &Case::ALL);
}

#[test]
fn a_bus_that_is_slow_throughout_costs_half_as_many_requests_again_at_most() {
    all_at_once(&[("round trips of 400 ms", throughout)], &Case::ALL);
}

fn throughout(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin_far_away(ROUND_TRIP, &place, case, NODES);
    let command = outage.standing_pull();
    let healed = outage.heals_after(case.failing_at_most() * 3 / 2);
    outage.all_stored_within(outage.within(healed) + LATER, healed);
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
    let (kubelets_rule, elsewhere) = (KubeletsRule::of(case), Elsewhere::new());
    let outage = Outage::begin_by(1, &place, case, NODES);
    let command = outage.standing_pull();
    outage.began.until(MIDDLE);
    outage.ways[0].take(each_byte * 2);
    let (healed, failing) = outage.heals();
    let kubelet = kubelets_rule.figures();
    kubelet.hold_for(&outage, failing);
    outage.all_stored_within(kubelet.served_within(outage.left_alone(healed)), healed);
    elsewhere.found_missing_by(&outage.agents[0]);
    outage.ways[0].take(Duration::ZERO);
    elsewhere.known_to(&outage.agents);
    drop(command);
}
