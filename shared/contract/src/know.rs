//! The encoding of shared state that is stored and republished: keys, and MessagePack with named fields.
//!
//! | bucket | key | value |
//! |---|---|---|
//! | `reports` | `<node>.<class>.<backoff_key>` | [`StoredReport`]: one node's latest report on a back-off key |
//! | `reports` | `<node>.cleared.<what>` | [`StoredClear`]: an operator has cleared something there |
//! | `leases` | `attempt.<probe or lead or slot>.<backoff_key>.<which>` | [`StoredLease`] |
//! | `leaders` | `budget.<owner, hashed>.lead` or `.past` | [`StoredLease`] of an owner |
//! | `leaders` | `registrar` | [`StoredLease`] |
//! | `pauses` | `all` or `registry.<registry>` | [`StoredPause`] |
//! | `members` | `<node>` | [`StoredMember`] |
//! | `policy` | `fleet` | [`crate::policy::StoredPolicy`] |
//!
//! A node writes only below its own token, so that permissions can restrict it to its own name. Within version 1 fields are only added:
//! unknown fields are ignored, and a report of an unknown kind has no effect. A value of another version begins with its version number, so
//! that older readers recognise it; one of version 1 begins with its fields.

mod buckets;
mod encoding;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::buckets::{KEYS, LEADERS, LEASES, MEMBERS, PAUSES, POLICY, REPORTS, SharedBucket};
pub use self::encoding::{KnowError, decode, encode, encode_as, other_version};
pub use self::keys::{AttemptKey, ReportKey, member_key, member_of, pause_key};
use crate::{AttemptId, NodeName, TraceContext, View};

/// The most bytes of one stored value: a message and a repository of 1 KiB each, and names. A larger one is neither sent nor read.
pub const MAX_STORED_BYTES: usize = 8 * 1024;
/// The most back-off keys in one [`StoredClear`], written and read. With the longest image name and 1 KiB for who cleared, they fit into
/// [`MAX_STORED_BYTES`].
pub const MAX_KEYS_CLEARED: usize = 180;
/// A node's latest report on a back-off key. Empty fields are left out, because each node of a fleet reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReport {
    /// The node's view of the registry.
    pub view: View,
    /// The back-off key in this view.
    pub in_view: StoredKeyInView,
    /// The attempt.
    pub attempt: AttemptId,
    /// The span of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The result of the attempt.
    pub found: Found,
    /// `<reason>: <message>` of a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of this failure in a row, as far as the reporter knew.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: u32,
    /// For how long the registry wants no further requests, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The repository that failed, if distinct repositories are counted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// How often in a row the node has failed this way without knowing of a success in between; 0: once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_a_row: u32,
    /// For how long before this the node has failed this way without a success of its own in between, in milliseconds; 0: it has not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing_for_ms: u64,
    /// How long before this the node's last failing attempt for all nodes was, or its first failure if it made none, in milliseconds; 0:
    /// this is that attempt. Only such attempts postpone the next one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub for_all_ago_ms: u64,
    /// How long before this the node last succeeded, in milliseconds; none: unknown, or too long ago to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_ago_ms: Option<u64>,
    /// The age of the result when this was written, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub age_ms: u64,
    /// The writer's estimate of the server's time when this was written, in milliseconds since 1970; none: unknown. If the server stored it
    /// later than that, it is older by the difference, because it waited in a silent connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_ms: Option<u64>,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// No answer yet, for longer than usual.
    Unanswered,
    /// A result of a newer version.
    #[serde(other)]
    Unknown,
}

/// A back-off key without its view: what a report is about. Only the fields of its kind are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredKeyInView {
    /// The kind.
    pub kind: KeyKind,
    /// The budget owner.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// `host:port`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The nodes that share the network to the endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The image's repository.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// The image, normalised.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The credential scope.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// Whether one of several endpoints gave the result.
    #[serde(skip_serializing_if = "is_default")]
    pub mirrored: bool,
    /// The keyed hash of the credential, under the fleet key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// No login was sent.
    #[serde(skip_serializing_if = "is_default")]
    pub anonymous: bool,
    /// `linux/arm64`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// The hash of the node's signature policy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub policy: String,
}

/// The kinds of back-off keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
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
    /// A kind of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The holder of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// The node.
    pub holder: NodeName,
    /// Which process of that node, because two may have the same name by mistake; empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// What the key is a hash of: the owner of a budget; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Its epoch: see [`lease_epoch`]; 0: it is that of the revision at which this is stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: u64,
    /// When the bucket was made in which the lease was taken, in whole seconds since 1970 by its server; 0: unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bucket_made_s: u64,
}

impl StoredLease {
    /// A lease with only a holder.
    #[must_use]
    pub fn of_node(holder: NodeName) -> Self {
        Self { holder, instance: String::new(), of: String::new(), epoch: 0, bucket_made_s: 0 }
    }

    /// The holder's epoch, if this is stored at `revision`.
    #[must_use]
    pub fn epoch_at(&self, revision: u64) -> u64 {
        if self.epoch == 0 { lease_epoch(self.bucket_made_s, revision) } else { self.epoch }
    }
}

/// More revisions per second than any bucket counts.
const REVISIONS_A_SECOND: u64 = 1 << 20;

/// The epoch of a lease that was taken at `revision`: higher than all before, including those of a lost bucket, after which revisions start
/// over. Exact in JSON.
#[must_use]
pub fn lease_epoch(bucket_made_s: u64, revision: u64) -> u64 {
    bucket_made_s.saturating_mul(REVISIONS_A_SECOND).saturating_add(revision)
}

/// A node that belongs to the fleet, alive or silent. The node writes it at its start and then four times per `gone_after_ms`; it expires
/// after `gone_after_ms`, and is deleted when the agent is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredMember {
    /// Different for each start of an agent.
    pub instance: String,
    /// Its labels, by which `--selector` selects it while it is silent; none: they do not fit into a record.
    pub labels: Option<BTreeMap<String, String>>,
    /// The node's `fleet.gone_after`, in milliseconds.
    pub gone_after_ms: u64,
}

/// A pause of sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPause {
    /// The registry; none: all.
    pub registry: Option<String>,
    /// How long it was to last when it was written, in milliseconds; 0: an earlier pause has ended.
    pub for_ms: u64,
    /// Who paused, or ended the pause.
    pub by: String,
}

/// A clear by an operator: failures of attempts that began before it no longer count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredClear {
    /// The image, normalised. Each node's own back-off for it is cleared too.
    pub image: Option<String>,
    /// Back-off keys, as 32 hex digits each, at most [`MAX_KEYS_CLEARED`].
    pub backoff_keys: Vec<String>,
    /// Who cleared.
    pub by: String,
    /// Its age when this was written, in milliseconds.
    pub age_ms: u64,
    /// The server's time when this was written, as in a [`StoredReport`].
    pub written_ms: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
