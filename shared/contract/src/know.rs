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

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hex;
use crate::subject::{Fleet, name_of, token};
use crate::version::{FIRST, READS};
use crate::{AttemptId, FailureClass, NodeName, TraceContext, View};

/// The most bytes of one stored value: a message and a repository of 1 KiB each, and names. A larger one is neither sent nor read.
pub const MAX_STORED_BYTES: usize = 8 * 1024;
/// The most back-off keys of one [`StoredClear`]: so many are named and so many are read. With the longest name of an image and a kilobyte of
/// who cleared it, they fit into [`MAX_STORED_BYTES`].
pub const MAX_KEYS_CLEARED: usize = 180;
/// How deep a value may nest; ours stay at three.
const MAX_DEPTH: usize = 16;
/// The last version that has a number in one byte, as MessagePack writes it.
const LAST_VERSION: u8 = 0x7f;
/// In the place of a class: what an operator cleared.
const CLEARED: &str = "cleared";
/// The first token of the leases of leads, probes and slots.
const OF_ATTEMPTS: &str = "try";

/// The bucket of reports, and the back-off key below which it is republished.
pub const REPORTS: &str = "reports";
/// The bucket of leases, and the back-off key below which it is republished.
pub const LEASES: &str = "leases";
/// The bucket of the leases of budgets' leaders and of the registrar, and of the word that it was made in place of a lost one. Never
/// republished: they are renewed every few seconds, only who wants a permit asks who leads, and a registrar is known by its digests.
pub const LEADERS: &str = "leaders";
/// The bucket of pauses, and the back-off key below which it is republished.
pub const PAUSES: &str = "pauses";
/// The bucket of the nodes that belong to the fleet. Never republished: commands read it, and each node writes its own record a few times
/// an hour.
pub const MEMBERS: &str = "members";
/// The bucket of the fleet policy, and the back-off key below which it is republished. Operators write it, and no node.
pub const POLICY: &str = "policy";
/// The bucket of the fleet's key. Never republished: only who may read the bucket sees it.
pub const KEYS: &str = "keys";

/// The most bytes of all reports of a fleet: 32,768 of half a KiB, as many as a node remembers. A node that starts reads them all.
const REPORTS_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of all leases of a fleet: tens of thousands of some hundred bytes.
const LEASES_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of all leaders' leases of a fleet: two of some hundred bytes for each of thousands of budgets.
const LEADERS_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most bytes of all pauses of a fleet: one of 1 KiB for each of thousand registries.
const PAUSES_MAX_BYTES: u64 = 1024 * 1024;
/// The most bytes of all members of a fleet: 20,000 records of some hundred bytes each.
const MEMBERS_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of the fleet policy: it is one value, and one more while it is replaced.
const POLICY_MAX_BYTES: u64 = 64 * 1024;
/// The most bytes of the fleet's key: it is one value.
const KEYS_MAX_BYTES: u64 = 64 * 1024;
/// How long buckets keep markers of what expired or was deleted: nobody reads them later than they are republished.
const MARKERS_KEPT: Duration = Duration::from_secs(60);

/// A bucket that the agents of a fleet share, the same whichever service makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBucket {
    /// Its name on the server.
    pub name: String,
    /// How long markers of what expired or was deleted are kept; none: nothing in it expires.
    pub markers_kept: Option<Duration>,
    /// The most bytes that it may hold.
    pub max_bytes: u64,
    /// Whether it forgets the oldest beyond that; else it takes nothing more.
    pub forgets_oldest: bool,
    /// The subject below which the server republishes what is stored; none: it tells nobody.
    pub republished_to: Option<String>,
}

impl SharedBucket {
    /// [`REPORTS`].
    #[must_use]
    pub fn reports(fleet: &Fleet) -> Self {
        // One writer that fills it must not keep the others from saying what is new; what is forgotten, most have heard.
        Self { forgets_oldest: true, ..Self::republished(fleet, REPORTS, REPORTS_MAX_BYTES) }
    }

    /// [`LEASES`].
    #[must_use]
    pub fn leases(fleet: &Fleet) -> Self {
        Self::republished(fleet, LEASES, LEASES_MAX_BYTES)
    }

    /// [`LEADERS`].
    #[must_use]
    pub fn leaders(fleet: &Fleet) -> Self {
        Self::kept(fleet, LEADERS, LEADERS_MAX_BYTES)
    }

    /// [`MEMBERS`]. A full bucket refuses a new node's record instead of forgetting another node.
    #[must_use]
    pub fn members(fleet: &Fleet) -> Self {
        Self::kept(fleet, MEMBERS, MEMBERS_MAX_BYTES)
    }

    /// [`PAUSES`].
    #[must_use]
    pub fn pauses(fleet: &Fleet) -> Self {
        Self::republished(fleet, PAUSES, PAUSES_MAX_BYTES)
    }

