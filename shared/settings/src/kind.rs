//! The kinds of values, and what each of them allows in words.

mod parse;

use std::time::Duration;

use crate::text::bytes;

/// The longest name in DNS, and of an object in Kubernetes.
const NAME_MAX_CHARS: usize = 253;
/// The longest fleet name: it begins every subject, bucket and stream.
const TOKEN_MAX_CHARS: usize = 32;
/// A group is part of the keys of shared buckets, and every refusal shows it to people.
const GROUP_MAX_CHARS: usize = 63;
/// More labels than this do not fit the answer of a node.
const LABELS_MAX: usize = 64;
/// A NATS cluster rarely has more than five servers, and each of them announces the others to its clients.
const SERVERS_MAX: usize = 64;
/// The lowest rate that is a limit: one in 100 s, as in the fleet policy. The time between two starts must fit a duration.
const LEAST_PER_SECOND: f64 = 0.01;

/// Which values a setting allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One token of a NATS subject.
    Token {
        /// Whether it may be left empty.
        may_be_empty: bool,
    },
    /// The name of a node, or empty.
    NodeName,
    /// A name that several nodes have in common.
    Group {
        /// Whether it may be left empty.
        may_be_empty: bool,
    },
    /// A table of texts.
    Labels,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `unix://` and an absolute path, or empty.
    Endpoint,
    /// An IP address and a port, or empty.
    Address,
    /// A path, or empty.
    Path,
    /// Any text on one line, or empty.
    Text,
    /// `true` or `false`.
    Switch,
    /// A whole number within these limits.
    Count {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// Times per second: 0 for no limit, else from one in 100 s to this.
    Rate {
        /// The most.
        max: f64,
    },
    /// A span of time within these limits.
    Duration {
        /// The least.
        min: Duration,
        /// The most.
        max: Duration,
    },
    /// A size in bytes, up to this.
    Bytes {
        /// The most.
        max: u64,
    },
    /// URLs of NATS servers.
    Servers,
}

impl Kind {
    /// What is allowed, to follow the words "must be".
    #[must_use]
    pub fn allowed(&self) -> String {
        match self {
            Self::Token { may_be_empty } => {
                let or_empty = if *may_be_empty { "; or empty" } else { "" };
                format!("1 to {TOKEN_MAX_CHARS} of the characters A-Z a-z 0-9 _ -{or_empty}")
            }
            Self::NodeName => {
                format!("1 to {NAME_MAX_CHARS} of the characters A-Z a-z 0-9 . _ -, not beginning with a dot, not localhost; or empty")
            }
            Self::Group { may_be_empty } => {
                let or_empty = if *may_be_empty { "; or empty" } else { "" };
                format!("1 to {GROUP_MAX_CHARS} of the characters A-Z a-z 0-9 . _ - /{or_empty}")
            }
            Self::Labels => format!(
                "at most {LABELS_MAX} labels as Kubernetes has them, such as zone=a,disk=ssd; in the file {{ zone = \"a\", disk = \"ssd\" }}"
            ),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Endpoint => "unix:// and an absolute path, such as unix:///run/containerd/containerd.sock; or empty".to_owned(),
            Self::Address => "an IP address and a port, such as 127.0.0.1:9464 or [::]:9464; or empty".to_owned(),
            Self::Path => "a path (~ is not expanded; a relative one begins at the working directory); or empty".to_owned(),
            Self::Text => "a text on one line; or empty".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Rate { max } => format!("0, or a number from {LEAST_PER_SECOND} to {max}"),
            Self::Duration { min, max } => {
                let (min, max) = (humantime::format_duration(*min), humantime::format_duration(*max));
                format!("a duration with its unit (ms, s, m, h), such as 10s or 1m30s, from {min} to {max}")
            }
            Self::Bytes { max } => {
                format!("a size in whole units (B, KiB, MiB, GiB, TiB), such as 2GiB, from 0B to {}", bytes::format(*max))
            }
            Self::Servers => format!(
                "at most {SERVERS_MAX} URLs such as nats://host:4222 or tls://host:4222, with commas between them; in the file a list; or empty"
            ),
        }
    }

    /// What is allowed, in the short form of the reference file.
    #[must_use]
    pub fn range(&self) -> String {
        match self {
            Self::Path | Self::Text => "any, or empty".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Count { min, max } => format!("{min} to {max}"),
            Self::Rate { max } => format!("0, or {LEAST_PER_SECOND} to {max}"),
            Self::Duration { min, max } => format!("{} to {}", humantime::format_duration(*min), humantime::format_duration(*max)),
            Self::Bytes { max } => format!("0B to {}", bytes::format(*max)),
            _ => self.allowed(),
        }
    }

    /// The unit, as the reference file shows it.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Token { .. } | Self::NodeName | Self::Group { .. } | Self::Endpoint | Self::Text => "text",
            Self::Labels => "table of texts",
            Self::Choice(_) => "word",
            Self::Path => "path",
            Self::Switch => "switch",
            Self::Count { .. } => "count",
            Self::Rate { .. } => "per second",
            Self::Duration { .. } => "duration",
            Self::Bytes { .. } => "size",
            Self::Address => "address",
            Self::Servers => "list of URLs",
        }
    }
}
