//! The buckets that a fleet's agents share.

use std::time::Duration;

use crate::subject::Fleet;

/// The bucket of reports, and the token below which it is republished.
pub const REPORTS: &str = "reports";
/// The bucket of leases, and the token below which it is republished.
pub const LEASES: &str = "leases";
/// The bucket of the leases of budget leaders and of the registrar, and of the records that it replaces a lost bucket. Never
/// republished, because the leases are renewed every few seconds: only a node that wants a permit asks for the leader, and a registrar is
/// known by its digests.
pub const LEADERS: &str = "leaders";
/// The bucket of pauses, and the token below which it is republished.
pub const PAUSES: &str = "pauses";
/// The bucket of the nodes of the fleet. Never republished: commands read it, and each node writes its own record a few times per hour.
pub const MEMBERS: &str = "members";
/// The bucket of the fleet policy, and the token below which it is republished. Only operators write it.
pub const POLICY: &str = "policy";
/// The bucket of the fleet's key. Never republished, so only logins that may read the bucket see it.
pub const KEYS: &str = "keys";

/// The most bytes of all reports of a fleet: 32,768 of 0.5 KiB, as many as a replica holds. A node reads them all when it starts.
const REPORTS_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of all leases of a fleet: tens of thousands of some hundred bytes each.
const LEASES_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of all leaders' leases of a fleet: two of some hundred bytes each for thousands of budgets.
const LEADERS_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most bytes of all pauses of a fleet: 1 KiB for each of a thousand registries.
const PAUSES_MAX_BYTES: u64 = 1024 * 1024;
/// The most bytes of all members of a fleet: 20,000 records of some hundred bytes each.
const MEMBERS_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most bytes of the fleet policy: one value, and a second one while it is replaced.
const POLICY_MAX_BYTES: u64 = 64 * 1024;
/// The most bytes of the fleet's key: one value.
const KEYS_MAX_BYTES: u64 = 64 * 1024;
/// How long buckets keep markers of expired and deleted keys; they are read only when they are republished.
const MARKERS_KEPT: Duration = Duration::from_secs(60);

/// A bucket that a fleet's agents share, the same for every service that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBucket {
    /// Its name on the server.
    pub name: String,
    /// How long markers of expired and deleted keys are kept; none: nothing in it expires.
    pub markers_kept: Option<Duration>,
    /// The most bytes that it may hold.
    pub max_bytes: u64,
    /// Whether it removes the oldest values beyond that; else it refuses new ones.
    pub forgets_oldest: bool,
    /// The subject below which the server republishes changes; none: it does not.
    pub republished_to: Option<String>,
}

impl SharedBucket {
    /// [`REPORTS`].
    #[must_use]
    pub fn reports(fleet: &Fleet) -> Self {
        // A writer that fills it must not keep others from publishing. Most nodes have already received what is removed.
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

    /// A bucket whose values may expire and which is not republished.
    fn kept(fleet: &Fleet, purpose: &str, max_bytes: u64) -> Self {
        let name = fleet.bucket(purpose);
        Self { name, markers_kept: Some(MARKERS_KEPT), max_bytes, forgets_oldest: false, republished_to: None }
    }
}