    /// [`POLICY`]. Nothing in it expires.
    #[must_use]
    pub fn policy(fleet: &Fleet) -> Self {
        Self { markers_kept: None, ..Self::republished(fleet, POLICY, POLICY_MAX_BYTES) }
    }

    /// [`KEYS`].
    #[must_use]
    pub fn keys(fleet: &Fleet) -> Self {
        Self { name: fleet.bucket(KEYS), markers_kept: None, max_bytes: KEYS_MAX_BYTES, forgets_oldest: false, republished_to: None }
    }

    /// All buckets of a fleet.
    #[must_use]
    pub fn all(fleet: &Fleet) -> [Self; 7] {
        [Self::reports, Self::leases, Self::leaders, Self::pauses, Self::members, Self::policy, Self::keys].map(|bucket| bucket(fleet))
    }

    fn republished(fleet: &Fleet, purpose: &str, max_bytes: u64) -> Self {
        Self { republished_to: Some(fleet.knowledge(purpose)), ..Self::kept(fleet, purpose, max_bytes) }
    }

    /// A bucket whose values may expire and are not republished.
    fn kept(fleet: &Fleet, purpose: &str, max_bytes: u64) -> Self {
        let name = fleet.bucket(purpose);
        Self { name, markers_kept: Some(MARKERS_KEPT), max_bytes, forgets_oldest: false, republished_to: None }
    }
}

/// Why a value could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnowError {
    /// It is larger than [`MAX_STORED_BYTES`].
    #[error("a value of {bytes} bytes is over the limit of {MAX_STORED_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is of a version that this program does not read, or does not write.
    #[error("the value is of version {0}, which this program does not know: bring all agents to versions that go together")]
    Version(u32),
    /// It is not what is written here.
    #[error("the value cannot be read or written: {0}")]
    Malformed(String),
}

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

/// The key of a report or of what was cleared, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportKey {
    /// Who wrote it, as the bus permits.
    pub node: NodeName,
    /// The class of its back-off key; none: it is a [`StoredClear`].
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

/// The key of a node's record in the bucket [`MEMBERS`].
#[must_use]
pub fn member_key(node: &NodeName) -> String {
    token(node.as_str())
}

/// Whose record lies under this key in the bucket [`MEMBERS`]; none if it is not one of ours.
#[must_use]
pub fn member_of(key: &str) -> Option<NodeName> {
    name_of(key)?.try_into().ok()
}

/// Writes a value in the first version, which every agent reads.
///
/// # Errors
/// [`KnowError`] when it is too large.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, KnowError> {
    encode_as(FIRST, value)
}

/// Writes a value in a version that all read; see [`crate::version::to_write`].
///
/// # Errors
/// [`KnowError`] when it is too large.
pub fn encode_as<T: Serialize>(version: u32, value: &T) -> Result<Vec<u8>, KnowError> {
    let mut bytes = match version {
        FIRST => Vec::new(),
        version => vec![u8::try_from(version).ok().filter(|number| *number <= LAST_VERSION).ok_or(KnowError::Version(version))?],
    };
    let mut writer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    value.serialize(&mut writer).map_err(|error| KnowError::Malformed(error.to_string()))?;
    if bytes.len() > MAX_STORED_BYTES { Err(KnowError::TooLarge { bytes: bytes.len() }) } else { Ok(bytes) }
}

/// Reads a value.
///
/// # Errors
/// [`KnowError`] when it is too large, of another version or something else.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, KnowError> {
    decode_of(READS, bytes)
}

fn decode_of<T: DeserializeOwned>(reads: &[u32], bytes: &[u8]) -> Result<T, KnowError> {
    if bytes.len() > MAX_STORED_BYTES {
        return Err(KnowError::TooLarge { bytes: bytes.len() });
    }
    let (version, fields) = version_of(bytes);
    if !reads.contains(&version) {
        return Err(KnowError::Version(version));
    }
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(fields);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).map_err(|error| KnowError::Malformed(error.to_string()))
}

/// The version of a value that this program cannot read because it is of another one.
#[must_use]
pub fn other_version(bytes: &[u8]) -> Option<u32> {
    Some(version_of(bytes).0).filter(|version| !READS.contains(version))
}

