//! Waits for a condition.

use std::time::{Duration, Instant};

/// A limit that no wait of a test reaches on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);
/// The shortest and the longest pause between two calls of `look`.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// A pause is this part of the wait until then: a look costs the agents processor time, which others wait for too.
const PART: u32 = 20;

/// Waits until `look` returns a value, and returns it.
///
/// # Panics
/// If there is no value within 1 min; `what` names the condition.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(what, LIMIT, look)
}

/// Waits until `look` returns a value, and returns it.
///
/// # Panics
/// If there is no value within the limit; `what` names the condition.
pub fn until_within<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    wait(|| what.to_owned(), limit, look)
}

/// Waits until `look` returns a value, and returns it; `explain` describes the state at the end of a failed wait.
///
/// # Panics
/// If there is no value within 1 min.
pub fn until_or<T>(explain: impl FnOnce() -> String, look: impl FnMut() -> Option<T>) -> T {
    wait(explain, LIMIT, look)
}

fn wait<T>(explain: impl FnOnce() -> String, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    found_within(limit, look).unwrap_or_else(|| panic!("{}: not within {limit:?}", explain()))
}

/// Waits until `look` returns a value, and returns it; none if there is no value within the limit.
pub fn found_within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let watch = Watch::start();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if watch.elapsed() >= limit {
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "between two looks, on a thread of the test alone")]
        std::thread::sleep((watch.elapsed() / PART).clamp(PAUSES[0], PAUSES[1]));
    }
}

/// Measures elapsed time.
#[derive(Clone, Copy, Debug)]
pub struct Watch(Instant);

impl Watch {
    /// Starts the measurement.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a test with real processes has real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until this much time has passed since the start.
    pub fn until(self, age: Duration) {
        until_within("time passes", age + LIMIT, || (self.elapsed() >= age).then_some(()));
    }
}
