//! The identity of an agent.

use std::collections::BTreeMap;

use clock::{Clock, Now, Random};
use contract::NodeName;
use settings::Node;

/// The identity of an agent, constant from its start to its end.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The node's name.
    pub(super) node: NodeName,
    /// Different for each start, so that an agent can distinguish itself from others with its name.
    pub(super) instance: String,
    /// The machine's host name. Empty if it has none.
    pub(super) host: String,
    /// When the agent started.
    pub(super) started: Now,
    /// The node's labels.
    pub(super) labels: BTreeMap<String, String>,
    /// The node's zone.
    pub(super) zone: String,
}

/// The version of the program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Identity {
    /// The identity of an agent that starts now.
    pub(super) fn new(node: NodeName, settings: &Node, clock: &Clock) -> Self {
        let instance = format!("{:032x}", Random::from_system().id());
        let host = hostname::get().map(|host| host.to_string_lossy().into_owned()).unwrap_or_default();
        let (labels, zone) = (settings.labels.clone(), settings.zone.clone());
        Self { node, instance, host, started: clock.now(), labels, zone }
    }

    /// True if another agent with the same name started before this one. If both started in the same millisecond, their instances are
    /// compared, so that both agents get the same result.
    pub(super) fn is_younger_than(&self, started_ms: u64, instance: &str) -> bool {
        (self.started.wall_ms(), self.instance.as_str()) > (started_ms, instance)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn identity(started_ms: u64, instance: &str) -> Identity {
        let started = Now { wall: Duration::from_millis(started_ms), ..Now::default() };
        Identity {
            node: "n1".parse().expect("a name"),
            instance: instance.to_owned(),
            host: String::new(),
            started,
            labels: BTreeMap::new(),
            zone: String::new(),
        }
    }

    #[test]
    fn exactly_one_of_two_agents_is_younger() {
        for (one, other) in [((1, "b"), (2, "a")), ((1, "a"), (1, "b"))] {
            assert!(!identity(one.0, one.1).is_younger_than(other.0, other.1));
            assert!(identity(other.0, other.1).is_younger_than(one.0, one.1));
        }
    }
}
