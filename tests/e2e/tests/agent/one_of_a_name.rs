//! No two agents of one name: by the lock on one machine, by asking on the bus between machines.

use e2e::{Signal, Workplace, until};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use e2e::Agent;

#[test]
fn a_second_agent_on_the_same_state_is_refused_and_told_what_to_do() {
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

#[test]
fn a_second_agent_of_the_name_on_the_bus_is_refused_and_told_who_is_there() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let first = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let instance = first.described()["instance"].as_str().unwrap().to_owned();
    let refused = Agent::start_in(&place, "n1", "elsewhere", &["--nats", &server.url()]).end().expect(1);
    for part in [&instance, "started 20", "--node", "stop that one"] {
        assert!(refused.stderr.contains(part), "{part} in {refused}");
    }
    let other_fleet = Agent::start_in(&place, "n1", "elsewhere", &["--nats", &server.url(), "--fleet", "other"]).ready();
    let named = other_fleet.asked(&["nodes", "-o", "json", "--fleet", "other"]).expect(0).object();
    assert_eq!(named["state"], "ok", "another fleet is another name");
}

#[test]
fn of_two_that_started_without_a_bus_the_younger_stops_when_it_comes() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    server.kill();
    let older = Agent::start_in(&place, "n1", "one", &["--nats", &server.url()]).ready();
    let younger = Agent::start_in(&place, "n1", "two", &["--nats", &server.url()]).ready();
    let instance = older.described()["instance"].as_str().unwrap().to_owned();
    server.restart();
    let stopped = younger.end().expect(1);
    assert!(stopped.stderr.contains("the younger one") && stopped.stderr.contains(&instance), "{stopped}");
    older.until_state("the older one has the bus", |state| state == "ok");
    let nodes = place.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0).object();
    assert_eq!(nodes["instance"], instance);
}

#[test]
fn an_agent_that_does_not_answer_holds_nobody_up_and_one_is_left_when_it_does() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let older = Agent::start_in(&place, "n1", "one", &["--nats", &server.url()]).ready();
    older.signal(Signal::Stop);
    let younger = Agent::start_in(&place, "n1", "two", &["--nats", &server.url()]).ready();
    older.signal(Signal::Continue);
    let stopped = younger.end().expect(1);
    assert!(stopped.stderr.contains("the younger one"), "{stopped}");
    until("the older one is left", || (older.state() == "ok").then_some(()));
}
