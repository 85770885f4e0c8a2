//! The bus becomes slow in the middle: answers come later than anybody waits for them, or just in time.

use std::time::Duration;

use e2e::Workplace;

use super::case::Case;
use super::fleet::{Outage, all_at_once};
use super::knowledge::Elsewhere;
use super::kubelet::Beside;

const NODES: usize = 5;
/// When the bus becomes slow.
const MIDDLE: Duration = Duration::from_secs(20);
/// Each byte travels so long, in each direction. An answer of the server is waited for for 250 ms: one of these comes too late.
const LATE: Duration = Duration::from_millis(400);
/// And one of these in time, but not what another agent is asked: that takes four ways.
const IN_TIME: Duration = Duration::from_millis(100);

#[test]
fn a_slow_bus_is_no_worse_than_kubelets_rule_and_soon_over_when_it_is_fast_again() {
    all_at_once(&[("each byte 400 ms late", too_late), ("each byte 100 ms late", in_time)], &Case::ALL);
}

fn too_late(case: Case) {
    slow(case, LATE);
}

fn in_time(case: Case) {
    slow(case, IN_TIME);
}

fn slow(case: Case, each_byte: Duration) {
    let place = Workplace::new();
    let (beside, elsewhere) = (Beside::of(case), Elsewhere::new());
    let outage = Outage::begin_by(1, &place, case, NODES);
    let command = outage.wish();
    outage.began.until(MIDDLE);
    outage.ways[0].take(each_byte * 2);
    let (healed, failing) = outage.heals();
    let kubelet = beside.figures();
    kubelet.hold_for(&outage, failing);
    outage.all_stored_within(kubelet.served_within(outage.left_alone(healed)), healed);
    elsewhere.found_missing_by(&outage.agents[0]);
    outage.ways[0].take(Duration::ZERO);
    elsewhere.known_to(&outage.agents);
    drop(command);
}
