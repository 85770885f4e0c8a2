//! Who is there: each agent tells the fleet's registrar (the agent that holds its lease), which answers with the agent's place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Command, NodeName, Service};

/// How often an agent says that it is alive, in milliseconds: as often as a kubelet renews its lease. It wants an answer only when it
/// does not know its place, or has not asked for [`PLACE_FOR_MS`].
pub const ALIVE_EVERY_MS: u64 = 10_000;
/// How long an agent goes by the place that it was given, in milliseconds: what changes the sooner, how many are alive, the digests say.
pub const PLACE_FOR_MS: u64 = 25_000;
/// Who was not heard for so long is not alive any more, in milliseconds: two reports may be lost.
pub const ALIVE_FOR_MS: u64 = 32_000;
/// How often the registrar publishes its digest, in milliseconds. An agent that has no rank yet reports as often.
pub const DIGEST_EVERY_MS: u64 = 5_000;
/// Who was not heard for so long is not known any more, in milliseconds.
pub const KNOWN_FOR_MS: u64 = 600_000;

/// I am alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAlive {
    /// Who.
    pub node: NodeName,
    /// Different for each start of an agent.
    pub instance: String,
    /// `node.zone`.
    #[serde(default)]
    pub zone: String,
    /// The message versions that it reads.
    #[serde(default)]
    pub reads_versions: Vec<u32>,
    /// It stops, in good order.
    #[serde(default)]
    pub leaves: bool,
}

impl Command for ReportAlive {
    type Reply = Place;
    const SERVICE: Service = Service::Registrar;
    const VERB: &'static str = "alive";
    const TOLD: bool = true;
}

/// The answer to [`ReportAlive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Nodes alive, this one included.
    pub alive: u64,
    /// Of them in the same zone.
    pub alive_in_zone: u64,
    /// This node's place among all, from 0, in the order of their names; none while the registrar is new and does not know all yet.
    #[serde(default)]
    pub rank: Option<u64>,
}

/// The nodes that are known, alive or silent.
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
    /// How long ago each was heard, in milliseconds, of nodes that were heard from within [`KNOWN_FOR_MS`] and have not left.
    pub heard_ms_ago: BTreeMap<NodeName, u64>,
}

/// The key of the registrar's lease in the bucket `leaders`.
pub const REGISTRAR_LEASE: &str = "registrar";

/// What the registrar publishes each [`DIGEST_EVERY_MS`], below its own token, so that every node sees whether it has missed something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetDigest {
    /// Nodes alive by zone.
    pub alive: BTreeMap<String, u64>,
    /// The last sequence of the bucket of reports.
    pub reports_sequence: u64,
    /// When that bucket was made, as its server says it: another value is another bucket.
    pub reports_created: String,
    /// When the bucket of members was made, likewise: in another bucket each node writes its record again. Empty: not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub members_created: String,
    /// The newest message version that all nodes read which are known; none: they are not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// It has given its lease back, and says nothing else any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// To the node's own services: how the fleet stands, as the registrar says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetSeen {
    /// The node's place.
    pub place: Place,
    /// The digest, when one was heard.
    pub digest: Option<FleetDigest>,
}
