//! `bus.*` and `nats.*`: how messages are delivered, and how NATS is reached.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::server_url::ServerUrl;
use crate::text::empty_as_none;

/// `bus.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Whether a message to a receiver in the same process is delivered without NATS.
    pub local_delivery: bool,
}

impl Default for Bus {
    fn default() -> Self {
        Self { local_delivery: true }
    }
}

/// `nats.*`. With neither `url` nor `context` there is no NATS: see [`Nats::is_wanted`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// The servers, tried in any order.
    pub url: Vec<ServerUrl>,
    /// A `.creds` file: user JWT and seed.
    #[serde(with = "empty_as_none")]
    pub creds: Option<PathBuf>,
    /// A file with an nkey seed.
    #[serde(with = "empty_as_none")]
    pub nkey: Option<PathBuf>,
    /// A file with a token, read again at each connect.
    #[serde(with = "empty_as_none")]
    pub token_file: Option<PathBuf>,
    /// The prefix of the subjects on which answers arrive.
    #[serde(with = "empty_as_none")]
    pub inbox_prefix: Option<String>,
    /// PEM: the authority that signed the server's certificate.
    #[serde(with = "empty_as_none")]
    pub ca: Option<PathBuf>,
    /// PEM: the client's certificate.
    #[serde(with = "empty_as_none")]
    pub cert: Option<PathBuf>,
    /// PEM: the client's key.
    #[serde(with = "empty_as_none")]
    pub key: Option<PathBuf>,
    /// A context of the nats CLI; the other keys have precedence over it.
    #[serde(with = "empty_as_none")]
    pub context: Option<String>,
}

impl Nats {
    /// Whether the settings name a NATS server. If not, the bus works in the memory of this process only.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.url.is_empty() || self.context.is_some()
    }
}
