//! Permits of a fleet's budget, between the throttler of a node and the budget's leader.

use serde::{Deserialize, Serialize};

use super::{KnownLimits, PermitLimits, RegistryLimit};
use crate::open::open_answer;
use crate::policy::Caps;
use crate::{Command, NodeName, PermitId, Service};

/// To the leader of a budget: asks for a permit. A repeated request with the same id keeps the place in the queue, and gets the permit when
/// it is granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The caps by the asker's settings; 0: no limit; none: not stated. Without a fleet policy, the median of the nodes that asked last is
    /// the fleet's cap.
    #[serde(default)]
    pub caps: Caps,
}

impl Command for GrantBudget {
    type Reply = BudgetAnswer;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "grant-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// The answer to [`GrantBudget`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// The fleet's caps in force; 0: no limit; none: not stated.
        #[serde(default)]
        caps: Caps,
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
        /// The fleet's caps in force; 0: no limit; none: not stated.
        #[serde(default)]
        caps: Caps,
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

impl Command for RenewBudget {
    type Reply = BudgetRenewed;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "renew-budget";
    const SENDER: Option<fn(&Self) -> &NodeName> = Some(|call| &call.node);
}

/// The most permits of one budget that a node may hold; a leader ignores more. Many times what one node pulls at once.
pub const BUDGET_PERMITS_PER_NODE: usize = 1_000;

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
