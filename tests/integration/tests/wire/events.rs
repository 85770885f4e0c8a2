//! Events as a subscriber receives them.

use std::collections::BTreeMap;

use actors::Delivery;
use bus::Message;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use contract::{EventReason, PullEvent, headers};
use integration::{Plan, TestNode, UNLIMITED, ask, pod, real};
use runtimes::PullFailure;
use runtimes::scripted::ScriptedRuntime;
use serde_json::{Value, json};
use throttler::core::ThrottlePolicy;

use super::{Buses, until_end};

/// Makes an event of each reason, by several callers.
async fn make_events(node: &TestNode, runtime: &ScriptedRuntime) {
    runtime.answer_pulls("registry.example:5000/gone:v1", [Err(PullFailure { text: "gone".to_owned(), ..PullFailure::default() })]);
    for standing_pull in [
        EnsureImage { pod: Some(pod("web-0")), ..ask("app:v1", PullPolicy::IfNotPresent) },
        ask("app:v1", PullPolicy::IfNotPresent),
        ask("registry.example:5000/gone:v1", PullPolicy::Always),
        ask("registry.example:5000/gone:v1", PullPolicy::Always),
        ask("absent:v1", PullPolicy::Never),
        ask("NO \"GOOD\"", PullPolicy::Always),
    ] {
        node.ensure(standing_pull).await;
    }
}

#[test]
fn every_event_is_published_once_as_a_cloud_event() {
    real(async {
        for (buses, delivery) in Buses::each().await.into_iter().flat_map(|buses| {
            let again = Buses { node: buses.node.clone(), client: buses.client.clone(), server: None };
            [(again, Delivery::Local), (buses, Delivery::Bus)]
        }) {
            let mut subscription = buses.client.subscribe("fleetpull.v1.evt.>", None).await.unwrap();
            let runtime = ScriptedRuntime::new();
            let throttle = ThrottlePolicy { slots: 1, ..UNLIMITED };
            let node = TestNode::start(Plan { bus: buses.node.clone(), delivery, throttle, ..Plan::with(runtime.clone()) }).await;
            make_events(&node, &runtime).await;
            node.flush().await;
            let messages = until_end(&buses, &mut subscription, "fleetpull.v1.evt.end").await;
            let events: BTreeMap<String, PullEvent> = node.events().await.into_iter().map(|event| (event.id.to_string(), event)).collect();
            assert_eq!((messages.len(), events.len()), (8, 8));
            for message in &messages {
                let json: Value = serde_json::from_slice(&message.payload).unwrap();
                let event = &events[json["id"].as_str().unwrap()];
                check_message(message, &json, event);
            }
            let of = |reason| events.values().find(|event| event.reason == reason).unwrap();
            let (failed, refused) = (of(EventReason::Failed), of(EventReason::BackOff));
            assert_eq!(
                refused.learned_trace.map(|attempt| attempt.trace_id),
                Some(failed.trace.trace_id),
                "it names the attempt that failed"
            );
            let counts = node.event_counts().await;
            assert_eq!((counts.recorded_total, counts.published_total, counts.unpublished_total), (8, 8, 0));
        }
    });
}

fn check_message(message: &Message, json: &Value, event: &PullEvent) {
    let registry = match event.image.as_str() {
        "NO \"GOOD\"" => "_",
        "registry.example:5000/gone:v1" => "registry_2eexample_3a5000",
        _ => "docker_2eio",
    };
    let reason = if event.is_durable() { event.reason.as_str() } else { "present" };
    assert_eq!(message.subject, format!("fleetpull.v1.evt.{reason}.{registry}.n1"));
    assert_eq!(message.headers.get(headers::TRACEPARENT), Some(event.trace.traceparent().as_str()));
    assert_eq!(message.headers.get(headers::CONTENT_TYPE), Some("application/cloudevents+json"));
    assert_eq!(message.headers.get(headers::MESSAGE_ID), Some(event.id.to_string().as_str()));
    let mut expected = json!({
        "specversion": "1.0",
        "id": event.id.to_string(),
        "source": "/fleetpull/nodes/n1",
        "type": format!("io.fleetpull.image.{}", event.reason.as_str().to_lowercase()),
        "subject": event.image,
        "time": contract::cloud_event::rfc3339(event.time_ms),
        "datacontenttype": "application/json",
        "traceparent": event.trace.traceparent(),
        "data": {
            "reason": event.reason.as_str(),
            "type": event.reason.event_type().as_str(),
            "message": event.message,
            "image": event.image,
            "registry": event.registry,
            "node": "n1",
            "pod": event.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            "duration_ms": event.duration_ms,
            "waiting_ms": event.waiting_ms,
            "size_bytes": event.size_bytes,
            "class": event.class,
            "attempt": event.attempt.map(|attempt| attempt.to_string()),
            "next_attempt_ms": event.next_attempt_ms,
        },
    });
    if let (Some(ago), Some(attempt)) = (event.learned_ms_ago, event.learned_trace) {
        expected["data"]["learned_at"] = contract::cloud_event::rfc3339(event.time_ms - ago).into();
        expected["data"]["learned_trace_id"] = attempt.trace_id_hex().into();
    }
    if registry == "_" {
        expected["data"]["cause"] = "invalid_name".into();
    }
    assert_eq!(*json, expected);
}

#[test]
fn wildcards_pick_one_reason_or_one_registry() {
    real(async {
        for buses in Buses::each().await {
            let mut subscription = buses.client.subscribe("fleetpull.v1.evt.*.registry_2eexample_3a5000.*", None).await.unwrap();
            let mut failures = buses.client.subscribe("fleetpull.v1.evt.Failed.>", None).await.unwrap();
            let runtime = ScriptedRuntime::new();
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(runtime.clone()) }).await;
            make_events(&node, &runtime).await;
            node.flush().await;
            let of_registry = until_end(&buses, &mut subscription, "fleetpull.v1.evt.end.registry_2eexample_3a5000.n1").await;
            let reasons: Vec<&str> = of_registry.iter().map(|message| message.subject.split('.').nth(3).unwrap()).collect();
            assert_eq!(reasons, ["Pulling", "Failed", "BackOff"]);
            assert_eq!(until_end(&buses, &mut failures, "fleetpull.v1.evt.Failed.end.n1").await.len(), 1);
        }
    });
}
