//! `fleet.share = observe`: before an operator lets a fleet refuse pulls, the fleet reports what it would have refused, and why.

use contract::FailureClass;
use contract::messages::backoff_tracker::CountBackoffs;
use e2e::{Agent, Registry, Workplace, until};
use serde_json::json;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::knowledge::shared_entries;

#[test]
fn an_observing_node_shows_why_it_would_have_waited_and_asks_all_the_same() {
    if met(current_program()).is_none() {
        return;
    }
    let (place, observing) = (Workplace::new(), Workplace::new().with("FLEETPULL_FLEET_SHARE", "observe"));
    let (server, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
    let image = registry.image("shop/missing:v1");
    let finder = Agent::start(&place, "n01", &["--nats", &server.url()]).ready();
    let second = Agent::start(&place, "n02", &["--nats", &server.url()]).ready();
    let observer = Agent::start(&observing, "n03", &["--nats", &server.url()]).ready();

    let found = finder.asked(&["pull", &image, "-o", "json"]).expect(1).object();
    let entry = until("the observer receives the report", || shared_entries(&observer).pop());
    let trace_id = entry.trace.map(|trace| trace.trace_id_hex()).unwrap_or_default();
    assert_eq!((entry.reporters.as_slice(), trace_id.as_str()), (&["n01".to_owned()][..], found["trace_id"].as_str().unwrap()));
    assert_eq!((entry.class, entry.binds.as_str()), (FailureClass::NotFound, "unconfirmed"));
    for command in [["backoff", "explain", &image], ["explain", &image, "--policy=always"]] {
        let explained = observer.asked(&command).expect(0);
        for part in ["found by:", "n01", "404", "next attempt:", "by one node for all", "view:", found["trace_id"].as_str().unwrap()] {
            assert!(explained.stdout.contains(part), "{part:?} is not in {explained}");
        }
    }
    let observed = || observer.ask(&CountBackoffs {}).shared.observed_total;
    assert_eq!((observed(), registry.counts().failing), (0, 1), "an explanation makes no request");

    // A failure that one node alone reports refuses no pull. A second node waits, makes an attempt, and confirms the failure.
    let _ = second.asked(&["pull", &image, "-o", "json"]).expect(1);
    until("the observer has received both reports", || shared_entries(&observer).pop().filter(|entry| entry.reporter_count == 2));
    let asked = observer.asked(&["pull", &image, "-o", "json"]).expect(1).object();
    assert_eq!((&asked["outcome"], &asked["learned_by"]), (&json!("failed"), &json!(null)), "{asked}");
    assert_eq!((observed(), registry.counts().failing), (1, 3), "it would have been refused");
    until("the other node knows the failure that it found", || {
        shared_entries(&finder).iter().any(|entry| entry.reporters.contains(&"n03".to_owned())).then_some(())
    });
}
