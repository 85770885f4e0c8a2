//! Spans of pulls, as the shells of services and the runtimes make them.
//!
//! A [`Span`] is our own record, which a [`Sink`] gets when it ends; the crate `telemetry` is the sink if there is an exporter. Without one
//! [`Span::start`] costs a look at the subscriber, allocates nothing and returns [`Span::none`], on which every call does nothing. Most
//! spans are not exported, so a record is cheap, and only an exported one becomes OpenTelemetry's span.
//!
//! Ids are made where a message needs them ([`TraceContext`]), before the span exists.
//!
//! For code that runs within a span ([`Span::as_tracing`]) there is a `tracing` span too, of the target [`TARGET`]. Its OpenTelemetry
//! context has the ids, so that log lines carry them.

mod ended_span;
mod incoming_request;
mod sink;
mod span;
mod span_start;

pub use ended_span::{Content, Ended, Kind, Link, Parent};
pub use incoming_request::{Entered, Entry, enter};
pub use sink::{Sink, ToSink};
pub use span::{Span, enabled};

/// The target of every `tracing` span of ours.
pub const TARGET: &str = "spans";

/// The values of `fleetpull.link`: the role of the linked span.
pub mod links {
    /// The failed attempt because of which this request was refused or waited.
    pub const FAILED_ATTEMPT: &str = "failed_attempt";
    /// The successful attempt that ended this wait.
    pub const RELEASED_BY: &str = "released_by";
    /// The attempt of the flight that this request joined.
    pub const JOINED: &str = "joined";
    /// The caller's span, which was not sampled.
    pub const CALLER: &str = "caller";
    /// The span in which the published event was recorded.
    pub const RECORDED: &str = "recorded";
}

#[doc(no_inline)]
pub use contract::TraceContext;
#[doc(no_inline)]
pub use opentelemetry::KeyValue;
