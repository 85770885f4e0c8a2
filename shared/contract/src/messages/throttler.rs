//! What the throttler answers.

use serde::{Deserialize, Serialize};

use crate::messages::registrar::FleetSeen;
use crate::open::open_answer;
use crate::{Command, NodeName, PermitId, Service};

/// Leave to pull now? Asking again with the same id keeps the place in the queue, and renews a permit that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquirePermit {
    /// Chosen by the asker.
    pub permit: PermitId,
    /// For which image.
    pub image: String,
    /// How long the answer may be held back while the queue moves, in milliseconds.
    pub patience_ms: u64,
    /// Whose budget the fleet counts it on (`Target::budget_owner` within its view); none: the node's own bucket and slots alone decide.
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
    /// Go ahead. Renew within the lease, release when done.
    Granted {
        /// After this many milliseconds without a renewal the permit is taken back.
        lease_ms: u64,
    },
    /// Not yet: ask again.
    Queued {
        /// How many are before it on this node.
        ahead: u64,
        /// When the fleet's budget is what it waits for: milliseconds until its turn, as far as the leader has said; 0 while it has not.
        #[serde(default)]
        budget_wait_ms: Option<u64>,
    },
    /// No, and asking again is no use.
    Refused {
        /// Kubelet's text: `pull QPS exceeded`, or that the queue is full.
        text: String,
    },
    /// What a newer version answered. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(PermitAnswer: "granted", "queued", "refused");

/// The permit is not needed any more, granted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasePermit {
    /// The permit.
    pub permit: PermitId,
    /// What the registry said of its limits during the pull.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
    /// Whether the registry could do what was asked of it, as [`ReturnBudget::served`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<bool>,
}

impl Command for ReleasePermit {
    type Reply = PermitReleased;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "release";
}

/// A window of requests or pulls that a registry counts, as its answer's headers say (`ratelimit-limit: 100;w=21600`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryLimit {
    /// Whom the registry counts as one (`docker-ratelimit-source`), if it says so.
    pub source: Option<String>,
    /// How many in a window; 0 when it does not say.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// How long the window is, in milliseconds; 0 when it does not say.
    pub window_ms: u64,
    /// How long until it begins anew or until the registry wants to be asked again, in milliseconds, if it says so.
    pub reset_ms: Option<u64>,
}

/// The answer to [`ReleasePermit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitReleased {}

/// How the node's budget stands.
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
    /// Permits out now.
    pub granted: u64,
    /// Waiting for one.
    pub queued: u64,
    /// Granted since start.
    pub granted_total: u64,
    /// Refused since start.
    pub refused_total: u64,
    /// Taken back because the holder did not renew.
    pub reclaimed_total: u64,
    /// Budgets of the fleet that this node takes part in.
    #[serde(default)]
    pub budgets: u64,
    /// Those of them that it leads.
    #[serde(default)]
    pub budgets_led: u64,
    /// Its pulls that wait for the fleet.
    #[serde(default)]
    pub budget_waiting: u64,
    /// Its pulls that the fleet has let go.
    #[serde(default)]
    pub budget_in_flight: u64,
    /// Pulls begun without the fleet's permit since start, because no leader was reached.
    #[serde(default)]
    pub alone_total: u64,
    /// Fleet permits that ran out while their pulls went on, since start.
    #[serde(default)]
    pub overrun_total: u64,
    /// Budgets forgotten since start because there were too many.
    #[serde(default)]
    pub forgotten_total: u64,
}

/// What the registry said of its limits when it answered, while the pull goes on: the sooner it is known, the sooner others go.
/// To the node's own throttler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLimits {
    /// Of which permit.
    pub permit: PermitId,
    /// Empty: the registry answered, and told of none.
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

/// To the node's throttler: how the fleet stands.
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

/// To the leader of a budget: a permit, please. Asking again with the same id keeps the place, and gets the permit once it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantBudget {
    /// Whose budget.
    pub owner: String,
    /// Who asks.
    pub node: NodeName,
    /// Chosen by the asker.
    pub permit: PermitId,
    /// What the asker knows of the owner's limits, for a leader that is new.
    #[serde(default)]
    pub known: KnownLimits,
}

impl Command for GrantBudget {
    type Reply = BudgetAnswer;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "grant-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// What a node knows of an owner's limits, by its own pulls and by a leader's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownLimits {
    /// The registry has answered, and told of none.
    pub none_told: bool,
    /// What it told, as much of it as is left by all permits that are out.
    pub limits: Vec<RegistryLimit>,
}

/// The answer to [`GrantBudget`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum BudgetAnswer {
    /// Go ahead: renew within the lease, counted from when this was asked for, and return.
    Granted {
        /// Of the leader. A lower one than was seen before is a leader's of the past, and counts for nothing.
        epoch: u64,
        /// How long the permit lasts without a renewal, in milliseconds.
        lease_ms: u64,
        /// The owner's limits.
        #[serde(default)]
        known: KnownLimits,
    },
    /// Not yet: [`BudgetTurn`] tells when to ask again.
    Queued {
        /// Of the leader.
        epoch: u64,
        /// How many are before it.
        ahead: u64,
        /// How long that takes, in milliseconds, as far as can be said.
        wait_ms: u64,
        /// The owner's limits.
        #[serde(default)]
        known: KnownLimits,
    },
    /// No: too many wait, or this permit was returned.
    Refused {
        /// Of the leader.
        epoch: u64,
        /// In words.
        text: String,
    },
    /// The node asked does not lead this budget.
    NotLeading {},
    /// What a newer version answered. Never written.
    #[serde(skip)]
    Unknown {
        /// Its name.
        name: String,
    },
}

