//! An agent without a bus: how it starts, answers this machine, and stops.

use e2e::{Registry, Signal, Workplace, until};
use memory_registry::{BodyFault, Fault, MadeImage};

use e2e::Agent;

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn one_line_describes_what_has_started() {
    let place = Workplace::new();
    place.write(".docker/config.json", r#"{"auths": {}}"#);
    let agent = Agent::start(&place, "n1", &[]).ready();
    let log = agent.log_with("the agent has started");
    let line = log.lines().next().unwrap();
    let store = place.text_path("store-of-n1");
    for part in [VERSION, "node=n1", "oci-layout", &store, "bus=\"none\"", ".docker/config.json", "agent.sock"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn the_line_is_one_object_where_the_log_is_json() {
    let place = Workplace::new().with("FLEETPULL_LOG_FORMAT", "json");
    let agent = Agent::start(&place, "n1", &[]).ready();
    let line: serde_json::Value = serde_json::from_str(agent.log_with("the agent has started").lines().next().unwrap()).unwrap();
    assert_eq!((&line["version"], &line["node"], &line["bus"]), (&VERSION.into(), &"n1".into(), &"none".into()), "{line}");
    assert!(line["registry_logins"].is_string(), "named apart from logins at NATS: {line}");
}

#[test]
fn it_answers_on_its_socket() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000, 2_000]));
    let agent = Agent::start(&place, "n1", &["--label", "zone=a", "--label", "disk=ssd"]).ready();
    let described = agent.described();
    assert_eq!((&described["node"], &described["state"], &described["version"]), (&"n1".into(), &"ok".into(), &VERSION.into()));
    assert_eq!(described["labels"], serde_json::json!({"zone": "a", "disk": "ssd"}));
    let image = registry.image("shop/web:v1");
    for outcome in ["pulled", "present"] {
        let row = agent.asked(&["pull", "--node", "n1", "-o", "json", &image]).expect(0).object();
        assert_eq!(row["outcome"], outcome, "{row}");
    }
    let failed = agent.asked(&["pull", "--node", "n1", "-o", "json", &registry.image("shop/web:v9")]).expect(1).object();
    assert_eq!(failed["reason"], "ErrImagePull", "{failed}");
    assert_eq!(agent.described()["backoff"], 1);
    assert_eq!((agent.counter("backoff_failures_total"), agent.counter("throttle_granted_total")), (1, 2));
    assert!(agent.counter("events_recorded_total") >= 5);
}

#[test]
fn it_does_not_say_that_it_has_a_bus() {
    let place = Workplace::new();
    let agent = Agent::start(&place, "n1", &[]).ready();
    let status = agent.asked(&["status"]).expect(0);
    assert!(status.stdout.contains("\nBUS      none is configured: this node shares nothing\n"), "{status}");
    assert_eq!(agent.asked(&["status", "-o", "json"]).expect(0).object()["bus"]["state"], "none");
    assert_eq!((agent.counter("bus_connected"), agent.state().as_str()), (0, "ok"));
}

#[test]
fn several_agents_on_one_machine_share_a_store_and_nothing_else() {
    let place = Workplace::new();
    let agents: Vec<Agent<'_>> = ["n1", "n2", "n3"].map(|node| Agent::start_in(&place, node, "store", &[])).into_iter().collect();
    for (agent, node) in agents.into_iter().map(Agent::ready).zip(["n1", "n2", "n3"]) {
        assert_eq!(agent.described()["node"], node);
    }
}

#[test]
fn a_path_longer_than_a_socket_address_will_do() {
    let place = Workplace::new();
    let deep = format!("{}/{}", "d".repeat(90), "e".repeat(90));
    std::fs::create_dir_all(place.path(&deep)).unwrap();
    let agent = Agent::start_in(&place, "n1", &deep, &[]).ready();
    assert!(agent.socket().as_os_str().len() > 200);
    assert_eq!(agent.described()["node"], "n1");
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let place = Workplace::new();
    for signal in [Signal::Terminate, Signal::Interrupt] {
        let agent = Agent::start(&place, "n1", &[]).ready();
        agent.signal(signal);
        assert_eq!(agent.notice(), "STOPPING=1");
        let socket = agent.socket().clone();
        let done = agent.end().expect(0);
        assert_eq!(done.stdout, "", "{done}");
        assert!(!socket.exists(), "no socket is left");
    }
}

#[test]
fn a_running_pull_does_not_delay_the_end_and_its_caller_gets_an_answer() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &MadeImage::of_layers([3_000_000]));
    let layer = &added.manifests[0].layers[0];
    registry.faults().add(Fault::body(&layer.digest, BodyFault::StallAfter(2_000_000)));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let (url, image) = (agent.url(), registry.image("shop/web:v1"));
    let arguments = ["pull", "--node", "n1", "-o", "json", "--agent", &url, &image];
    let pull = place.start(&arguments);
    until("the pull is under way", || (agent.described()["pulling"] == 1).then_some(()));
    agent.signal(Signal::Terminate);
    agent.end().expect(0);
    let outcome = e2e::Finished::of(&arguments, pull).expect(1).object();
    assert_eq!((&outcome["outcome"], &outcome["image"]), (&"failed".into(), &image.into()), "{outcome}");
    assert!(outcome["message"].as_str().unwrap().contains("closed its socket"), "{outcome}");
}

#[test]
fn systemd_gets_the_signs_of_life_that_it_asks_for() {
    let place = Workplace::new().with("WATCHDOG_USEC", "200000");
    let agent = Agent::start(&place, "n1", &[]).ready();
    for _ in 0..3 {
        assert_eq!(agent.notice(), "WATCHDOG=1");
    }
}

#[test]
fn unusable_option_is_named_before_the_agent_starts() {
    let place = Workplace::new();
    place.write("file", "");
    place.write("store/state/n1/agent.sock", "precious");
    let table: [(&[&str], i32, &str); 7] = [
        (&["--node", "n 1"], 2, "n 1"),
        (&["--node", "localhost"], 2, "not localhost"),
        (&["--node", "n1", "--state-dir", "file/state"], 1, "file/state"),
        (&["--node", "n1", "--store", "store"], 1, "agent.sock"),
        (&["--node", "n1", "--nats-creds", "nowhere.creds", "--nats", "nats://127.0.0.1:1"], 1, "nowhere.creds"),
        (&["--node", "n1", "--label", "zone"], 2, "zone"),
        (&["--node", "n1", "--runtime", "docker"], 2, "oci-layout, cri"),
    ];
    for (arguments, status, text) in table {
        let done = place.run(&[&["run"], arguments].concat()).expect(status);
        assert!(done.stderr.contains(text), "{text:?} in {done}");
    }
    assert_eq!(std::fs::read_to_string(place.path("store/state/n1/agent.sock")).unwrap(), "precious");
}
