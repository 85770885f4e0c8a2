//! Tests that need a real program: if it is missing they fail, or report on stderr that they did not run.

use std::io::Write;

/// Set to `1` to skip tests whose program is missing. Each of them reports it on stderr.
pub const SKIP_MISSING: &str = "FLEETPULL_SKIP_MISSING";

/// Set to `1` where tests must not start servers, even if the programs are installed.
pub const NO_SERVERS: &str = "FLEETPULL_NO_SERVERS";

/// The part that the running test needs; none if the test must be skipped, which this function has reported on stderr.
///
/// # Panics
/// When the part is missing and [`SKIP_MISSING`] is not set.
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
    // `write_all` on stderr bypasses the capture of test output, so the line is visible although the test passes.
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
    None
}
