//! `registry.*` and `auth.*`: how registries are reached, and where the credentials for them come from.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::{duration, empty_as_none};

/// `registry.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// A directory of `<host>/hosts.toml`. None: none is read.
    #[serde(with = "empty_as_none")]
    pub config_path: Option<PathBuf>,
    /// For one endpoint: name resolution, TCP and TLS together.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// From sending the request to the first byte of the answer.
    #[serde(with = "duration")]
    pub first_byte_timeout: Duration,
    /// The longest pause between two pieces of a body.
    #[serde(with = "duration")]
    pub no_progress_timeout: Duration,
    /// The most connections to one registry, all pulls together.
    pub connections: u32,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            config_path: Some(PathBuf::from("/etc/containerd/certs.d")),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(10),
            no_progress_timeout: Duration::from_secs(30),
            connections: 8,
        }
    }
}

/// `auth.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A `config.json` or `auth.json`. None: the usual places.
    #[serde(with = "empty_as_none")]
    pub file: Option<PathBuf>,
}
