//! What the registry was asked for, and how it answered.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Requests kept in the log; older ones are only counted.
const LOG_MAX: usize = 10_000;

/// How often the registry was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests, those to the token server included.
    pub requests: u64,
    /// Requests that failed: answered with 400 or above, closed without an answer, or left hanging. A 401 that only asked for a
    /// login is none of them.
    pub failing: u64,
    /// 401 answers to requests that brought no login.
    pub challenges: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Most bodies of blobs that were under way at the same time.
    pub peak_blobs_in_flight: u64,
}

/// One request as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest {
    /// When it came: how old the registry was.
    pub at: Duration,
    /// `GET`, `HEAD`, ...
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// The query; empty if there is none.
    pub query: String,
    /// The scheme of the `Authorization` header (`Basic`, `Bearer`), never more of it.
    pub authorization: Option<String>,
    /// Other headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The answer's status; none while there is none.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) counts: Counts,
    /// Answers that began to send a blob, by digest.
    pub(crate) blobs: BTreeMap<String, u64>,
    /// Bytes of blobs that were handed to connections, by digest.
    pub(crate) blob_bytes: BTreeMap<String, u64>,
    pub(crate) in_flight: u64,
    log: VecDeque<LoggedRequest>,
    dropped: u64,
}

impl Counters {
    /// Takes a request down; the number is for [`Counters::answered`].
    pub(crate) fn asked(&mut self, request: LoggedRequest) -> u64 {
        self.counts.requests += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
            self.dropped += 1;
        }
        self.log.push_back(request);
        self.dropped + self.log.len() as u64 - 1
    }

    /// The request got an answer; none stands for a hang or a closed connection.
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

    /// Starts to count from nought; bodies under way stay counted as under way.
    pub(crate) fn reset(&mut self) {
        *self = Self { in_flight: self.in_flight, ..Self::default() };
    }
}
