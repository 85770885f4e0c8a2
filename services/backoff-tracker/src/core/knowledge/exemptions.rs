//! When other nodes' reports refuse nothing: if the node only observes, or during a pause of an operator.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::View;

use crate::core::remove_least;

/// Pauses in force at the same time. For one more, the pause that ends first is dropped.
pub const MAX_PAUSES: usize = 256;
/// The longest pause, so that a fleet does not stay paused because the pause was forgotten.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A pause in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseInForce {
    /// The registry; none: all registries.
    pub registry: Option<String>,
    /// When it ends, on this node's clock.
    pub until: Duration,
    /// The operator.
    pub by: String,
}

/// The reasons why other nodes' reports refuse nothing.
#[derive(Debug, Default)]
pub(super) struct Exemptions {
    /// The node only observes.
    pub(super) observes: bool,
    pauses: BTreeMap<Option<String>, PauseInForce>,
}

impl Exemptions {
    pub(super) fn pause(&mut self, now: Duration, registry: Option<String>, left: Duration, by: String) {
        self.pauses.retain(|_, pause| now < pause.until);
        if left.is_zero() {
            self.pauses.remove(&registry);
            return;
        }
        let pause = PauseInForce { registry: registry.clone(), until: now + left.min(LONGEST_PAUSE), by };
        self.pauses.insert(registry, pause);
        if self.pauses.len() > MAX_PAUSES {
            remove_least(&mut self.pauses, |pause| pause.until);
        }
    }

    pub(super) fn in_force(&self, now: Duration) -> impl Iterator<Item = &PauseInForce> {
        self.pauses.values().filter(move |pause| now < pause.until)
    }

    pub(super) fn holds(&self, now: Duration, view: &View) -> bool {
        self.observes || self.in_force(now).any(|pause| pause.registry.as_ref().is_none_or(|registry| *registry == view.registry))
    }
}
