//! The buckets that the agents of a fleet share.

use std::time::Duration;

use crate::subject::Fleet;

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
