//! The metrics of a working agent: every instrument of the table as declared, and the same numbers in every output.
#![allow(clippy::print_stderr, reason = "figures, for readers of the log")]

use std::collections::{BTreeMap, BTreeSet};

use e2e::{Agent, Registry, Signal, Workplace, http_get, until};
use memory_registry::{Fault, FaultAction, MadeImage, Quota};
use metrics::table::{self, ALL};
use metrics::{SERIES_MAX, Scope, samples};
use regex::Regex;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// A workplace where agents serve metrics on a free port of the loopback address.
fn scraped() -> Workplace {
    Workplace::new().with("FLEETPULL_METRICS_ADDRESS", "127.0.0.1:0")
}

/// The value of one sample; none if it is not exported.
fn value(text: &str, name: &str, labels: &str) -> Option<f64> {
    samples(text).find(|sample| sample.name == name && sample.labels == labels).map(|sample| sample.value)
}

/// The names of all instruments that are exported.
fn exported(text: &str) -> BTreeSet<&'static str> {
    let of = |name: &str| table::of_sample(name).unwrap_or_else(|| panic!("{name} is not declared")).name;
    samples(text).map(|sample| of(sample.name)).collect()
}

/// Asserts that the families of a text are as the table declares them.
fn assert_as_declared(text: &str) {
    let declared: BTreeMap<&str, &str> = ALL.iter().map(|instrument| (instrument.family(), instrument.kind.as_str())).collect();
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let mut words = line.split(' ').skip(2);
        let (family, kind) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(declared.get(family), Some(&kind), "{line}");
    }
    for sample in samples(text) {
        let instrument = table::of_sample(sample.name).unwrap();
        let labels: BTreeSet<&str> =
            sample.labels.split("\",").filter_map(|pair| Some(pair.split_once('=')?.0)).filter(|label| *label != "le").collect();
        assert_eq!(labels, instrument.labels.iter().copied().collect(), "{}", sample.name);
        let unit = instrument.unit().map(|unit| format!("# UNIT {} {unit}\n", instrument.family()));
        assert!(unit.is_none_or(|unit| text.contains(&unit)), "{} has its unit", instrument.name);
    }
    assert!(text.ends_with("# EOF\n"));
}

