//! A registry's capacity: a number of manifests per second, and a share of random failures.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clock::Random;

/// How many `GET`s of manifests are answered; further ones get the fault's answer. Clones share it.
#[derive(Clone)]
pub struct Capacity(Arc<State>);

struct State {
    /// The answers in each second of the registry's age; none: no limit.
    per_second: Option<u32>,
    /// The percentage of requests within the limit that fail.
    fail_percent: u8,
    now: Mutex<Now>,
}

struct Now {
    second: u64,
    answered: u32,
    random: Random,
}

impl Capacity {
    /// A capacity of `per_second` manifests per second.
    #[must_use]
    pub fn per_second(answers: u32) -> Self {
        Self::new(Some(answers), 0, 0)
    }

    /// A capacity of which `percent` fail at random, by this seed.
    #[must_use]
    pub fn by_chance(fail_percent: u8, seed: u64) -> Self {
        Self::new(None, fail_percent, seed)
    }

    fn new(per_second: Option<u32>, fail_percent: u8, seed: u64) -> Self {
        let now = Now { second: 0, answered: 0, random: Random::seeded(seed) };
        Self(Arc::new(State { per_second, fail_percent, now: Mutex::new(now) }))
    }

    /// Counts a request at this age of the registry; returns whether it is answered.
    pub(crate) fn takes(&self, age: Duration) -> bool {
        let State { per_second, fail_percent, now } = &*self.0;
        let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.second != age.as_secs() {
            (now.second, now.answered) = (age.as_secs(), 0);
        }
        if per_second.is_some_and(|most| now.answered >= most) {
            return false;
        }
        now.answered += 1;
        now.random.fraction() * 100.0 >= f64::from(*fail_percent)
    }
}

impl PartialEq for Capacity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Capacity {}

impl fmt::Debug for Capacity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Capacity").field("per_second", &self.0.per_second).field("fail_percent", &self.0.fail_percent).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_limits_each_second_and_fails_its_share() {
        let capacity = Capacity::per_second(2);
        let taken = [100, 200, 999, 1_000, 1_001, 1_002].map(|at| capacity.takes(Duration::from_millis(at)));
        assert_eq!(taken, [true, true, false, true, true, false]);
        let capacity = Capacity::by_chance(80, 1);
        let taken = (0..1_000).filter(|_| capacity.takes(Duration::ZERO)).count();
        assert!((150..250).contains(&taken), "{taken}");
    }
}
