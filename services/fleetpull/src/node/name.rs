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
    of_host(&host.to_string_lossy())
}

fn of_host(host: &str) -> Result<NodeName> {
    if host == "localhost" || host.starts_with("localhost.") {
        bail!("this host is called {host}, which no fleet can tell from others: give --node NAME or set node.name");
    }
    host.parse().context("the host's name is no node name: give --node NAME or set node.name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_its_node_unless_all_hosts_are_called_so() {
        for (host, name) in [
            ("n1", true),
            ("n1.rack-7.example", true),
            ("localhosts", true),
            ("localhost", false),
            ("localhost.localdomain", false),
            ("", false),
            ("a b", false),
        ] {
            let told = of_host(host);
            assert_eq!(told.as_ref().ok().map(ToString::to_string), name.then(|| host.to_owned()), "{host}");
            let advice = told.err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(name || advice.contains("give --node NAME"), "{host}: {advice}");
        }
    }
}
