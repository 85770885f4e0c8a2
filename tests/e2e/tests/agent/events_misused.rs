//! Events if the outbox is damaged, the stream belongs to another program, permissions are missing, or names and headers are hostile.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use e2e::{Agent, Registry, Workplace, until};
use memory_registry::{Fault, FaultAction, MadeImage};
use serde_json::{Value, json};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const STREAM: &str = "FLEETPULL_EVENTS";

fn registry() -> Registry {
    let registry = Registry::new();
    for tag in ["v1", "v2", "v3"] {
        registry.add_image("shop/web", tag, &MadeImage::of_layers([4_000]));
    }
    registry
}

fn pull(agent: &Agent<'_>, registry: &Registry, tag: &str) {
    agent.asked(&["pull", "--node", "n1", &registry.image(&format!("shop/web:{tag}"))]).expect(0);
}

/// Sends a request to JetStream's API, as an operator with any client does.
fn jetstream(server: &NatsServer, verb: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let ask = format!("PUB $JS.API.STREAM.{verb}.{STREAM} answer {}\r\n{body}\r\n", body.len());
    write!(stream, "CONNECT {{\"verbose\":false,\"user\":\"operator\",\"pass\":\"o\"}}\r\nSUB answer 1\r\n{ask}").unwrap();
    let answer = BufReader::new(stream).lines().map(Result::unwrap).find(|line| line.starts_with("{\"type\":\"io.nats.jetstream.api"));
    let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
    assert!(answer["error"].is_null(), "{verb}: {answer}");
    answer
}

fn waiting(agent: &Agent<'_>) -> u64 {
    agent.counter("events_waiting")
}

/// How many of the events are about pulls and not about the agent.
fn of_images(events: &[Value]) -> usize {
    events.iter().filter(|event| !event["data"]["image"].is_null()).count()
}