open_answer!(BudgetAnswer: "granted", "queued", "refused", "not_leading");

/// To the leader: these permits are in use. A leader that does not know one takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewBudget {
    /// Whose budget.
    pub owner: String,
    /// Who holds them.
    pub node: NodeName,
    /// All that it holds; at most [`BUDGET_PERMITS_PER_NODE`].
    pub permits: Vec<PermitId>,
    /// What the registry has said meanwhile.
    #[serde(default)]
    pub told: Vec<PermitLimits>,
    /// What the node knows of the owner's limits, for a leader that is new.
    #[serde(default)]
    pub known: KnownLimits,
}

/// So many permits of one budget may be held by a node; a leader looks at no more. Many times what one node pulls at once.
pub const BUDGET_PERMITS_PER_NODE: usize = 1_000;

impl Command for RenewBudget {
    type Reply = BudgetRenewed;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "renew-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// What the registry said during one permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitLimits {
    /// Which permit.
    pub permit: PermitId,
    /// Empty: it answered, and told of none.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

/// The answer to [`RenewBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetRenewed {
    /// Of the leader; 0: the node asked does not lead this budget.
    pub epoch: u64,
    /// The permits that go on.
    pub kept: Vec<PermitId>,
    /// The owner's limits.
    pub known: KnownLimits,
}

/// To the leader: this permit is not needed any more, granted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnBudget {
    /// Whose budget.
    pub owner: String,
    /// Who held it.
    pub node: NodeName,
    /// The permit.
    pub permit: PermitId,
    /// Whether a pull may have begun with it: then a quota counts it until the registry's own word includes it.
    pub used: bool,
    /// What the registry said; none: it was not heard. Empty: it answered, and told of none.
    #[serde(default)]
    pub told: Option<Vec<RegistryLimit>>,
    /// Whether the registry could do what was asked of it: true, it gave it or said that there is no such thing; false, it refused because of
    /// its load (429, 5xx) or did not answer; none, it was not asked, or how the pull ended says nothing of the registry.
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
    /// Of the leader; 0: the node asked does not lead this budget.
    pub epoch: u64,
}

/// From the leader to who waits: your turn has come, ask again. It is no permit: a late one does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTurn {
    /// Whose budget.
    pub owner: String,
    /// Who waits.
    pub permit: PermitId,
}

impl Command for BudgetTurn {
    type Reply = BudgetTurnHeard;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "budget-turn";
}

/// The answer to [`BudgetTurn`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetTurnHeard {}

/// What this node knows of the budgets of the fleet.
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
    /// One for each owner, in the order of their names.
    pub budgets: Vec<BudgetState>,
    /// Owners forgotten since start because there were too many.
    pub forgotten_total: u64,
}

/// How one budget stands, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetState {
    /// The owner.
    pub owner: String,
    /// Which node leads it; none: nobody is known to.
    pub leader: Option<NodeName>,
    /// The leader's epoch.
    pub epoch: u64,
    /// Whether the leader is this node: then the figures below are the fleet's, else this node's.
    pub leads: bool,
    /// Whether the leader is new and learns who holds what.
    pub learns: bool,
    /// The cap: pulls a second that the fleet may begin; 0: no limit.
    pub per_second: f64,
    /// Whether the fleet policy says so; else the settings of the node that leads.
    pub per_second_by_policy: bool,
    /// The lower cap of this node's own settings, which binds this node beside the fleet policy; none: it has none.
    pub per_second_of_node: Option<f64>,
    /// The rate in force, as far as this node knows it; 0: no limit.
    pub per_second_in_force: f64,
    /// Why no more: `policy`, `starting`, `overload`, `quota`, `silent_nodes`; empty: another node leads, and says it.
    pub rate_cause: String,
    /// Pulls at once; 0: no limit.
    pub at_once: u64,
    /// Whether the fleet policy says so; else the settings of the node that leads.
    pub at_once_by_policy: bool,
    /// As [`BudgetState::per_second_of_node`].
    pub at_once_of_node: Option<u64>,
    /// Which fleet policy this node follows: the revision in its bucket; 0: none.
    pub policy_revision: u64,
    /// Permits out.
    pub in_flight: u64,
    /// Who waits, the next first; at most 100.
    pub waiting: Vec<BudgetWaiter>,
    /// How many wait.
    pub waiting_count: u64,
    /// What the registry told, as much of it as is left by all permits that are out.
    pub known: KnownLimits,
    /// Whether no leader is reached, so that this node goes by its own share.
    pub alone: bool,
    /// Pulls begun without the fleet's permit since start, because no leader was reached.
    pub alone_total: u64,
    /// Permits that ran out while their pulls went on, since start.
    pub overrun_total: u64,
}

/// One that waits for a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetWaiter {
    /// Which node.
    pub node: NodeName,
    /// How long it was told to wait, in milliseconds from now.
    pub wait_ms: u64,
}
