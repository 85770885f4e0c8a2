//! A node that loses its bus.

use std::time::Duration;

use actors::Delivery;
use bus::BusHealth;
use contract::messages::pull_coordinator::{OutcomeKind, PullPolicy};
use futures::StreamExt as _;
use integration::{Plan, TestNode, ask, real};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};

use super::{Buses, PATIENCE};

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("it took too long until {what}"))
}

async fn until_noticed(buses: &Buses) {
    let mut health = buses.node.health_changes();
    let disconnected = async { while !matches!(health.next().await, Some(BusHealth::Disconnected { .. })) {} };
    within("the node has noticed", disconnected).await;
}

#[test]
fn without_a_server_a_node_goes_on_alone_and_publishes_when_it_is_back() {
    real(async {
        let Some(mut buses) = Buses::on_nats().await else { return };
        let plan = Plan { bus: buses.node.clone(), delivery: Delivery::Bus, ..Plan::with(ScriptedRuntime::new()) };
        let node = TestNode::start(plan).await;
        assert_eq!(node.ensure(ask("app:v1", PullPolicy::Always)).await.outcome, OutcomeKind::Pulled);
        node.flush().await;
        buses.server.as_mut().unwrap().kill();
        until_noticed(&buses).await;
        let alone = within("it has pulled without the bus", node.ensure(ask("app:v2", PullPolicy::Always))).await;
        assert_eq!(alone.outcome, OutcomeKind::Pulled, "{}", alone.message);
        assert_eq!(node.events().await.len(), 4, "its events are kept");
        buses.server.as_mut().unwrap().restart();
        within("what waited is published", node.flush()).await;
        let counts = node.event_counts().await;
        assert_eq!((counts.published_total, counts.unpublished_total), (4, 0));
        assert_eq!(node.ensure(ask("app:v3", PullPolicy::Always)).await.outcome, OutcomeKind::Pulled);
    });
}

#[test]
fn a_pull_under_way_ends_well_when_the_server_dies() {
    real(async {
        let Some(mut buses) = Buses::on_nats().await else { return };
        let runtime = ScriptedRuntime::new();
        runtime.hold("app:v1");
        let plan = Plan { bus: buses.node.clone(), delivery: Delivery::Bus, ..Plan::with(runtime.clone()) };
        let node = TestNode::start(plan).await;
        let pulling = node.begin_here(ask("app:v1", PullPolicy::IfNotPresent));
        within("the pull runs", runtime.wait_for(&ScriptedCall::Pull("app:v1".to_owned()), 1)).await;
        // The node has not noticed the loss when the next commands are sent.
        buses.server.as_mut().unwrap().kill();
        runtime.let_go("app:v1");
        let outcome = within("the pull has ended", pulling).await.unwrap();
        assert_eq!(outcome.outcome, OutcomeKind::Pulled, "{}", outcome.message);
        assert_eq!(node.events().await.len(), 2);
        let released = async {
            while node.permits().await.granted != 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within("the permit is back", released).await;
    });
}