#[test]
fn a_damaged_outbox_is_set_aside_and_reported_and_the_agent_starts() {
    let (registry, place) = (registry(), Workplace::new());
    let agent = Agent::start(&place, "n1", &[]).ready();
    pull(&agent, &registry, "v1");
    let (status, ..) = {
        agent.signal(e2e::Signal::Kill);
        agent.wait()
    };
    assert_eq!(status, 137);
    let state = place.path("store-of-n1/state/n1");
    for file in ["outbox.db", "outbox.db-wal"] {
        let path = state.join(file);
        let mut content = std::fs::read(&path).unwrap();
        content.iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(path, content).unwrap();
    }
    let agent = Agent::start(&place, "n1", &[]).ready();
    let log = agent.log_with("events may have been lost");
    assert!(log.contains("outbox.damaged-1.db") && state.join("outbox.damaged-1.db").is_file(), "{log}");
    pull(&agent, &registry, "v2");
    let events = agent.asked(&["events", "-o", "json"]).expect(0).objects();
    let reasons: Vec<&str> = events.iter().map(|event| event["data"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["EventsDropped", "AgentStarted", "Pulling", "Pulled"]);
}

#[test]
fn torn_outbox_log_keeps_its_complete_events() {
    let (registry, place) = (registry(), Workplace::new());
    let agent = Agent::start(&place, "n1", &[]).ready();
    pull(&agent, &registry, "v1");
    pull(&agent, &registry, "v2");
    agent.signal(e2e::Signal::Kill);
    agent.wait();
    let log = place.path("store-of-n1/state/n1/outbox.db-wal");
    let length = std::fs::metadata(&log).unwrap().len();
    // Cut the log in the middle of the page that was written last.
    std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(length - 1_000).unwrap();
    let agent = Agent::start(&place, "n1", &[]).ready();
    pull(&agent, &registry, "v3");
    let events = agent.asked(&["events", "-o", "json"]).expect(0).objects();
    assert!(events.len() >= 5, "{events:?}");
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence"].as_str().unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
}

#[test]
fn a_stream_with_another_configuration_costs_no_pull_and_no_event() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), registry(), Workplace::new());
    // A stream with other subjects, and no room for an agent's event in a message.
    let own = json!({"name": STREAM, "subjects": ["somebody.else"], "storage": "file", "retention": "limits", "discard": "old",
        "max_msg_size": 64, "max_bytes": -1, "max_msgs": -1, "max_age": 0, "num_replicas": 1, "allow_direct": true});
    jetstream(&server, "CREATE", &own);
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    pull(&agent, &registry, "v1");
    until("it is counted that the stream does not take them", || (agent.counter("events_stream_failures_total") > 0).then_some(()));
    assert!(waiting(&agent) >= 3, "that it has started, and the pull");
    let agent = agent.kill_and_start_again().ready();
    pull(&agent, &registry, "v2");
    let mut config = jetstream(&server, "INFO", &Value::Null)["config"].take();
    config["max_msg_size"] = json!(-1);
    jetstream(&server, "UPDATE", &config);
    until("the stream takes them now", || (waiting(&agent) == 0).then_some(()));
    // The stream loses its subjects while the agent runs.
    config["subjects"] = json!(["somebody.else"]);
    jetstream(&server, "UPDATE", &config);
    pull(&agent, &registry, "v3");
    until("they are put back", || (waiting(&agent) == 0).then_some(()));
    let history = place.run(&["events", "--since", "1h", "-o", "json", "--nats", &server.url()]).expect(0).objects();
    let numbers: Vec<u64> = history.iter().map(|event| event["sequence"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each once, in order");
    assert_eq!(of_images(&history), 6);
}

#[test]
fn events_that_no_permission_covers_wait_and_are_sent_when_they_may() {
    if met(current_program()).is_none() {
        return;
    }
    let users = |denied: &str| {
        let agent = format!("{{ user: agent, password: a, permissions {{ publish {{ deny: [{denied}] }} }} }}");
        NatsConfig::default().with(&format!("authorization {{ users: [{{ user: operator, password: o }}, {agent}] }}"))
    };
    let mut server = NatsServer::start(users("\"fleetpull.*.evt.>\""));
    let (registry, place) = (registry(), Workplace::new());
    let url = format!("nats://agent:a@{}", server.address());
    let agent = Agent::start(&place, "n1", &["--nats", &url]).ready();
    pull(&agent, &registry, "v1");
    until("it is counted that they may not", || (agent.counter("events_stream_failures_total") > 0).then_some(()));
    assert!(waiting(&agent) >= 3, "that it has started, and the pull");
    server.restart_with(users("\"nothing.>\""));
    until("they are sent", || (waiting(&agent) == 0).then_some(()));
    let history = place.run(&["events", "--since", "1h", "-o", "json", "--nats", &url]).expect(0).objects();
    assert_eq!(of_images(&history), 2);
}

#[test]
fn hostile_image_names_are_escaped_in_terminals_logs_and_metrics() {
    let place = Workplace::new().with("FLEETPULL_METRICS_ADDRESS", "127.0.0.1:0").with("FLEETPULL_LOG_LEVEL", "trace");
    let agent = Agent::start(&place, "n1", &[]).ready();
    let long = format!("127.0.0.1:1/{}:v1", "a/".repeat(60_000));
    for name in [
        "\u{1b}[2J\u{1b}]0;owned\u{7}:v1",
        "a\nfleetpull_up 7\nb",
        "registry.example/\"} 1\nfleetpull_pulls_total{x=\"",
        "\u{202e}gnp.exe",
        "$(reboot)`id`",
        "%s%n{}{0}",
        &long,
    ] {
        let pulled = agent.asked(&["pull", "--node", "n1", name, "--log-level", "trace"]).expect(1);
        let events = agent.asked(&["events"]).expect(0);
        for text in [&pulled.stdout, &pulled.stderr, &events.stdout, &agent.log_with("")] {
            let acts = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
            assert!(!text.contains(acts), "{name:?}: {:?}", text.lines().find(|line| line.contains(acts)));
        }
        let metrics = agent.metrics();
        assert!(metrics.lines().all(|line| line.starts_with("fleetpull_") || line.starts_with("# ")), "{name:?}");
        assert!(!metrics.contains("fleetpull_up 7") && !metrics.contains("owned") && metrics.len() < 200_000, "{name:?}");
        assert!(!agent.log_with("").lines().any(|line| line.starts_with("fleetpull_up")), "{name:?} has a line of its own in the log");
    }
    let events = agent.asked(&["events", "-o", "json"]).expect(0).objects();
    for event in events.iter().filter(|event| event["data"]["reason"] != "AgentStarted") {
        assert_eq!(event["data"]["reason"], "InspectFailed", "{event}");
    }
}

#[test]
fn oversized_registry_header_fails_only_its_pull() {
    let (registry, place) = (registry(), Workplace::new());
    let agent = Agent::start(&place, "n1", &[]).ready();
    let long = "x".repeat(2 << 20);
    for name in ["docker-content-digest", "www-authenticate", "retry-after", "ratelimit-limit", "location"] {
        registry.faults().clear();
        let path = format!("/v2/shop/{name}/manifests/");
        registry.faults().add(Fault::new(&path, FaultAction::Header { name: name.to_owned(), value: long.clone() }));
        let image = registry.image(&format!("shop/{name}:v1"));
        registry.add_image(&format!("shop/{name}"), "v1", &MadeImage::of_layers([1_000]));
        let row = agent.asked(&["pull", "--node", "n1", &image, "-o", "json"]).expect(1);
        assert!(row.output().len() < 20_000, "{name}: {:.2000}", row.output());
        let row = row.object();
        let is_explained = row["message"].as_str().is_some_and(|message| message.contains("more headers than are read: 100, or 400 KiB"));
        assert!(row["outcome"] == "failed" && row["class"] == "unknown" && is_explained, "{name}: {row}");
        // The registry's other images can still be pulled.
        let _ = agent.asked(&["pull", "--node", "n1", "--policy", "Always", &registry.image("shop/web:v1")]).expect(0);
    }
    registry.faults().clear();
    assert_eq!(agent.state(), "ok");
}
