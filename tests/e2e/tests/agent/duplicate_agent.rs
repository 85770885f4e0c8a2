//! No duplicate agents on the bus: on one machine a lock prevents them, between machines a question on the bus does.

use e2e::{Registry, Signal, Workplace, until};
use memory_registry::MadeImage;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use e2e::Agent;

#[test]
fn a_second_agent_on_the_same_state_is_refused_with_what_to_do() {
    let place = Workplace::new();
    let first = Agent::start(&place, "n1", &[]).ready();
    let refused = Agent::start(&place, "n1", &[]).end().expect(1);
    for part in [&first.id().to_string(), "store-of-n1/state/n1", "--state-dir", "stop that one"] {
        assert!(refused.stderr.contains(part), "{part} in {refused}");
    }
    assert_eq!(first.described()["node"], "n1", "the first goes on, and so does its socket");
}

#[test]
fn after_kill_9_the_next_one_takes_over() {
    let place = Workplace::new();
    let first = Agent::start(&place, "n1", &[]).ready();
    let before = first.described();
    let second = first.kill_and_start_again().ready();
    assert_ne!(second.described()["instance"], before["instance"]);
}

#[test]
fn after_kill_9_the_next_one_takes_over_on_the_bus_too() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let first = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let second = first.kill_and_start_again().ready();
    let nodes = place.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0).object();
    assert_eq!(nodes["instance"], second.described()["instance"]);
}

/// Whether a degraded node reports that another agent has its name.
fn is_aside(state: &str) -> bool {
    state.starts_with("degraded: ") && state.contains("a duplicate agent holds the name n1 ")
}

/// Waits for the answer of the agent that has the bus, and returns its instance. Its duplicate may answer sooner.
fn answering(place: &Workplace, server: &NatsServer) -> String {
    until("an agent answers on the bus", || {
        let asked = place.run(&["nodes", "-o", "json", "--nats", &server.url()]);
        let mut agents = asked.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let on_the_bus =
            agents.find(|agent| agent["instance"].is_string() && agent["state"].as_str().is_some_and(|state| !is_aside(state)));
        on_the_bus.and_then(|agent| agent["instance"].as_str().map(str::to_owned))
    })
}

fn instance(agent: &Agent<'_>) -> String {
    agent.described()["instance"].as_str().unwrap().to_owned()
}

#[test]
fn a_duplicate_agent_goes_on_without_bus_reports_it_and_takes_the_name_when_it_is_free() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let elder = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let holder = instance(&elder);
    let younger = Agent::start_in(&place, "n1", "elsewhere", &["--nats", &server.url()]).ready();
    let state = younger.until_state("the younger one is set aside", is_aside);
    for part in [&holder, "on the host ", "started 20", "--node", "node.name", "stop that one"] {
        assert!(state.contains(part), "{part} in {state}");
    }
    younger.log_with("this agent goes on without the bus");
    assert_eq!(answering(&place, &server), holder, "the elder one alone is on the bus");
    assert_eq!(elder.state(), "ok");
    // The fleet sees both, and asks the elder one alone.
    let of_fleet = |arguments: &[&str]| place.run(&[arguments, &["--nats", &server.url()]].concat()).expect(0);
    let nodes = until("the younger one is listed", || {
        let nodes = of_fleet(&["nodes", "-o", "json"]).objects();
        (nodes.len() == 2).then_some(nodes)
    });
    assert!(nodes[0]["instance"] == holder.as_str() && is_aside(nodes[1]["state"].as_str().unwrap()), "{nodes:?}");
    let parts = ["n1 has been degraded for ", "a duplicate agent holds the name n1 (", "2: 1 ready, 1 degraded (n1 for "];
    until("status shows both", || {
        let status = of_fleet(&["status"]);
        parts.iter().all(|part| status.stdout.contains(part)).then_some(())
    });
    assert_eq!(of_fleet(&["pull", &registry.image("shop/web:v1"), "--all-nodes", "-o", "json"]).objects().len(), 1);
    // The node's own pulls work, by kubelet's rule.
    let pulled = younger.asked(&["pull", &registry.image("shop/web:v1"), "-o", "json"]).expect(0).object();
    assert_eq!(pulled["outcome"], "pulled", "{pulled}");
    for (status, reason) in [(1, "ErrImagePull"), (4, "ImagePullBackOff")] {
        let failed = younger.asked(&["pull", &registry.image("shop/web:v9"), "-o", "json"]).expect(status).object();
        assert_eq!(failed["reason"], reason, "{failed}");
    }
    let events = younger.asked(&["events", "--tail", "100", "-o", "json"]).expect(0);
    assert!(events.stdout.lines().any(|event| event.contains("AgentDegraded") && event.contains(&holder)), "{events}");
    elder.signal(Signal::Terminate);
    elder.end().expect(0);
    younger.until_state("the younger one takes the name", |state| state == "ok");
    assert_eq!(answering(&place, &server), instance(&younger));
    let other_fleet = Agent::start_in(&place, "n1", "third", &["--nats", &server.url(), "--fleet", "other"]).ready();
    let named = other_fleet.asked(&["nodes", "-o", "json", "--fleet", "other"]).expect(0).object();
    assert_eq!(named["state"], "ok", "another fleet is another name");
    younger.signal(Signal::Terminate);
    let ended = younger.end().expect(0);
    let connected = ended.stderr.lines().filter(|line| line.ends_with("the bus is connected")).count();
    assert_eq!(connected, 1, "at its start, and not while the elder one has the name: {ended}");
}

