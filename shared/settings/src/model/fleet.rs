//! `fleet.*` and `node.*`: which fleet the node belongs to, and what it is called there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::{duration, empty_as_none};

/// `fleet.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// The first token of every subject.
    pub name: String,
    /// The prefix of the node's name in the fleet: `<cluster>.<name>`.
    #[serde(with = "empty_as_none")]
    pub cluster: Option<String>,
    /// How the findings of other nodes are used.
    pub share: Share,
    /// Which nodes see the same registries.
    pub scope: String,
    /// None: see [`Fleet::egress`].
    #[serde(with = "empty_as_none")]
    pub egress: Option<String>,
    /// The group of nodes whose minted logins count as one login.
    #[serde(with = "empty_as_none")]
    pub credential_group: Option<String>,
    /// None: the fleet's key is made once and stored in its bucket `keys`.
    #[serde(with = "empty_as_none")]
    pub key_file: Option<PathBuf>,
    /// How long a node that does not answer belongs to the fleet.
    #[serde(with = "duration")]
    pub gone_after: Duration,
}

impl Fleet {
    /// The group of nodes that reach registries from one address: as set, else the scope.
    #[must_use]
    pub fn egress(&self) -> &str {
        self.egress.as_deref().unwrap_or(&self.scope)
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            name: "fleetpull".to_owned(),
            cluster: None,
            share: Share::Enforce,
            scope: "default".to_owned(),
            egress: None,
            credential_group: None,
            key_file: None,
            gone_after: Duration::from_secs(3_600),
        }
    }
}

/// How the findings of other nodes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// The node refuses pulls by them.
    #[default]
    Enforce,
    /// The node records, explains and counts what it would have refused, and refuses nothing.
    Observe,
    /// The node neither shares its findings nor uses those of others.
    Off,
}

impl Share {
    /// The spelling of the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

/// `node.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// None: the host's.
    #[serde(with = "empty_as_none")]
    pub name: Option<String>,
    /// The labels by which `--selector` chooses nodes.
    pub labels: BTreeMap<String, String>,
    /// The group of nodes that lose a registry together.
    pub zone: String,
}

impl Default for Node {
    fn default() -> Self {
        Self { name: None, labels: BTreeMap::new(), zone: "default".to_owned() }
    }
}
