//! Environment variables for traces, with good and bad values.

use std::net::TcpListener;

use e2e::spans::{Spans, assert_one_root};
use e2e::{Agent, Registry, Signal, Workplace};
use memory_registry::MadeImage;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";

fn registry() -> Registry {
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry
}

#[test]
fn traceparent_is_the_parent_of_a_command_and_its_state_goes_on_to_registries() {
    let (backend, registry) = (Spans::receiver(), registry());
    let place = backend.place().with("TRACEPARENT", format!("{PARENT}-01")).with("TRACESTATE", "vendor=1");
    let row = place.run(&["pull", &registry.image("shop/web:v1"), "--store", "s", "-o", "json"]).expect(0).object();
    assert_eq!(row["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let spans =
        backend.trace_until("the pull", "4bf92f3577b34da6a3ce929d0e0e4736", |spans| spans.iter().any(|span| span.name == "fleetpull pull"));
    let root = spans.iter().find(|span| span.name == "fleetpull pull").unwrap();
    assert_eq!((root.parent_id.as_str(), root.trace_state.as_str()), ("00f067aa0ba902b7", "vendor=1"));
    assert!(registry.requests().iter().any(|request| request.headers.get("tracestate").is_some_and(|state| state == "vendor=1")));
}

#[test]
fn an_invalid_traceparent_begins_a_trace_and_is_reported() {
    let (backend, registry) = (Spans::receiver(), registry());
    let zeros = format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16));
    for nonsense in ["nonsense".to_owned(), zeros, "0".repeat(100_000)] {
        let place = backend.place().with("TRACEPARENT", nonsense).with("TRACESTATE", "x".repeat(100_000));
        let run = place.run(&["pull", &registry.image("shop/web:v1"), "--store", "s", "-o", "json"]).expect(0);
        assert!(run.stderr.contains("TRACEPARENT is ignored"), "{run}");
        let trace_id = run.object()["trace_id"].as_str().unwrap().to_owned();
        let spans = backend.trace_until("the pull", &trace_id, |spans| spans.iter().any(|span| span.name == "fleetpull pull"));
        assert_one_root(&spans);
    }
}

#[test]
fn an_unsampled_pull_is_exported_only_if_it_fails() {
    let (backend, registry) = (Spans::receiver(), registry());
    let place = backend.place().with("TRACEPARENT", format!("{PARENT}-00"));
    let good = place.run(&["pull", &registry.image("shop/web:v1"), "--store", "s", "-o", "json"]).expect(0).object();
    let bad = place.run(&["pull", &registry.image("shop/web:v2"), "--store", "s", "-o", "json"]).expect(1).object();
    let trace_id = |row: &serde_json::Value| row["trace_id"].as_str().unwrap().to_owned();
    let spans = backend.trace_until("the failure", &trace_id(&bad), |spans| spans.iter().any(|span| span.name == "attempt"));
    assert_one_root(&spans);
    for step in ["image.inspect", "event-recorder.Record"] {
        assert!(spans.iter().any(|span| span.name == step), "its steps are exported as well: {spans:?}");
    }
    assert_eq!(backend.trace(&trace_id(&good)), vec![]);
}

#[test]
fn an_unsampled_pull_of_a_present_image_is_exported_with_its_steps_if_it_is_slow() {
    let (backend, registry) = (Spans::receiver(), registry());
    let image = registry.image("shop/web:v1");
    let place = backend.place().with("TRACEPARENT", format!("{PARENT}-00"));
    place.run(&["pull", &image, "--store", "s"]).expect(0);
    let place = place.with("FLEETPULL_TRACES_KEEP_SLOW", "1us");
    let present = place.run(&["pull", &image, "--store", "s", "-o", "json"]).expect(0).object();
    assert_eq!(present["outcome"], "present");
    let trace_id = present["trace_id"].as_str().unwrap();
    let spans =
        backend.trace_until("the slow pull", trace_id, |spans| spans.iter().any(|span| span.name == "pull-coordinator.EnsureImage"));
    assert_one_root(&spans);
    let request = spans.iter().find(|span| span.name == "pull-coordinator.EnsureImage").expect("the request");
    let inspect = spans.iter().find(|span| span.name == "image.inspect").expect("its first step");
    assert_eq!(inspect.parent_id, request.span_id);
    assert!(spans.iter().any(|span| span.name == "event-recorder.Record"), "{spans:?}");
}

#[test]
fn without_an_exporter_nothing_is_exported_and_the_parent_goes_on_as_it_came() {
    let registry = registry();
    let place = Workplace::new().with("TRACEPARENT", format!("{PARENT}-01"));
    let row = place.run(&["pull", &registry.image("shop/web:v1"), "--store", "s", "-o", "json"]).expect(0).object();
    assert_eq!(row["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(registry.requests().iter().all(|request| request.headers["traceparent"].starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-")));
}

#[test]
fn invalid_variables_are_reported_and_hinder_no_pull() {
    let registry = registry();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    for (name, value, expected) in [
        ("OTEL_TRACES_EXPORTER", "zipkin", "traces are not exported: OTEL_TRACES_EXPORTER=\\\"zipkin\\\""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere", "traces are not exported: OTEL_EXPORTER_OTLP_ENDPOINT"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "spans were not exported"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &silent, "the last spans were not exported in time"),
    ] {
        let place = Workplace::new().with(name, value);
        let run = place.run(&["pull", &registry.image("shop/web:v1"), "--store", "s", "-o", "json"]).expect(0);
        assert!(run.stderr.replace('\\', "").contains(&expected.replace('\\', "")), "{name}={value}: {run}");
    }
}

#[test]
fn a_link_is_shown_where_a_pull_failed() {
    let registry = registry();
    let place = Workplace::new().with("FLEETPULL_TRACES_LINK", "http://jaeger:16686/trace/{trace_id}");
    let run = place.run(&["pull", &registry.image("shop/web:v2"), "--store", "s"]).expect(1);
    assert!(run.stdout.contains("http://jaeger:16686/trace/"), "{run}");
}

#[test]
fn buffered_spans_are_exported_when_the_agent_is_terminated() {
    let (backend, registry) = (Spans::receiver(), registry());
    let place = backend.place().with("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let agent = Agent::start(&place, "n1", &[]).ready();
    let row = agent.asked(&["pull", &registry.image("shop/web:v1"), "-o", "json"]).expect(0).object();
    let trace_id = row["trace_id"].as_str().unwrap().to_owned();
    let of_agent =
        |spans: &[support::otlp::Span]| spans.iter().any(|span| span.resource.get("fleetpull.node").is_some_and(|node| node == "n1"));
    assert!(!of_agent(&backend.trace(&trace_id)));
    agent.signal(Signal::Terminate);
    assert_eq!(agent.end().status, 0);
    assert!(of_agent(&backend.trace(&trace_id)));
}

#[test]
fn an_agent_ends_in_time_though_its_collector_hangs() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (registry, place) =
        (registry(), Workplace::new().with("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", silent.local_addr().unwrap())));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let _ = agent.asked(&["pull", &registry.image("shop/web:v1")]).expect(0);
    agent.signal(Signal::Terminate);
    let ended = agent.end().expect(0);
    assert!(ended.stderr.contains("the last spans were not exported in time"), "{ended}");
}
