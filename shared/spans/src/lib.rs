//! Spans of pulls, as the shells of services and the runtimes make them.
//!
//! A span here is a `tracing` span of the target [`TARGET`]. The crate `telemetry` exports that target when an exporter is set, and
//! nothing else of a process. Without an exporter the one place where spans are made is disabled: [`Span::start`] then costs a
//! comparison, allocates nothing and gives [`Span::none`], on which every call does nothing.
//!
//! Ids are minted where a message needs them ([`TraceContext`]), before the span exists. The SDK takes no ids for a span, so they
//! wait in this thread ([`Minted`]) while the SDK starts the span and its id generator asks for them.

mod minted;
mod span;

pub use minted::{Caller, Minted, minted};
pub use span::{Entry, Kind, Span, enabled};

/// The target of every span that may be exported.
pub const TARGET: &str = "spans";

/// Attributes that steer which spans are exported. They are taken off before the export.
pub mod marks {
    /// The trace is exported whatever its sampling: an attempt failed, a request failed or was refused.
    pub const KEEP: &str = "fleetpull.keep";
}

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
    /// The pull whose event this is.
    pub const RECORDED: &str = "recorded";
}

#[doc(no_inline)]
pub use contract::TraceContext;
