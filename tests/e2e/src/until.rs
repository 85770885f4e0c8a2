//! Waiting for a condition.

use std::time::{Duration, Instant};

/// Longer than anything takes that a test waits for, on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `look` gives something, and gives it.
///
/// # Panics
/// When it gives nothing for a minute; `what` says what was waited for.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(what, LIMIT, look)
}

/// Waits until `look` gives something, and gives it.
///
/// # Panics
/// When it gives nothing within the limit; `what` says what was waited for.
pub fn until_within<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    wait(|| what.to_owned(), limit, look)
}

/// Waits until `look` gives something, and gives it; `explain` says at the end of the wait what there was instead.
///
/// # Panics
/// When it gives nothing for a minute.
pub(crate) fn until_or<T>(explain: impl FnOnce() -> String, look: impl FnMut() -> Option<T>) -> T {
    wait(explain, LIMIT, look)
}

fn wait<T>(explain: impl FnOnce() -> String, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    found_within(limit, look).unwrap_or_else(|| panic!("{}: not within {limit:?}", explain()))
}

/// Waits until `look` gives something, and gives it; none if it gives nothing within the limit.
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
        std::thread::sleep(LOOK_EVERY);
    }
}

/// How long something lasts.
#[derive(Clone, Copy, Debug)]
pub struct Watch(Instant);

impl Watch {
    /// Starts it.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a test beside real processes has real time")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Since then.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until so much time has passed since then.
    pub fn until(self, age: Duration) {
        until_within("time passes", age + LIMIT, || (self.elapsed() >= age).then_some(()));
    }
}
