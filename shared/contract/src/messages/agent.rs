//! Messages about an agent and its node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Command, NodeName, Service};

/// Asks for the node's description and state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribeNode {}

impl Command for DescribeNode {
    type Reply = NodeDescription;
    const SERVICE: Service = Service::Agent;
    const VERB: &'static str = "describe";
}

/// The answer to [`DescribeNode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Its name.
    pub node: NodeName,
    /// Different for each start of an agent.
    pub instance: String,
    /// The name of its machine; empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// When this agent began, in milliseconds since 1970 on its own clock.
    pub started_ms: u64,
    /// The version of the program.
    pub version: String,
    /// `ok`, or `degraded: ...` with the reason.
    pub state: String,
    /// For how long it has been degraded, in milliseconds; if it is `ok`, for how long the agent has run.
    pub since_ms: u64,
    /// The runtime and its version.
    pub runtime: String,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The group of nodes that lose a registry together; empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Running pulls.
    pub pulling: u64,
    /// Pulls that wait for a permit or, as standing pulls, for their next attempt.
    pub waiting: u64,
    /// Standing pulls.
    #[serde(default)]
    pub standing: u64,
    /// What is in back-off on it, by its own failures and by those of the fleet.
    pub backoff: u64,
    /// The age of the oldest event that waits for the stream, in milliseconds; 0: none waits.
    #[serde(default)]
    pub oldest_unsent_ms: u64,
    /// Its part in sharing: `enforce`, `observe`, `off`.
    #[serde(default)]
    pub share: String,
    /// The message versions that it reads.
    #[serde(default)]
    pub reads_versions: Vec<u32>,
    /// The revision of the fleet policy that it follows; 0: none.
    #[serde(default)]
    pub policy_revision: u64,
    /// The loss of its bus; none: it is connected, or no bus is configured.
    #[serde(default)]
    pub bus_loss: Option<BusLoss>,
    /// Whether no bus is configured, so that it shares nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bus_unset: bool,
}

/// An agent without its bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusLoss {
    /// For how long, in milliseconds.
    pub since_ms: u64,
    /// Why it is not connected now.
    pub reason: String,
}

/// Asks for the node's metrics, as a scraper gets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMetrics {}

impl Command for ReadMetrics {
    type Reply = MetricsText;
    const SERVICE: Service = Service::Agent;
    const VERB: &'static str = "metrics";
}

/// The answer to [`ReadMetrics`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsText {
    /// OpenMetrics.
    pub text: String,
}

/// Asks for the agent's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSetup {}

impl Command for ReadSetup {
    type Reply = NodeSetup;
    const SERVICE: Service = Service::Agent;
    const VERB: &'static str = "setup";
}

/// The answer to [`ReadSetup`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSetup {
    /// The path of its socket.
    pub socket: String,
    /// The settings that differ from their defaults, by key, as written in the file; passwords are hidden.
    pub settings: BTreeMap<String, String>,
}

/// Asks for all counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountAll {}

impl Command for CountAll {
    type Reply = NodeCounters;
    const SERVICE: Service = Service::Agent;
    const VERB: &'static str = "count";
}

/// The answer to [`CountAll`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounters {
    /// By name; names ending in `_total` only grow.
    pub counters: BTreeMap<String, u64>,
}
