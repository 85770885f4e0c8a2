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
    let mut attributes = vec![("service.instance.id", instance), ("process.pid", std::process::id().to_string())];
    attributes.extend(host.map(|host| ("host.name", host)));
    attributes
}

/// The attributes of an agent.
pub(crate) fn agent(settings: &Settings) -> Attributes {
    let mut attributes = command();
    attributes.push(("fleetpull.fleet", settings.fleet.name.clone()));
    if let Ok(node) = node_name(settings) {
        attributes.push(("fleetpull.node", node.to_string()));
    }
    if let Some(cluster) = &settings.fleet.cluster {
        attributes.push(("k8s.cluster.name", cluster.clone()));
    }
    if let Ok(node) = own_name(settings)
        && std::env::var_os(IN_KUBERNETES).is_some()
    {
        attributes.push(("k8s.node.name", node.to_string()));
    }
    attributes
}
