//! Whether the sender of a request still waits for its reply.

/// Header of a request whose sender answers probes on its reply subject. Nobody else may be probed: a plain NATS client would take the
/// probe for the reply.
pub(crate) const ANSWERS_PROBES_HEADER: &str = "fleetpull-answers-probes";

/// Header of a probe; it is no reply.
pub(crate) const PROBE_HEADER: &str = "fleetpull-probe";

/// What is known of the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// It waits.
    Waits,
    /// It has given up: the request was cancelled, or its connection to this process has ended.
    Gone,
    /// Nobody subscribes to its reply subject now: its connection has ended, or it is just connecting again.
    Absent,
    /// It did not say, the bus is slow or lost, or it cannot be asked. That is no reason to give it up.
    Unknown,
}
