//! A quota of pulls per window, counted as by Docker Hub.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A quota of pulls. A `GET` of a manifest is a pull, a `HEAD` is none. Clones share it.
///
/// Answers state it as Docker Hub does: `ratelimit-limit: 100;w=21600`, `ratelimit-remaining: 76;w=21600`. Further pulls are answered with
/// 429. The window ends when [`Quota::renew`] is called, because the registry reads no clock.
#[derive(Clone)]
pub struct Quota(Arc<State>);

struct State {
    limit: u64,
    window_s: u64,
    used: Mutex<u64>,
}

impl Quota {
    /// A quota of `pulls` in a window of this many seconds.
    #[must_use]
    pub fn new(limit: u64, window_s: u64) -> Self {
        Self(Arc::new(State { limit, window_s, used: Mutex::new(0) }))
    }

    /// Begins a new window.
    pub fn renew(&self) {
        *self.used() = 0;
    }

    /// Counts a pull; returns whether it is within the quota.
    pub(crate) fn takes(&self) -> bool {
        let mut used = self.used();
        *used = used.saturating_add(1);
        *used <= self.0.limit
    }

    /// The headers that state it.
    pub(crate) fn headers(&self) -> [(&'static str, String); 2] {
        let (limit, window) = (self.0.limit, self.0.window_s);
        let left = limit.saturating_sub(*self.used());
        [("ratelimit-limit", format!("{limit};w={window}")), ("ratelimit-remaining", format!("{left};w={window}"))]
    }

    fn used(&self) -> MutexGuard<'_, u64> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Quota {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Quota {}

impl fmt::Debug for Quota {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Quota({} in {} s)", self.0.limit, self.0.window_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_allows_its_pulls_and_states_the_remaining_ones() {
        let quota = Quota::new(2, 60);
        assert_eq!([quota.takes(), quota.takes(), quota.takes()], [true, true, false]);
        assert_eq!(quota.headers().map(|(_, value)| value), ["2;w=60", "0;w=60"]);
        quota.clone().renew();
        assert!(quota.takes());
        assert_eq!(quota.headers()[1].1, "1;w=60");
    }
}
