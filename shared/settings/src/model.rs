//! The settings as types, with their defaults.

mod bus;
mod fleet;
mod limits;
mod observability;
mod registry;
mod runtime;

use serde::{Deserialize, Serialize};

pub use bus::{Bus, Nats};
pub use fleet::{Fleet, Node, Share};
pub use limits::{Alone, Backoff, Budget, OnExhausted, Pull, Throttle};
pub use observability::{Events, Log, LogFormat, LogLevel};
use observability::{Metrics, Traces};
pub use registry::{Auth, Registry};
pub use runtime::{Runtime, RuntimeKind, State, Store};

/// All settings of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The fleet, and what its nodes share.
    pub fleet: Fleet,
    /// The name and place of this node.
    pub node: Node,
    /// The runtime that pulls.
    pub runtime: Runtime,
    /// Where the embedded runtime stores images.
    pub store: Store,
    /// Where the agent stores its state.
    pub state: State,
    /// How the embedded runtime reaches registries.
    pub registry: Registry,
    /// How many pulls may run or wait, and for how long.
    pub pull: Pull,
    /// How often a pull may start.
    pub throttle: Throttle,
    /// How many pulls the whole fleet may start at a registry.
    pub budget: Budget,
    /// How long a failed image is not pulled again.
    pub backoff: Backoff,
    /// How messages are delivered.
    pub bus: Bus,
    /// How NATS is reached.
    pub nats: Nats,
    /// Where registry credentials come from.
    pub auth: Auth,
    /// How many events are stored, and for how long.
    pub events: Events,
    /// Which requests are always traced, and where traces can be viewed.
    pub traces: Traces,
    /// What is logged.
    pub log: Log,
    /// Where the agent serves its metrics and health.
    pub metrics: Metrics,
}
