//! Permits to pull, as the pull coordinator asks the throttler of its node for them.

use serde::{Deserialize, Serialize};

use super::RegistryLimit;
use crate::open::open_answer;
use crate::{Command, PermitId, Service};

/// Asks for a permit to pull. A repeated request with the same id keeps the place in the queue, and renews a granted permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquirePermit {
    /// Chosen by the asker.
    pub permit: PermitId,
    /// The image.
    pub image: String,
    /// The longest time until the answer if the permit must wait, in milliseconds.
    pub patience_ms: u64,
    /// The owner of the budget that counts it (`Target::budget_owner` within its view); none: only the node's own token bucket and slots
    /// decide.
    #[serde(default)]
    pub budget: Option<String>,
}

impl Command for AcquirePermit {
    type Reply = PermitAnswer;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "acquire";
}

/// The answer to [`AcquirePermit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum PermitAnswer {
    /// Granted. Renew it within the lease, and release it when done.
    Granted {
        /// Without a renewal for this many milliseconds the permit is taken back.
        lease_ms: u64,
    },
    /// Not yet: ask again.
    Queued {
        /// How many are ahead of it on this node.
        ahead: u64,
        /// If it waits for the fleet's budget: milliseconds until its turn, by the leader's estimate; 0: there is none yet.
        #[serde(default)]
        budget_wait_ms: Option<u64>,
    },
    /// Refused for good.
    Refused {
        /// Kubelet's text: `pull QPS exceeded`, or that the queue is full.
        text: String,
    },
    /// An answer of a newer version. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(PermitAnswer: "granted", "queued", "refused");

/// Releases a permit that is no longer needed, granted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePermit {
    /// The permit.
    pub permit: PermitId,
    /// The limits that the registry stated during the pull.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
    /// Whether the registry could serve the requests, as [`super::ReturnBudget::served`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
}

impl Command for ReleasePermit {
    type Reply = PermitReleased;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "release";
}

/// The answer to [`ReleasePermit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitReleased {}

/// Asks for the state of the node's permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountPermits {}

impl Command for CountPermits {
    type Reply = PermitCounts;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "count";
}

/// The answer to [`CountPermits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitCounts {
    /// Permits granted and not released.
    pub granted: u64,
    /// Requests that wait for a permit.
    pub queued: u64,
    /// Granted since start.
    pub granted_total: u64,
    /// Refused since start.
    pub refused_total: u64,
    /// Taken back because the holder did not renew.
    pub reclaimed_total: u64,
    /// Budgets of the fleet of which this node is a client.
    #[serde(default)]
    pub budgets: u64,
    /// Those of them that it leads.
    #[serde(default)]
    pub budgets_led: u64,
    /// Pulls of this node that wait for the fleet's budget.
    #[serde(default)]
    pub budget_waiting: u64,
    /// Pulls of this node with a permit of the fleet.
    #[serde(default)]
    pub budget_in_flight: u64,
    /// Pulls begun without a permit of the fleet since start, because no leader was reached.
    #[serde(default)]
    pub alone_total: u64,
    /// Permits of the fleet that ended while their pulls went on, since start.
    #[serde(default)]
    pub overrun_total: u64,
    /// Budgets forgotten since start because there were too many.
    #[serde(default)]
    pub forgotten_total: u64,
    /// The revision of the fleet policy that this node follows; 0: none.
    #[serde(default)]
    pub policy_revision: u64,
}
