//! The messages of the throttler.

use serde::{Deserialize, Serialize};

use crate::messages::registrar::FleetSeen;
use crate::open::open_answer;
use crate::{Command, NodeName, PermitId, Service};

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
    /// Whether the registry could serve the requests, as [`ReturnBudget::served`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
}

impl Command for ReleasePermit {
    type Reply = PermitReleased;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "release";
}

/// A window of requests or pulls that a registry counts, as stated in the headers of its answer (`ratelimit-limit: 100;w=21600`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryLimit {
    /// What the registry counts as one client (`docker-ratelimit-source`), if it states that.
    pub source: Option<String>,
    /// How many are allowed in a window; 0: not stated.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// The length of the window in milliseconds; 0: not stated.
    pub window_ms: u64,
    /// Milliseconds until the window begins anew or the registry may be asked again, if stated.
    pub reset_ms: Option<u64>,
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
}

/// The limits that the registry stated in its answer, while the pull goes on, so that others can start sooner. To the node's own throttler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLimits {
    /// The permit.
    pub permit: PermitId,
    /// Empty: the registry answered, and stated none.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

impl Command for ReportLimits {
    type Reply = LimitsReported;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "limits";
}

/// The answer to [`ReportLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsReported {}

/// To the node's throttler: the state of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeeFleet(pub FleetSeen);

impl Command for SeeFleet {
    type Reply = FleetNoted;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "fleet";
}

/// The answer to [`SeeFleet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNoted {}

/// To the leader of a budget: asks for a permit. A repeated request with the same id keeps the place in the queue, and gets the permit when
/// it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantBudget {
    /// The budget's owner.
    pub owner: String,
    /// The asking node.
    pub node: NodeName,
    /// Chosen by the asker.
    pub permit: PermitId,
    /// The asker's knowledge of the owner's limits, for a new leader.
    #[serde(default)]
    pub known: KnownLimits,
}

impl Command for GrantBudget {
    type Reply = BudgetAnswer;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "grant-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// A node's knowledge of an owner's limits, from its own pulls and from the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownLimits {
    /// The registry has answered, and stated no limit.
    pub none_stated: bool,
    /// The stated limits, less all permits that are granted and not returned.
    pub limits: Vec<RegistryLimit>,
}

/// The answer to [`GrantBudget`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum BudgetAnswer {
    /// Granted. Renew it within the lease, counted from the request, and return it.
    Granted {
        /// The leader's epoch. An answer with a lower one than was seen before is from an earlier leader, and is ignored.
        epoch: u64,
        /// How long the permit lasts without a renewal, in milliseconds.
        lease_ms: u64,
        /// The owner's limits.
        #[serde(default)]
        known: KnownLimits,
    },
    /// Not yet: [`BudgetTurn`] tells when to ask again.
    Queued {
        /// The leader's epoch.
        epoch: u64,
        /// How many are ahead of it.
        ahead: u64,
        /// The estimated wait in milliseconds.
        wait_ms: u64,
        /// The owner's limits.
        #[serde(default)]
        known: KnownLimits,
    },
    /// Refused: too many wait, or this permit was returned.
    Refused {
        /// The leader's epoch.
        epoch: u64,
        /// The reason in words.
        text: String,
    },
    /// The asked node does not lead this budget.
    NotLeading {},
    /// An answer of a newer version. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(BudgetAnswer: "granted", "queued", "refused", "not_leading");

/// To the leader: renews these permits. A leader that does not know one accepts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewBudget {
    /// The budget's owner.
    pub owner: String,
    /// The node that holds them.
    pub node: NodeName,
    /// All permits that it holds; at most [`BUDGET_PERMITS_PER_NODE`].
    pub permits: Vec<PermitId>,
    /// The limits that the registry has stated since.
    #[serde(default)]
    pub limits: Vec<PermitLimits>,
    /// The node's knowledge of the owner's limits, for a new leader.
    #[serde(default)]
    pub known: KnownLimits,
}

/// The most permits of one budget that a node may hold; a leader ignores more. Many times what one node pulls at once.
pub const BUDGET_PERMITS_PER_NODE: usize = 1_000;

