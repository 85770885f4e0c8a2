//! The keys of buckets.

use crate::subject::{name_of, token};
use crate::{FailureClass, NodeName, hex};

/// In the place of a class: what an operator cleared.
const CLEARED: &str = "cleared";
/// The first token of the leases of leads, probes and slots.
const OF_ATTEMPTS: &str = "try";

/// The key of a report or of what was cleared, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportKey {
    /// Who wrote it, as the bus permits.
    pub node: NodeName,
    /// The class of its back-off key; none: it is a [`StoredClear`](super::StoredClear).
    pub class: Option<FailureClass>,
    /// The back-off key's id, or the hash of what was cleared.
    pub backoff_key: u128,
}

impl ReportKey {
    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        let class = self.class.map_or(CLEARED, FailureClass::as_str);
        format!("{}.{class}.{}", token(self.node.as_str()), hex::text_of(self.backoff_key))
    }

    /// Reads it; none if it is not one of ours.
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

/// The key of a lead, probe or slot, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TryKey {
    /// `probe`, `lead` or `slot`.
    pub kind: String,
    /// The back-off key's id.
    pub backoff_key: u128,
    /// The attempt that opened the probe's epoch, or the number of the lead or slot.
    pub which: u128,
}

impl TryKey {
    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{OF_ATTEMPTS}.{}.{}.{}", self.kind, hex::text_of(self.backoff_key), hex::text_of(self.which))
    }

    /// Reads it; none if it is not one of ours.
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

/// Whose record lies under this key in the bucket [`MEMBERS`](super::MEMBERS); none if it is not one of ours.
#[must_use]
pub fn member_of(key: &str) -> Option<NodeName> {
    name_of(key)?.try_into().ok()
}
