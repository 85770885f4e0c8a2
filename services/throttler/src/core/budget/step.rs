//! What a node's budgets are told and what they want done.

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
    /// A permit, please.
    Grant(GrantBudget),
    /// These are in use.
    Renew(RenewBudget),
    /// This one is not needed any more.
    Return(ReturnBudget),
}

impl BudgetRequest {
    /// Whose budget it is about.
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

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A pull of this node wants a permit. To be said again at least every 30 s while it waits and while it pulls.
    Want {
        /// Whose budget.
        owner: String,
        /// Chosen by the asker, never twice.
        permit: PermitId,
    },
    /// The registry has answered in a pull; no limits: it told of none.
    Report {
        /// Of which permit.
        permit: PermitId,
        /// What it said.
        limits: Vec<RegistryLimit>,
    },
    /// A permit is not needed any more, granted or not.
    Release {
        /// The permit.
        permit: PermitId,
        /// What the registry said; empty: not known.
        limits: Vec<RegistryLimit>,
        /// Whether the registry could do what was asked; none: how the pull ended says nothing of it.
        served: Option<bool>,
    },
    /// Another node calls this one as a leader. Answered in the same step by [`Effect::Reply`] with the same token.
    Called {
        /// Chosen by the caller of the core.
        token: u64,
        /// What it wants.
        call: BudgetRequest,
    },
    /// A leader has answered [`Effect::Call`].
    Replied {
        /// As in the effect.
        asked: Duration,
        /// As in the effect.
        call: BudgetRequest,
        /// The answer.
        reply: BudgetReply,
    },
    /// A leader says that the turn of one of this node's requests has come.
    Turn(BudgetTurn),
    /// What the lease of a budget says, after [`Effect::Campaign`] or whenever it is heard.
    Lead {
        /// Whose budget.
        owner: String,
        /// Who leads, by which epoch; none: nobody.
        leader: Option<(NodeName, u64)>,
    },
    /// This node has taken the lease.
    Elected {
        /// Whose budget.
        owner: String,
        /// How.
        term: Term,
    },
    /// The lease that [`Effect::KeepLease`] asked for goes on.
    LeaseKept {
        /// Whose budget.
        owner: String,
        /// Of which leadership.
        epoch: u64,
        /// Until when: [`super::LEADER_LEASE`] from when it was asked for.
        until: Duration,
    },
    /// Somebody else has the lease, or it is gone.
    LeaseLost {
        /// Whose budget.
        owner: String,
        /// Of which leadership.
        epoch: u64,
    },
    /// The bus has not answered [`Effect::Campaign`] or [`Effect::KeepLease`].
    LeaseUnknown {
        /// Whose budget.
        owner: String,
        /// When it was asked.
        asked: Duration,
    },
    /// So many nodes are alive, this one included.
    Fleet {
        /// As the registrar says.
        alive: u64,
    },
    /// The fleet policy is this from now on, at this revision of its bucket; 0: there is none.
    Policy {
        /// What it says.
        policy: FleetPolicy,
        /// Which one it is.
        revision: u64,
    },
    /// The bus cannot be reached.
    BusGone,
    /// There was no bus since the start, or the one that is there cannot do what budgets need: nobody waits for it to come back.
    BusUnusable,
    /// It can again.
    BusBack,
    /// Time has passed: see [`super::Budgets::wake_in`].
    Tick,
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a leader; its answer comes as [`Input::Replied`]. No answer is found out by the core itself.
    Call {
        /// Which node.
        to: NodeName,
        /// To be given back with the answer.
        asked: Duration,
        /// What.
        call: BudgetRequest,
    },
    /// Answer [`Input::Called`].
    Reply {
        /// As in the input.
        token: u64,
        /// The answer.
        reply: BudgetReply,
    },
    /// Tell a node that a turn has come; nothing is awaited.
    Turn {
        /// Which node.
        to: NodeName,
        /// Whose turn.
        turn: BudgetTurn,
    },
    /// Look who has the lease of a budget, and take it if nobody has: [`Input::Lead`] or [`Input::Elected`] follows if the bus answers.
    Campaign {
        /// Whose budget.
        owner: String,
    },
    /// Renew the lease.
    KeepLease {
        /// Whose budget.
        owner: String,
        /// Of which leadership.
        epoch: u64,
    },
    /// Give the lease back.
    DropLease {
        /// Whose budget.
        owner: String,
        /// Of which leadership.
        epoch: u64,
        /// No node holds or wants a permit, so the next leader has nothing to learn. Else the lease came when this node did not want it any more.
        in_good_order: bool,
    },
    /// A request may go ahead.
    Granted {
        /// Whose budget.
        owner: String,
        /// The permit.
        permit: PermitId,
        /// Without the fleet's permit, as no leader is reached.
        alone: bool,
    },
    /// Nobody has asked for a request or its permit again within 30 s: it is forgotten. Its leader is told by the core itself.
    Lapsed {
        /// The permit.
        permit: PermitId,
    },
    /// A permit ran out while its pull goes on: it could not be renewed. Nothing is to be done; it is counted.
    RanOut {
        /// The permit.
        permit: PermitId,
        /// When.
        at: Duration,
    },
    /// The budget that this node leads lets more or fewer pulls go than before. Nothing is to be done; people are told, by this node alone.
    RateChanged {
        /// Whose budget.
        owner: String,
        /// What it lets go now.
        rate: Rate,
        /// What it let go before, as it was told.
        before: Rate,
    },
    /// A request is refused: too many wait.
    Refused {
        /// The permit.
        permit: PermitId,
        /// In words.
        text: String,
    },
}
