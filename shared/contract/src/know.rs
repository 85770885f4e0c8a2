//! Shared knowledge as it is stored and republished: keys, and MessagePack with named fields.
//!
//! | bucket | key | value |
//! |---|---|---|
//! | `reports` | `<node>.<class>.<backoff_key>` | [`StoredReport`]: one node's last word on a back-off key |
//! | `reports` | `<node>.cleared.<what>` | [`StoredClear`]: an operator has cleared something there |
//! | `leases` | `try.<probe or lead or slot>.<backoff_key>.<which>` | [`StoredLease`] |
//! | `leaders` | `budget.<owner, hashed>.lead` or `.past` | [`StoredLease`] of an owner |
//! | `leaders` | `registrar` | [`StoredLease`] |
//! | `pauses` | `all` or `registry.<registry>` | [`StoredPause`] |
//! | `members` | `<node>` | [`StoredMember`] |
//! | `policy` | `fleet` | [`crate::policy::StoredPolicy`] |
//!
//! A node writes only below its own token, so that it can be permitted to speak only as itself. Within version 1 these grow:
//! unknown fields are ignored, an unknown kind reads as unknown and binds nobody. A value of another version begins with the
//! number of its version, so that a reader that does not know it sees what it is; one of version 1 begins with its fields.

mod buckets;
mod encoding;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::buckets::{KEYS, LEADERS, LEASES, MEMBERS, PAUSES, POLICY, REPORTS, SharedBucket};
pub use self::encoding::{KnowError, decode, encode, encode_as, other_version};
pub use self::keys::{ReportKey, TryKey, member_key, member_of, pause_key};
use crate::{AttemptId, NodeName, TraceContext, View};

/// The most bytes of one stored value: a message and a repository of 1 KiB each, and names. A larger one is neither sent nor read.
pub const MAX_STORED_BYTES: usize = 8 * 1024;
/// The most back-off keys of one [`StoredClear`]: so many are named and so many are read. With the longest name of an image and a kilobyte of
/// who cleared it, they fit into [`MAX_STORED_BYTES`].
pub const MAX_KEYS_CLEARED: usize = 180;
/// A node's last word on a back-off key. What there is nothing to say of is left out: each node of a fleet reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReport {
    /// Whose view of the registry.
    pub view: View,
    /// What within it.
    pub about: StoredAbout,
    /// Which attempt showed it.
    pub attempt: AttemptId,
    /// The span of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// What it showed.
    pub found: Found,
    /// `<reason>: <message>` of a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Which failure in a row, by what the reporter knew.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: u32,
    /// How long the registry asks to be left alone, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The repository that failed, where distinct ones count.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// How often in a row the node has failed so without knowing of a success in between; 0: once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_a_row: u32,
    /// For how long before this the node has failed so without a success of its own in between, in milliseconds; 0: it has not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing_for_ms: u64,
    /// How long ago it was when this was written, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub age_ms: u64,
    /// The server's time when this was written, by the writer's estimate, in milliseconds since 1970; none: it cannot say. By how much
    /// later the server has stored it, it is older: it has waited in a connection that was silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_ms: Option<u64>,
}

/// What an attempt showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It is in order.
    Succeeded,
    /// It is not.
    Failed,
    /// No answer yet, for longer than usual.
    Unanswered,
    /// What a newer version wrote.
    #[serde(other)]
    Unknown,
}

/// What a report is about, within a view. Only the fields of its kind are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredAbout {
    /// Which of them.
    pub kind: AboutKind,
    /// Whom the registry counts as one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// `host:port`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Nodes that share the network to it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Of the image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// The image, normalised.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// Credential scope.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// Whether one of several endpoints said so.
    #[serde(skip_serializing_if = "is_default")]
    pub mirrored: bool,
    /// Of the credential, under the fleet key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// No login at all.
    #[serde(skip_serializing_if = "is_default")]
    pub anonymous: bool,
    /// `linux/arm64`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Hash of the node's signature policy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub policy: String,
}

/// The kinds of things that a report can be about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AboutKind {
    /// `owner`.
    BudgetOwner,
    /// `endpoint`, `zone`.
    Endpoint,
    /// `endpoint`, `zone`.
    TokenServer,
    /// `endpoint`, `zone`.
    Blobs,
    /// The whole registry.
    Registry,
    /// `repository`.
    Repository,
    /// `reference`, `scope`, `mirrored`.
    Reference,
    /// `repository`, `fingerprint`, `anonymous`.
    Login,
    /// `reference`, `platform`.
    Platform,
    /// `reference`, `endpoint`.
    Content,
    /// `reference`, `policy`.
    Signature,
    /// What a newer version wrote.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// The node.
    pub holder: NodeName,
    /// Which process of that node, as two may have one name by mistake; empty: it was not told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// Of what, where the key is its hash: the owner of a budget; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Which turn: see [`lease_epoch`]; 0: it begins with the revision at which this stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: u64,
    /// When the bucket was made in which the lease was taken, in whole seconds since 1970 by its server; 0: it was not told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bucket_made_s: u64,
}

impl StoredLease {
    /// One of which nothing else is told.
    #[must_use]
    pub fn of_node(holder: NodeName) -> Self {
        Self { holder, instance: String::new(), of: String::new(), epoch: 0, bucket_made_s: 0 }
    }

    /// The turn of the holder, this standing at `revision`.
    #[must_use]
    pub fn epoch_at(&self, revision: u64) -> u64 {
        if self.epoch == 0 { lease_epoch(self.bucket_made_s, revision) } else { self.epoch }
    }
}

/// So many revisions a second no bucket counts.
const REVISIONS_A_SECOND: u64 = 1 << 20;

/// The epoch of a lease that was taken at `revision`: higher than any before, also than those of a bucket that was lost and made
/// again, whose revisions start over. Exact in JSON.
#[must_use]
pub fn lease_epoch(bucket_made_s: u64, revision: u64) -> u64 {
    bucket_made_s.saturating_mul(REVISIONS_A_SECOND).saturating_add(revision)
}

/// A node that belongs to the fleet, alive or silent. The node writes it when it starts and then four times in `gone_after_ms`; it
/// expires after `gone_after_ms`, and is deleted when the agent stops in good order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredMember {
    /// Different for each start of an agent.
    pub instance: String,
    /// Its labels, by which `--selector` chooses it while it is silent; none: they do not fit into a record.
    pub labels: Option<BTreeMap<String, String>>,
    /// The node's `fleet.gone_after`, in milliseconds.
    pub gone_after_ms: u64,
}

/// A pause of sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPause {
    /// Of which registry; none: all.
    pub registry: Option<String>,
    /// How long it was to be when it was written, in milliseconds.
    pub for_ms: u64,
    /// Who paused.
    pub by: String,
}

/// What an operator cleared: failures of attempts begun before it count no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredClear {
    /// The image, normalised: also each node's own back-off for it.
    pub image: Option<String>,
    /// Back-off keys, as 32 hex digits each, at most [`MAX_KEYS_CLEARED`].
    pub backoff_keys: Vec<String>,
    /// Who cleared.
    pub by: String,
    /// How long ago it was when this was written, in milliseconds.
    pub age_ms: u64,
    /// The server's time when this was written, as in a [`StoredReport`].
    pub said_ms: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
