//! What a node shares with its fleet, with whom and on which budget.

use std::time::Duration;

use settings::{Budget, Settings, Share};

/// What it takes to share. A node without it goes by kubelet's rule alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// Whether the node goes by what others found out, or only says what it would have refused.
    pub share: Share,
    /// Different for each start of the node.
    pub instance: String,
    /// Which nodes see the same registries.
    pub scope: String,
    /// Which nodes reach registries from one address.
    pub egress: String,
    /// Which nodes lose a registry together.
    pub zone: String,
    /// The longest that a pull without a standing wish waits for the fleet.
    pub max_wait: Duration,
    /// How much the fleet may ask of a registry.
    pub budget: Budget,
}

impl Sharing {
    /// As set, for a node that has a fleet to share with; none where sharing is off.
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
        };
        (sharing.share != Share::Off).then_some(sharing)
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
        let told = sharing.as_ref().map(|sharing| (sharing.share, sharing.egress.as_str(), sharing.zone.as_str()));
        assert_eq!(told, Some((Share::Enforce, "eu", "default")));
        settings.fleet.egress = Some("nat-1".to_owned());
        assert_eq!(Sharing::of(&settings, "i".to_owned()).map(|sharing| sharing.egress), Some("nat-1".to_owned()));
        settings.fleet.share = Share::Off;
        assert_eq!(Sharing::of(&settings, "i".to_owned()), None);
    }
}
