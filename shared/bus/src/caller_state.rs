//! Whether the sender of a request still waits for its reply.

/// Header of a request whose sender answers probes on its reply subject. Senders without it are not probed, because a plain NATS client
/// would take the probe for the reply.
pub(crate) const ANSWERS_PROBES_HEADER: &str = "fleetpull-answers-probes";

/// Header of a probe; it is no reply.
pub(crate) const PROBE_HEADER: &str = "fleetpull-probe";

/// Whether the sender of a request still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerState {
    /// It waits.
    Waiting,
    /// It has given up: the request was cancelled, or its connection to this process has ended.
    Abandoned,
    /// Nobody subscribes to its reply subject now: its connection has ended, or it is reconnecting.
    Absent,
    /// It did not answer the probe, the bus is slow or lost, or it cannot be probed. The request is kept.
    Unknown,
}
