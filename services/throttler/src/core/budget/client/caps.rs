//! The caps that a budget client applies: the fleet's, the lower ones of the node's own file, and the node's slots.

use std::time::Duration;

use contract::PermitId;
use contract::policy::Caps;

use super::super::policies::lower_than;
use super::super::{BudgetPolicy, Effect};
use super::BudgetClient;

impl BudgetClient {
    pub(in crate::core::budget) fn set_policy(&mut self, now: Duration, policy: BudgetPolicy) -> Vec<Effect> {
        self.membership.policy = policy;
        self.set_caps_in_force(policy.caps());
        self.tick(now)
    }

    /// The fleet's caps have changed, and so may have the node's own ones that apply in addition.
    pub(in crate::core::budget) fn set_caps_in_force(&mut self, in_force: Caps) {
        let before = self.own_caps();
        self.in_force = in_force;
        if self.own_caps() != before {
            self.own_rate_limiter.set(self.own_caps().pulls_per_second.unwrap_or_default());
        }
    }

    /// The node's own caps where they are lower than the fleet's.
    pub(in crate::core::budget) fn own_caps(&self) -> Caps {
        lower_than(self.membership.policy.own, self.in_force)
    }

    /// The requests that wait for the fleet, in order of arrival. There are no more than the node has free slots, because permits that wait
    /// for a slot keep others from pulling and begin together when slots become free. If the node's own file sets lower caps than the fleet
    /// policy, they apply as well: by a lower rate, one request at a time, so that late grants do not begin together.
    pub(super) fn may_go(&self, now: Duration) -> Vec<PermitId> {
        let room = |most: usize| most.saturating_sub(self.claims.in_flight_count());
        let of_slots = if self.membership.slots > 0 { room(self.membership.slots) } else { usize::MAX };
        let Caps { pulls_per_second, pulls_at_once } = self.own_caps();
        let of_own = pulls_at_once.map_or(usize::MAX, |most| room(usize::try_from(most).unwrap_or(usize::MAX)));
        let of_rate = match pulls_per_second {
            None => usize::MAX,
            Some(_) => usize::from(self.own_rate_limiter.ready_in(now, 0).is_zero()),
        };
        self.claims.waiting().take(of_slots.min(of_own).min(of_rate)).collect()
    }
}
