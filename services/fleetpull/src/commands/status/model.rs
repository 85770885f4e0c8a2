//! The state of the fleet, folded from what its nodes answered.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use contract::NodeName;
use contract::messages::agent::NodeDescription;
use contract::messages::backoff_tracker::Pause;

use super::row::Row;
use super::rows::rows;
use super::waits::Waits;
use crate::commands::holds::Budgets;
use crate::output::known_failures::Known;
use crate::output::silent::{self, Silent};

/// So many nodes that are not well are named; more are counted.
const NAMED: usize = 10;
/// The state of a node that lacks nothing.
const WELL: &str = "ok";
/// What an agent says first if something is wrong with it.
const DEGRADED: &str = "degraded: ";
/// What it says then if its bus is gone.
const NO_BUS: &str = "no bus since ";

/// What the nodes answered.
pub(super) struct Answers {
    pub(super) fleet: String,
    /// Whether one agent was asked, through its socket.
    pub(super) of_one_node: bool,
    pub(super) nodes: Vec<NodeDescription>,
    pub(super) silent: Vec<Silent>,
    /// Nodes that say how they are, and did not say what they know.
    pub(super) unanswered: Vec<NodeName>,
    pub(super) known: Vec<Known>,
    /// Entries that there was no room for.
    pub(super) left_out: u64,
    pub(super) pauses: Vec<Pause>,
    pub(super) budgets: Budgets,
    pub(super) waits: Waits,
    /// How long one agent took to answer, in milliseconds.
    pub(super) answered_in_ms: Option<u64>,
}

/// The state of the fleet, or what one node knows of it.
pub(super) struct Status {
    pub(super) fleet: String,
    /// The one node that was asked.
    pub(super) of_node: Option<NodeName>,
    pub(super) sharing: Sharing,
    pub(super) bus: BusState,
    pub(super) nodes: Nodes,
    pub(super) pulls: Pulls,
    /// The worst first.
    pub(super) rows: Vec<Row>,
    pub(super) left_out: u64,
}

/// How nodes take part in sharing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sharing {
    pub(super) enforce: u64,
    pub(super) observe: u64,
    pub(super) off: u64,
    pub(super) pauses: Vec<Pause>,
    /// The newest fleet policy that nodes follow; 0: none.
    pub(super) policy_revision: u64,
}

/// How the bus is.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BusState {
    /// Since when, in milliseconds, and why it is gone, as the one node says that was asked.
    pub(super) lost: Option<(u64, String)>,
    pub(super) answered_in_ms: Option<u64>,
    /// How long the oldest event of any node waits for the stream, in milliseconds.
    pub(super) oldest_unsent_ms: u64,
}

/// The nodes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Nodes {
    pub(super) total: u64,
    pub(super) ready: u64,
    pub(super) degraded: u64,
    pub(super) silent: u64,
    /// The silent ones first, then the degraded, each that is longest so first.
    pub(super) unwell: Vec<Unwell>,
    /// How many run which version of the program.
    pub(super) versions: BTreeMap<String, u64>,
    /// Nodes that did not say what they know.
    pub(super) unanswered: Vec<NodeName>,
}

/// A node that is not well.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unwell {
    pub(super) node: NodeName,
    /// Why it is degraded; none: it is silent.
    pub(super) reason: Option<String>,
    pub(super) since_ms: u64,
}

/// The pulls.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pulls {
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) standing: u64,
    pub(super) oldest_wait_ms: Option<u64>,
}

impl Status {
    /// Folds the answers.
    pub(super) fn of(answers: Answers) -> Self {
        let Answers { fleet, of_one_node, nodes, silent, unanswered, known, left_out, pauses, budgets, waits, answered_in_ms } = answers;
        let sum = |of: fn(&NodeDescription) -> u64| nodes.iter().map(of).sum::<u64>();
        let takes_part = |share: &str| nodes.iter().filter(|node| node.share == share).count() as u64;
        let lost = nodes.first().filter(|_| of_one_node).and_then(bus_lost);
        Self {
            of_node: nodes.first().filter(|_| of_one_node).map(|node| node.node.clone()),
            sharing: Sharing {
                enforce: takes_part("enforce"),
                observe: takes_part("observe"),
                off: takes_part("off"),
                pauses,
                policy_revision: budgets.all().map(|budget| budget.state.policy_revision).max().unwrap_or_default(),
            },
            bus: BusState {
                lost,
                answered_in_ms,
                oldest_unsent_ms: nodes.iter().map(|node| node.oldest_unsent_ms).max().unwrap_or_default(),
            },
            pulls: Pulls {
                running: sum(|node| node.pulling),
                waiting: sum(|node| node.waiting),
                standing: sum(|node| node.standing),
                oldest_wait_ms: waits.oldest_ms(),
            },
            nodes: Nodes { unanswered, ..Nodes::of(&nodes, &silent) },
            rows: rows(&known, &budgets, &waits),
            fleet,
            left_out,
        }
    }
}

impl Nodes {
    fn of(nodes: &[NodeDescription], silent: &[Silent]) -> Self {
        let mut folded = Self { total: (nodes.len() + silent.len()) as u64, silent: silent.len() as u64, ..Self::default() };
        let mut degraded = Vec::new();
        for node in nodes {
            *folded.versions.entry(node.version.clone()).or_default() += 1;
            if node.state == WELL {
                folded.ready += 1;
            } else {
                let reason = node.state.strip_prefix(DEGRADED).unwrap_or(&node.state).to_owned();
                degraded.push(Unwell { node: node.node.clone(), reason: Some(reason), since_ms: node.since_ms });
            }
        }
        folded.degraded = degraded.len() as u64;
        let of_silent = |silent: &Silent| Unwell { node: silent.node.clone(), reason: None, since_ms: silent::milliseconds(silent.ago) };
        folded.unwell = silent.iter().map(of_silent).chain(degraded).collect();
        folded.unwell.sort_by_cached_key(|unwell| (unwell.reason.is_some(), Reverse(unwell.since_ms), unwell.node.clone()));
        folded.unwell.truncate(NAMED);
        folded
    }
}

/// What a node says of a bus that is gone: for how many milliseconds, and why.
pub(in crate::commands) fn bus_lost(node: &NodeDescription) -> Option<(u64, String)> {
    let reason = node.state.strip_prefix(DEGRADED)?.strip_prefix(NO_BUS)?;
    // `2026-01-31T12:00:00Z: connection refused`
    let reason = reason.split_once(": ").map_or(reason, |(_, reason)| reason);
    Some((node.since_ms, reason.strip_suffix("; trying again").unwrap_or(reason).to_owned()))
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
