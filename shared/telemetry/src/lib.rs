//! Logging, and the export of traces; set up once per process.
//!
//! - [`log_through`] and [`log_and_export`] set the process's log up, the latter together with the export of spans.
//! - [`traces`] reads the standard variables (`OTEL_*`) and exports over OTLP.
//! - [`end`] hands over what waits to be exported.
//!
//! Diagnostics go to stderr, so that stdout holds facts alone. What goes wrong with writing a line is ignored: a log that is
//! full must not stop a pull.

mod log;
pub mod traces;

use std::sync::OnceLock;
use std::time::Duration;

pub use log::{log_and_export, log_through, log_to_stderr};
use traces::Exporting;

/// The export of this process; none: there is none.
static EXPORTING: OnceLock<Exporting> = OnceLock::new();

/// How the export of this process stands; none: nothing is exported.
#[must_use]
pub fn exporting() -> Option<&'static Exporting> {
    EXPORTING.get()
}

/// Waits until what waits to be exported is handed over, at most for `limit`. Blocks: to be called when nothing else is to be done.
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
