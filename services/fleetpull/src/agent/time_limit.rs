//! A time limit for the end of the process.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tracing::warn;

/// A time limit that runs on a thread of its own. Dropping it in time ends it.
pub(super) struct TimeLimit {
    _open: mpsc::Sender<()>,
}

impl TimeLimit {
    /// Calls `late` after `limit`, unless the returned value is dropped before.
    pub(super) fn start(limit: Duration, late: impl FnOnce() + Send + 'static) -> Self {
        let (open, dropped) = mpsc::channel();
        let wait = move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                late();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("time-limit".to_owned()).spawn(wait) {
            warn!(%error, "a time limit needs a thread, and none can be started: the end of this process may take longer");
        }
        Self { _open: open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_that_is_not_dropped_in_time_is_reported() {
        let (late, reports) = mpsc::channel();
        let report = |text: &'static str| {
            let late = late.clone();
            move || {
                let _ = late.send(text);
            }
        };
        let within = Duration::from_secs(60);
        let limit = TimeLimit::start(Duration::from_millis(1), report("late"));
        assert_eq!(reports.recv_timeout(within), Ok("late"));
        drop(limit);
        drop(TimeLimit::start(Duration::from_secs(3_600), report("in time")));
        drop(late);
        // The threads have ended.
        assert_eq!(reports.recv_timeout(within), Err(RecvTimeoutError::Disconnected));
    }
}
