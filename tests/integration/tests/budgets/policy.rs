//! The fleet policy on the bus, and the throttlers that follow it.

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use bus::nats::{NatsBus, NatsOptions};
use bus::{Bus, BusRef};
use clock::Clock;
use contract::know::{SharedBucket, encode};
use contract::policy::{Caps, FleetPolicy, POLICY_KEY, ShareAtMost, StoredPolicy};
use contract::subject;
use integration::{paused, real};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use throttler::core::budget::BudgetPolicy;

use super::fleet::{Fleet, REGISTRY, Registry};
use super::{POLICY, on_memory};

/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn capped(pulls_per_second: f64) -> FleetPolicy {
    let caps = Caps { pulls_per_second: Some(pulls_per_second), ..Caps::NONE };
    FleetPolicy { registry: [(REGISTRY.to_owned(), caps)].into(), ..FleetPolicy::default() }
}

/// Stores a policy, as an operator does; returns its revision.
async fn set(bus: &dyn Bus, policy: FleetPolicy) -> u64 {
    let bucket = bus.bucket(&bucket_spec(SharedBucket::policy(&subject::Fleet::default()))).await.expect("a bucket");
    let value = encode(&StoredPolicy { policy, by: "ann@desk".to_owned() }).expect("it fits");
    bucket.put(POLICY_KEY, value.into(), None).await.expect("it is stored")
}

/// The cap and the policy revision of each node.
async fn caps_and_revisions(fleet: &Fleet) -> Vec<(f64, u64)> {
    fleet.states().await.into_iter().flatten().map(|state| (state.per_second, state.policy_revision)).collect()
}

pub(super) fn most_in_a_second(begun: &[Duration]) -> usize {
    let within = |from: &Duration| begun.iter().filter(|at| *at >= from && **at < *from + Duration::from_secs(1)).count();
    begun.iter().map(within).max().unwrap_or_default()
}

#[test]
fn all_nodes_apply_a_policy_that_was_there_before_them_and_the_next_one() {
    paused(async {
        let (bus, clock) = on_memory();
        let first = set(&bus, capped(10.0)).await;
        // By its own settings the leader would permit one pull per second.
        let fleet = Fleet::start(20, BudgetPolicy { per_second: 1.0, ..POLICY }, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::unlimited();
        let begun = fleet.pull_everywhere(2, &registry, &clock).await;
        let most = most_in_a_second(&begun);
        assert!((6..=10).contains(&most), "{most} in a second");
        assert_eq!(caps_and_revisions(&fleet).await, [(10.0, first); 20]);
        let second = set(&bus, capped(50.0)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(caps_and_revisions(&fleet).await, [(50.0, second); 20]);
    });
}

#[test]
fn known_policy_survives_the_loss_of_its_bucket() {
    paused(async {
        let (bus, clock) = on_memory();
        let revision = set(&bus, capped(10.0)).await;
        let fleet = Fleet::start(3, POLICY, &clock, |_| Arc::new(bus.connect())).await;
        fleet.pull_everywhere(1, &Registry::unlimited(), &clock).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        bus.lose_bucket(&SharedBucket::policy(&subject::Fleet::default()).name);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(caps_and_revisions(&fleet).await, [(10.0, revision); 3]);
        let again = set(&bus, capped(20.0)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(caps_and_revisions(&fleet).await, [(20.0, again); 3]);
    });
}

#[test]
fn while_the_policy_is_observe_no_budget_holds_a_pull_back() {
    paused(async {
        let (bus, clock) = on_memory();
        let observe = FleetPolicy { share: Some(ShareAtMost::Observe), ..capped(1.0) };
        set(&bus, observe).await;
        let fleet = Fleet::start(5, POLICY, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::unlimited();
        let waited = |begun: &[Duration], from: Duration| begun.iter().max().copied().unwrap_or_default().saturating_sub(from);
        let from = clock.now().monotonic;
        let begun = fleet.pull_everywhere(4, &registry, &clock).await;
        assert!(waited(&begun, from) < Duration::from_millis(100), "{begun:?}");
        assert_eq!(fleet.states().await, vec![None; 5], "no node leads a budget");
        set(&bus, capped(4.0)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = fleet.pull_everywhere(2, &registry, &clock).await;
        assert!(most_in_a_second(&begun) <= 4, "{begun:?}");
    });
}

/// The same over a real nats-server, which republishes the policy.
#[test]
fn a_policy_that_is_stored_on_a_nats_server_reaches_every_node_and_holds() {
    real(async {
        let Some(_) = met(current_program()) else { return };
        let server = NatsServer::start(NatsConfig::default());
        let mut connections: Vec<BusRef> = Vec::new();
        for _ in 0..6 {
            let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
            bus.wait_connected(PATIENCE).await.unwrap();
            connections.push(Arc::new(bus));
        }
        let clock = Clock::host();
        let first = set(&*connections[5], capped(5.0)).await;
        let fleet = Fleet::start(5, POLICY, &clock, |node| Arc::clone(&connections[node])).await;
        let registry = Registry::unlimited();
        let begun = fleet.pull_everywhere(2, &registry, &clock).await;
        let most = most_in_a_second(&begun);
        // A pull may begin later than its permit was granted, by up to the tolerance of the rate limiter.
        assert!(most <= 6, "{most} in a second: {begun:?}");
        assert_eq!(caps_and_revisions(&fleet).await, [(5.0, first); 5]);
        let second = set(&*connections[5], capped(100.0)).await;
        until_all_apply(&fleet, (100.0, second)).await;
    });
}

/// Waits at most 10 s until all nodes have this cap and revision.
async fn until_all_apply(fleet: &Fleet, expected: (f64, u64)) {
    for _ in 0..1_000 {
        if caps_and_revisions(fleet).await.iter().all(|by| *by == expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", caps_and_revisions(fleet).await);
}
