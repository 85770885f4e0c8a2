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
    /// Every node for itself.
    pub kubelet: Figures,
    /// Together.
    pub fleetpull: Figures,
}

/// Every request of both sides, for a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Every node for itself.
    pub kubelet: Vec<Request>,
    /// Together.
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
