//! The bus becomes slow in the middle: answers come later than anybody waits for them, or just in time.

use std::time::Duration;

use e2e::Workplace;

use crate::case::Case;
use crate::fleet::{Outage, all_at_once};

const NODES: usize = 5;
/// When the bus becomes slow.
const MIDDLE: Duration = Duration::from_secs(20);
/// Each byte travels so long, in each direction. An answer of the server is waited for for 250 ms: one of these comes too late.
const LATE: Duration = Duration::from_millis(400);
/// And one of these in time, but not what another agent is asked: that takes four ways.
const IN_TIME: Duration = Duration::from_millis(100);
/// Without answers in time each node goes by kubelet's rule from then on: it tries at 20, 30 and 50 s while the registry fails.
const ALONE_TRIES: u64 = 3 * NODES as u64;
/// After three failures that rule keeps a node for 40 s at the longest, and then comes an attempt.
const ALONE_WITHIN: Duration = Duration::from_secs(45);

#[test]
fn a_slow_bus_is_no_worse_than_none() {
    all_at_once(&[("each byte 400 ms late", too_late), ("each byte 100 ms late", in_time)], &Case::ALL);
}

fn too_late(case: Case) {
    slow(case, LATE, ALONE_TRIES);
}

fn in_time(case: Case) {
    // Where the machine is busy too, each may have missed three answers, and have tried once for itself.
    slow(case, IN_TIME, NODES as u64);
}

fn slow(case: Case, each_byte: Duration, more: u64) {
    let place = Workplace::new();
    let outage = Outage::begin_by(1, &place, case, NODES);
    let command = outage.wish();
    outage.began.until(MIDDLE);
    outage.ways[0].take(each_byte * 2);
    let healed = outage.heals_after(case.failing_at_most() + more);
    outage.all_stored_within(ALONE_WITHIN.max(case.served_within()), healed);
    drop(command);
}
