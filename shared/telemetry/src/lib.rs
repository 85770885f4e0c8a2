//! Logging, set up once per process.
//!
//! Diagnostics go to stderr, so that stdout holds facts alone. What goes wrong with writing a line is ignored: a log that is
//! full must not stop a pull.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What of other crates' lines is worth reading at our level: their warnings. The NATS client repeats each failed attempt twice a
/// second; our bus says it once.
const OTHERS: &str = "warn,async_nats=off,rustls_platform_verifier=off";
/// The crates whose lines are ours.
const OURS: [&str; 10] = [
    "fleetpull",
    "pull_coordinator",
    "backoff_tracker",
    "throttler",
    "event_recorder",
    "actors",
    "bus",
    "runtimes",
    "settings",
    "telemetry",
];

/// Sets the process's log up. `level` is one of `error warn info debug trace`; `json` gives one object a line.
/// Only the first call counts.
pub fn log_to_stderr(level: &str, json: bool) {
    log_through(level, json, std::io::stderr);
}

/// The same for a process that draws on its terminal: each line is given to `writer` in one piece.
pub fn log_through(level: &str, json: bool, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let ours: Vec<String> = OURS.iter().map(|name| format!("{name}={level}")).collect();
    let filter = EnvFilter::new(format!("{OTHERS},{}", ours.join(",")));
    let registry = tracing_subscriber::registry().with(filter);
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let outcome =
        if json { registry.with(layer.json().flatten_event(true)).try_init() } else { registry.with(layer.with_ansi(ansi)).try_init() };
    // Somebody, a test for instance, has set a log up already: theirs stays.
    drop(outcome);
}
