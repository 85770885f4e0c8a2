//! The keys of buckets.

use crate::subject::{name_of, token};
use crate::{FailureClass, NodeName, hex};

/// In place of a class: an operator's clear.
const CLEARED: &str = "cleared";
/// The first token of the leases for leads, probes and slots.
const OF_ATTEMPTS: &str = "attempt";

/// A parsed key of a report or a clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportKey {
    /// The writer, as the bus permits it.
    pub node: NodeName,
    /// The class of its back-off key; none: the value is a [`StoredClear`](super::StoredClear).
    pub class: Option<FailureClass>,
    /// The id of the back-off key, or the hash of what was cleared.
    pub backoff_key: u128,
}

impl ReportKey {
    /// The key's text.
    #[must_use]
    pub fn text(&self) -> String {
        let class = self.class.map_or(CLEARED, FailureClass::as_str);
        format!("{}.{class}.{}", token(self.node.as_str()), hex::text_of(self.backoff_key))
    }

    /// Parses a key; none if it is not one of ours.
    #[must_use]
    pub fn read(key: &str) -> Option<Self> {
        let mut tokens = key.split('.');
        let (node, class, backoff_key) = (tokens.next()?, tokens.next()?, tokens.next()?);
        let class = match class {
            CLEARED => None,
            class => Some(FailureClass::ALL.into_iter().find(|known| known.as_str() == class).unwrap_or_default()),
        };
        let node = name_of(node)?.try_into().ok()?;
        tokens.next().is_none().then_some(())?;
        Some(Self { node, class, backoff_key: hex::of_128(backoff_key)? })
    }
}

/// A parsed key of a lead, probe or slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptKey {
    /// `probe`, `lead` or `slot`.
    pub kind: String,
    /// The id of the back-off key.
    pub backoff_key: u128,
    /// For a probe, the attempt that opened its epoch; else the number of the lead or slot.
    pub which: u128,
}

impl AttemptKey {
    /// The key's text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{OF_ATTEMPTS}.{}.{}.{}", self.kind, hex::text_of(self.backoff_key), hex::text_of(self.which))
    }

    /// Parses a key; none if it is not one of ours.
    #[must_use]
    pub fn read(key: &str) -> Option<Self> {
        let mut tokens = key.split('.');
        (tokens.next()? == OF_ATTEMPTS).then_some(())?;
        let (kind, backoff_key, which) = (tokens.next()?, tokens.next()?, tokens.next()?);
        tokens.next().is_none().then_some(())?;
        Some(Self { kind: kind.to_owned(), backoff_key: hex::of_128(backoff_key)?, which: hex::of_128(which)? })
    }
}

/// The key of a pause.
#[must_use]
pub fn pause_key(registry: Option<&str>) -> String {
    registry.map_or_else(|| "all".to_owned(), |registry| format!("registry.{}", token(registry)))
}

/// The key of a node's record in the bucket [`MEMBERS`](super::MEMBERS).
#[must_use]
pub fn member_key(node: &NodeName) -> String {
    token(node.as_str())
}

/// The node whose record has this key in the bucket [`MEMBERS`](super::MEMBERS); none if it is not one of ours.
#[must_use]
pub fn member_of(key: &str) -> Option<NodeName> {
    name_of(key)?.try_into().ok()
}
