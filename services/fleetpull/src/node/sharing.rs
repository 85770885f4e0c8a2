//! What a node shares with its fleet, with which nodes, and under which budget.

use std::time::Duration;

use actix::Addr;
use actors::{PanicGuard, Sender, Wiring};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, SharedBus, TrackerParts};
use bus::{BusRef, SharedStateRef};
use clock::{Clock, Random};
use contract::policy::Caps;
use pull_coordinator::{FleetNeighbours, Locality};
use registrar::{Neighbours, RegistrarParts};
use settings::{Budget, Loaded, Origin, Settings, Share};
use throttler::core::ThrottlePolicy;
use throttler::core::budget::{Alone, BudgetPolicy};
use throttler::{FleetParts, Throttler};

use super::Actors;
use super::boot::boot_id;

/// The configuration of sharing. A node without it follows kubelet's rule alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// Whether the node enforces other nodes' reports, or only reports what it would have refused.
    pub share: Share,
    /// Different for each start of the node.
    pub instance: String,
    /// The name of the group of nodes that see the same registries.
    pub scope: String,
    /// The name of the group of nodes that reach registries from one address.
    pub egress: String,
    /// The name of the group of nodes that lose a registry together.
    pub zone: String,
    /// How long a pull without a standing pull waits for the fleet.
    pub max_wait: Duration,
    /// The limits on the fleet's requests to a registry.
    pub budget: Budget,
    /// The caps from the node's own file, environment or flags.
    pub own_caps: Caps,
}

impl Sharing {
    /// The configured sharing of a node that has a fleet. None if sharing is off.
    #[must_use]
    pub fn of(settings: &Settings, instance: String) -> Option<Self> {
        let sharing = Self {
            share: settings.fleet.share,
            instance,
            scope: settings.fleet.scope.clone(),
            egress: settings.fleet.egress().to_owned(),
            zone: settings.node.zone.clone(),
            max_wait: settings.throttle.max_wait,
            budget: settings.budget.clone(),
            own_caps: Caps::NONE,
        };
        (sharing.share != Share::Off).then_some(sharing)
    }

    /// Sets the node's own caps. A cap that no source of settings names is the default of all nodes, and not an own one.
    #[must_use]
    pub fn with_own_caps(self, loaded: &Loaded) -> Self {
        let is_given = |key| !matches!(loaded.origins.get(key), None | Some(Origin::Default));
        let own_caps = Caps {
            pulls_per_second: is_given("budget.pulls_per_second").then_some(self.budget.pulls_per_second),
            pulls_at_once: is_given("budget.pulls_at_once").then_some(u64::from(self.budget.pulls_at_once)),
        };
        Self { own_caps, ..self }
    }

    /// The tracker of a node that shares.
    pub(super) fn tracker(
        &self,
        wiring: &Wiring,
        bus: BusRef,
        policy: BackoffPolicy,
        clock: Clock,
        panic_guard: PanicGuard,
    ) -> BackoffTracker {
        BackoffTracker::sharing(TrackerParts {
            node: wiring.node.clone(),
            policy,
            clock,
            random: Random::from_system(),
            panic_guard,
            share: match self.share {
                Share::Enforce => backoff_tracker::Share::Enforce,
                Share::Observe => backoff_tracker::Share::Observe,
                Share::Off => backoff_tracker::Share::Off,
            },
            shared: SharedBus { bus, fleet: wiring.fleet.clone() },
            planted_bug: None,
        })
    }

    /// The throttler of a node that shares. A node that only observes uses its own budgets alone.
    pub(super) fn throttler(
        &self,
        wiring: &Wiring,
        bus: BusRef,
        policy: ThrottlePolicy,
        clock: Clock,
        panic_guard: PanicGuard,
    ) -> Throttler {
        if self.share != Share::Enforce {
            return Throttler::new(policy, clock, panic_guard);
        }
        let budget = BudgetPolicy {
            per_second: self.budget.pulls_per_second,
            at_once: usize::try_from(self.budget.pulls_at_once).unwrap_or(usize::MAX),
            alone: match self.budget.alone {
                settings::Alone::Open => Alone::Open,
                settings::Alone::Share => Alone::Share,
            },
            own: self.own_caps,
        };
        let (fleet, node) = (wiring.fleet.clone(), wiring.node.clone());
        let instance = self.instance.clone();
        let registry_of = contract::registry_of_budget;
        let parts = FleetParts { bus, fleet, node, instance, budget, registry_of, random: Random::from_system(), planted_bug: None };
        Throttler::sharing(policy, clock, panic_guard, parts)
    }

    /// The additional neighbours of the coordinator of a node that shares, and the node's place.
    pub(super) fn of_coordinator(&self, wiring: &Wiring, backoff: &Addr<BackoffTracker>) -> pull_coordinator::Sharing {
        pull_coordinator::Sharing {
            neighbours: FleetNeighbours {
                clearance: Sender::local(wiring.clone(), backoff.clone().recipient()),
                resolve: Sender::local(wiring.clone(), backoff.clone().recipient()),
                withdraw: Sender::local(wiring.clone(), backoff.clone().recipient()),
                list: Sender::local(wiring.clone(), backoff.clone().recipient()),
            },
            locality: Locality { scope: self.scope.clone(), zone: self.zone.clone(), egress: self.egress.clone(), boot: boot_id() },
            max_wait: self.max_wait,
        }
    }

    /// The registrar, which makes the node known and passes the view of the fleet to the node's services.
    pub(super) fn registrar(
        &self,
        wiring: &Wiring,
        state: SharedStateRef,
        actors: &Actors,
        clock: Clock,
        panic_guard: PanicGuard,
    ) -> RegistrarParts {
        let neighbours = Neighbours {
            tracker: Sender::local(wiring.clone(), actors.backoff.clone().recipient()),
            throttler: Sender::local(wiring.clone(), actors.throttler.clone().recipient()),
        };
        RegistrarParts {
            wiring: wiring.clone(),
            state,
            instance: self.instance.clone(),
            zone: self.zone.clone(),
            clock,
            random: Random::from_system(),
            neighbours: Some(neighbours),
            panic_guard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_shares_unless_that_is_off_and_egress_is_the_scope_unless_set() {
        let mut settings = Settings::default();
        settings.fleet.scope = "eu".to_owned();
        let sharing = Sharing::of(&settings, "i".to_owned());
        let shown = sharing.as_ref().map(|sharing| (sharing.share, sharing.egress.as_str(), sharing.zone.as_str()));
        assert_eq!(shown, Some((Share::Enforce, "eu", "default")));
        settings.fleet.egress = Some("nat-1".to_owned());
        assert_eq!(Sharing::of(&settings, "i".to_owned()).map(|sharing| sharing.egress), Some("nat-1".to_owned()));
        settings.fleet.share = Share::Off;
        assert_eq!(Sharing::of(&settings, "i".to_owned()), None);
    }
}
