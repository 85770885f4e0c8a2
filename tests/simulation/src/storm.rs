//! `storm`: kubelet's rule and ours through the same trouble, side by side.

use std::time::Duration;

use serde::Serialize;

use crate::figures::Figures;
use crate::fleet::{self, Options};
use crate::kubelet;
use crate::scenario::Scenario;

/// Both sides of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Storm {
    /// Which.
    pub scenario: Scenario,
    /// How many nodes.
    pub nodes: usize,
    /// How long, simulated.
    pub minutes: u64,
    /// Of all chance in it.
    pub seed: u64,
    /// Every node for itself.
    pub kubelet: Figures,
    /// Together.
    pub fleetpull: Figures,
}

/// Runs both sides.
#[must_use]
pub fn run(scenario: Scenario, nodes: usize, minutes: u64, seed: u64) -> Storm {
    let end = Duration::from_secs(minutes.saturating_mul(60));
    let kubelet = kubelet::run(scenario, nodes, end, seed).figures(end);
    let fleetpull = fleet::run(scenario, nodes, end, seed, Options::default()).registry.figures(end);
    Storm { scenario, nodes, minutes, seed, kubelet, fleetpull }
}
