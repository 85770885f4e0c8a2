//! No secret is anywhere but where the user stored it and at the server that it is for: pulls with each kind of login, at each log level,
//! from registries that fail in each way and repeat the login in all their answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hostile;
mod nats;
mod places;
mod secrets;
mod tap;

use std::os::unix::fs::PermissionsExt as _;

use e2e::spans::Spans;
use e2e::{Agent, Finished, Workplace, until};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use support::scripted_cri::{Failure, PullAnswer, Script, ScriptedCri};

use hostile::{CANARY, Hostile};
use places::Places;
use secrets::Secrets;
use tap::Tap;

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const NATS_PASSWORD: &str = "leaksnats7q2w9e";
const PROXY_PASSWORD: &str = "leaksproxy7q2w9e";
const COLLECTOR_TOKEN: &str = "leakscollector7q2w9e";

/// Runs a check at each log level, all at the same time: agents mostly wait in it.
fn at_each_level(check: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for level in LEVELS {
            let check = &check;
            scope.spawn(move || check(level));
        }
    });
}

fn secrets() -> Secrets {
    let others = [("NATS password", NATS_PASSWORD), ("proxy's password", PROXY_PASSWORD), ("collector's token", COLLECTOR_TOKEN)];
    let others = others.iter().map(|(name, core)| ((*name).to_owned(), (*core).to_owned()));
    Secrets::of(&Hostile::cores().into_iter().chain(others).collect::<Vec<_>>())
}

