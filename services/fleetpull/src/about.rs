//! The attributes that a process gives its spans.

use clock::Random;
use contract::MessageId;
use settings::Settings;
use telemetry::traces::Attributes;

use crate::node::{node_name, own_name};

/// Kubernetes sets this variable in every pod.
const IN_KUBERNETES: &str = "KUBERNETES_SERVICE_HOST";

/// The attributes of a command.
pub(crate) fn command() -> Attributes {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty());
    let instance = MessageId::random(&mut Random::from_system()).to_string();
    let mut about = vec![("service.instance.id", instance), ("process.pid", std::process::id().to_string())];
    about.extend(host.map(|host| ("host.name", host)));
    about
}

/// The attributes of an agent.
pub(crate) fn agent(settings: &Settings) -> Attributes {
    let mut about = command();
    about.push(("fleetpull.fleet", settings.fleet.name.clone()));
    if let Ok(node) = node_name(settings) {
        about.push(("fleetpull.node", node.to_string()));
    }
    if let Some(cluster) = &settings.fleet.cluster {
        about.push(("k8s.cluster.name", cluster.clone()));
    }
    if let Ok(node) = own_name(settings)
        && std::env::var_os(IN_KUBERNETES).is_some()
    {
        about.push(("k8s.node.name", node.to_string()));
    }
    about
}
