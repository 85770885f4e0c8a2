//! The scenes: what each does, and the spans that it must make.

use std::collections::BTreeSet;

use contract::EventReason;
use contract::messages::event_recorder::ListEvents;
use e2e::spans::{Spans, assert_one_root};
use e2e::{Agent, Registry, Workplace, until};
use memory_registry::{BodyFault, Fault, FaultAction, MadeImage};
use serde_json::Value;
use support::containerd::{Containerd, ContainerdConfig, available};
use support::nats::{NatsConfig, NatsServer};
use support::otlp::{Span, tree};
use support::requirement::met;

const ENTRY: &str = "fleetpull.entry.id";

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn has(spans: &[Span], names: &[&str]) -> bool {
    names.iter().all(|name| !named(spans, name).is_empty())
}

/// Each span of a trace with its parent, each pair once, so that the numbers of layers and retries do not matter.
fn edges(spans: &[Span]) -> BTreeSet<(&str, &str)> {
    let name_of = |id: &str| spans.iter().find(|span| span.span_id == id).map_or("", |span| span.name.as_str());
    spans.iter().map(|span| (name_of(&span.parent_id), span.name.as_str())).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn pull(place: &Workplace, node: &str, image: &str, server: &NatsServer, status: i32) -> Value {
    place.run(&["pull", image, "--node", node, "--nats", &server.url(), "-o", "json"]).expect(status).object()
}

fn show(what: &str, spans: &[Span]) {
    eprintln!("{what}\n{}", tree(spans));
}

pub(crate) fn a_good_pull_is_one_tree(backend: &Spans) {
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000, 5_000]));
    let _agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let row = pull(&place, "n1", &registry.image("shop/web:v1"), &server, 0);
    let steps = ["fleetpull pull", "pull-coordinator.EnsureImage", "image.verify", "event-recorder.Record", "attempt", "layer", "GET"];
    let enough = |spans: &[Span]| has(spans, &steps) && named(spans, "pull-coordinator.EnsureImage").len() == 2;
    let spans = backend.trace_until("a good pull", text(&row, "trace_id"), enough);
    show("a good pull", &spans);
    assert_one_root(&spans);
    let request = "pull-coordinator.EnsureImage";
    let expected = [
        ("", "fleetpull pull"),
        ("fleetpull pull", request),
        (request, request),
        (request, "image.inspect"),
        (request, "backoff-tracker.CheckBackoff"),
        (request, "clearance.wait"),
        (request, "throttler.Acquire"),
        (request, "attempt"),
        (request, "image.verify"),
        (request, "event-recorder.Record"),
        ("attempt", "GET"),
        ("attempt", "layer"),
        ("layer", "GET"),
    ];
    let seen = edges(&spans);
    assert!(expected.iter().all(|edge| seen.contains(edge)), "{seen:?}");
    let kinds: BTreeSet<&str> = named(&spans, request).iter().map(|span| span.kind.as_str()).collect();
    assert_eq!(kinds, ["CLIENT", "SERVER"].into());
    assert!(spans.iter().all(|span| !span.failed), "{}", tree(&spans));
    assert_eq!(named(&spans, "clearance.wait").len(), 1, "{}", tree(&spans));
    let get = named(&spans, "GET")[0];
    assert_eq!((get.attribute("http.request.method"), get.attribute("http.response.status_code")), ("GET", "200"));
    assert!(get.attribute("url.full").starts_with(&format!("http://{}/v2/shop/web/", registry.host())), "{}", get.attribute("url.full"));
    assert_eq!(named(&spans, "attempt")[0].attribute("container.image.tag"), "v1");
    assert_eq!(named(&spans, "attempt")[0].resource.get("fleetpull.node").map(String::as_str), Some("n1"));
    // Events may be sent much later, so sending has a trace of its own, with a link.
    let server_span = named(&spans, request).into_iter().find(|span| span.kind == "SERVER").unwrap();
    until("its event is sent", || {
        let sent = backend.with_attribute("fleetpull.event.reason", "Pulled");
        sent.iter().any(|span| span.kind == "PRODUCER" && span.parent_id.is_empty() && span.links_to(server_span)).then_some(())
    });
    // Each request carries the id of its own span to the registry.
    let sent: BTreeSet<String> = registry.requests().iter().filter_map(|request| request.headers.get("traceparent").cloned()).collect();
    let gets: BTreeSet<String> = named(&spans, "GET").iter().map(|span| format!("00-{}-{}-01", span.trace_id, span.span_id)).collect();
    assert!(!sent.is_empty() && sent.is_subset(&gets), "{sent:?} are not among {gets:?}");
}

