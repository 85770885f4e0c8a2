//! The state of the fleet, computed from the answers of its nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bus::BucketServers;
use contract::NodeName;
use contract::messages::agent::{BusLoss, NodeDescription};
use contract::messages::backoff_tracker::Pause;

use super::row::Row;
use super::rows::rows;
use super::waits::Waits;
use crate::commands::holds::Budgets;
use crate::output::known_failures::Known;
use crate::output::silent::{self, Silent};

/// Unwell nodes that are named; the others are counted.
const NAMED: usize = 10;
/// The state of a node without problems.
const WELL: &str = "ok";
/// The prefix of the state of a node with a problem.
const DEGRADED: &str = "degraded: ";

/// The answers of the nodes.
pub(super) struct Answers {
    pub(super) fleet: String,
    /// True if one agent was asked through its socket.
    pub(super) of_one_node: bool,
    pub(super) nodes: Vec<NodeDescription>,
    pub(super) silent: Vec<Silent>,
    /// Nodes that reported their state but did not answer the other requests.
    pub(super) unanswered: Vec<NodeName>,
    pub(super) known: Vec<Known>,
    /// Entries that are not among `known`: the most that one node did not list, and those for which the merged list has no room.
    pub(super) left_out: u64,
    pub(super) pauses: Vec<Pause>,
    pub(super) budgets: Budgets,
    pub(super) waits: Waits,
    /// The NATS servers that hold the fleet's list of nodes. None if they are unknown.
    pub(super) servers: Option<BucketServers>,
    /// How long one agent took to answer, in milliseconds.
    pub(super) answered_in_ms: Option<u64>,
}

/// The state of the fleet, or the part of it that one node reports.
pub(super) struct Status {
    pub(super) fleet: String,
    /// The node, if only one was asked.
    pub(super) of_node: Option<NodeName>,
    pub(super) sharing: Sharing,
    pub(super) bus: BusState,
    pub(super) nodes: Nodes,
    pub(super) pulls: Pulls,
    /// The rows, the worst first.
    pub(super) rows: Vec<Row>,
    pub(super) left_out: u64,
}

/// The sharing modes of the nodes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sharing {
    pub(super) enforce: u64,
    pub(super) observe: u64,
    pub(super) off: u64,
    pub(super) pauses: Vec<Pause>,
    /// The newest fleet policy that nodes use. 0 if there is none.
    pub(super) policy_revision: u64,
}

/// The state of the bus.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BusState {
    /// The loss of the bus, as the one asked node reports it.
    pub(super) lost: Option<BusLoss>,
    /// Whether the one asked node has no bus configured.
    pub(super) is_unset: bool,
    /// The NATS servers that hold the fleet's list of nodes. None if they are unknown.
    pub(super) servers: Option<BucketServers>,
    /// How long an agent took to answer through the bus.
    pub(super) answered_in_ms: Option<u64>,
    /// How long the oldest event of any node has waited for the stream, in milliseconds.
    pub(super) oldest_unsent_ms: u64,
}

/// The state of the nodes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Nodes {
    pub(super) total: u64,
    pub(super) ready: u64,
    pub(super) degraded: u64,
    pub(super) silent: u64,
    /// The silent nodes, then the degraded ones, each sorted by duration with the longest first.
    pub(super) unwell: Vec<Unwell>,
    /// The number of nodes for each version of the program.
    pub(super) versions: BTreeMap<String, u64>,
    /// Nodes that did not answer the other requests.
    pub(super) unanswered: Vec<NodeName>,
}

/// A silent or degraded node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unwell {
    pub(super) node: NodeName,
    /// Why the node is degraded. None if it is silent.
    pub(super) reason: Option<String>,
    pub(super) since_ms: u64,
}

/// The counts of the pulls. Each pull is running or waiting.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pulls {
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// The standing pulls, which are running or waiting as well.
    pub(super) standing: u64,
    pub(super) oldest_wait_ms: Option<u64>,
}

impl Status {
    /// Computes the status from the answers.
    pub(super) fn of(answers: Answers) -> Self {
        let Answers { fleet, of_one_node, nodes, silent, unanswered, known, left_out, pauses, budgets, waits, servers, answered_in_ms } =
            answers;
        let sum = |of: fn(&NodeDescription) -> u64| nodes.iter().map(of).fold(0, u64::saturating_add);
        let takes_part = |share: &str| nodes.iter().filter(|node| node.share == share).count() as u64;
        let of_node = nodes.first().filter(|_| of_one_node);
        Self {
            of_node: of_node.map(|node| node.node.clone()),
            sharing: Sharing {
                enforce: takes_part("enforce"),
                observe: takes_part("observe"),
                off: takes_part("off"),
                pauses,
                policy_revision: nodes.iter().map(|node| node.policy_revision).max().unwrap_or_default(),
            },
            bus: BusState {
                lost: of_node.and_then(|node| node.bus_loss.clone()),
                is_unset: of_node.is_some_and(|node| node.bus_unset),
                servers,
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

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
