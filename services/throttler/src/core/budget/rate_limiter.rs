//! Spreads grants over time.

use std::time::Duration;

/// The share of the rate that is used, because pulls that begin later than their grants must not exceed the budget in any second. A called
/// permit is fetched within 40 ms, its answer is at most 40 ms later than others, and a grant 30 ms: see the tests.
const SHARE_USED: f64 = 0.9;
/// How late a grant may be without delaying the next one, because timers have whole milliseconds. It is less than what [`SHARE_USED`]
/// leaves free, so no sliding second holds more grants than the rate.
const CATCH_UP: Duration = Duration::from_millis(30);

/// Allows at most `per_second` grants in any sliding second, one at a time: each is due one spacing of the rate in force after the last
/// one.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    /// The time between two grants; zero for no limit.
    spacing: Duration,
    /// When the last grant was due; none if there was none under a limit.
    last: Option<Duration>,
    /// When the last grant was taken, and `last` before that; none once it was given back.
    taken: Option<(Duration, Option<Duration>)>,
}

impl RateLimiter {
    /// `per_second`: 0 for no limit.
    pub(super) fn new(per_second: f64) -> Self {
        let mut rate_limiter = Self { spacing: Duration::ZERO, last: None, taken: None };
        rate_limiter.set(per_second);
        rate_limiter
    }

    /// Changes the rate, as if it had been this one since the last grant.
    pub(super) fn set(&mut self, per_second: f64) {
        let used = (per_second * SHARE_USED).clamp(0.001, 1_000_000.0);
        self.spacing = if per_second > 0.0 { Duration::from_secs_f64(1.0 / used) } else { Duration::ZERO };
    }

    /// Takes the next grant, if it is due.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        if self.spacing.is_zero() {
            return true;
        }
        let due = self.due();
        if now < due {
            return false;
        }
        self.taken = Some((now, self.last));
        self.last = Some(due.max(now.saturating_sub(CATCH_UP)));
        true
    }

    /// Gives back the grant that was taken at `taken`, because no pull began with it. No effect if another one was taken since: the time
    /// after it is used by then.
    pub(super) fn give_back(&mut self, taken: Duration) {
        if let Some((_, before)) = self.taken.take_if(|(at, _)| *at == taken) {
            self.last = before;
        }
    }

    /// How long until a grant is due after `before` others.
    pub(super) fn ready_in(&self, now: Duration, before: u64) -> Duration {
        let count = u32::try_from(before).unwrap_or(u32::MAX);
        self.due().saturating_sub(now).saturating_add(self.spacing.saturating_mul(count))
    }

    /// When the next grant is due.
    fn due(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last + self.spacing)
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    const SECOND: Duration = Duration::from_millis(1_080);

    /// The most grants in any 1.08 s, because some pulls begin that much later than others, and the number of all grants, if `take` is
    /// tried every `step` for 10 s after a rest.
    fn tried(per_second: f64, step: Duration) -> (usize, usize) {
        let mut rate_limiter = RateLimiter::new(per_second);
        let mut grants = Vec::new();
        let (mut now, end) = (Duration::from_secs(100), Duration::from_secs(110));
        while now < end {
            while rate_limiter.take(now) {
                grants.push(now);
            }
            now += step;
        }
        let most = grants.iter().map(|from| grants.iter().filter(|at| *at >= from && **at < *from + SECOND).count()).max();
        (most.unwrap_or(0), grants.len())
    }

    #[test]
    fn any_second_has_at_most_the_rate_and_most_of_it_is_used() {
        for rate in [1_u32, 2, 3, 7, 20, 200, 999] {
            for step in [Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(13)] {
                let (most, all) = tried(f64::from(rate), step);
                assert!(most <= rate as usize, "{most} in a second at {rate} a second, tried every {step:?}");
                assert!(all as f64 >= f64::from(rate) * 10.0 * 0.85 - 1.0, "{all} in ten seconds at {rate} a second, tried every {step:?}");
            }
        }
    }

    #[test]
    fn rate_can_be_changed_since_the_last_grant() {
        let (mut rate_limiter, now, spacing) = (RateLimiter::new(50.0), Duration::from_secs(5), Duration::from_secs(1).div_f64(SHARE_USED));
        assert!(rate_limiter.take(now));
        for (per_second, wait) in [(1.0, spacing), (0.5, spacing * 2), (10.0, spacing / 10)] {
            rate_limiter.set(per_second);
            let ready_in = rate_limiter.ready_in(now, 0);
            assert!(ready_in <= wait && wait <= ready_in + CATCH_UP, "{per_second} a second: {ready_in:?}");
        }
    }

    #[test]
    fn last_grant_can_be_given_back_once_and_no_earlier_one() {
        let (mut rate_limiter, first) = (RateLimiter::new(10.0), Duration::from_secs(5));
        assert!(rate_limiter.take(first));
        let second = first + rate_limiter.ready_in(first, 0);
        assert!(rate_limiter.take(second));
        for (given_back, is_ready) in [(first, false), (second, true)] {
            rate_limiter.give_back(given_back);
            assert_eq!(rate_limiter.ready_in(second, 0).is_zero(), is_ready);
        }
        let third = second + Duration::from_millis(40);
        assert!(rate_limiter.take(third), "it takes the place of the one that was given back");
        rate_limiter.give_back(second);
        assert!(!rate_limiter.take(third + CATCH_UP));
    }

    #[test]
    fn any_second_has_at_most_the_rate_although_grants_are_given_back() {
        let (mut rate_limiter, mut random) = (RateLimiter::new(20.0), Random::seeded(1));
        let (mut begun, mut now): (Vec<Duration>, _) = (Vec::new(), Duration::from_secs(100));
        let mut called: Vec<Duration> = Vec::new();
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            if rate_limiter.take(now) {
                called.push(now);
            }
            // One in three is not fetched, which is noticed after up to 300 ms.
            if let Some(place) = called.iter().position(|at| now >= *at + Duration::from_millis((random.fraction() * 300.0) as u64)) {
                let at = called.remove(place);
                if random.fraction() < 0.3 { rate_limiter.give_back(at) } else { begun.push(at) }
            }
        }
        let most = begun.iter().map(|from| begun.iter().filter(|at| *at >= from && **at < *from + SECOND).count()).max();
        assert!(most.is_some_and(|most| (10..=20).contains(&most)), "{most:?}");
    }

    #[test]
    fn unlimited_rate_never_waits() {
        let mut rate_limiter = RateLimiter::new(0.0);
        assert!((0..1_000).all(|_| rate_limiter.take(Duration::ZERO)));
        assert_eq!(rate_limiter.ready_in(Duration::ZERO, 50), Duration::ZERO);
    }

    #[test]
    fn grant_is_possible_exactly_after_the_stated_wait() {
        let mut rate_limiter = RateLimiter::new(10.0);
        let now = Duration::from_secs(5);
        assert!(rate_limiter.take(now));
        let mut waits = (0..5).map(|before| rate_limiter.ready_in(now, before)).collect::<Vec<_>>();
        waits.dedup();
        assert_eq!(waits.len(), 5);
        for wait in waits {
            assert!(!rate_limiter.take(now + wait - Duration::from_nanos(1)));
            assert!(rate_limiter.take(now + wait));
        }
    }
}
