//! `runtime.*`, `store.*` and `state.*`: the runtime that pulls, and where images and the state of the agent are stored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::text::empty_as_none;

/// `runtime.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Which runtime pulls.
    pub kind: RuntimeKind,
    /// `unix://` and an absolute path. None: the first known socket that exists; see [`Runtime::endpoint_on`].
    #[serde(with = "empty_as_none")]
    pub endpoint: Option<String>,
}

/// Which runtime pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeKind {
    /// Fleetpull itself, into an OCI image layout.
    #[default]
    OciLayout,
    /// containerd or CRI-O.
    Cri,
}

/// `store.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// None: see [`Store::dir_on`].
    #[serde(with = "empty_as_none")]
    pub dir: Option<PathBuf>,
    /// Whether a stored image survives a power loss, not only a killed process.
    pub fsync: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self { dir: None, fsync: true }
    }
}

/// `state.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// None: see [`State::dir_on`].
    #[serde(with = "empty_as_none")]
    pub dir: Option<PathBuf>,
}
