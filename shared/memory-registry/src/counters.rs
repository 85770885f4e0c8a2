//! Counts and logs requests.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The most requests in the log; older ones are only counted.
const LOG_MAX: usize = 10_000;

/// Counters of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests, including those to the token server.
    pub requests: u64,
    /// Failed requests: answered with 400 or above, closed without an answer, or left hanging. A 401 that is only a challenge does not
    /// count.
    pub failing: u64,
    /// 401 answers to requests without a login.
    pub challenges: u64,
    /// Connections accepted.
    pub connections: u64,
    /// The most bodies of blobs in flight at the same time.
    pub peak_blobs_in_flight: u64,
}

/// A logged request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest {
    /// When it came, as the registry's age.
    pub at: Duration,
    /// `GET`, `HEAD`, ...
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// The query; empty if there is none.
    pub query: String,
    /// The scheme of the `Authorization` header (`Basic`, `Bearer`), without the secret.
    pub authorization: Option<String>,
    /// Other headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The answer's status; none if there is no answer.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) counts: Counts,
    /// The number of answers that began to send a blob, by digest.
    pub(crate) blobs: BTreeMap<String, u64>,
    /// The bytes of blobs that were sent, by digest.
    pub(crate) blob_bytes: BTreeMap<String, u64>,
    pub(crate) in_flight: u64,
    log: VecDeque<LoggedRequest>,
    dropped: u64,
}

impl Counters {
    /// Logs a request; returns its number for [`Counters::answered`].
    pub(crate) fn asked(&mut self, request: LoggedRequest) -> u64 {
        self.counts.requests += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
            self.dropped += 1;
        }
        self.log.push_back(request);
        self.dropped + self.log.len() as u64 - 1
    }

    /// Logs the answer's status; none means a hang or a closed connection.
    pub(crate) fn answered(&mut self, number: u64, status: Option<u16>) {
        let Some(request) = number.checked_sub(self.dropped).and_then(|index| self.log.get_mut(index as usize)) else { return };
        request.status = status;
        match status {
            Some(401) if request.authorization.is_none() && !request.path.ends_with("/token") => self.counts.challenges += 1,
            Some(status) if status < 400 => {}
            _ => self.counts.failing += 1,
        }
    }

    pub(crate) fn blob_started(&mut self, digest: &str) {
        *self.blobs.entry(digest.to_owned()).or_default() += 1;
        self.in_flight += 1;
        self.counts.peak_blobs_in_flight = self.counts.peak_blobs_in_flight.max(self.in_flight);
    }

    pub(crate) fn log(&self) -> Vec<LoggedRequest> {
        self.log.iter().cloned().collect()
    }

    /// Resets the counters; bodies in flight stay counted as in flight.
    pub(crate) fn reset(&mut self) {
        *self = Self { in_flight: self.in_flight, ..Self::default() };
    }
}
