//! The status as one JSON object. The names and their meaning are an interface.

use bus::BucketServers;
use contract::NodeName;
use serde::Serialize;
use serde_json::{Value, json};

use super::model::{BusState, Status, Unwell};
use super::row::{Row, What};
use crate::commands::budget::JsonQuota;
use crate::output::given;

/// A row. Either `registry` or `image` is set.
#[derive(Serialize)]
struct JsonRow<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    registry: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    scope: &'a str,
    state: &'static str,
    /// Null if unknown.
    since_ms: Option<u64>,
    cause: &'a str,
    /// The message of the last failed attempt. Null if nothing has failed.
    message: Option<&'a str>,
    next_attempt_ms: Option<u64>,
    prober: Option<&'a str>,
    waiting_nodes: u64,
    waiting_images: u64,
    #[serde(flatten)]
    figures: Option<JsonFigures<'a>>,
}

/// The figures of a registry.
#[derive(Serialize)]
struct JsonFigures<'a> {
    /// Pulls per second. Null if there is no limit or it is unknown.
    rate: Option<f64>,
    cap: Option<f64>,
    quota: Option<JsonQuota<'a>>,
}

#[derive(Serialize)]
struct JsonUnwell<'a> {
    node: &'a NodeName,
    state: &'static str,
    reason: Option<&'a str>,
    since_ms: u64,
}

fn row(row: &Row) -> JsonRow<'_> {
    let (registry, image) = match &row.what {
        What::Registry(registry) => (Some(registry.as_str()), None),
        What::Image(image) => (None, Some(image.as_str())),
    };
    let figures = row.figures.as_ref();
    let quota = figures.and_then(|figures| figures.quota.as_ref()).map(JsonQuota::of);
    let (rate, cap) = (figures.and_then(|figures| figures.rate), figures.and_then(|figures| figures.cap));
    JsonRow {
        id: &row.id,
        registry,
        image,
        scope: &row.scope,
        state: row.state,
        since_ms: row.since_ms,
        cause: &row.cause,
        message: row.message.as_deref(),
        next_attempt_ms: row.next_attempt_ms,
        prober: row.prober.as_deref(),
        waiting_nodes: row.waiting.nodes,
        waiting_images: row.waiting.images,
        figures: registry.map(|_| JsonFigures { rate, cap, quota }),
    }
}

fn unwell(unwell: &Unwell) -> JsonUnwell<'_> {
    let Unwell { node, reason, since_ms } = unwell;
    let state = if reason.is_some() { "degraded" } else { "silent" };
    JsonUnwell { node, state, reason: reason.as_deref(), since_ms: *since_ms }
}

fn bus_state(bus: &BusState) -> &'static str {
    match &bus.lost {
        Some(_) => "lost",
        None if bus.is_unset => "none",
        None => "connected",
    }
}

fn servers(servers: &BucketServers) -> Value {
    json!({ "total": servers.total, "up": servers.up(), "down": servers.down })
}

/// The status as one JSON object.
pub(super) fn object(status: &Status) -> Value {
    let Status { fleet, of_node, sharing, bus, nodes, pulls, rows, left_out } = status;
    let (registries, images): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| matches!(row.what, What::Registry(_)));
    let all = |rows: Vec<&Row>| rows.into_iter().map(row).map(|row| json!(row)).collect::<Vec<_>>();
    let pauses = sharing.pauses.iter();
    let pauses: Vec<Value> =
        pauses.map(|pause| json!({ "registry": pause.registry, "left_ms": pause.left_ms, "by": given(&pause.by) })).collect();
    json!({
        "fleet": fleet,
        "node": of_node,
        "sharing": {
            "enforce": sharing.enforce,
            "observe": sharing.observe,
            "off": sharing.off,
            "pauses": pauses,
            "policy_revision": sharing.policy_revision,
        },
        "bus": {
            "state": bus_state(bus),
            "since_ms": bus.lost.as_ref().map(|lost| lost.since_ms),
            "cause": bus.lost.as_ref().map(|lost| &lost.reason),
            "servers": bus.servers.as_ref().map(servers),
            "answered_in_ms": bus.answered_in_ms,
            "oldest_unsent_ms": bus.oldest_unsent_ms,
        },
        "nodes": {
            "total": nodes.total,
            "ready": nodes.ready,
            "degraded": nodes.degraded,
            "silent": nodes.silent,
            "unwell": nodes.unwell.iter().map(unwell).collect::<Vec<_>>(),
            "versions": nodes.versions,
            "unanswered": nodes.unanswered.len(),
        },
        "pulls": {
            "running": pulls.running,
            "waiting": pulls.waiting,
            "standing": pulls.standing,
            "oldest_wait_ms": pulls.oldest_wait_ms,
        },
        "registries": all(registries),
        "images": all(images),
        "left_out": left_out,
    })
}
