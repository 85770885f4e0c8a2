//! The inputs and effects of the registrar's core.

use std::time::Duration;

use contract::NodeName;
use contract::messages::registrar::{FleetDigest, FleetSeen, NodeList, Place, ReportAlive};
use lease::Answer;

/// The agent itself.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the fleet.
    pub node: NodeName,
    /// An id of this start of the agent.
    pub instance: String,
    /// `node.zone`.
    pub zone: String,
    /// The message versions that it reads.
    pub reads_versions: Vec<u32>,
}

/// An input of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The time of [`super::Membership::next_due`] has come.
    Tick,
    /// A command to the registrar. The same step answers it with one [`Effect::Reply`].
    Called(Call),
    /// The registrar's answer to a report; none: it did not answer.
    Reported(Option<Place>),
    /// The answer to a request for the lease that began at this time.
    Asked(Duration, Answer),
    /// The result of a look-up of the lease's holder that began at this time.
    Looked(Duration, Looked),
    /// A digest, and the node that published it.
    DigestReceived(NodeName, FleetDigest),
    /// The agent stops.
    Leave,
}

/// A command to the registrar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A node reports that it is alive or leaves.
    Alive(ReportAlive),
    /// Asks for the known nodes.
    List,
}

/// The registrar's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Call::Alive`].
    Place(Place),
    /// To [`Call::List`].
    Nodes(NodeList),
    /// This agent is not the registrar.
    NotRegistrar,
}

/// The result of looking up the lease's holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// This node holds it.
    Holder(NodeName),
    /// The lease is free.
    Nobody,
    /// Unknown: the bus failed.
    Unknown,
}

/// An effect of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer [`Input::Called`].
    Reply(Reply),
    /// Report to the registrar, and feed its answer.
    Report(ReportAlive),
    /// Report to the registrar without an answer.
    Notify(ReportAlive),
    /// Ask for the lease, and feed the answer.
    TryLease,
    /// Renew the lease of this epoch, and feed the answer.
    Renew(u64),
    /// Look up the lease's holder, and feed the result.
    Look,
    /// Serve the registrar's commands.
    Lead,
    /// Stop serving them.
    StepDown,
    /// Give back the lease of this epoch, so that another agent gets it at once.
    GiveBack(u64),
    /// Publish a digest.
    Publish(FleetDigest),
    /// Send the fleet's state to the node's services.
    SendFleet(FleetSeen),
    /// Log that the fleet writes this version, which this node does not read.
    LogUnreadableVersion(u32),
}

/// Counters and the present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// This node's place in its fleet.
    pub place: Place,
    /// Whether this agent is the registrar.
    pub is_registrar: bool,
    /// As registrar: nodes known, alive or silent.
    pub known: u64,
    /// As registrar: reports of nodes for which the roster had no room.
    pub beyond_room_total: u64,
    /// Reports without an answer.
    pub unanswered_total: u64,
    /// How often this agent became the registrar.
    pub elected_total: u64,
    /// Digests of nodes that did not hold the lease.
    pub digests_refused_total: u64,
    /// The version in which this node writes.
    pub writes_version: u32,
    /// The fleet writes a version that this node does not read.
    pub reads_no_common_version: bool,
    /// As registrar: nodes that do not read the version that the fleet writes.
    pub incompatible: u64,
}