impl Command for RenewBudget {
    type Reply = BudgetRenewed;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "renew-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// The limits that the registry stated during one permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitLimits {
    /// The permit.
    pub permit: PermitId,
    /// Empty: the registry answered, and stated none.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

/// The answer to [`RenewBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRenewed {
    /// The leader's epoch; 0: the asked node does not lead this budget.
    pub epoch: u64,
    /// The permits that were renewed.
    pub kept: Vec<PermitId>,
    /// The owner's limits.
    pub known: KnownLimits,
}

/// To the leader: returns a permit that is no longer needed, granted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnBudget {
    /// The budget's owner.
    pub owner: String,
    /// The node that held it.
    pub node: NodeName,
    /// The permit.
    pub permit: PermitId,
    /// Whether a pull may have begun with it: then a quota counts it until the registry's own figure includes it.
    pub used: bool,
    /// The limits that the registry stated; none: it has not answered. Empty: it answered, and stated none.
    #[serde(default)]
    pub limits: Option<Vec<RegistryLimit>>,
    /// Whether the registry could serve the requests. True: it did, or answered that there is no such content. False: it refused because
    /// of its load (429, 5xx) or did not answer. None: it was not asked, or the outcome shows nothing about the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
}

impl Command for ReturnBudget {
    type Reply = BudgetReturned;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "return-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// The answer to [`ReturnBudget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReturned {
    /// The leader's epoch; 0: the asked node does not lead this budget.
    pub epoch: u64,
}

/// From the leader to a waiting node: it can ask again now. This is no permit, so a late message does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTurn {
    /// The budget's owner.
    pub owner: String,
    /// The waiting permit.
    pub permit: PermitId,
}

impl Command for BudgetTurn {
    type Reply = BudgetTurnReceived;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "budget-turn";
}

/// The answer to [`BudgetTurn`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTurnReceived {}

/// Asks for this node's knowledge of the fleet's budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBudgets {}

impl Command for ListBudgets {
    type Reply = BudgetList;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "budgets";
}

/// The answer to [`ListBudgets`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetList {
    /// One for each owner, sorted by name.
    pub budgets: Vec<BudgetState>,
    /// Owners forgotten since start because there were too many.
    pub forgotten_total: u64,
}

/// The state of one budget, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetState {
    /// The owner.
    pub owner: String,
    /// The leading node; none: unknown.
    pub leader: Option<NodeName>,
    /// The leader's epoch.
    pub epoch: u64,
    /// Whether this node is the leader: then the figures below are the fleet's, else this node's.
    pub leads: bool,
    /// Whether the leader is new and still learns which permits are held.
    pub learns: bool,
    /// The cap: pulls per second that the fleet may begin; 0: no limit.
    pub per_second: f64,
    /// Whether the cap is from the fleet policy; else from the settings of the leading node.
    pub per_second_by_policy: bool,
    /// The lower cap of this node's own settings, which applies to this node in addition to the fleet policy; none: there is none.
    pub per_second_of_node: Option<f64>,
    /// The rate in force, as far as this node knows it; 0: no limit.
    pub per_second_in_force: f64,
    /// Why the rate is not higher: `policy`, `starting`, `overload`, `quota`, `silent_nodes`; empty: another node leads, and knows it.
    pub rate_cause: String,
    /// The most pulls at once; 0: no limit.
    pub at_once: u64,
    /// Whether that is from the fleet policy; else from the settings of the leading node.
    pub at_once_by_policy: bool,
    /// As [`BudgetState::per_second_of_node`].
    pub at_once_of_node: Option<u64>,
    /// The revision of the fleet policy that this node follows; 0: none.
    pub policy_revision: u64,
    /// Permits granted and not returned.
    pub in_flight: u64,
    /// The waiting requests, next first; at most 100.
    pub waiting: Vec<BudgetWaiter>,
    /// How many requests wait.
    pub waiting_count: u64,
    /// The stated limits, less all permits that are granted and not returned.
    pub known: KnownLimits,
    /// Whether no leader is reached, so that this node uses its own share.
    pub alone: bool,
    /// Pulls begun without a permit of the fleet since start, because no leader was reached.
    pub alone_total: u64,
    /// Permits that ended while their pulls went on, since start.
    pub overrun_total: u64,
}

/// One waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWaiter {
    /// The node.
    pub node: NodeName,
    /// The estimated wait, in milliseconds from now.
    pub wait_ms: u64,
}
