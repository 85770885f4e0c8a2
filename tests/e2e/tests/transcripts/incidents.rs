//! The five incidents.

use e2e::until;
use memory_registry::{BodyFault, Fault};

use super::incident::{Fleet, Incident, Through, place};
use super::{Names, take};

/// The registry's `Retry-After`, in seconds.
const RETRY_AFTER: &str = "98";

/// The registry's answer for a missing tag.
fn not_found() -> Fault {
    let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    Fault::answer("/manifests/", 404, &[("retry-after", RETRY_AFTER), ("content-type", "application/json")], body)
}

/// An incident in which n1 and then n2 have found a failure for which all nodes wait.
fn found_out_by_two<'a>(fleet: Fleet<'a>, tag: &str) -> Incident<'a> {
    let image = fleet.image(tag);
    fleet.finds_out_twice(&image);
    fleet.wanting(image)
}

#[test]
fn a_registry_answers_503() {
    let place = place();
    let Some(fleet) = Fleet::start(&place) else { return };
    let fault = Fault::answer("/v2/", 503, &[("retry-after", RETRY_AFTER), ("content-type", "text/plain")], "upstream connect error");
    fleet.registry.faults().add(fault);
    let incident = found_out_by_two(fleet, "v2");
    let (cause, since) = (r"503 \(n2 \+1\)", r"unavailable for \d+");
    let status = Names { cause, since, affected: "3 nodes wait for 1 image", next: r"next attempt in \d+" };
    let explain = Names { affected: "it holds n1, n2, n3 back", ..status };
    take("registry-503", &incident, &status, &explain);
}

#[test]
fn a_tag_is_missing() {
    let place = place();
    let Some(fleet) = Fleet::start(&place) else { return };
    fleet.registry.faults().add(not_found());
    let incident = found_out_by_two(fleet, "v9");
    let (cause, since) = (r"404 \(n2 \+1\)", r"not found for \d+");
    let status = Names { cause, since, affected: "3 nodes wait for 1 image", next: r"next attempt in \d+" };
    let explain = Names { affected: "it holds n1, n2, n3 back", ..status };
    take("tag-missing", &incident, &status, &explain);
}

#[test]
fn a_quota_is_spent() {
    let place = place();
    let Some(fleet) = Fleet::start(&place) else { return };
    let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"you have reached your pull rate limit"}]}"#;
    let limits = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "0;w=21600")];
    let headers = [&[("retry-after", RETRY_AFTER), ("content-type", "application/json")], &limits[..]].concat();
    fleet.registry.faults().add(Fault::answer("/manifests/", 429, &headers, body));
    let incident = found_out_by_two(fleet, "v2");
    let (cause, since) = (r"429 \(n2 \+1\)", r"quota 0/100 left for \d+");
    let status = Names { cause, since, affected: "3 nodes wait for 1 image", next: r"next attempt in \d+" };
    let explain = Names { since: r"rate limited for \d+", affected: "it holds n1, n2, n3 back", ..status };
    take("quota-spent", &incident, &status, &explain);
}

#[test]
fn nats_is_dead() {
    let place = place();
    let Some(fleet) = Fleet::start(&place) else { return };
    fleet.registry.faults().add(not_found());
    let mut incident = found_out_by_two(fleet, "v9").through(Through::Agent);
    until("n1 has its standing pull", || {
        incident.fleet.agents[0].asked(&["pulls", "-o", "json"]).stdout.contains("standing_pull").then_some(())
    });
    until("it is drawn that all are held back", || incident.live.rows().iter().any(|row| row.contains("3 held back")).then_some(()));
    incident.fleet.nats.kill();
    let status = Names {
        cause: "Connection refused",
        since: r"n1 has had no bus for \d+",
        affected: "1 node waits for 1 image",
        next: r"next attempt in \d+.*reconnects automatically",
    };
    let (cause, since) = (r"404 \(n2 \+1\).*has had no bus.*Connection refused", r"not found for \d+.*n1 has had no bus for \d+");
    let explain = Names { cause, since, affected: "it holds n1 back", next: r"next attempt in \d+" };
    take("nats-dead", &incident, &status, &explain);
}

#[test]
fn one_node_is_cut_off() {
    let place = place();
    let Some(fleet) = Fleet::start(&place) else { return };
    let image = fleet.image("v1");
    // The node that pulls first becomes the leader of the budget.
    fleet.has_pulled(&image);
    // Slow blobs, so that n2 has the second row.
    fleet.registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(2_000)));
    fleet.bus_link.cut();
    let incident = fleet.wanting(image);
    let status = Names {
        cause: "is its agent running, and is its bus connected",
        since: r"n3 has been silent for \d+",
        affected: "2 of 3 nodes continue without it",
        next: "reconnects automatically",
    };
    take("node-cut-off", &incident, &status, &status);
}