/// The version of a value, and its fields.
fn version_of(bytes: &[u8]) -> (u32, &[u8]) {
    // Fields are a map, of few or of many.
    match bytes {
        [number @ 1..=LAST_VERSION, 0x80..=0x8f | 0xde..=0xdf, ..] => (u32::from(*number), &bytes[1..]),
        fields => (FIRST, fields),
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let node: NodeName = "n1.example".parse().unwrap();
        for class in [None, Some(FailureClass::RateLimited), Some(FailureClass::NotFound)] {
            let key = ReportKey { node: node.clone(), class, backoff_key: 7 };
            assert_eq!(ReportKey::read(&key.text()), Some(key));
        }
        let key = TryKey { kind: "probe".to_owned(), backoff_key: u128::MAX, which: 3 };
        assert_eq!(TryKey::read(&key.text()), Some(key));
        assert_eq!(pause_key(Some("localhost:5000")), "registry.localhost_3a5000");
        assert_eq!(member_key(&node), "n1_2eexample");
        assert_eq!(member_of(&member_key(&node)), Some(node));
    }

    #[test]
    fn keys_of_others_are_not_read() {
        let hex = "0".repeat(32);
        for key in ["", "a", "a.b", &format!("a.not_found.{hex}.x"), "a.not_found.7", &format!("a_.not_found.{hex}"), &format!("_.x.{hex}")]
        {
            assert_eq!(ReportKey::read(key), None, "{key}");
        }
        for key in ["try.probe", &format!("budget.probe.{hex}.{hex}"), &format!("try.probe.{hex}.+{}", "0".repeat(31))] {
            assert_eq!(TryKey::read(key), None, "{key}");
        }
        for key in ["", "_", "_zz", "a.b"] {
            assert_eq!(member_of(key), None, "{key}");
        }
    }

    #[test]
    fn what_is_too_large_is_neither_written_nor_read() {
        let pause = StoredPause { by: "x".repeat(MAX_STORED_BYTES), ..StoredPause::default() };
        assert!(matches!(encode(&pause), Err(KnowError::TooLarge { .. })));
        assert!(matches!(decode::<StoredPause>(&[0; MAX_STORED_BYTES + 1]), Err(KnowError::TooLarge { .. })));
        assert!(matches!(decode::<StoredReport>(b"\xff"), Err(KnowError::Malformed(_))));
    }

    #[test]
    fn a_value_says_its_version_and_who_does_not_read_it_knows_why() {
        let lease = StoredLease::of_node("n1".parse().unwrap());
        let (first, second) = (encode_as(1, &lease).unwrap(), encode_as(2, &lease).unwrap());
        assert_eq!(first, encode(&lease).unwrap(), "version 1 is what it always was");
        assert_eq!(decode::<StoredLease>(&second), Err(KnowError::Version(2)), "of a later agent");
        for value in [&first, &second] {
            assert_eq!(decode_of::<StoredLease>(&[1, 2], value).as_ref(), Ok(&lease), "by that agent");
        }
        assert_eq!(decode_of::<StoredLease>(&[2, 3], &first), Err(KnowError::Version(1)));
        for rubbish in [&b"rubbish"[..], b"", b"\0\0", b"\x02", b"\x02\x02\x80"] {
            assert_eq!(other_version(rubbish), None, "{rubbish:?}");
            assert!(matches!(decode::<StoredLease>(rubbish), Err(KnowError::Malformed(_))), "{rubbish:?}");
        }
        assert_eq!(other_version(&second), Some(2));
        assert_eq!(encode_as(128, &lease), Err(KnowError::Version(128)));
    }

    #[test]
    fn a_later_lease_has_a_higher_epoch_whatever_becomes_of_its_bucket() {
        let made_s = 1_790_000_000;
        let epochs = [
            lease_epoch(made_s, 1),
            lease_epoch(made_s, 2),
            // A day later, after so many changes as no server takes, the bucket is lost and made again.
            lease_epoch(made_s, 86_400 * 1_000_000),
            lease_epoch(made_s + 86_400, 1),
        ];
        assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
        assert!(epochs.iter().all(|epoch| *epoch < 1 << 53), "{epochs:?}");
        assert_eq!(lease_epoch(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn every_bucket_is_bounded_and_the_key_is_told_to_nobody() {
        let fleet = Fleet::default();
        let buckets = [SharedBucket::reports(&fleet), SharedBucket::leases(&fleet), SharedBucket::pauses(&fleet)];
        for (bucket, purpose) in buckets.iter().zip([REPORTS, LEASES, PAUSES]) {
            assert!(bucket.max_bytes > MAX_STORED_BYTES as u64 && bucket.markers_kept.is_some());
            assert_eq!((&bucket.name, bucket.republished_to.as_ref()), (&fleet.bucket(purpose), Some(&fleet.knowledge(purpose))));
        }
        let purposes = [REPORTS, LEASES, LEADERS, PAUSES, MEMBERS, POLICY, KEYS];
        assert_eq!(SharedBucket::all(&fleet).map(|bucket| bucket.name), purposes.map(|purpose| fleet.bucket(purpose)));
        let policy = SharedBucket::policy(&fleet);
        assert!(policy.max_bytes > 2 * MAX_STORED_BYTES as u64 && policy.markers_kept.is_none());
        assert_eq!(policy.republished_to, Some(fleet.knowledge(POLICY)));
        let members = SharedBucket::members(&fleet);
        assert!(members.max_bytes > MAX_STORED_BYTES as u64 && members.markers_kept.is_some() && !members.forgets_oldest);
        assert_eq!((members.republished_to, SharedBucket::keys(&fleet).republished_to), (None, None));
    }
}
