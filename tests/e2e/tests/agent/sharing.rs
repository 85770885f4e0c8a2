//! The agent's log of its sharing, and the key by which logins are named.

use std::os::unix::fs::PermissionsExt as _;

use e2e::{Agent, Signal, Workplace, until};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// A key as an operator creates it.
const KEY: &str = "correct-horse-battery-staple-and-some-more";

#[test]
fn an_agent_logs_at_its_start_what_it_shares_with_which_nodes() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    let place = Workplace::new().with("FLEETPULL_FLEET_SCOPE", "eu-1").with("FLEETPULL_NODE_ZONE", "rack-7");
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let log = agent.log_with("what is learned is shared with the fleet");
    for setting in ["share=\"enforce\"", "scope=\"eu-1\"", "egress=\"eu-1\"", "zone=\"rack-7\""] {
        assert!(log.contains(setting), "{setting} is not in {log}");
    }
    until("it is its fleet's registrar and known to itself", || {
        (agent.counter("presence_registrar") == 1 && agent.counter("presence_alive_in_zone") == 1).then_some(())
    });
    until("the node shares over the bus", || (agent.counter("shared_alone") == 0).then_some(()));
}

#[test]
fn an_agent_that_shares_nothing_logs_that_and_is_no_registrar() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new().with("FLEETPULL_FLEET_SHARE", "off"));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    agent.log_with("nothing is shared: each node learns for itself");
    let counters = agent.asked(&["nodes", "n1", "--counters", "-o", "json"]).expect(0).object();
    assert!(counters["counters"].as_object().unwrap().keys().all(|name| !name.starts_with("presence") && !name.starts_with("shared")));
}

#[test]
fn a_second_agent_is_registrar_when_the_first_stops() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let start = |node| Agent::start(&place, node, &["--nats", &server.url()]).ready();
    let first = start("n1");
    until("the first is registrar", || (first.counter("presence_registrar") == 1).then_some(()));
    let second = start("n2");
    until("the second is known", || (second.counter("presence_alive") == 2).then_some(()));
    first.signal(Signal::Terminate);
    assert_eq!(first.end().status, 0);
    until("the second is registrar, and alone", || {
        (second.counter("presence_registrar") == 1 && second.counter("presence_alive") == 1).then_some(())
    });
}

#[test]
fn a_key_file_that_is_none_ends_the_start_with_what_to_do() {
    let place = Workplace::new();
    let short = place.write("short", "too-short");
    for (file, expected) in
        [(short.as_str(), "has 9 bytes, at least 32 are needed"), ("/nonexistent/key", "cannot be read from /nonexistent/key")]
    {
        let place = Workplace::new().with("FLEETPULL_FLEET_KEY_FILE", file);
        let refused = place.run(&["run", "--node", "n1", "--store", "store"]).expect(1);
        assert!(refused.output().contains(expected) && !refused.output().contains("too-short"), "{refused}");
    }
}

#[test]
fn a_key_is_in_no_log_and_one_that_others_may_read_is_warned_of() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    let files = Workplace::new();
    let file = files.write("key", KEY);
    let start = |mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let place = Workplace::new().with("FLEETPULL_FLEET_KEY_FILE", &file);
        let agent = Agent::start(&place, "n1", &["--nats", &server.url(), "--log-level", "trace"]).ready();
        let log = agent.log_with("what is learned is shared");
        agent.signal(Signal::Terminate);
        assert_eq!(agent.end().status, 0);
        assert!(!log.contains(KEY) && !log.contains("correct-horse"), "{log}");
        log.contains("others may read the fleet's key")
    };
    assert!(start(0o644));
    assert!(!start(0o600));
}
