//! The counters of an endpoint.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The longest error that is kept, in characters; it is for people.
const LAST_ERROR_CHARS: usize = 256;

/// Counts requests, errors and processing time.
#[derive(Debug, Default)]
pub struct EndpointCounters(Mutex<Counted>);

/// The counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) last_error: String,
    pub(super) processing: Duration,
}

impl EndpointCounters {
    /// Records a request that was answered, or received if no answer is wanted, with its processing time and its error if there was one.
    pub fn record(&self, processing: Duration, error: Option<&str>) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.requests += 1;
        counted.processing += processing;
        if let Some(error) = error {
            counted.errors += 1;
            counted.last_error = error.chars().take(LAST_ERROR_CHARS).collect();
        }
    }

    pub(super) fn read(&self) -> Counted {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
