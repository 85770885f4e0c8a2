//! Events outlive the loss of the server, the agent or the stream. They are read with the command that people use.

use std::collections::BTreeMap;

use e2e::{Agent, Registry, Workplace, until};
use memory_registry::MadeImage;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// The events in the fleet's stream, oldest first.
fn history(place: &Workplace, server: &NatsServer, more: &[&str]) -> Vec<Value> {
    place.run(&[&["events", "--since", "1h", "-o", "json", "--nats", &server.url()], more].concat()).expect(0).objects()
}

/// The events about pulls, by kubelet's reasons.
fn of_pulls(events: Vec<Value>) -> Vec<Value> {
    let of_pull = |event: &Value| ["Pulling", "Pulled", "Failed", "BackOff"].iter().any(|reason| event["data"]["reason"] == *reason);
    events.into_iter().filter(of_pull).collect()
}

fn reasons(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["data"]["reason"].as_str().unwrap()).collect()
}

/// Asserts that the numbers of each incarnation count without a gap or a duplicate.
fn assert_gapless(events: &[Value]) {
    let mut by_source: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in events {
        let number = event["sequence"].as_str().unwrap().parse().unwrap();
        by_source.entry(event["source"].as_str().unwrap()).or_default().push(number);
    }
    for (source, mut numbers) in by_source {
        numbers.sort_unstable();
        assert_eq!(numbers, (numbers[0]..).take(numbers.len()).collect::<Vec<_>>(), "{source}");
    }
}

#[test]
fn events_are_in_the_stream_once_whatever_dies_in_between() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    for tag in ["v1", "v2", "v3"] {
        registry.add_image("shop/web", tag, &MadeImage::of_layers([4_000]));
    }
    let pull = |agent: &Agent<'_>, tag: &str| {
        let image = registry.image(&format!("shop/web:{tag}"));
        agent.asked(&["pull", "--node", "n1", &image]).expect(0);
    };
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    pull(&agent, "v1");
    let first = until("the stream has them", || Some(of_pulls(history(&place, &server, &[]))).filter(|events| events.len() == 2));
    assert_eq!(reasons(&first), ["Pulling", "Pulled"]);
    let began = &history(&place, &server, &[])[0];
    assert_eq!((&began["data"]["reason"], &began["sequence"]), (&"AgentStarted".into(), &"1".into()));
    assert!(first[0]["source"].as_str().unwrap().starts_with("/fleetpull/nodes/n1/"), "{}", first[0]);
    // From now on only the disk has what is recorded.
    server.kill();
    agent.until_state("it has seen that", |state| state.starts_with("degraded: no bus"));
    pull(&agent, "v2");
    let agent = agent.kill_and_start_again().ready();
    assert!(agent.counter("events_waiting") >= 2, "and what became of the agent");
    pull(&agent, "v3");
    server.restart();
    let all = until("the stream has all", || Some(of_pulls(history(&place, &server, &[]))).filter(|events| events.len() >= 6));
    assert_eq!(reasons(&all), ["Pulling", "Pulled", "Pulling", "Pulled", "Pulling", "Pulled"]);
    until("nothing waits", || (agent.counter("events_waiting") == 0).then_some(()));
    let everything = history(&place, &server, &[]);
    assert_gapless(&everything);
    for reason in ["AgentStarted", "AgentDegraded", "AgentRecovered"] {
        assert!(reasons(&everything).contains(&reason), "{reason}: {:?}", reasons(&everything));
    }
    // The image is present: such an event is published and not stored.
    pull(&agent, "v3");
    assert_eq!(of_pulls(history(&place, &server, &[])).len(), 6);
    // A filtered list, the newest events, and a table.
    let image = registry.image("shop/web:v2");
    assert_eq!(history(&place, &server, &["--image", &image, "--reason", "Pulled"]).len(), 1);
    let newest = history(&place, &server, &["--tail", "1", "--reason", "Pulled"]);
    assert_eq!((newest.len(), &newest[0]["data"]["image"]), (1, &registry.image("shop/web:v3").into()));
    assert_eq!(history(&place, &server, &["--node", "ghost"]).len(), 0);
    let table = place.run(&["events", "--since", "1h", "--nats", &server.url()]).expect(0).stdout;
    assert!(table.starts_with("LAST SEEN") && table.lines().count() > 7, "{table}");
    // The events are still there after the agent has stopped in good order.
    agent.signal(e2e::Signal::Terminate);
    agent.wait();
    let left = history(&place, &server, &["--node", "n1"]);
    assert_eq!(reasons(&left).last(), Some(&"AgentStopped"));
    assert_eq!(of_pulls(left).len(), 6);
}

