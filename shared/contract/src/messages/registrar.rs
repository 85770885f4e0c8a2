//! Which nodes are alive: each agent reports to the fleet's registrar (the agent with its lease), which answers with the agent's place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Command, NodeName, Service};

/// Reports that an agent is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAlive {
    /// The node.
    pub node: NodeName,
    /// Different for each start of an agent.
    pub instance: String,
    /// The node's `node.zone`.
    #[serde(default)]
    pub zone: String,
    /// The message versions that it reads.
    #[serde(default)]
    pub reads_versions: Vec<u32>,
    /// The agent is being stopped.
    #[serde(default)]
    pub leaves: bool,
}

impl Command for ReportAlive {
    type Reply = Place;
    const SERVICE: Service = Service::Registrar;
    const VERB: &'static str = "alive";
    const ALLOWS_ONE_WAY: bool = true;
}

/// The answer to [`ReportAlive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Live nodes, including this one.
    pub alive: u64,
    /// Those of them in the same zone.
    pub alive_in_zone: u64,
    /// This node's rank among all, from 0, in the order of their names; none while the registrar is new and does not know all nodes.
    #[serde(default)]
    pub rank: Option<u64>,
}

/// Asks for the known nodes, alive or silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNodes {}

impl Command for ListNodes {
    type Reply = NodeList;
    const SERVICE: Service = Service::Registrar;
    const VERB: &'static str = "nodes";
}

/// The answer to [`ListNodes`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeList {
    /// How long ago each node was last seen, in milliseconds, for nodes that were seen within
    /// `DEADLINES.known_for` and have not left.
    pub last_seen_ms_ago: BTreeMap<NodeName, u64>,
}

/// The key of the registrar's lease in the bucket `leaders`.
pub const REGISTRAR_LEASE: &str = "registrar";

/// What the registrar publishes every `DEADLINES.digest_every` below its own token; it shows every node whether it has missed a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetDigest {
    /// Live nodes by zone.
    pub alive: BTreeMap<String, u64>,
    /// The last sequence of the bucket of reports.
    pub reports_sequence: u64,
    /// When that bucket was made, by its server's clock; a different value means a different bucket.
    pub reports_created: String,
    /// When the bucket of members was made; if it is another bucket, each node writes its record again. Empty: unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub members_created: String,
    /// The newest message version that all known nodes read; none: the nodes are not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// It has released its lease, and publishes nothing more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// To the node's own services: the state of the fleet, from the registrar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetSeen {
    /// The node's place.
    pub place: Place,
    /// The digest, if one was received.
    pub digest: Option<FleetDigest>,
}
