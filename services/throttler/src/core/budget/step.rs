//! Inputs and effects of a node's budgets.

use std::time::Duration;

use contract::messages::throttler::{
    BudgetAnswer, BudgetRenewed, BudgetReturned, BudgetTurn, GrantBudget, RegistryLimit, RenewBudget, ReturnBudget,
};
use contract::policy::FleetPolicy;
use contract::{NodeName, PermitId};

use super::leader::Term;
use super::rate::Rate;

/// A call to the leader of a budget.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetRequest {
    /// Asks for a permit.
    Grant(GrantBudget),
    /// Renews the permits in use.
    Renew(RenewBudget),
    /// Returns a permit.
    Return(ReturnBudget),
}

impl BudgetRequest {
    /// The owner of the budget.
    #[must_use]
    pub fn owner(&self) -> &str {
        match self {
            Self::Grant(ask) => &ask.owner,
            Self::Renew(renew) => &renew.owner,
            Self::Return(back) => &back.owner,
        }
    }
}

/// The leader's answer to a [`BudgetRequest`] of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetReply {
    /// To [`BudgetRequest::Grant`].
    Granted(BudgetAnswer),
    /// To [`BudgetRequest::Renew`].
    Renewed(BudgetRenewed),
    /// To [`BudgetRequest::Return`].
    Returned(BudgetReturned),
}

/// An input of [`super::Budgets`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A pull of this node wants a permit. The caller repeats this at least every 30 s while the pull waits and while it runs.
    Want {
        /// The owner of the budget.
        owner: String,
        /// Chosen by the caller, never twice.
        permit: PermitId,
    },
    /// The registry has answered in a pull.
    Report {
        /// The permit of the pull.
        permit: PermitId,
        /// The limits that the registry stated; empty if it stated none.
        limits: Vec<RegistryLimit>,
    },
    /// A permit, granted or not, is not needed any more.
    Release {
        /// The permit.
        permit: PermitId,
        /// The limits that the registry stated; empty if they are not known.
        limits: Vec<RegistryLimit>,
        /// Whether the registry could do what was asked; none if the end of the pull does not show it.
        served: Option<bool>,
    },
    /// Another node calls this one as the budget leader. The same step answers it with one [`Effect::Reply`].
    Called(BudgetRequest),
    /// A leader has answered [`Effect::Call`].
    Replied {
        /// As in the effect.
        asked: Duration,
        /// As in the effect.
        call: BudgetRequest,
        /// The answer.
        reply: BudgetReply,
    },
    /// A leader has announced that the turn of one of this node's requests has come.
    Turn(BudgetTurn),
    /// Who leads a budget by its lease: after [`Effect::Campaign`], or whenever it becomes known.
    Lead {
        /// The owner of the budget.
        owner: String,
        /// The leader and its epoch; none if there is no leader.
        leader: Option<(NodeName, u64)>,
    },
    /// This node has taken the lease.
    Elected {
        /// The owner of the budget.
        owner: String,
        /// How the term began.
        term: Term,
    },
    /// The lease was renewed, as [`Effect::KeepLease`] asked.
    LeaseKept {
        /// The owner of the budget.
        owner: String,
        /// The epoch of the term.
        epoch: u64,
        /// Until when: `DEADLINES.leader_lease` after it was asked for.
        until: Duration,
    },
    /// Another node has the lease, or the lease has expired.
    LeaseLost {
        /// The owner of the budget.
        owner: String,
        /// The epoch of the term.
        epoch: u64,
    },
    /// The bus has not answered [`Effect::Campaign`] or [`Effect::KeepLease`].
    LeaseUnknown {
        /// The owner of the budget.
        owner: String,
        /// When the bus was asked.
        asked: Duration,
    },
    /// How many nodes are alive, this one included.
    Fleet {
        /// The registrar's count.
        alive: u64,
    },
    /// The fleet policy from now on.
    Policy {
        /// Its content.
        policy: FleetPolicy,
        /// Its revision in the bucket; 0 if there is no policy.
        revision: u64,
    },
    /// What is known of the registry's quota is wrong. The next pull shows what the registry counts.
    ForgetQuota {
        /// The owner of the budget.
        owner: String,
    },
    /// The bus cannot be reached.
    BusLost,
    /// There was no bus since the start, or the present one lacks what budgets need: pulls wait for it no longer than
    /// `DEADLINES.alone_after_unusable_bus`.
    BusUnusable,
    /// The bus can be reached and used again.
    BusBack,
    /// Time has passed: see [`super::Budgets::wake_in`].
    Tick,
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a leader; its answer comes as [`Input::Replied`]. The core itself notices a missing answer.
    Call {
        /// The leader's node.
        to: NodeName,
        /// To be passed back with the answer.
        asked: Duration,
        /// The call.
        call: BudgetRequest,
    },
    /// Answer [`Input::Called`].
    Reply(BudgetReply),
    /// Tell a node that the turn of one of its requests has come. No answer is expected.
    Turn {
        /// The node.
        to: NodeName,
        /// The request.
        turn: BudgetTurn,
    },
    /// Look up who holds the lease of a budget, and take it if nobody does. [`Input::Lead`] or [`Input::Elected`] follows if the bus
    /// answers.
    Campaign {
        /// The owner of the budget.
        owner: String,
    },
    /// Renew the lease.
    KeepLease {
        /// The owner of the budget.
        owner: String,
        /// The epoch of the term.
        epoch: u64,
    },
    /// Give the lease back.
    DropLease {
        /// The owner of the budget.
        owner: String,
        /// The epoch of the term.
        epoch: u64,
        /// True if no node holds or wants a permit, so that the next leader has nothing to learn. False if the lease came when this node
        /// did not want it any more.
        in_good_order: bool,
    },
    /// A request is granted.
    Granted {
        /// The owner of the budget.
        owner: String,
        /// The permit.
        permit: PermitId,
        /// True if granted without the fleet's permit, because no leader is reached.
        alone: bool,
    },
    /// No caller has repeated a request, or renewed its permit, within 30 s: it is forgotten. The core itself informs the leader.
    Lapsed {
        /// The permit.
        permit: PermitId,
    },
    /// A permit expired while its pull continues, because it could not be renewed. It is only counted.
    RanOut {
        /// The permit.
        permit: PermitId,
        /// When it expired.
        at: Duration,
    },
    /// A budget that this node leads lets more or fewer pulls begin than before. It is only reported to people, by this node alone.
    RateChanged {
        /// The owner of the budget.
        owner: String,
        /// The new rate.
        rate: Rate,
        /// The rate that was reported before.
        before: Rate,
    },
    /// A request is refused.
    Refused {
        /// The permit.
        permit: PermitId,
        /// The reason.
        text: String,
    },
}
