//! The bus is lost: an agent goes on alone, reports it, and uses the bus again by itself.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;

use e2e::{Registry, Signal, Workplace, until};
use memory_registry::MadeImage;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use e2e::Agent;

fn is_alone(state: &str) -> bool {
    state.starts_with("degraded: no bus since 20")
}

#[test]
fn it_starts_without_a_server_and_is_there_when_the_server_comes() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    server.kill();
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    assert!(is_alone(&agent.state()), "{}", agent.state());
    server.restart();
    agent.until_state("it has the bus", |state| state == "ok");
    let nodes = place.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0).object();
    assert_eq!((&nodes["node"], &nodes["instance"]), (&"n1".into(), &agent.described()["instance"]));
}

#[test]
fn pulls_go_on_while_the_server_is_down() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    let before =
        until("that it has started is handed over", || Some(agent.counter("events_published_total")).filter(|published| *published > 0));
    server.kill();
    let since = agent.until_state("it has seen that", is_alone);
    let row = agent.asked(&["pull", "--node", "n1", "-o", "json", &registry.image("shop/web:v1")]).expect(0).object();
    assert_eq!(row["outcome"], "pulled", "{row}");
    let time_of = |state: &str| state.split(": ").take(2).collect::<Vec<_>>().join(": ");
    assert_eq!(time_of(&agent.state()), time_of(&since), "the time does not move with each attempt to connect");
    let (recorded, published) = (agent.counter("events_recorded_total"), agent.counter("events_published_total"));
    assert!(recorded > before && published == before, "{recorded} recorded, {published} published, {before} before");
    server.restart();
    agent.until_state("it has the bus again", |state| state == "ok");
    // Wait for at least the events Pulling and Pulled, in addition to the events about the agent.
    until("its events are handed over", || (agent.counter("events_published_total") >= before + 2).then_some(()));
    assert_eq!((agent.counter("bus_lost_total"), agent.counter("bus_connected")), (1, 1));
}

/// In an incident in which the bus is lost, an operator pauses one agent: the pause applies there at once, and on all nodes when the bus is
/// back.
#[test]
fn a_pause_at_one_agent_without_a_bus_holds_everywhere_when_the_bus_is_back() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let agents = ["n1", "n2"].map(|name| Agent::start(&place, name, &["--nats", &server.url()]).ready());
    let paused = |agent: &Agent<'_>| {
        let rows = agent.asked(&["backoff", "list", "-o", "json"]).expect(0).objects();
        let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).map(|row| row["registry"].clone()).collect::<Vec<_>>();
        of("pause")
    };
    agents.iter().for_each(|agent| drop(agent.until_state("it has the bus", |state| state == "ok")));
    agents[0].asked(&["backoff", "pause", "--registry", "ended.example"]).expect(0);
    until("both know of it", || (paused(&agents[1]) == ["ended.example"]).then_some(()));
    server.kill();
    agents.iter().for_each(|agent| drop(agent.until_state("it has seen that", is_alone)));
    let paused_here = agents[0].asked(&["backoff", "pause", "--registry", "r.example", "-o", "json"]).expect(0);
    assert!(paused_here.stderr.contains("only n1 has the pause"), "{paused_here}");
    agents[0].asked(&["backoff", "resume", "--registry", "ended.example"]).expect(0);
    assert_eq!((paused(&agents[0]), paused(&agents[1])), (vec!["r.example".into()], vec!["ended.example".into()]));
    server.restart();
    until("both have the last command", || agents.iter().all(|agent| paused(agent) == ["r.example"]).then_some(()));
}

#[test]
fn it_stops_in_good_order_while_the_server_is_down() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    server.kill();
    agent.until_state("it has seen that", is_alone);
    let _ = agent.asked(&["pull", "--node", "n1", "-q", &registry.image("shop/web:v1")]).expect(0);
    agent.signal(Signal::Terminate);
    let done = agent.end().expect(0);
    assert!(!done.stderr.contains("took too long"), "{done}");
    // Events that had no receiver are stored.
    server.restart();
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    until("the stream has the events", || {
        let history = place.run(&["events", "--since", "1h", "-o", "json", "--nats", &server.url()]).objects();
        (history.iter().filter(|event| ["Pulling", "Pulled"].iter().any(|reason| event["data"]["reason"] == *reason)).count() == 2)
            .then_some(())
    });
    drop(agent);
}

#[test]
fn a_login_that_cannot_be_read_does_not_hold_up_the_end() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let token = place.write("token", "a-token");
    let agent = Agent::start(&place, "n1", &["--nats", &server.url(), "--nats-token-file", &token]).ready();
    agent.until_state("it has the bus", |state| state == "ok");
    server.kill();
    std::fs::remove_file(&token).unwrap();
    assert!(Command::new("mkfifo").arg(&token).status().unwrap().success());
    server.restart();
    // The pipe can be opened once the agent reads it. The agent gets no token until the pipe is closed.
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&token).ok();
    let pipe = until("the agent reads its login", open);
    agent.signal(Signal::Terminate);
    agent.end().expect(0);
    drop(pipe);
}

#[test]
fn a_signal_ends_an_agent_that_still_waits_for_the_server() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    server.kill();
    // The agent waits for 1 s. On a busy machine the signal may come later.
    let is_ended_at_once = || {
        let agent = Agent::start(&place, "n1", &["--nats", &server.url()]);
        let _ = agent.log_with("the bus is not connected");
        agent.signal(Signal::Terminate);
        let ended = agent.end().expect(0);
        let is_at_once = ended.stderr.contains("stopping: the agent had not started yet");
        assert!(is_at_once || ended.stderr.contains("stopping: no more commands are taken"), "{ended}");
        is_at_once
    };
    assert!((0..10).any(|_| is_ended_at_once()));
    // The end leaves nothing that hinders the next agent.
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    assert!(is_alone(&agent.state()), "{}", agent.state());
}

#[test]
fn a_server_that_hangs_does_not_hold_up_the_start() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    server.pause();
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    assert!(is_alone(&agent.state()), "{}", agent.state());
    server.resume();
    agent.until_state("it has the bus", |state| state == "ok");
}
