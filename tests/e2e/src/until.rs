//! Waiting for a condition.

use std::time::Duration;

/// Longer than anything takes that a test waits for, on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `look` gives something, and gives it.
///
/// # Panics
/// When it gives nothing for a minute; `what` says what was waited for.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LIMIT.as_millis() / LOOK_EVERY.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        #[expect(clippy::disallowed_methods, reason = "between two looks, on a thread of the test alone")]
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("{what}: not within {LIMIT:?}");
}
