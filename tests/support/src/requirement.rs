//! Tests that need a real part: where it is missing they fail, or say aloud that they did not run.

use std::io::Write;

/// Set to `1` where parts may be missing: such tests are skipped aloud then.
pub const SKIP_MISSING: &str = "FLEETPULL_SKIP_MISSING";

/// Set to `1` where tests must start no server, also one that could be had.
pub const NO_SERVERS: &str = "FLEETPULL_NO_SERVERS";

/// The part that the running test needs; none if the test is to end here, which has been said on stderr.
///
/// # Panics
/// When the part is missing and nobody allowed that.
pub fn met<T>(part: Result<T, String>) -> Option<T> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| value == "1");
    let why = match part {
        Ok(_) if is_set(NO_SERVERS) => format!("{NO_SERVERS}=1"),
        Ok(part) => return Some(part),
        Err(why) => why,
    };
    assert!(is_set(SKIP_MISSING), "{why}");
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Written past the capture of test output, so that it is seen of a test that "passes".
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
    None
}
