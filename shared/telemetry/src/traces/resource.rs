//! What a process says of itself with its spans.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use super::Attributes;
use super::options::Options;

/// The service's name where nothing else is set.
const SERVICE: &str = "fleetpull";

/// What the process says goes before `OTEL_RESOURCE_ATTRIBUTES` only where that says nothing; `OTEL_SERVICE_NAME` goes before all.
pub(crate) fn of(options: &Options, about: Attributes) -> Resource {
    let version = ("service.version", env!("CARGO_PKG_VERSION").to_owned());
    let own = about.into_iter().chain([version]).map(|(key, value)| KeyValue::new(key, value));
    let set = options.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let by_attribute = options.resource.get("service.name").cloned();
    let service = options.service.clone().or(by_attribute).unwrap_or_else(|| SERVICE.to_owned());
    // Of several values of one key the last counts.
    Resource::builder_empty().with_attributes(own).with_attributes(set).with_service_name(service).build()
}
