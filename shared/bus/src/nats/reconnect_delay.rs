//! How long a client waits before it tries to connect again, so that a whole fleet does not connect at once.

use std::time::Duration;

/// Each failed attempt to connect waits this much longer than the previous one.
const RECONNECT_STEP: Duration = Duration::from_millis(50);

/// The longest wait, so that a server that is back is found soon.
const LONGEST_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// The random part of a wait, so that a few clients do not reconnect at the same moment.
const RECONNECT_JITTER: Duration = Duration::from_millis(100);

/// The rate at which a whole fleet connects. A server should take at most 200 clients in 1 s, or a thirtieth of a large fleet; by chance up
/// to half more than the mean connect in 1 s.
const CONNECTS_PER_SECOND: u64 = 120;

/// The longest that a client waits for its turn, for any size of the fleet.
const LONGEST_SPREAD: Duration = Duration::from_secs(50);

/// The time over which a fleet of this many clients connects.
pub(super) fn spread(fleet_size: u64) -> Duration {
    Duration::from_millis(fleet_size.saturating_mul(1_000) / CONNECTS_PER_SECOND).min(LONGEST_SPREAD)
}

/// The attempts to connect since the last connection.
#[derive(Clone, Copy)]
pub(super) struct FailedAttempts {
    pub(super) attempts: u64,
    /// How many servers there are. Each is tried once before any is tried again.
    pub(super) servers: u64,
}

impl FailedAttempts {
    /// How long to wait before the next attempt; `chance` in `[0, 1)`. The first attempt comes at any time within `spread`, and the first
    /// of each later round of servers `spread` after the previous round. So a fleet that was restarted or lost its server at once connects
    /// at an even rate, whenever the server is there.
    pub(super) fn delay(self, spread: Duration, chance: f64) -> Duration {
        if self.attempts == 0 {
            return spread.mul_f64(chance);
        }
        let failed = u32::try_from(self.attempts).unwrap_or(u32::MAX);
        let base = RECONNECT_STEP.saturating_mul(failed).min(LONGEST_RECONNECT_DELAY) + RECONNECT_JITTER.mul_f64(chance);
        if self.attempts.is_multiple_of(self.servers.max(1)) { base.max(spread) } else { base }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn after(attempts: u64, servers: u64) -> FailedAttempts {
        FailedAttempts { attempts, servers }
    }

    #[test]
    fn a_client_without_a_fleet_connects_at_once_and_then_each_half_second() {
        for (attempts, base_ms) in [(0, 0), (1, 50), (2, 100), (10, 500), (11, 500), (u64::MAX, 500)] {
            for chance in [0.0, 0.5, 0.999] {
                let delay = after(attempts, 1).delay(spread(0), chance);
                let base = Duration::from_millis(base_ms);
                let jitter = if attempts == 0 { Duration::ZERO } else { RECONNECT_JITTER };
                assert!(delay >= base && delay <= base + jitter, "after {attempts}: {delay:?}");
            }
        }
    }

    #[test]
    fn another_server_is_tried_soon_in_a_fleet_of_any_size() {
        let spread = spread(10_000);
        let delays: Vec<bool> = (1..7).map(|attempts| after(attempts, 3).delay(spread, 0.5) < Duration::from_secs(1)).collect();
        assert_eq!(delays, [true, true, false, true, true, false]);
    }

    /// When each agent of a fleet connects to a server that is there from `back` on, if all began together; in seconds.
    fn connects(nodes: u64, back: f64, chance: &mut StdRng) -> Vec<f64> {
        let spread = spread(nodes);
        let connect = |_| {
            let (mut now, mut attempts) = (0.0, 0);
            loop {
                now += after(attempts, 1).delay(spread, chance.random()).as_secs_f64();
                if now >= back {
                    return now;
                }
                attempts += 1;
            }
        };
        let mut times: Vec<f64> = (0..nodes).map(connect).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    #[test]
    fn reconnects_of_all_agents_stay_within_the_rate_that_a_server_accepts() {
        for nodes in [1, 30, 200, 300, 1_000, 3_000, 6_000, 10_000, 20_000] {
            for back in [0.0, 0.3, 7.3, 100.0] {
                for seed in 0..5 {
                    let times = connects(nodes, back, &mut StdRng::seed_from_u64(seed));
                    let within_a_second =
                        |first: &f64| times.partition_point(|time| time - first < 1.0) - times.partition_point(|time| time < first);
                    let most = times.iter().map(within_a_second).max().unwrap_or_default() as u64;
                    assert!(most <= 200.max(nodes / 30), "{most} of {nodes} within a second, the server being back after {back} s");
                    let last = times.last().copied().unwrap_or_default() - back;
                    assert!(last <= (nodes as f64 / CONNECTS_PER_SECOND as f64).min(50.0) + 0.7, "the last of {nodes} after {last} s");
                }
            }
        }
    }
}
