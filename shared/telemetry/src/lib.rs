//! Logging and the export of traces, set up once per process.
//!
//! - [`log_through`] and [`log_and_export`] set up the process's log, the latter with the export of spans.
//! - [`traces`] reads the standard variables (`OTEL_*`) and exports over OTLP.
//! - [`end`] exports the waiting spans.
//!
//! The log goes to stderr, so that stdout has results alone. A failed write of a line is ignored: a full disk must not stop a pull.

mod log;
pub mod traces;

use std::sync::OnceLock;
use std::time::Duration;

pub use log::{log_and_export, log_through, log_to_stderr};
use traces::Exporting;

/// The export of this process, if there is one.
static EXPORTING: OnceLock<Exporting> = OnceLock::new();

/// The counters of this process's export; none: nothing is exported.
#[must_use]
pub fn exporting() -> Option<&'static Exporting> {
    EXPORTING.get()
}

/// Waits until the waiting spans are exported, at most for `limit`. Blocks, so call it at the end of the process.
pub fn end(limit: Duration) {
    let Some(exporting) = EXPORTING.get() else { return };
    if !exporting.flush(limit) {
        tracing::warn!(
            waiting = exporting.counts().waiting,
            ?limit,
            "the last spans were not exported in time: the collector did not take them"
        );
    }
}
