//! The resource attributes of a process.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use super::Attributes;
use super::options::Options;

/// The default service name.
const SERVICE: &str = "fleetpull";

/// Combines the attributes: `OTEL_RESOURCE_ATTRIBUTES` overrides the process's own, and `OTEL_SERVICE_NAME` overrides the service name.
pub(crate) fn of(options: &Options, attributes: Attributes) -> Resource {
    let version = ("service.version", env!("CARGO_PKG_VERSION").to_owned());
    let own = attributes.into_iter().chain([version]).map(|(key, value)| KeyValue::new(key, value));
    let set = options.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let by_attribute = options.resource.get("service.name").cloned();
    let service = options.service.clone().or(by_attribute).unwrap_or_else(|| SERVICE.to_owned());
    // The last value of a key counts.
    Resource::builder_empty().with_attributes(own).with_attributes(set).with_service_name(service).build()
}
