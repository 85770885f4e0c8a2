//! One permit that a node wants or has, and its state.

use std::time::Duration;

use contract::messages::throttler::RegistryLimit;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Waiting,
    Held {
        until: Duration,
    },
    Alone,
}

#[derive(Debug, Default)]
pub(super) struct Claim {
    pub(super) stage: Stage,
    /// In order of arrival.
    pub(super) number: u64,
    /// When it was requested last on this node.
    pub(super) wanted: Duration,
    /// When the leader is asked next.
    pub(super) ask_at: Duration,
    pub(super) asked: Option<Duration>,
    /// How many are ahead, as the leader stated; `turn_at` is when the stated wait is over.
    pub(super) ahead: u64,
    pub(super) turn_at: Option<Duration>,
    pub(super) limits: Option<Vec<RegistryLimit>>,
    pub(super) limits_sent: bool,
    pub(super) overran: bool,
    /// How many of its grants came too late.
    pub(super) late: u8,
}

impl Claim {
    /// A claim that waits from now on.
    pub(super) fn new(number: u64, now: Duration) -> Self {
        Self { number, wanted: now, ask_at: now, ..Self::default() }
    }

    /// Whether it waits and the leader has stated when its turn is.
    pub(super) fn is_placed(&self) -> bool {
        self.stage == Stage::Waiting && self.turn_at.is_some()
    }

    /// Whether there are limits that were not sent to the leader.
    pub(super) fn is_unsent(&self) -> bool {
        self.limits.is_some() && !self.limits_sent
    }
}

#[derive(Debug)]
pub(super) struct Return {
    pub(super) used: bool,
    pub(super) limits: Option<Vec<RegistryLimit>>,
    pub(super) served: Option<bool>,
    pub(super) since: Duration,
    /// When the return is sent next.
    pub(super) ask_at: Duration,
    pub(super) asked: Option<Duration>,
}

/// How long a request has to wait, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetWait {
    /// How many requests are before it in the fleet.
    pub ahead: u64,
    /// How long; none if it is not known yet.
    pub wait: Option<Duration>,
}
