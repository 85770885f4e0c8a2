//! The agent's services in the NATS services API, so that `nats micro ls` shows the fleet.

use std::collections::BTreeMap;

use actors::{Served, Wiring};
use bus::BusError;
use bus::services::{Announced, ServiceDescription, announce};
use clock::Clock;
use contract::Service;
use contract::subject::SERVICES_API;

use super::identity::{Identity, VERSION};

/// Answers for the services until the returned value is dropped.
///
/// # Errors
/// The bus is closed.
pub(super) async fn announce_services<'a>(
    wiring: &Wiring,
    identity: &Identity,
    served: impl IntoIterator<Item = &'a Served>,
    clock: &Clock,
) -> Result<Announced, BusError> {
    let mut endpoints: BTreeMap<Service, Vec<_>> = BTreeMap::new();
    for served in served {
        endpoints.entry(served.service()).or_default().push(served.endpoint().clone());
    }
    let describe = |(service, endpoints): (Service, Vec<_>)| ServiceDescription {
        name: wiring.fleet.service_name(service),
        id: identity.instance.clone(),
        version: VERSION.to_owned(),
        description: format!("{} of Fleetpull on {}", service.name(), identity.node),
        metadata: BTreeMap::from([("node".to_owned(), identity.node.to_string())]),
        endpoints,
    };
    announce(&wiring.bus, SERVICES_API, endpoints.into_iter().map(describe).collect(), clock).await
}
