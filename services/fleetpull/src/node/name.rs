//! What a node is called.

use anyhow::{Context as _, Result, bail};
use contract::NodeName;
use settings::Settings;

/// The name set, or the host's.
///
/// # Errors
/// The name is not a node name, or the host's is `localhost`, which would make one node of many.
pub fn node_name(settings: &Settings) -> Result<NodeName> {
    if let Some(name) = &settings.node.name {
        return name.parse().context("the node's name is not valid: change --node or node.name");
    }
    let host = hostname::get().context("the host's name cannot be read: give --node NAME")?;
    let host = host.to_string_lossy();
    if host == "localhost" || host.starts_with("localhost.") {
        bail!("this host is called {host}, which no fleet can tell from others: give --node NAME or set node.name");
    }
    host.parse().context("the host's name is no node name: give --node NAME or set node.name")
}
