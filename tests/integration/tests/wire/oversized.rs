//! Commands that are valid and far too large.

use actors::Delivery;
use bus::{BusError, Message};
use clock::Random;
use contract::messages::event_recorder::{EventList, ListEvents, RecordEvent};
use contract::messages::pull_coordinator::{EnsureImage, ExplainImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::subject::Fleet;
use contract::{Command, MessageId, PodRef, PullEvent, Reason, headers};
use integration::{Plan, TestNode, ask, real};
use runtimes::scripted::ScriptedRuntime;
use serde::Serialize;

use super::{Buses, PATIENCE};

/// The most bytes that fit into a message.
const HUGE: usize = bus::MAX_PAYLOAD_BYTES - 4_096;

async fn request<C: Command>(buses: &Buses, body: &C) -> Message {
    let message = Message::new(subject::<C>(), rmp_serde::to_vec_named(body).unwrap());
    buses.client.request(message, PATIENCE).await.expect("is answered")
}

fn subject<C: Command>() -> String {
    Fleet::default().command(&"n1".parse().unwrap(), C::SERVICE, C::VERB)
}

#[test]
fn oversized_message_is_refused_before_it_is_sent() {
    #[derive(Serialize)]
    struct TooLarge {
        image: String,
    }
    real(async {
        for buses in Buses::each().await {
            let payload = rmp_serde::to_vec_named(&TooLarge { image: "x".repeat(bus::MAX_PAYLOAD_BYTES) }).unwrap();
            let error = buses.client.request(Message::new(subject::<EnsureImage>(), payload), PATIENCE).await.expect_err("is too large");
            assert!(matches!(error, BusError::TooLarge { .. }), "{error}");
        }
    });
}

#[test]
fn a_name_of_a_mebibyte_is_an_invalid_name_and_no_burden_for_lists_of_events() {
    real(async {
        for (buses, delivery) in Buses::each().await.into_iter().zip([Delivery::Local, Delivery::Bus]) {
            let node = TestNode::start(Plan { bus: buses.node.clone(), delivery, ..Plan::with(ScriptedRuntime::new()) }).await;
            let reply = request(&buses, &ask(&"x/".repeat(HUGE / 2), PullPolicy::Always)).await;
            assert_eq!(reply.headers.get(headers::SERVICE_ERROR), None);
            let outcome: PullOutcome = rmp_serde::from_slice(&reply.payload).unwrap();
            assert_eq!((outcome.outcome, outcome.reason), (OutcomeKind::Failed, Some(Reason::InvalidImageName)));
            assert!(outcome.message.len() < 1_000, "{} bytes", outcome.message.len());
            assert!(outcome.message.contains("at most 4096 bytes"), "{}", outcome.message);
            let listed = request(&buses, &ListEvents::default()).await;
            let listed: EventList = rmp_serde::from_slice(&listed.payload).unwrap();
            assert_eq!(listed.events.len(), 1);
            assert_eq!(listed.events[0].message, outcome.message);
            node.flush().await;
            assert_eq!(node.event_counts().await.published_total, 1);
        }
    });
}

#[test]
fn a_name_of_a_mebibyte_is_not_explained() {
    real(async {
        for buses in Buses::each().await {
            let _node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            let reply = request(&buses, &ExplainImage { image: "X".repeat(HUGE), ..ExplainImage::default() }).await;
            let refusal = reply.headers.get(headers::SERVICE_ERROR).expect("is refused");
            assert!(refusal.contains("at most 4096 bytes"), "{refusal}");
        }
    });
}

/// A recorder that kept such an event could not list it.
#[test]
fn an_event_of_a_mebibyte_is_refused() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            node.ensure(ask("app:v1", PullPolicy::Never)).await;
            let event =
                PullEvent { id: MessageId::random(&mut Random::seeded(1)), message: "x".repeat(HUGE), ..node.events().await.remove(0) };
            let reply = request(&buses, &RecordEvent { event }).await;
            let refusal = reply.headers.get(headers::SERVICE_ERROR).expect("is refused");
            assert!(refusal.contains("at most 262144 bytes"), "{refusal}");
            assert_eq!(node.events().await.len(), 1);
        }
    });
}

#[test]
fn a_pod_with_a_name_of_a_mebibyte_is_refused() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            let long = || "x".repeat(HUGE);
            for pod in [
                PodRef { namespace: long(), ..PodRef::default() },
                PodRef { name: long(), ..PodRef::default() },
                PodRef { uid: long(), ..PodRef::default() },
            ] {
                let reply = request(&buses, &EnsureImage { pod: Some(pod), ..ask("app:v1", PullPolicy::Always) }).await;
                let refusal = reply.headers.get(headers::SERVICE_ERROR).expect("is refused");
                assert!(refusal.contains("at most 253 bytes"), "{refusal}");
            }
            assert_eq!(node.events().await, []);
            assert!(node.is_alive());
        }
    });
}
