//! Fleets whose bus is slow throughout: round trips of 5, 50 and 400 ms.

use super::checks::{self, Finding, Invariant};
use super::latency::{Latency, ONE_WAY};
use super::node::Planted;
use super::plan::Plan;
use super::seeds;
use super::world;

const ROUND_TRIPS_MS: [u64; 3] = [5, 50, 400];
const NODES: usize = 20;
const SEEDS: [u64; 2] = [4, 6];

/// Round trips of this many milliseconds are so long that a leader counts many permits as fetched late (`config/known-gaps.md`).
const LATE_FROM_MS: u64 = 400;
/// How many seconds longer waits are then, twice what was seen: on five seeds up to 13 s.
const LONGER_S: f64 = 25.0;

/// The bound of a finding on a bus with this round trip. On the slowest, waits for other nodes are longer, and in a second up to twice as
/// many pulls may begin.
fn at_most(finding: &Finding, round_trip_ms: u64) -> f64 {
    let (bound, is_late) = (finding.at_most, round_trip_ms >= LATE_FROM_MS);
    match (finding.invariant, finding.what) {
        (Invariant::Budget, "pulls in a second by leaders' permits") if is_late => bound * 2.0,
        (Invariant::OthersUnharmed | Invariant::Healing, _) | (Invariant::Logins, "seconds that a right login waited") if is_late => {
            bound + LONGER_S
        }
        _ => bound,
    }
}

#[test]
fn invariants_hold_on_a_slow_bus() {
    let mut broken = Vec::new();
    for round_trip_ms in ROUND_TRIPS_MS {
        // Longer than on a quick bus, and as variable.
        let least_ms = round_trip_ms as f64 / 2.0;
        let one_way = Latency { least_ms, most_ms: least_ms + ONE_WAY.most_ms, ..ONE_WAY };
        for seed in SEEDS {
            let story = world::run(Plan { one_way, ..Plan::draw(seed, NODES) }, Planted::default());
            let before = broken.len();
            for finding in checks::check(&story) {
                let (at_most, Finding { invariant, what, value, .. }) = (at_most(&finding, round_trip_ms), &finding);
                let described = format!("round trips of {round_trip_ms} ms, seed {seed}: {invariant:?}, {what}: {value:.2}");
                if finding.is_broken() {
                    eprintln!("{described}, at most {:.2} on a quick bus", finding.at_most);
                }
                if *value > at_most {
                    broken.push(format!("{described}, at most {at_most:.2}"));
                }
            }
            if broken.len() > before {
                eprintln!("{}", seeds::describe(&story));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