#[test]
fn the_name_of_an_agent_that_was_killed_is_free() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let elder = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let younger = Agent::start_in(&place, "n1", "elsewhere", &["--nats", &server.url()]).ready();
    younger.until_state("the younger one is set aside", is_aside);
    drop(elder);
    younger.until_state("the younger one takes the name", |state| state == "ok");
    assert_eq!(answering(&place, &server), instance(&younger));
}

#[test]
fn younger_of_two_duplicates_stays_without_bus_when_the_server_starts() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    server.kill();
    let elder = Agent::start_in(&place, "n1", "one", &["--nats", &server.url()]).ready();
    let younger = Agent::start_in(&place, "n1", "two", &["--nats", &server.url()]).ready();
    let holder = instance(&elder);
    server.restart();
    let state = younger.until_state("the younger one is set aside", is_aside);
    assert!(state.contains(&holder), "{state}");
    elder.until_state("the elder one has the bus", |state| state == "ok");
    assert_eq!(answering(&place, &server), holder);
    // The server's end and return change nothing.
    server.kill();
    server.restart();
    elder.until_state("the elder one has the bus again", |state| state == "ok");
    assert_eq!(answering(&place, &server), holder);
    assert!(is_aside(&younger.state()), "{}", younger.state());
    younger.signal(Signal::Terminate);
    younger.end().expect(0);
}

#[test]
fn an_agent_that_does_not_answer_delays_no_agent_and_one_has_the_bus_when_it_answers() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let elder = Agent::start_in(&place, "n1", "one", &["--nats", &server.url()]).ready();
    elder.signal(Signal::Stop);
    let younger = Agent::start_in(&place, "n1", "two", &["--nats", &server.url()]).ready();
    elder.signal(Signal::Continue);
    younger.until_state("the younger one is set aside", is_aside);
    elder.until_state("the elder one has the bus", |state| state == "ok");
    assert_eq!(answering(&place, &server), instance(&elder));
}

#[test]
fn nodes_of_one_name_in_two_clusters_are_two_nodes_of_the_fleet() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let place = |cluster| Workplace::new().with("FLEETPULL_FLEET_CLUSTER", cluster);
    let (eu, us) = (place("eu"), place("us"));
    let agents = [&eu, &us].map(|place| Agent::start(place, "n1", &["--nats", &server.url()]).ready());
    for agent in &agents {
        agent.until_state("each is on the bus", |state| state == "ok");
    }
    let nodes = eu.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0);
    let names: Vec<String> =
        nodes.stdout.lines().filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["node"].as_str()?.to_owned())).collect();
    assert_eq!(names, ["eu.n1", "us.n1"], "{nodes}");
    let pulled = us.run(&["pull", &registry.image("shop/web:v1"), "--node", "us.n1", "-o", "json", "--nats", &server.url()]);
    assert_eq!(pulled.expect(0).object()["node"], "us.n1");
    let events = agents[1].asked(&["events", "-o", "json"]).expect(0);
    assert!(events.stdout.contains("us.n1") && !events.stdout.contains("eu.n1"), "{events}");
}