#[test]
fn a_stream_that_is_deleted_is_made_again_and_gets_what_it_did_not_have() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    server.kill();
    agent.until_state("it has seen that", |state| state.starts_with("degraded: no bus"));
    let image = registry.image("shop/web:v1");
    agent.asked(&["pull", "--node", "n1", &image]).expect(0);
    server.wipe_store();
    server.restart();
    agent.until_state("it has the bus again", |state| state == "ok");
    let all = until("the new stream has them", || Some(history(&place, &server, &[])).filter(|events| of_pulls(events.clone()).len() == 2));
    assert_gapless(&all);
}

#[test]
fn repeats_of_a_failure_are_folded() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    let image = registry.image("shop/web:missing");
    for number in 0..20 {
        let status = if number == 0 { 1 } else { 4 };
        agent.asked(&["pull", "--node", "n1", &image]).expect(status);
    }
    let seen = of_pulls(history(&place, &server, &[]));
    assert_eq!(reasons(&seen), ["Pulling", "Failed", "BackOff"], "the first of each kind is published at once");
    assert_eq!(agent.counter("events_folded_total"), 18);
    // The collected repeats are stored: the agent records them after its restart.
    let agent = agent.kill_and_start_again().ready();
    let seen = until("the repeats are published", || Some(of_pulls(history(&place, &server, &[]))).filter(|events| events.len() >= 4));
    assert_eq!((&seen[3]["data"]["reason"], &seen[3]["data"]["count"]), (&"BackOff".into(), &18.into()));
    assert_gapless(&history(&place, &server, &[]));
    drop(agent);
}

/// On a server without JetStream, and without a server.
#[test]
fn without_a_stream_the_history_is_read_from_the_outboxes_in_the_order_of_time() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry) = (NatsServer::start(NatsConfig::default().without_jetstream()), Registry::new());
    // The agents list so few of the newest events that they have stored more.
    let place = Workplace::new().with("FLEETPULL_EVENTS_KEEP", "2");
    for tag in ["v1", "v2"] {
        registry.add_image("shop/web", tag, &MadeImage::of_layers([4_000]));
    }
    let agents = ["n1", "n2"].map(|node| Agent::start(&place, node, &["--nats", &server.url()]).ready());
    for (agent, tag) in [(0, "v1"), (1, "v1"), (0, "v2"), (1, "v2")] {
        agents[agent].asked(&["pull", "--node", ["n1", "n2"][agent], &registry.image(&format!("shop/web:{tag}"))]).expect(0);
    }
    let in_short = |events: &[Value]| -> Vec<String> {
        let text = |event: &Value, name: &str| event["data"][name].as_str().unwrap().to_owned();
        events
            .iter()
            .map(|event| {
                format!("{} {} {}", text(event, "node"), text(event, "reason"), &text(event, "image")[text(event, "image").len() - 2..])
            })
            .collect()
    };
    let all = of_pulls(history(&place, &server, &[]));
    assert_eq!(
        in_short(&all),
        [
            "n1 Pulling v1",
            "n1 Pulled v1",
            "n2 Pulling v1",
            "n2 Pulled v1",
            "n1 Pulling v2",
            "n1 Pulled v2",
            "n2 Pulling v2",
            "n2 Pulled v2"
        ]
    );
    assert_gapless(&history(&place, &server, &[]));
    let of_n2 = history(&place, &server, &["--node", "n2", "--reason", "Pulled"]);
    assert_eq!(in_short(&of_n2), ["n2 Pulled v1", "n2 Pulled v2"]);
    assert_eq!(in_short(&history(&place, &server, &["--reason", "Pulled", "--tail", "1"])), ["n2 Pulled v2"]);
    let image = registry.image("shop/web:v1");
    assert_eq!(in_short(&history(&place, &server, &["--image", &image, "--reason", "Pulling"])), ["n1 Pulling v1", "n2 Pulling v1"]);
    assert_eq!(history(&place, &server, &["--until", "1h"]).len(), 0);
    let done = place.run(&["events", "--since", "1h", "--nats", &server.url()]).expect(0);
    assert!(done.stderr.contains("outboxes") && done.stdout.starts_with("LAST SEEN"), "{done}");
    // One agent's socket needs no bus.
    drop(server);
    let own = of_pulls(agents[0].asked(&["events", "--since", "1h", "-o", "json"]).expect(0).objects());
    assert_eq!(in_short(&own), ["n1 Pulling v1", "n1 Pulled v1", "n1 Pulling v2", "n1 Pulled v2"]);
}

#[test]
fn without_a_server_the_history_of_a_node_outlives_its_agent() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &[]).ready();
    agent.asked(&["pull", "--node", "n1", &registry.image("shop/web:v1")]).expect(0);
    let agent = agent.kill_and_start_again().ready();
    let kept = agent.asked(&["events", "-o", "json"]).expect(0).objects();
    assert_eq!(reasons(&kept), ["AgentStarted", "Pulling", "Pulled", "AgentStarted"]);
}
