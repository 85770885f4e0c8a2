//! One image that this node wants.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::backoff_tracker::BackoffKey;
use contract::{AttemptId, TraceContext};

use super::input::Verdict;
use super::target::Aim;
use super::topic::TopicId;

/// A wish and how far it is.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) key: BackoffKey,
    pub(super) aim: Aim,
    pub(super) state: State,
    /// The node's own last failure: the cause of a refusal by the local rule.
    pub(super) failed: Option<OwnFailure>,
    /// Whether the bus did not answer for it: then it goes ahead once without.
    pub(super) unanswered: bool,
    /// Whether an attempt of it was abandoned because it hung while others were answered.
    pub(super) abandoned: bool,
    /// What was last told.
    pub(super) told: Option<Verdict>,
    /// When to look at it again, if nothing happens before.
    pub(super) wake: Option<Duration>,
}

/// How far a wish is.
#[derive(Debug)]
pub(super) enum State {
    /// Not looked at yet, or refused by the local rule.
    Fresh,
    /// Held by the fleet, or waiting for another's word.
    Held,
    /// The cause is gone; it goes on in its turn.
    Released {
        /// Its turn.
        at: Duration,
    },
    /// Being tried.
    Going(Going),
}

/// An attempt.
#[derive(Clone, Debug)]
pub(super) struct Going {
    pub(super) begun: Duration,
    /// The lease of its duty runs out then.
    pub(super) deadline: Option<Duration>,
    pub(super) attempt: Option<(AttemptId, Option<TraceContext>)>,
    /// What step a failure of each topic would be, as it was known when the attempt began.
    pub(super) steps: BTreeMap<TopicId, u32>,
    pub(super) told_unanswered: bool,
    /// Whether the node's own rule allowed it, without the fleet's leave: then that rule moves by its failure.
    pub(super) by_own_rule: bool,
}

/// How the node itself failed.
#[derive(Clone, Debug)]
pub(super) struct OwnFailure {
    pub(super) at: Duration,
    pub(super) trace: Option<TraceContext>,
    /// What it was about; a success of another on one of these means that the cause is gone.
    pub(super) topics: Vec<TopicId>,
}

impl Wish {
    pub(super) fn new(key: BackoffKey, aim: Aim) -> Self {
        Self { key, aim, state: State::Fresh, failed: None, unanswered: false, abandoned: false, told: None, wake: None }
    }

    /// Whether it has been waiting for the fleet.
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, State::Held)
    }
}
