//! The answers of the services API, as ADR-32 gives them.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Endpoint, ServiceDescription};

/// The answer of one service to one verb; none if the API has no such verb.
pub(super) fn answer(verb: &str, service: &ServiceDescription, started: Duration) -> Option<String> {
    let mut answer = json!({
        "name": service.name,
        "id": service.id,
        "version": service.version,
        "metadata": service.metadata,
    });
    match verb {
        "PING" => answer["type"] = json!("io.nats.micro.v1.ping_response"),
        "INFO" => {
            answer["type"] = json!("io.nats.micro.v1.info_response");
            answer["description"] = json!(service.description);
            answer["endpoints"] = service.endpoints.iter().map(identity).collect();
        }
        "STATS" => {
            answer["type"] = json!("io.nats.micro.v1.stats_response");
            answer["started"] = json!((OffsetDateTime::UNIX_EPOCH + started).format(&Rfc3339).ok()?);
            answer["endpoints"] = service.endpoints.iter().map(statistics).collect();
        }
        _ => return None,
    }
    Some(answer.to_string())
}

fn identity(endpoint: &Endpoint) -> Value {
    let mut identity = json!({ "name": endpoint.name, "subject": endpoint.subject });
    if let Some(queue_group) = &endpoint.queue_group {
        identity["queue_group"] = json!(queue_group);
    }
    identity
}

fn statistics(endpoint: &Endpoint) -> Value {
    let counted = endpoint.counters.read();
    let nanoseconds = u64::try_from(counted.processing.as_nanos()).unwrap_or(u64::MAX);
    let mut statistics = identity(endpoint);
    statistics["num_requests"] = json!(counted.requests);
    statistics["num_errors"] = json!(counted.errors);
    statistics["last_error"] = json!(counted.last_error);
    statistics["processing_time"] = json!(nanoseconds);
    statistics["average_processing_time"] = json!(nanoseconds.checked_div(counted.requests).unwrap_or(0));
    statistics
}
