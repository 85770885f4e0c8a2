//! The only place that reads clocks and draws random numbers.
//!
//! A [`Clock`] gives [`Now`]: monotonic time for decisions and wall time for display. It follows tokio's clock, so a paused runtime moves
//! both. Cores never hold a clock: each step is given `now`.
#![allow(clippy::disallowed_methods, reason = "this crate is where clocks are read")]

mod random;
mod round_trips;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use random::Random;
pub use round_trips::RoundTrips;
use tokio::time::Instant;

/// One reading of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Time since the clock was made, for decisions; never goes backwards. The host's clock does not count the time for which the machine
    /// was suspended.
    pub monotonic: Duration,
    /// Time since 1970-01-01T00:00:00Z, for display and messages; may jump.
    pub wall: Duration,
}

impl Now {
    /// Milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(self) -> u64 {
        u64::try_from(self.wall.as_millis()).unwrap_or(u64::MAX)
    }

    /// This moment plus `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self { monotonic: self.monotonic + duration, wall: self.wall + duration }
    }
}

/// The time between two common moments.
const COMMON_MOMENTS_APART_MS: u128 = 100;

/// Waits from this length on need not be exact.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// When a wait that begins now ends, in a clock's monotonic time. A long wait ends at a common moment, up to 0.1 s early.
#[must_use]
pub fn end_of_wait(now: Duration, wait: Duration) -> Duration {
    if wait < LONG_WAIT { now + wait } else { common_moment(now + wait) }
}

/// The last common moment up to `at`, in a clock's monotonic time. A node with thousands of waits is woken at these moments for all of them
/// together, instead of for each.
#[must_use]
pub fn common_moment(at: Duration) -> Duration {
    let milliseconds = at.as_millis();
    Duration::from_millis(u64::try_from(milliseconds - milliseconds % COMMON_MOMENTS_APART_MS).unwrap_or(u64::MAX))
}

/// A source of [`Now`]. Clones share one origin.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Host {
        origin: Instant,
    },
    /// The wall time at the origin; moves with tokio's clock, so that a simulation is repeatable.
    Simulated {
        origin: Instant,
        wall: Duration,
    },
    /// Like a simulated clock, but it jumps, and its wall clock drifts.
    Jumping {
        origin: Instant,
        wall: Duration,
        jumps: Jumps,
    },
    /// Nanoseconds since it was made.
    Driven(Arc<AtomicU64>),
}

/// Makes a clock jump. Timers are not affected.
#[derive(Clone, Debug, Default)]
pub struct Jumps(Arc<JumpsSoFar>);

#[derive(Debug, Default)]
struct JumpsSoFar {
    /// Nanoseconds that both clocks have skipped.
    skipped: AtomicU64,
    /// Milliseconds by which the wall clock was set in addition.
    set: AtomicI64,
    /// How much faster the wall clock runs than the monotonic one, in millionths.
    drift: AtomicI64,
}

impl Jumps {
    /// Advances the clock by this much at once, as for a process that was stopped.
    pub fn skip(&self, by: Duration) {
        self.0.skipped.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back.
    pub fn set_wall(&self, by_seconds: i64) {
        self.0.set.fetch_add(by_seconds.saturating_mul(1_000), Ordering::SeqCst);
    }

    /// Makes the wall clock faster than the monotonic one by this many millionths, or slower if negative, from the clock's beginning.
    pub fn drift(&self, millionths: i64) {
        self.0.drift.store(millionths, Ordering::SeqCst);
    }
}

/// Moves a driven clock.
#[derive(Clone, Debug)]
pub struct ClockDriver(Arc<AtomicU64>);

impl ClockDriver {
    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let nanoseconds = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanoseconds, Ordering::SeqCst);
    }
}

impl Clock {
    /// The host's clocks.
    #[must_use]
    pub fn host() -> Self {
        Self(Source::Host { origin: Instant::now() })
    }

    /// A clock whose wall time starts at `wall` and moves with tokio's clock alone.
    #[must_use]
    pub fn simulated(wall: Duration) -> Self {
        Self(Source::Simulated { origin: Instant::now(), wall })
    }

    /// A clock, at wall time 0, that only its driver moves. For decisions over hours together with real sockets, whose runtime cannot be
    /// paused.
    #[must_use]
    pub fn driven() -> (Self, ClockDriver) {
        let time = Arc::new(AtomicU64::new(0));
        (Self(Source::Driven(Arc::clone(&time))), ClockDriver(time))
    }