/// The selectors of dashboards and rules: each with a name and fixed label values.
fn selected() -> Vec<(String, Vec<(String, String)>)> {
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |name: &str| std::fs::read_to_string(deploy.join(name)).unwrap();
    let text = ["grafana/fleet.json", "grafana/node.json", "prometheus/rules.yaml"].map(read).join("\n").replace("\\\"", "\"");
    let selector = Regex::new(r"(fleetpull_[a-z_]+)(?:\{([^}]*)\})?").unwrap();
    let fixed = Regex::new(r#"([a-z_]+)="([a-z_]+)""#).unwrap();
    let pairs = |labels: &str| fixed.captures_iter(labels).map(|found| (found[1].to_owned(), found[2].to_owned())).collect();
    selector.captures_iter(&text).map(|found| (found[1].to_owned(), pairs(found.get(2).map_or("", |labels| labels.as_str())))).collect()
}

/// Asserts that dashboards and rules select only what an agent exports.
fn assert_panels_find(text: &str) {
    let selected = selected();
    assert!(selected.len() > 80, "{selected:?}");
    for (name, fixed) in selected {
        // The classes of open entries depend on the failures.
        let fixed: Vec<_> = fixed.into_iter().filter(|(label, _)| name != table::ENTRIES_OPEN.name || label != "class").collect();
        let has = |sample: &metrics::Sample<'_>| fixed.iter().all(|(label, value)| sample.label(label) == Some(value));
        assert!(samples(text).any(|sample| sample.name == name && has(&sample)), "{name} {fixed:?} is selected and never exported");
    }
}

/// Pulls an image, finds it present, fails to pull another one and is refused.
fn work(agent: &Agent<'_>, registry: &Registry) {
    let pull = |image: &str, status| agent.asked(&["pull", "--node", "n1", "-o", "json", &registry.image(image)]).expect(status).object();
    assert_eq!(pull("shop/web:v1", 0)["outcome"], "pulled");
    assert_eq!(pull("shop/web:v1", 0)["outcome"], "present");
    assert_eq!(pull("shop/web:v9", 1)["outcome"], "failed");
    assert_eq!(pull("shop/web:v9", 4)["outcome"], "backoff");
}

#[test]
fn a_working_agent_exports_every_instrument_of_the_table() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), scraped());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000, 2_000]));
    registry.faults().add(Fault::new("/manifests/", FaultAction::Quota(Quota::new(100, 21_600))));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    until("it leads its fleet", || (agent.counter("presence_registrar") == 1 && agent.counter("shared_alone") == 0).then_some(()));
    work(&agent, &registry);
    let text = until("it leads the budget of the registry, and everything is exported", || {
        let text = agent.metrics();
        ALL.iter().all(|instrument| exported(&text).contains(instrument.name)).then_some(text)
    });
    assert_as_declared(&text);
    assert_panels_find(&text);
    let series = samples(&text).count();
    eprintln!("metrics: {series} series, {} bytes", text.len());
    assert!(series <= SERIES_MAX, "{series} series");
    let host = registry.host();
    for (name, labels, least) in [
        ("fleetpull_pulls_total", "outcome=\"pulled\",class=\"none\"".to_owned(), 1.0),
        ("fleetpull_pulls_total", "outcome=\"present\",class=\"none\"".to_owned(), 1.0),
        ("fleetpull_pulls_total", "outcome=\"failed\",class=\"not_found\"".to_owned(), 1.0),
        ("fleetpull_refusals_total", "class=\"not_found\",learned=\"self\"".to_owned(), 1.0),
        ("fleetpull_pull_size_bytes_count", String::new(), 1.0),
        ("fleetpull_attempt_duration_seconds_count", String::new(), 2.0),
        ("fleetpull_wait_duration_seconds_count", "cause=\"clearance\"".to_owned(), 2.0),
        ("fleetpull_wait_duration_seconds_count", "cause=\"permit\"".to_owned(), 2.0),
        ("fleetpull_wait_duration_seconds_count", "cause=\"slot\"".to_owned(), 2.0),
        ("fleetpull_wait_duration_seconds_count", "cause=\"local_backoff\"".to_owned(), 1.0),
        ("fleetpull_registry_requests_total", format!("registry=\"{host}\",status=\"2xx\""), 2.0),
        ("fleetpull_registry_requests_total", format!("registry=\"{host}\",status=\"404\""), 1.0),
        ("fleetpull_quota_limit", format!("registry=\"{host}\""), 100.0),
        ("fleetpull_budget_rate_cap", format!("registry=\"{host}\""), 200.0),
        ("fleetpull_leases_taken_total", "lease=\"registrar\"".to_owned(), 1.0),
        ("fleetpull_leases_taken_total", "lease=\"budget\"".to_owned(), 1.0),
        ("fleetpull_bus_state", "state=\"connected\"".to_owned(), 1.0),
        ("fleetpull_nodes_alive", String::new(), 1.0),
    ] {
        let found = value(&text, name, &labels);
        assert!(found.is_some_and(|found| found >= least), "{name}{{{labels}}} is {found:?} in {text}");
    }
    let exemplars: Vec<&str> = samples(&text).filter(|sample| sample.exemplar.is_some()).map(|sample| sample.name).collect();
    for histogram in ["fleetpull_pull_duration_seconds", "fleetpull_attempt_duration_seconds", "fleetpull_wait_duration_seconds"] {
        assert!(exemplars.contains(&format!("{histogram}_bucket").as_str()), "{histogram} names a trace: {exemplars:?}");
    }
}

#[test]
fn a_pull_is_found_by_the_trace_that_its_exemplar_names() {
    let (registry, place) = (Registry::new(), scraped());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let row = agent.asked(&["pull", "--node", "n1", "-o", "json", &registry.image("shop/web:v1")]).expect(0).object();
    let named = format!("{{trace_id=\"{}\"}}", row["trace_id"].as_str().unwrap());
    let text = agent.metrics();
    let named = samples(&text).filter(|sample| sample.exemplar.is_some_and(|exemplar| exemplar.starts_with(&named)));
    let names: BTreeSet<&str> = named.map(|sample| sample.name).collect();
    let all = ["attempt", "pull", "wait"].map(|what| format!("fleetpull_{what}_duration_seconds_bucket"));
    assert_eq!(names, all.iter().map(String::as_str).collect());
}

