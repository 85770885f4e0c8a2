//! The instruments of an agent: declared once in [`table`], counted by [`Instruments`], written as OpenMetrics text.
//!
//! Values have two sources. Shells count what happens in [`Instruments`]: atomics and histograms, shared by all shells of an agent. What a
//! core or an actor counts anyway is asked for when the text is made, and set in [`Readings`]. The cores know neither.

mod buckets;
mod instruments;
mod plain;
mod readings;
mod reference;
mod registries;
mod samples;
pub mod table;

pub use instruments::{Cause, Instruments, Learned, Lease, Status};
pub use plain::plain_text;
pub use readings::Readings;
pub use reference::render_reference;
pub use samples::{Sample, samples};
pub use table::{Instrument, Kind, Scope};

/// The most series that one agent may export.
pub const SERIES_MAX: usize = 300;
/// The media type of the text: OpenMetrics, which carries exemplars.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of [`plain_text`], for scrapers that do not know OpenMetrics.
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