    /// A simulated clock that jumps on demand, for tests with clocks that are set and machines that sleep.
    #[must_use]
    pub fn jumping(wall: Duration) -> (Self, Jumps) {
        let jumps = Jumps::default();
        (Self(Source::Jumping { origin: Instant::now(), wall, jumps: jumps.clone() }), jumps)
    }

    /// [`Now::monotonic`] alone, at half the cost.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::Host { origin } | Source::Simulated { origin, .. } => origin.elapsed(),
            Source::Jumping { origin, jumps, .. } => origin.elapsed() + Duration::from_nanos(jumps.0.skipped.load(Ordering::SeqCst)),
            Source::Driven(_) => self.now().monotonic,
        }
    }

    /// Reads the clock.
    #[must_use]
    pub fn now(&self) -> Now {
        match &self.0 {
            Source::Host { origin } => {
                Now { monotonic: origin.elapsed(), wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
            }
            Source::Simulated { origin, wall } => {
                let monotonic = origin.elapsed();
                Now { monotonic, wall: *wall + monotonic }
            }
            Source::Jumping { origin, wall, jumps } => {
                let monotonic = origin.elapsed() + Duration::from_nanos(jumps.0.skipped.load(Ordering::SeqCst));
                let set = jumps.0.set.load(Ordering::SeqCst).saturating_mul(1_000);
                let off = match jumps.0.drift.load(Ordering::SeqCst) {
                    0 => set,
                    millionths => {
                        let drifted = monotonic.as_micros().cast_signed() * i128::from(millionths) / 1_000_000;
                        set.saturating_add(i64::try_from(drifted).unwrap_or_default())
                    }
                };
                let (wall, by) = (*wall + monotonic, Duration::from_micros(off.unsigned_abs()));
                Now { monotonic, wall: if off < 0 { wall.saturating_sub(by) } else { wall + by } }
            }
            Source::Driven(time) => {
                let monotonic = Duration::from_nanos(time.load(Ordering::SeqCst));
                Now { monotonic, wall: monotonic }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_with_the_runtime_alone() {
        let clock = Clock::simulated(Duration::from_secs(1_000));
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(90)).await;
        let after = clock.now();
        assert_eq!(after.monotonic - before.monotonic, Duration::from_secs(90));
        assert_eq!(after.wall, before.wall + Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn a_jumping_clock_is_set_back_and_skips_time_that_no_timer_saw() {
        let (clock, jumps) = Clock::jumping(Duration::from_secs(1_000));
        tokio::time::advance(Duration::from_secs(10)).await;
        jumps.set_wall(-300);
        assert_eq!(clock.now(), Now { monotonic: Duration::from_secs(10), wall: Duration::from_secs(710) });
        jumps.skip(Duration::from_secs(300));
        assert_eq!(clock.now(), Now { monotonic: Duration::from_secs(310), wall: Duration::from_secs(1_010) });
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_of_a_drifting_clock_drifts_and_can_be_set_too() {
        for (millionths, wall_ms) in [(200, 1_100_020), (-200, 1_099_980)] {
            let (clock, jumps) = Clock::jumping(Duration::from_secs(1_000));
            jumps.drift(millionths);
            tokio::time::advance(Duration::from_secs(100)).await;
            assert_eq!(clock.now().wall_ms(), wall_ms);
            jumps.set_wall(-50);
            assert_eq!(clock.now().wall_ms(), wall_ms - 50_000);
            assert_eq!(clock.now().monotonic, Duration::from_secs(100));
        }
    }

    #[test]
    fn a_driven_clock_moves_only_by_its_driver() {
        let (clock, driver) = Clock::driven();
        let other = clock.clone();
        assert_eq!(clock.now(), Now::default());
        driver.advance(Duration::from_millis(1_500));
        assert_eq!(other.now(), Now::default().after(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_common_moment_is_at_most_a_tenth_of_a_second_earlier() {
        let millis = Duration::from_millis;
        for (at, common) in [(0, 0), (99, 0), (100, 100), (10_023, 10_000), (10_199, 10_100)] {
            assert_eq!(common_moment(millis(at)), millis(common), "{at}");
        }
        assert_eq!(common_moment(Duration::from_micros(100_999)), millis(100));
    }

    #[test]
    fn a_long_wait_ends_at_a_common_moment_and_a_short_one_to_the_millisecond() {
        let millis = Duration::from_millis;
        for (wait, end) in [(0, 10_023), (1_999, 12_022), (2_000, 12_000), (5_050, 15_000)] {
            assert_eq!(end_of_wait(millis(10_023), millis(wait)), millis(end), "{wait}");
        }
    }

    #[test]
    fn the_host_clock_is_past_2020() {
        assert!(Clock::host().now().wall_ms() > 1_577_836_800_000);
    }
}
