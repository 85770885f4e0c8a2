//! The messages of a pull, as a subscriber of all commands receives them.

use std::collections::BTreeSet;

use actors::Delivery;
use bus::Message;
use contract::headers;
use contract::messages::pull_coordinator::{OutcomeKind, PullPolicy};
use integration::{Plan, TestNode, ask, real};
use runtimes::PullFailure;
use runtimes::scripted::ScriptedRuntime;

use super::{Buses, until_end};

/// The `<service>.<verb>` of each command.
fn commands(messages: &[Message]) -> Vec<String> {
    let of_node = |message: &Message| message.subject.strip_prefix("fleetpull.v1.cmd.n1.").expect("a command of this node").to_owned();
    messages.iter().map(of_node).collect()
}

#[test]
fn a_pull_over_the_bus_is_a_request_to_each_of_the_four_services() {
    real(async {
        for buses in Buses::each().await {
            let mut subscription = buses.client.subscribe("fleetpull.v1.cmd.>", None).await.unwrap();
            let plan = Plan { bus: buses.node.clone(), delivery: Delivery::Bus, ..Plan::with(ScriptedRuntime::new()) };
            let node = TestNode::start(plan).await;
            let outcome = node.ensure(ask("app:v1", PullPolicy::IfNotPresent)).await;
            assert_eq!(outcome.outcome, OutcomeKind::Pulled);
            let messages = until_end(&buses, &mut subscription, "fleetpull.v1.cmd.end").await;
            let mut sent = commands(&messages);
            assert_eq!(sent[..3], ["pull-coordinator.ensure", "backoff-tracker.check", "event-recorder.record"]);
            sent.sort_unstable();
            let expected = [
                "backoff-tracker.check",
                "backoff-tracker.report",
                "event-recorder.record",
                "event-recorder.record",
                "pull-coordinator.ensure",
                "throttler.acquire",
                "throttler.release",
            ];
            assert_eq!(sent, expected);
            check_headers(&messages, &outcome.trace_id);
        }
    });
}

/// Checks the headers: one trace, a span and an id for each message, and the content type of the payload. The caller of `ensure` has no
/// span: the coordinator makes the root.
fn check_headers(messages: &[Message], trace_id: &str) {
    let mut ids = BTreeSet::new();
    for message in messages {
        let header = |name| message.headers.get(name).unwrap_or_else(|| panic!("{} has {name}", message.subject));
        if message.subject.ends_with(".ensure") {
            assert_eq!(message.headers.get(headers::TRACEPARENT), None);
            ids.insert("no span".to_owned());
        } else {
            assert_eq!(header(headers::TRACEPARENT).split('-').nth(1), Some(trace_id), "{}", message.subject);
            ids.insert(header(headers::TRACEPARENT).to_owned());
        }
        assert_eq!((header(headers::CONTENT_TYPE), header(headers::VERSION)), ("application/msgpack", "1"));
        assert!(header(bus::DEADLINE_HEADER).parse::<u64>().is_ok());
        assert!(message.reply_to.is_some(), "a command is a request");
        ids.insert(header(headers::MESSAGE_ID).to_owned());
    }
    assert_eq!(ids.len(), 2 * messages.len(), "every message has an id and a span of its own");
}

#[test]
fn a_refusal_asks_nobody_but_the_tracker_and_the_recorder() {
    real(async {
        for buses in Buses::each().await {
            let runtime = ScriptedRuntime::new();
            runtime.answer_pulls("app:v1", [Err(PullFailure { text: "gone".to_owned(), ..PullFailure::default() })]);
            let plan = Plan { bus: buses.node.clone(), delivery: Delivery::Bus, ..Plan::with(runtime) };
            let node = TestNode::start(plan).await;
            node.ensure(ask("app:v1", PullPolicy::Always)).await;
            let mut subscription = buses.client.subscribe("fleetpull.v1.cmd.>", None).await.unwrap();
            assert_eq!(node.ensure(ask("app:v1", PullPolicy::Always)).await.outcome, OutcomeKind::Backoff);
            let messages = until_end(&buses, &mut subscription, "fleetpull.v1.cmd.end").await;
            assert_eq!(commands(&messages), ["pull-coordinator.ensure", "backoff-tracker.check", "event-recorder.record"]);
        }
    });
}

#[test]
fn inside_the_process_no_command_travels() {
    real(async {
        for buses in Buses::each().await {
            let mut subscription = buses.client.subscribe("fleetpull.v1.cmd.>", None).await.unwrap();
            let plan = Plan { bus: buses.node.clone(), delivery: Delivery::Local, ..Plan::with(ScriptedRuntime::new()) };
            let node = TestNode::start(plan).await;
            assert_eq!(node.ensure(ask("app:v1", PullPolicy::IfNotPresent)).await.outcome, OutcomeKind::Pulled);
            assert_eq!(until_end(&buses, &mut subscription, "fleetpull.v1.cmd.end").await, []);
        }
    });
}