pub(crate) fn a_refusal_links_to_the_attempt_that_failed_on_another_node(backend: &Spans) {
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let start = |node| Agent::start(&place, node, &["--nats", &server.url()]).ready();
    let agents = ["n1", "n2", "n3"].map(start);
    until("they know of each other", || agents.iter().all(|agent| agent.counter("presence_alive") == 3).then_some(()));
    let image = registry.image("shop/web:v2");
    // A failure that one node alone reports only delays other nodes; once a second node corroborates it, they are refused.
    let failures = ["n1", "n2"].map(|node| pull(&place, node, &image, &server, 1));
    let refused = until("n3 has received the report", || {
        let run = place.run(&["pull", &image, "--node", "n3", "--nats", &server.url(), "-o", "json"]);
        Some(run.object()).filter(|row| row["outcome"] == "backoff" && row["learned_by"] != "n3")
    });
    let learned = text(&refused, "learned_trace_id");
    let failed =
        failures.iter().find(|row| text(row, "trace_id") == learned).unwrap_or_else(|| panic!("{refused} is of none of {failures:?}"));
    let trace = backend.trace_until("the failure", learned, |spans| has(spans, &["fleetpull pull", "attempt"]));
    show("a tag that is missing", &trace);
    assert_one_root(&trace);
    let attempt = named(&trace, "attempt")[0];
    assert!(attempt.failed && attempt.attribute("error.type") == "not_found", "{attempt:?}");
    let refusal = backend.trace_until("the refusal", text(&refused, "trace_id"), |spans| {
        has(spans, &["fleetpull pull"]) && spans.iter().any(|span| span.links_to(attempt))
    });
    show("refused on n3", &refusal);
    assert_one_root(&refusal);
    let server_span = refusal.iter().find(|span| span.name == "pull-coordinator.EnsureImage" && span.kind == "SERVER").unwrap();
    assert!(server_span.failed && server_span.links_to(attempt), "{}", tree(&refusal));
    // A search by the entry finds the failure and the refusal, whatever the direction of links.
    let entry = server_span.attribute(ENTRY);
    assert_eq!(entry.len(), 32, "{server_span:?}");
    assert_eq!(attempt.attribute(ENTRY), entry, "{attempt:?}");
    let listed = agents[0].ask(&ListEvents::default()).events;
    let failed_with: Vec<_> =
        listed.iter().filter(|event| event.reason == EventReason::Failed).map(|event| event.entry.as_deref()).collect();
    assert!(!failed_with.is_empty() && failed_with.iter().all(|of| *of == Some(entry)), "{failed_with:?} are not of {entry}");
    until("both are found by the entry", || {
        let found: BTreeSet<String> = backend.with_attribute(ENTRY, entry).into_iter().map(|span| span.trace_id).collect();
        (found.contains(text(failed, "trace_id")) && found.contains(text(&refused, "trace_id"))).then_some(())
    });
}

