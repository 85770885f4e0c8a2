//! Faults that tests inject, by path.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capacity::Capacity;
use crate::quota::Quota;

/// The effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// This answer instead of the correct one.
    Answer {
        /// Status.
        status: u16,
        /// Headers by name; `{host}` in a value is replaced with the registry's own `host:port`.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// A redirect (307) to the same path at another host.
    Redirect {
        /// `http://host:port`.
        to: String,
    },
    /// The correct answer with this header replaced.
    Header {
        /// Name.
        name: String,
        /// Value.
        value: String,
    },
    /// The correct answer with these headers replaced, by name and value.
    Headers(Vec<(String, String)>),
    /// The correct answer while the quota lasts.
    Quota(Quota),
    /// This answer for requests of manifests beyond the capacity, else the correct one.
    Beyond {
        /// The capacity.
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
    /// The range is ignored: the whole body is sent with status 200.
    IgnoreRange,
    /// A fault of the body.
    Body(BodyFault),
}

/// A fault of a body. Offsets count the bytes of that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The connection is closed after this many bytes, with the correct length announced.
    CutAfter(u64),
    /// The body is this many bytes too short, with the short length announced.
    ShortBy(u64),
    /// The body ends after this many bytes, and no length is announced.
    EndAfter(u64),
    /// The body stalls after this many bytes; the connection stays open.
    StallAfter(u64),
    /// The byte at this offset is wrong.
    CorruptAt(u64),
    /// The body is sent at this many bytes per second.
    BytesPerSecond(u64),
    /// Zeros follow the correct body without end, and no length is announced.
    Endless,
}

/// A fault: which requests it affects, how often, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Affects requests whose path contains this text.
    on: String,
    /// Affects only requests of the trace with this id; none: of all traces.
    trace_id: Option<String>,
    /// How many of them are unaffected first.
    skip: u64,
    /// How many are affected after that.
    times: u64,
    action: FaultAction,
}

impl Fault {
    /// A fault with this effect on every request whose path contains `on`.
    #[must_use]
    pub fn new(on: &str, action: FaultAction) -> Self {
        Self { on: on.to_owned(), trace_id: None, skip: 0, times: u64::MAX, action }
    }

    /// A fault with this answer to every request whose path contains `on`.
    #[must_use]
    pub fn answer(on: &str, status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::new(on, FaultAction::Answer { status, headers, body: body.to_owned() })
    }

    /// A fault of every body whose path contains `on`.
    #[must_use]
    pub fn body(on: &str, fault: BodyFault) -> Self {
        Self::new(on, FaultAction::Body(fault))
    }

    /// The fault for `times` requests only.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The fault after `skip` unaffected requests.
    #[must_use]
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// The fault for requests of this trace alone, for example of one caller.
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

/// The active faults. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    /// Adds a fault after the existing ones; the first matching one applies.
    pub fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Removes all faults. Hanging requests go on hanging.
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
    fn fault_affects_its_number_of_requests() {
        let faults = Faults::default();
        faults.add(Fault::new("/blobs/", FaultAction::Close).after(1).times(2));
        faults.add(Fault::new("/", FaultAction::Hang).after(5).times(1));
        let met: Vec<_> = (0..6).map(|_| faults.met_by("/v2/a/blobs/x", "")).collect();
        assert_eq!(met, [None, Some(FaultAction::Close), Some(FaultAction::Close), None, None, None]);
        assert_eq!(faults.met_by("/v2/", ""), None);
        assert_eq!(faults.met_by("/v2/", ""), Some(FaultAction::Hang));
    }

    #[test]
    fn fault_of_one_trace_affects_no_other_trace() {
        let faults = Faults::default();
        faults.add(Fault::new("/", FaultAction::Close).of_trace("abc"));
        let met = ["00-abc-01-01", "00-abd-01-01", ""].map(|traceparent| faults.met_by("/v2/", traceparent).is_some());
        assert_eq!(met, [true, false, false]);
    }
}
