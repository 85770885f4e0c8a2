//! What goes into the registrar's core and what comes out of it.

use std::time::Duration;

use contract::NodeName;
use contract::messages::registrar::{FleetDigest, FleetSeen, NodeList, Place, ReportAlive};
use lease::Answer;

/// Who this agent is.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the fleet.
    pub node: NodeName,
    /// Different for each start of an agent.
    pub instance: String,
    /// `node.zone`.
    pub zone: String,
    /// The message versions that it reads.
    pub reads_versions: Vec<u32>,
}

/// What has come to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time went by: see [`super::Membership::next_due`].
    Tick,
    /// Another agent asks this one as the registrar. Answered in the same step by one [`Effect::Reply`].
    Called(Call),
    /// The registrar answered, or nobody did.
    Reported(Option<Place>),
    /// Asking for the lease, begun at this time, came to this.
    Asked(Duration, Answer),
    /// Who holds the lease as the server says, looked up from this time on.
    Looked(Duration, Looked),
    /// A digest that this node published.
    DigestHeard(NodeName, FleetDigest),
    /// The agent stops in good order.
    Leave,
}

/// What the registrar is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A node is alive, or leaves.
    Alive(ReportAlive),
    /// Who is known?
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

/// What looking for the lease's holder has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// This node holds it.
    Holder(NodeName),
    /// Nobody does.
    Nobody,
    /// Nothing is known: the bus failed.
    Unknown,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer [`Input::Called`].
    Reply(Reply),
    /// Tell the registrar, and give its answer back.
    Report(ReportAlive),
    /// Tell the registrar, which need not answer.
    Mention(ReportAlive),
    /// Ask for the lease, and give the answer back.
    TryLease,
    /// Renew the lease of this epoch, and give the answer back.
    Renew(u64),
    /// Look who holds the lease, and give the answer back.
    Look,
    /// Take the registrar's commands.
    Lead,
    /// Take them no more.
    StepDown,
    /// Give the lease of this epoch back, so that the next one need not wait for its end.
    GiveBack(u64),
    /// Publish how the fleet stands.
    Publish(FleetDigest),
    /// Tell the node's services.
    Tell(FleetSeen),
    /// Say that the fleet writes this version, which this node does not read.
    SayApart(u32),
}

/// Counted since the start, and as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Where this node stands in its fleet.
    pub place: Place,
    /// Whether this agent is the registrar.
    pub is_registrar: bool,
    /// As registrar: nodes known, alive or silent.
    pub known: u64,
    /// As registrar: reports of nodes for which there was no room.
    pub beyond_room_total: u64,
    /// Reports that nobody answered.
    pub unanswered_total: u64,
    /// How often this agent became the registrar.
    pub elected_total: u64,
    /// Digests of somebody who does not hold the lease.
    pub digests_refused_total: u64,
    /// In which version this node writes.
    pub writes_version: u32,
    /// The fleet writes a version that this node does not read.
    pub is_apart: bool,
    /// As registrar: nodes that do not read what the fleet writes.
    pub apart: u64,
}
