//! The name of a node.

use anyhow::{Context as _, Result, bail};
use contract::NodeName;
use settings::Settings;

/// The node's name in the fleet: the name of its cluster, then its own.
///
/// # Errors
/// Those of [`own_name`], and that both together are too long.
pub fn node_name(settings: &Settings) -> Result<NodeName> {
    let own = own_name(settings)?;
    NodeName::in_cluster(settings.fleet.cluster.as_deref(), own.as_str())
        .context("with fleet.cluster before it the node's name is not valid")
}

/// The node's name within its cluster: the configured name, or the host's. Its state is stored under this name.
///
/// # Errors
/// The name is not a valid node name, or the host's is `localhost`, which many nodes would share.
pub fn own_name(settings: &Settings) -> Result<NodeName> {
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
            let name_of_host = of_host(host);
            assert_eq!(name_of_host.as_ref().ok().map(ToString::to_string), name.then(|| host.to_owned()), "{host}");
            let advice = name_of_host.err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(name || advice.contains("give --node NAME"), "{host}: {advice}");
        }
    }

    #[test]
    fn a_node_of_a_named_cluster_is_called_by_both() {
        let mut settings = Settings::default();
        settings.fleet.cluster = Some("eu".to_owned());
        settings.node.name = Some("n1.rack-7".to_owned());
        assert_eq!(own_name(&settings).unwrap().as_str(), "n1.rack-7");
        assert_eq!(node_name(&settings).unwrap().as_str(), "eu.n1.rack-7");
    }
}