pub(crate) fn what_waits_in_an_outage_links_to_the_probe_that_ended_it(backend: &Spans) {
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(Fault::answer("/v2/shop", 503, &[], r#"{"errors":[{"code":"UNAVAILABLE"}]}"#));
    let start = |node| Agent::start(&place, node, &["--nats", &server.url()]).ready();
    let agents = ["n1", "n2", "n3"].map(start);
    until("they know of each other", || agents.iter().all(|agent| agent.counter("presence_alive") == 3).then_some(()));
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--wait", "2m", "-o", "json"];
    let waiting: Vec<_> = agents.iter().map(|agent| agent.asked_meanwhile(&arguments)).collect();
    until("a pull is refused", || {
        let is_refused =
            |agent: &Agent<'_>| agent.ask(&ListEvents::default()).events.iter().any(|event| event.reason == EventReason::BackOff);
        agents.iter().any(is_refused).then_some(())
    });
    until("all wait for the entry", || {
        agents.iter().all(|agent| agent.asked(&["pulls", "-o", "json"]).stdout.contains("503")).then_some(())
    });
    registry.faults().clear();
    let rows: Vec<Value> = waiting.into_iter().map(|started| e2e::Finished::of(&arguments, started).expect(0).object()).collect();
    let traces: Vec<Vec<Span>> = rows
        .iter()
        .map(|row| backend.trace_until("a pull that waited", text(row, "trace_id"), |spans| has(spans, &["fleetpull pull", "image.wait"])))
        .collect();
    traces.iter().for_each(|spans| show("waited in an outage", spans));
    traces.iter().for_each(|spans| assert_one_root(spans));
    let all: Vec<Span> = traces.into_iter().flatten().collect();
    let good: Vec<&Span> = named(&all, "attempt").into_iter().filter(|attempt| !attempt.failed).collect();
    let released = |wait: &&Span| good.iter().any(|attempt| attempt.trace_id != wait.trace_id && wait.links_to(attempt));
    let waits = named(&all, "clearance.wait").into_iter().filter(released).count();
    assert!(waits >= 1, "none of the others links to the probe:\n{}", tree(&all));
    let happened: BTreeSet<&str> = named(&all, "image.wait").iter().flat_map(|wait| &wait.events).map(String::as_str).collect();
    assert_eq!(happened, ["opened", "probed", "refused", "released"].into(), "{}", tree(&all));
    let probes = good.iter().filter(|attempt| attempt.attribute("fleetpull.attempt.for_all") == "true").count();
    assert!(probes >= 1, "{}", tree(&all));
}

pub(crate) fn ten_callers_of_one_flight_link_to_its_attempt(backend: &Spans) {
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([800_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(100_000)));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "-o", "json"];
    let callers: Vec<_> = (0..10).map(|_| agent.asked_meanwhile(&arguments)).collect();
    until("all ten have joined", || {
        let pulls = agent.ask(&contract::messages::pull_coordinator::ListPulls {}).pulls;
        pulls.first().is_some_and(|pull| pull.callers == 10).then_some(())
    });
    let rows: Vec<Value> = callers.into_iter().map(|started| e2e::Finished::of(&arguments, started).expect(0).object()).collect();
    let traces: Vec<Vec<Span>> = rows
        .iter()
        .map(|row| {
            backend.trace_until("one of ten", text(row, "trace_id"), |spans| {
                has(spans, &["fleetpull pull"]) && named(spans, "pull-coordinator.EnsureImage").len() == 2
            })
        })
        .collect();
    traces.iter().for_each(|spans| assert_one_root(spans));
    let all: Vec<Span> = traces.into_iter().flatten().collect();
    show("ten callers", &all);
    let attempts = named(&all, "attempt");
    assert_eq!(attempts.len(), 1, "{}", tree(&all));
    let joined = all.iter().filter(|span| span.kind == "SERVER" && span.links_to(attempts[0])).count();
    assert_eq!(joined, 9, "{}", tree(&all));
}

pub(crate) fn all_callers_of_a_flight_that_fails_are_found_by_the_entry(backend: &Spans) {
    const CALLERS: u32 = 3;
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    let place = place.with("FLEETPULL_REGISTRY_FIRST_BYTE_TIMEOUT", "3s");
    registry.faults().add(Fault::new("/manifests/", FaultAction::Hang));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "-o", "json"];
    let callers: Vec<_> = (0..CALLERS).map(|_| agent.asked_meanwhile(&arguments)).collect();
    until("all have joined", || {
        let pulls = agent.ask(&contract::messages::pull_coordinator::ListPulls {}).pulls;
        pulls.first().is_some_and(|pull| pull.callers == CALLERS).then_some(())
    });
    let rows: Vec<Value> = callers.into_iter().map(|started| e2e::Finished::of(&arguments, started).expect(1).object()).collect();
    let traces: Vec<Vec<Span>> = rows
        .iter()
        .map(|row| {
            backend.trace_until("one of them", text(row, "trace_id"), |spans| {
                has(spans, &["fleetpull pull"]) && named(spans, "pull-coordinator.EnsureImage").len() == 2
            })
        })
        .collect();
    let all: Vec<Span> = traces.into_iter().flatten().collect();
    show("callers of a flight that fails", &all);
    let attempts = named(&all, "attempt");
    assert_eq!(attempts.len(), 1, "{}", tree(&all));
    let entry = attempts[0].attribute(ENTRY);
    assert_eq!(entry.len(), 32, "{}", tree(&all));
    let found: BTreeSet<String> = backend
        .with_attribute(ENTRY, entry)
        .into_iter()
        .filter(|span| span.name == "pull-coordinator.EnsureImage" && span.kind == "SERVER")
        .map(|span| span.trace_id)
        .collect();
    let asked: BTreeSet<String> = rows.iter().map(|row| text(row, "trace_id").to_owned()).collect();
    assert_eq!(found, asked, "{}", tree(&all));
}

pub(crate) fn a_pull_through_containerd_has_the_call_of_the_runtime(backend: &Spans) {
    if met(available()).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let containerd = runtime.block_on(Containerd::start(ContainerdConfig::default()));
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), backend.place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let cri = ["--nats", &server.url(), "--runtime", "cri", "--runtime-endpoint", &containerd.endpoint()];
    let _agent = Agent::start(&place, "n1", &cri).ready();
    let row = pull(&place, "n1", &registry.image("shop/web:v1"), &server, 0);
    let call = "runtime.v1.ImageService/PullImage";
    let spans = backend.trace_until("a pull by containerd", text(&row, "trace_id"), |spans| has(spans, &["fleetpull pull", call]));
    show("a pull by containerd", &spans);
    assert_one_root(&spans);
    assert!(edges(&spans).contains(&("attempt", call)), "{}", tree(&spans));
    let call = named(&spans, call)[0];
    assert_eq!(
        (call.kind.as_str(), call.attribute("rpc.system.name"), call.attribute("rpc.response.status_code")),
        ("CLIENT", "grpc", "OK")
    );
}