/// A workplace with everything that the pulls need and write.
fn place(spans: &Spans, hostile: &Hostile, level: &str) -> Workplace {
    let place = spans.place();
    let config = place.write(".docker/config.json", hostile.login_file());
    assert!(config.ends_with(".docker/config.json"));
    for (name, answer) in Hostile::helpers() {
        let helper =
            place.write(&format!("bin/docker-credential-{name}"), format!("#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{answer}\nEND\n"));
        std::fs::set_permissions(helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (host, text) in hostile.hosts_files() {
        place.write(&format!("certs.d/{host}/hosts.toml"), text);
    }
    let (hosts, path) = (place.text_path("certs.d"), format!("{}:{}", place.text_path("bin"), std::env::var("PATH").unwrap()));
    place
        .with("PATH", path)
        .with("FLEETPULL_REGISTRY_CONFIG_PATH", hosts)
        .with("FLEETPULL_REGISTRY_FIRST_BYTE_TIMEOUT", "1s")
        .with("FLEETPULL_REGISTRY_CONNECT_TIMEOUT", "1s")
        .with("FLEETPULL_THROTTLE_QPS", "1000")
        .with("FLEETPULL_THROTTLE_BURST", "1000")
        .with("FLEETPULL_PULL_PARALLEL", "32")
        .with("FLEETPULL_PULL_KEEP_FREE", "0B")
        .with("FLEETPULL_LOG_LEVEL", level)
        .with("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{COLLECTOR_TOKEN}"))
        .with("http_proxy", format!("http://bob:{PROXY_PASSWORD}@127.0.0.1:1"))
        .with("https_proxy", format!("http://bob:{PROXY_PASSWORD}@127.0.0.1:1"))
        .with("no_proxy", "127.0.0.1")
}

fn run(place: &Workplace, places: &mut Places, arguments: &[&str]) {
    let done = Finished::of(arguments, place.start(arguments));
    assert_ne!(done.status, 2, "{done}");
    places.add(&format!("fleetpull {}", arguments.iter().take(4).copied().collect::<Vec<_>>().join(" ")), done.output());
}

/// Pulls every image in every way, asks the agent every question, and collects what was written.
fn pulls_at(level: &str) -> Places {
    let (mut places, hostile, spans) = (Places::default(), Hostile::start(), Spans::receiver());
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let inside = threads.enter();
    let cri = ScriptedCri::start(Script {
        pull_image: vec![PullAnswer::Failed(Failure::new("Unknown", &Hostile::words_of_a_runtime()))],
        ..Script::default()
    });
    drop(inside);
    let login = format!("authorization {{ user: fleet, password: {NATS_PASSWORD} }}");
    let mut server = NatsServer::start(NatsConfig::default().with(&login));
    let tap = Tap::on(&server.address(), "fleet", NATS_PASSWORD);
    let place = place(&spans, &hostile, level).with("NATS_URL", format!("nats://fleet:{NATS_PASSWORD}@{}", server.address()));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let other = Agent::start(&place, "n2", &["--runtime", "cri", "--runtime-endpoint", &cri.endpoint()]).ready();
    for agent in [&agent, &other] {
        agent.until_state("it has the bus", |state| state == "ok");
    }
    let (images, proxied) = (hostile.images(), format!("registry.invalid/shop/{CANARY}:v1"));
    let all: Vec<&str> = images.iter().map(String::as_str).chain([proxied.as_str()]).collect();
    let of_auth = hostile.image_of_auth();
    let pull = |more: &[&'static str]| [&["pull"][..], more, &all].concat();
    for format in ["json", "text"] {
        run(&place, &mut places, &pull(&["--node", "n1", "-o", format]));
    }
    assert!(hostile.shown() * 10 >= images.len() * 9, "logins were shown to {} of {} registries", hostile.shown(), images.len());
    run(&place, &mut places, &pull(&["--store", "alone", "-o", if level == "trace" { "json" } else { "text" }]));
    run(&place, &mut places, &["pull", "--node", "n2", "-o", "json", &of_auth]);
    run(&place, &mut places, &pull(&["--node", "n1", "--wait", "10m", "--detach", "-o", "json"]));
    for question in [
        &["pulls", "-o", "json"][..],
        &["pulls"],
        &["explain", &of_auth, "-o", "json"],
        &["explain", &proxied],
        &["explain", &of_auth, "--store", "alone", "-o", "json"],
        &["backoff", "list", "-o", "json"],
        &["backoff", "list"],
        &["budget", "list", "-o", "json"],
        &["events", "--node", "n1", "-o", "json"],
        &["events", "--since", "1h", "-o", "json"],
        &["events", "--since", "1h"],
        &["nodes", "n1", "--counters", "-o", "json"],
        &["nodes", "n1", "-o", "json"],
        &["nodes", "n1"],
        &["nodes", "n2"],
        &["config", "print"],
        &["config", "print", "-o", "json"],
    ] {
        run(&place, &mut places, question);
    }
    // Only some log levels contain the agent's address.
    for (node, agent) in [("n1", &agent), ("n2", &other)] {
        places.add("/metrics", agent.asked(&["nodes", node, "--metrics"]).expect(0).stdout);
    }
    until("the stream has all events", || (agent.counter("events_waiting") == 0).then_some(()));
    // The state before the agent stops in good order, as after a crash.
    places.add_files("state and store of n1", &place.path("store-of-n1"));
    places.add_files("state of n2", &place.path("store-of-n2"));
    places.add_files("store of a command", &place.path("alone"));
    for (node, agent) in [("n1", agent), ("n2", other)] {
        agent.signal(e2e::Signal::Terminate);
        let (_, stdout, log) = agent.wait();
        places.add(&format!("log of {node}"), stdout + &log);
    }
    server.stop();
    places.add("core messages", tap.recorded());
    places.add_files("JetStream", &server.folder().join("store"));
    let Spans::Receiver(collector, ..) = &spans else { unreachable!("it is a receiver") };
    assert_eq!(collector.header("authorization").as_deref(), Some(format!("Bearer {COLLECTOR_TOKEN}").as_str()));
    places.add("spans", collector.bodies());
    places
}

#[test]
fn a_login_is_in_nothing_that_is_written_whatever_a_registry_answers() {
    if met(current_program()).is_none() {
        return;
    }
    let (secrets, canary) = (secrets(), Secrets::of(&[("canary".to_owned(), CANARY.to_owned())]));
    at_each_level(|level| {
        let places = pulls_at(level);
        // The image's name must be found in each place, which proves that the place was searched.
        for name in ["core messages", "JetStream", "spans", "state and store of n1", "state of n2"] {
            assert!(places.holds(name, &canary), "{name} at {level} does not name the image, so the check would prove nothing");
        }
        assert!(["info", "debug", "trace"].iter().all(|low| *low != level) || places.holds_text("log of n1", "the agent has started"));
        assert!(places.holds_text("/metrics", "127.0.0.1:") && places.holds_text("fleetpull events --since 1h -o", CANARY));
        let leaks = places.leaks(&secrets);
        assert!(leaks.is_empty(), "at log level {level}:\n{}", leaks.join("\n"));
    });
}
