//! Names and ids, checked where they enter.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clock::Random;
use serde::{Deserialize, Deserializer, Serialize};

use crate::hex;

/// The longest node name: that of a DNS name, as in Kubernetes.
const NODE_NAME_MAX_CHARS: usize = 253;

/// The name of a node: letters, digits, `.`, `_` and `-`, at most 253 characters. Clones share the text, because each of thousands of
/// reports has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

/// Why a node name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a node name: use 1 to 253 of the characters A-Z a-z 0-9 . _ -")]
pub struct NodeNameError {
    name: String,
}

impl NodeName {
    /// The fleet's name of a node that its cluster names `node`: `<cluster>.<node>`, or `node` without a cluster.
    ///
    /// # Errors
    /// The result is not a valid node name.
    pub fn in_cluster(cluster: Option<&str>, node: &str) -> Result<Self, NodeNameError> {
        match cluster {
            // An empty name stays empty.
            Some(cluster) if !node.is_empty() => format!("{cluster}.{node}").parse(),
            _ => node.parse(),
        }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = NodeNameError;

    fn from_str(name: &str) -> Result<Self, NodeNameError> {
        if !is_node_name(name) {
            return Err(NodeNameError { name: name.chars().take(NODE_NAME_MAX_CHARS).collect() });
        }
        Ok(Self(name.into()))
    }
}

impl TryFrom<String> for NodeName {
    type Error = NodeNameError;

    fn try_from(name: String) -> Result<Self, NodeNameError> {
        name.parse()
    }
}

fn is_node_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= NODE_NAME_MAX_CHARS && name.bytes().all(allowed)
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(into = "String")]
        pub struct $name(u128);

        impl $name {
            /// A new random id.
            #[must_use]
            pub fn random(random: &mut Random) -> Self {
                Self(random.id())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&hex::text_of(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}({:032x})", stringify!($name), self.0)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                hex::text_of(id.0)
            }
        }

        impl From<u128> for $name {
            fn from(number: u128) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u128 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = std::num::ParseIntError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                u128::from_str_radix(&text, 16).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                hex::read(deserializer, "an id of hex digits", |text| u128::from_str_radix(text, 16).ok().map(Self))
            }
        }
    };
}

random_id! {
    /// One message. The same message sent twice has the same id.
    MessageId
}
random_id! {
    /// One attempt to pull on one node, for all its callers. Its reports have this id.
    AttemptId
}
random_id! {
    /// One permit to pull, given by the throttler.
    PermitId
}

random_id! {
    /// One request of a flight for clearance, the same for all its attempts until the request is withdrawn.
    ClearanceId
}

random_id! {
    /// One standing pull for an image on one node. It outlives attempts and restarts of the agent and the command.
    StandingPullId
}

/// The pod that wants an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, if the caller knows it.
    #[serde(default)]
    pub uid: String,
}

impl PodRef {
    /// Whether both have the same namespace and name; a question about a pod has no uid.
    #[must_use]
    pub fn has_name_of(&self, other: &Self) -> bool {
        (&self.namespace, &self.name) == (&other.namespace, &other.name)
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_precedes_the_node_name() {
        for (cluster, node, name) in [
            (None, "n1", Some("n1")),
            (Some("eu"), "n1", Some("eu.n1")),
            (Some("eu"), "n1.rack-7", Some("eu.n1.rack-7")),
            (Some("eu"), "", None),
            (Some("eu"), "a b", None),
        ] {
            assert_eq!(NodeName::in_cluster(cluster, node).ok().as_ref().map(NodeName::as_str), name, "{cluster:?} {node:?}");
        }
        assert!(NodeName::in_cluster(Some("eu"), &"n".repeat(NODE_NAME_MAX_CHARS)).is_err(), "together it is too long");
    }

    #[test]
    fn node_names_are_checked() {
        for good in ["n1", "ip-10-0-0-1.ec2.internal", "a_b", &"x".repeat(253)] {
            assert!(good.parse::<NodeName>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "a*", "a>", "é", &"x".repeat(254)] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_survive_text() {
        let id = MessageId::random(&mut Random::seeded(3));
        assert_eq!(MessageId::try_from(String::from(id)), Ok(id));
        assert_eq!(String::from(id).len(), 32);
    }
}
