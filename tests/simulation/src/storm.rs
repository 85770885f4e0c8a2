//! Runs one scenario by kubelet's rule and by Fleetpull's cores, side by side.

use std::time::Duration;

use serde::Serialize;

use crate::figures::Figures;
use crate::fleet::{self, Options};
use crate::kubelet;
use crate::policy::Policy;
use crate::registry::Request;
use crate::scenario::Scenario;

/// Both sides of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Storm {
    /// The scenario.
    pub scenario: Scenario,
    /// How many nodes.
    pub nodes: usize,
    /// The simulated minutes.
    pub minutes: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The side of kubelet's rule: every node decides by itself.
    pub kubelet: Figures,
    /// The side of Fleetpull: the nodes share.
    pub fleetpull: Figures,
}

/// Every request of both sides, for a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The requests by kubelet's rule.
    pub kubelet: Vec<Request>,
    /// The requests of Fleetpull.
    pub fleetpull: Vec<Request>,
}

/// Runs both sides, Fleetpull's with `policy`.
#[must_use]
pub fn run(scenario: Scenario, nodes: usize, minutes: u64, seed: u64, policy: &Policy) -> (Storm, Traffic) {
    let end = Duration::from_secs(minutes.saturating_mul(60));
    let kubelet = kubelet::run(scenario, nodes, end, seed);
    let options = Options { policy: policy.clone(), only_own_images: true, ..Options::default() };
    let fleetpull = fleet::run(scenario, nodes, end, seed, options).registry;
    let storm = Storm { scenario, nodes, minutes, seed, kubelet: kubelet.figures(end), fleetpull: fleetpull.figures(end) };
    (storm, Traffic { kubelet: kubelet.requests().to_vec(), fleetpull: fleetpull.requests().to_vec() })
}
