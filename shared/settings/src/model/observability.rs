//! `events.*`, `traces.*`, `log.*` and `metrics.*`: what an agent reports, and where.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::{bytes, duration, empty_as_none};

/// `events.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// How many of its last events an agent keeps in memory for `fleetpull events`.
    pub keep: u32,
    /// The most bytes of events that wait in the state directory for the fleet's stream.
    #[serde(with = "bytes")]
    pub outbox_max: u64,
    /// The longest time between storing an event and fsync; a power loss may lose events of this time.
    #[serde(with = "duration")]
    pub fsync_interval: Duration,
    /// How long the fleet's stream keeps events, if this agent creates the stream.
    #[serde(with = "duration")]
    pub stream_max_age: Duration,
    /// How many bytes the fleet's stream holds, if this agent creates the stream.
    #[serde(with = "bytes")]
    pub stream_max_bytes: u64,
}

impl Default for Events {
    fn default() -> Self {
        let week = Duration::from_secs(7 * 86_400);
        Self {
            keep: 1000,
            outbox_max: 64 << 20,
            fsync_interval: Duration::from_millis(100),
            stream_max_age: week,
            stream_max_bytes: 1 << 30,
        }
    }
}

/// `traces.*`. The standard variables (`OTEL_*`) decide whether and where traces are exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// The URL of a trace, with `{trace_id}` in place of the id. None: no link is shown.
    #[serde(with = "empty_as_none")]
    pub link: Option<String>,
    /// A request that took longer is exported even if it was not sampled.
    #[serde(with = "duration")]
    pub keep_slow: Duration,
}

impl Default for Traces {
    fn default() -> Self {
        Self { link: None, keep_slow: Duration::from_secs(10) }
    }
}

/// `log.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
}

/// The least severe level that is written to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Somebody must act.
    Error,
    /// Somebody may have to act.
    Warn,
    /// An event.
    #[default]
    Info,
    /// The reason for an event.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The spelling of `tracing` and of the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `metrics.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// An IP address and a port. None: the agent serves no metrics over HTTP.
    #[serde(with = "empty_as_none")]
    pub address: Option<String>,
}
