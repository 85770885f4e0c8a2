//! Faults that are switched on by path.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capacity::Capacity;
use crate::quota::Quota;

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// This answer instead of the true one.
    Answer {
        /// Status.
        status: u16,
        /// Headers by name; `{host}` in a value stands for the registry's own `host:port`.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// The same path at another host, by 307.
    Redirect {
        /// `http://host:port`.
        to: String,
    },
    /// The true answer with this header set over it.
    Header {
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// The true answer with these headers set over it, by name and value.
    Headers(Vec<(String, String)>),
    /// The true answer, as long as there is quota left for it.
    Quota(Quota),
    /// This answer instead of the true one for a manifest beyond what the registry can do; the true one as long as it can.
    Beyond {
        /// What it can do.
        capacity: Capacity,
        /// Status.
        status: u16,
        /// Headers by name.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// No answer, ever; the connection stays open.
    Hang,
    /// The connection is closed without an answer.
    Close,
    /// A range is ignored: the whole body comes with status 200.
    IgnoreRange,
    /// Something is wrong with the body.
    Body(BodyFault),
}

/// What goes wrong with a body. Offsets count the bytes sent in that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The connection is closed after so many bytes, with the true length announced.
    CutAfter(u64),
    /// The body ends properly, so many bytes too early, with that length announced.
    ShortBy(u64),
    /// After so many bytes nothing more comes; the connection stays open.
    StallAfter(u64),
    /// The byte at this offset is another.
    CorruptAt(u64),
    /// No faster than so many bytes a second.
    BytesPerSecond(u64),
    /// Zeros after the true body, without end and without a length.
    Endless,
}

/// A rule: which requests, how often, and what goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Requests whose path holds this text.
    on: String,
    /// Requests of this trace alone, by its id; none: of all.
    trace_id: Option<String>,
    /// How many of them are let through first.
    skip: u64,
    /// How many are hit after that.
    times: u64,
    action: FaultAction,
}

impl Fault {
    /// Every request whose path holds `on` meets `action`.
    #[must_use]
    pub fn new(on: &str, action: FaultAction) -> Self {
        Self { on: on.to_owned(), trace_id: None, skip: 0, times: u64::MAX, action }
    }

    /// Every request whose path holds `on` gets this answer.
    #[must_use]
    pub fn answer(on: &str, status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::new(on, FaultAction::Answer { status, headers, body: body.to_owned() })
    }

    /// Every body whose path holds `on` is spoilt.
    #[must_use]
    pub fn body(on: &str, fault: BodyFault) -> Self {
        Self::new(on, FaultAction::Body(fault))
    }

    /// The same, for so many requests only.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The same, after so many requests were let through.
    #[must_use]
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// The same, for requests of this trace alone: of one caller among many.
    #[must_use]
    pub fn of_trace(self, trace_id: impl Into<String>) -> Self {
        Self { trace_id: Some(trace_id.into()), ..self }
    }

    fn hits(&mut self, path: &str, traceparent: &str) -> bool {
        let of_trace = self.trace_id.as_ref().is_none_or(|trace_id| traceparent.contains(trace_id));
        if self.times == 0 || !of_trace || !path.contains(&self.on) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times = self.times.saturating_sub(u64::from(self.times != u64::MAX));
        true
    }
}

/// The switch board. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    /// Switches a fault on, after those that are there: the first that fits is met.
    pub fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Switches all faults off. Requests that hang already go on hanging.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn met_by(&self, path: &str, traceparent: &str) -> Option<FaultAction> {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.iter_mut().find_map(|fault| fault.hits(path, traceparent).then(|| fault.action.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_as_often_as_it_says() {
        let faults = Faults::default();
        faults.add(Fault::new("/blobs/", FaultAction::Close).after(1).times(2));
        faults.add(Fault::new("/", FaultAction::Hang).after(5).times(1));
        let met: Vec<_> = (0..6).map(|_| faults.met_by("/v2/a/blobs/x", "")).collect();
        assert_eq!(met, [None, Some(FaultAction::Close), Some(FaultAction::Close), None, None, None]);
        assert_eq!(faults.met_by("/v2/", ""), None);
        assert_eq!(faults.met_by("/v2/", ""), Some(FaultAction::Hang));
    }

    #[test]
    fn a_fault_of_one_trace_hits_nobody_else() {
        let faults = Faults::default();
        faults.add(Fault::new("/", FaultAction::Close).of_trace("abc"));
        let met = ["00-abc-01-01", "00-abd-01-01", ""].map(|traceparent| faults.met_by("/v2/", traceparent).is_some());
        assert_eq!(met, [true, false, false]);
    }
}
