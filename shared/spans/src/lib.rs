//! Spans of pulls, as the shells of services and the runtimes make them.
//!
//! A [`Span`] is a record of its own, which a [`Sink`] gets when it ends: the crate `telemetry` is that sink if an exporter is set.
//! Without one [`Span::start`] costs a look at the subscriber, allocates nothing and gives [`Span::none`], on which every call does
//! nothing. Most spans are not exported, so a record is cheap, and only one that is exported becomes OpenTelemetry's.
//!
//! Ids are minted where a message needs them ([`TraceContext`]), before the span exists.
//!
//! Where code runs within a span ([`Span::as_tracing`]) there is a `tracing` span too, of the target [`TARGET`], whose OpenTelemetry
//! context has the ids: log lines carry them.

mod ended;
mod sink;
mod span;

pub use ended::{Ended, Kind, Link, Parent, Said};
pub use sink::{Sink, ToSink};
pub use span::{Entry, Span, enabled};

/// The target of every `tracing` span of ours.
pub const TARGET: &str = "spans";

/// The values of `fleetpull.link`: what the span at the other end of a link is to this one.
pub mod links {
    /// The attempt that failed, because of which this request was refused or waited.
    pub const FAILED_ATTEMPT: &str = "failed_attempt";
    /// The attempt that succeeded, by which this wait ended.
    pub const RELEASED_BY: &str = "released_by";
    /// The attempt of the flight that this request joined.
    pub const JOINED: &str = "joined";
    /// The caller's span, which was not sampled.
    pub const CALLER: &str = "caller";
    /// The span within which the event was recorded that is published here.
    pub const RECORDED: &str = "recorded";
}

#[doc(no_inline)]
pub use contract::TraceContext;
#[doc(no_inline)]
pub use opentelemetry::KeyValue;
