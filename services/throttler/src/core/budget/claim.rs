//! One permit of a node, from its request to its return.

use std::time::Duration;

use contract::DEADLINES;
use contract::messages::throttler::RegistryLimit;

/// A return that no leader accepted is repeated for this long. By then the permit has expired.
const RETURNED_AGAIN_FOR: Duration = Duration::from_secs(10);

/// A permit waits until the leader grants it or the node goes alone. Then its pull may run. When it is not needed any more, it is returned
/// until a leader accepts that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Waiting,
    Held {
        until: Duration,
    },
    Alone,
    Returned {
        /// A pull may have begun with it.
        used: bool,
        /// Whether the registry could do what was asked, if that is known.
        served: Option<bool>,
    },
}

impl Stage {
    /// Whether a pull may run with the permit.
    pub(super) fn is_in_flight(self) -> bool {
        matches!(self, Self::Held { .. } | Self::Alone)
    }

    pub(super) fn is_returned(self) -> bool {
        matches!(self, Self::Returned { .. })
    }
}

#[derive(Debug, Default)]
pub(super) struct Claim {
    pub(super) stage: Stage,
    /// In order of arrival.
    pub(super) number: u64,
    /// When it was requested last on this node, or returned.
    pub(super) wanted: Duration,
    /// When the leader is asked next for the permit, or to take it back.
    pub(super) ask_at: Duration,
    /// When the leader was asked, while its answer is missing.
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

    /// A permit that is returned from now on.
    pub(super) fn returned(now: Duration, used: bool, served: Option<bool>, limits: Option<Vec<RegistryLimit>>) -> Self {
        Self { stage: Stage::Returned { used, served }, limits, ..Self::new(0, now) }
    }

    /// When it is forgotten, if neither its caller nor a leader changes it.
    pub(super) fn lapses(&self) -> Duration {
        self.wanted + if self.stage.is_returned() { RETURNED_AGAIN_FOR } else { DEADLINES.permit_lease }
    }

    /// Whether it waits and the leader has stated when its turn is.
    pub(super) fn is_placed(&self) -> bool {
        self.stage == Stage::Waiting && self.turn_at.is_some()
    }
}

/// How long a request has to wait, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetWait {
    /// How many requests are before it in the fleet.
    pub ahead: u64,
    /// How long; none if it is not known yet.
    pub wait: Option<Duration>,
}
