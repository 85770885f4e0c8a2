//! The limits in force for one budget on this node: the fleet policy's if it sets them, otherwise those of the node's own settings.

use contract::policy::{Caps, FleetPolicy};

use super::BudgetPolicy;

/// The settings of a node, and the fleet policy that it follows.
#[derive(Debug)]
pub(super) struct Policies {
    /// Without the fleet policy.
    pub(super) settings: BudgetPolicy,
    pub(super) fleet: FleetPolicy,
    /// Of the fleet policy; 0 if there is none.
    pub(super) revision: u64,
    /// The registry of an owner's budget.
    pub(super) registry_of: fn(&str) -> String,
}

impl Policies {
    /// No fleet policy is known yet.
    pub(super) fn new(settings: BudgetPolicy) -> Self {
        Self { settings, fleet: FleetPolicy::default(), revision: 0, registry_of: str::to_owned }
    }

    /// Whether the fleet policy makes nodes only observe.
    pub(super) fn observes(&self) -> bool {
        self.fleet.observes()
    }

    /// The caps that the fleet policy sets for an owner's budget.
    pub(super) fn fleet_caps_of(&self, owner: &str) -> Caps {
        self.fleet.caps_of(&(self.registry_of)(owner))
    }

    /// The limits for an owner's budget, as far as this node knows. A leader may know of other nodes' settings.
    pub(super) fn of(&self, owner: &str) -> BudgetPolicy {
        self.settings.with(self.fleet_caps_of(owner))
    }
}

/// A node's own caps where they are lower than the fleet's in force. A zero means no cap.
pub(super) fn lower_than(own: Caps, in_force: Caps) -> Caps {
    Caps {
        pulls_per_second: lower(own.pulls_per_second, in_force.pulls_per_second),
        pulls_at_once: lower(own.pulls_at_once, in_force.pulls_at_once),
    }
}

fn lower<T: PartialOrd + Default + Copy>(own: Option<T>, in_force: Option<T>) -> Option<T> {
    let is_lower = |(own, in_force): &(T, T)| *own > T::default() && (*in_force == T::default() || own < in_force);
    own.zip(in_force).filter(is_lower).map(|(own, _)| own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::policy::ShareAtMost;

    use super::*;

    fn caps(pulls_per_second: Option<f64>, pulls_at_once: Option<u64>) -> Caps {
        Caps { pulls_per_second, pulls_at_once }
    }

    /// The limits in force under this policy, if the node's file sets the caps `own`.
    fn in_force(own: Caps, of_fleet: Option<Caps>) -> (f64, usize, Caps) {
        let settings = BudgetPolicy {
            per_second: own.pulls_per_second.unwrap_or(200.0),
            at_once: own.pulls_at_once.unwrap_or(0) as usize,
            own,
            ..BudgetPolicy::default()
        };
        let mut policies = Policies::new(settings);
        policies.registry_of = |owner| owner.replace("owner of ", "");
        if let Some(caps) = of_fleet {
            let registry = BTreeMap::from([("a.example".to_owned(), caps)]);
            policies.fleet = FleetPolicy { registry, ..FleetPolicy::default() };
        }
        let policy = policies.of("owner of a.example");
        assert_eq!(policies.of("owner of b.example"), settings, "the policy does not mention it");
        (policy.per_second, policy.at_once, lower_than(policy.own, policy.caps()))
    }

    #[test]
    fn fleet_observes_while_its_policy_says_so() {
        let mut policies = Policies::new(BudgetPolicy::default());
        for (share, expected) in [(None, false), (Some(ShareAtMost::Observe), true), (None, false)] {
            policies.fleet = FleetPolicy { share, ..FleetPolicy::default() };
            assert_eq!(policies.observes(), expected, "{share:?}");
        }
    }

    #[test]
    fn policy_overrides_settings_except_lower_own_cap() {
        let none = Caps::default();
        let table = [
            // The caps of the node's file and of the policy; the limits in force for the fleet, and the own caps of this node in addition.
            (none, None, (200.0, 0, none)),
            (caps(Some(5.0), Some(3)), None, (5.0, 3, none)),
            (none, Some(caps(Some(50.0), Some(9))), (50.0, 9, none)),
            (none, Some(caps(Some(500.0), None)), (500.0, 0, none)),
            (caps(Some(5.0), Some(3)), Some(caps(Some(50.0), Some(9))), (50.0, 9, caps(Some(5.0), Some(3)))),
            (caps(Some(500.0), Some(30)), Some(caps(Some(50.0), Some(9))), (50.0, 9, none)),
            (caps(Some(50.0), Some(9)), Some(caps(Some(50.0), Some(9))), (50.0, 9, none)),
            (caps(Some(0.0), Some(0)), Some(caps(Some(50.0), Some(9))), (50.0, 9, none)),
            (caps(Some(5.0), Some(3)), Some(caps(None, Some(9))), (5.0, 9, caps(None, Some(3)))),
            (caps(Some(5.0), Some(3)), Some(none), (5.0, 3, none)),
        ];
        for (own, of_fleet, expected) in table {
            assert_eq!(in_force(own, of_fleet), expected, "{own:?} {of_fleet:?}");
        }
    }
}