#[test]
fn metrics_equal_counters_and_an_agent_without_fleet_exports_only_its_own() {
    let (registry, place) = (Registry::new(), scraped());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000, 2_000]));
    let agent = Agent::start(&place, "n1", &[]).ready();
    work(&agent, &registry);
    // The text is cached for a moment; the next text contains the present counts.
    let counters = until("the scraped values equal the counters", || {
        let counters = agent.asked(&["nodes", "n1", "--counters", "-o", "json"]).expect(0).object()["counters"].clone();
        (value(&agent.metrics(), "fleetpull_events_recorded_total", "")? == counters["events_recorded_total"].as_f64()?).then_some(counters)
    });
    let text = agent.metrics();
    assert_as_declared(&text);
    assert!(
        exported(&text)
            .iter()
            .all(|name| table::of_sample(name).or_else(|| table::of_sample(&format!("{name}_count"))).unwrap().scope == Scope::Node)
    );
    // The comparison leaves these two metrics out.
    let steady = ["fleetpull_start_time_seconds", "fleetpull_build_info"];
    let mut compared = 0;
    for sample in samples(&text)
        .filter(|sample| !sample.name.ends_with("_bucket") && !sample.name.ends_with("_sum") && !steady.contains(&sample.name))
    {
        let short = table::of_sample(sample.name).unwrap().counter.map_or_else(
            || {
                sample.name.strip_prefix(table::PREFIX).unwrap().to_owned()
                    + &(if sample.labels.is_empty() { String::new() } else { format!("{{{}}}", sample.labels) })
            },
            str::to_owned,
        );
        let shown = counters[&short].as_f64();
        assert_eq!(shown.unwrap_or_default(), sample.value, "{short} in `nodes n1` and {} at /metrics", sample.name);
        compared += usize::from(shown.is_some());
    }
    assert!(compared > 25, "{compared} numbers are shown by both");
    let printed = agent.asked(&["nodes", "n1", "--metrics"]).expect(0);
    let families = |text: &str| text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(families(&printed.stdout), families(&text), "the socket has what HTTP has");
    let plain = http_get(agent.http(), "/metrics", "text/plain");
    assert!(
        plain.head.contains("text/plain; version=0.0.4") && !plain.body.contains("# UNIT") && !plain.body.contains("# EOF"),
        "{plain:?}"
    );
    assert!(plain.body.contains("# TYPE fleetpull_pulls_total counter\n") && !plain.body.contains("trace_id"), "{plain:?}");
}

#[test]
fn ready_does_not_depend_on_the_bus_and_its_loss_is_reported() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), scraped());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    let ask = |path: &str| http_get(agent.http(), path, "*/*");
    let ready = ask("/readyz?verbose");
    assert_eq!((ready.status, ready.body.as_str()), (200, "[+]agent ok\n[+]runtime ok\n[+]bus ok\n[+]events ok\nreadyz check passed\n"));
    server.kill();
    agent.until_state("it has seen that", |state| state.contains("no bus since"));
    let ready = ask("/readyz?verbose");
    assert!(
        ready.status == 200
            && ready.body.contains("[!]bus degraded: no bus since ")
            && ready.body.contains("readyz check passed, degraded"),
        "{ready:?}"
    );
    assert!(ask("/readyz").body.starts_with("ok, degraded: bus: no bus since "), "{ready:?}");
    assert_eq!((ask("/livez").status, ask("/livez").body.as_str()), (200, "ok\n"));
    until("the metrics show it", || (value(&agent.metrics(), "fleetpull_bus_state", "state=\"disconnected\"") == Some(1.0)).then_some(()));
    assert_eq!(value(&agent.metrics(), "fleetpull_bus_lost_total", ""), Some(1.0));
}

#[test]
fn an_agent_without_its_runtime_lives_and_is_not_ready() {
    let place = scraped();
    let agent = Agent::start(&place, "n1", &["--runtime", "cri", "--runtime-endpoint", "unix:///nowhere/containerd.sock"]).ready();
    let ready = http_get(agent.http(), "/readyz", "*/*");
    assert!(
        ready.status == 503 && ready.body.contains("[-]runtime failed: ") && ready.body.ends_with("readyz check failed\n"),
        "{ready:?}"
    );
    assert_eq!(http_get(agent.http(), "/livez", "*/*").status, 200);
    assert_eq!(value(&agent.metrics(), "fleetpull_runtime_usable", ""), Some(0.0));
    agent.signal(Signal::Terminate);
    agent.end().expect(0);
}
