//! Fleet budgets: the throttlers of several nodes on one bus.
//!
//! Contracts: the pulls of a fleet that begin and run are within its budget; a quota of 6 grants 6 of 10 pulls and tells the others how
//! long they wait, also if the leader dies in the middle; the permit of a dead node comes back; a node that reaches no leader goes on
//! alone; without a budget nothing changes; forged and replayed messages, and two leaders, cost other nodes a bounded time.
//!
//! `tests/e2e/tests/outage/quota.rs` tests the death of a quota's leader with agents and a real nats-server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;
mod hostile;
mod policy;

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use bus::SharedState as _;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::know::{SharedBucket, StoredLease, decode};
use contract::messages::throttler::{BudgetState, PermitAnswer};
use contract::policy::Caps;
use contract::subject;
use fleet::{Fleet, Registry};
use integration::paused;
use throttler::core::budget::{Alone, BudgetPolicy};

const WALL: Duration = Duration::from_secs(1_700_000_000);
/// The window of a quota.
const WINDOW: Duration = Duration::from_secs(60);
const POLICY: BudgetPolicy = BudgetPolicy { per_second: 200.0, at_once: 0, alone: Alone::Open, own: Caps::NONE };

fn on_memory() -> (MemoryBus, Clock) {
    let clock = Clock::simulated(WALL);
    (MemoryBus::new(clock.clone()), clock)
}

fn leader(states: &[Option<BudgetState>]) -> Option<usize> {
    states.iter().position(|state| state.as_ref().is_some_and(|state| state.leads))
}

#[test]
fn nodes_share_one_rate_and_one_leader() {
    // The rate, and in how many seconds the 100 pulls begin. Only the second rate is lower than the number of pulls.
    for (per_second, within) in [(200.0, 3), (50.0, 6)] {
        paused(async {
            let (bus, clock) = on_memory();
            let policy = BudgetPolicy { per_second, ..POLICY };
            let fleet = Fleet::start(20, policy, &clock, |_| Arc::new(bus.connect())).await;
            let registry = Registry::unlimited();
            let begun = fleet.pull_everywhere(5, &registry, &clock).await;
            assert_eq!(begun.len(), 100);
            let most = policy::most_in_a_second(&begun);
            assert!(most as f64 <= per_second, "{most} in a second by {per_second}");
            assert!(begun.iter().max() < Some(&Duration::from_secs(within)), "{:?} by {per_second}", begun.iter().max());
            let states = fleet.states().await;
            assert_eq!(states.iter().flatten().filter(|state| state.leads).count(), 1, "{states:?}");
        });
    }
}

/// A lease names the same instance of its holder as the list of nodes does.
#[test]
fn a_leaders_lease_names_the_instance_that_its_node_was_started_as() {
    paused(async {
        let (bus, clock) = on_memory();
        let fleet = Fleet::start(2, POLICY, &clock, |_| Arc::new(bus.connect())).await;
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
        let bucket = bus.bucket(&bucket_spec(SharedBucket::leaders(&subject::Fleet::default()))).await.unwrap();
        let stored = bucket.snapshot(None).await.unwrap().entries;
        let leases: Vec<StoredLease> = stored.iter().map(|held| decode(&held.entry.value).unwrap()).collect();
        assert!(!leases.is_empty(), "the budget has a leader");
        for lease in leases {
            assert_eq!(lease.instance, format!("start-of-{}", lease.holder));
        }
    });
}

#[test]
fn no_more_run_at_once_than_the_fleet_may() {
    paused(async {
        let (bus, clock) = on_memory();
        let policy = BudgetPolicy { at_once: 3, ..POLICY };
        let fleet = Fleet::start(5, policy, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::unlimited();
        // There are enough pulls for three at once, although the rate begins low.
        let begun = fleet.pull_everywhere(12, &registry, &clock).await;
        assert_eq!((begun.len(), registry.most_at_once()), (60, 3));
    });
}

#[test]
fn a_quota_of_six_serves_six_of_ten_even_when_the_leader_dies_and_the_rest_after_the_window() {
    paused(async {
        let (bus, clock) = on_memory();
        // The rate is low, so that the leader can be killed between two pulls.
        let policy = BudgetPolicy { per_second: 5.0, ..POLICY };
        let mut fleet = Fleet::start(10, policy, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::with_quota(6, WINDOW, &clock);
        let pulls = fleet.begin_everywhere(&registry, &clock);
        until_in_time("three pulls began", || registry.begun() >= 3).await;
        let began = clock.now().monotonic;
        let killed = leader(&fleet.states().await).expect("the budget has a leader");
        pulls[killed].abort();
        fleet.kill(killed).await;
        assert_eq!(registry.begun(), 3, "it dies in the middle of the release");
        // All clocks jump by 20 s, as on machines that were suspended. No node takes this for 20 s without a leader.
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(registry.begun() <= 6, "{} began", registry.begun());
        until_in_time("the window is nearly over", || clock.now().monotonic >= began + WINDOW - Duration::from_secs(5)).await;
        assert_eq!(registry.begun(), 6, "all of the quota, without the leader that died");
        until_in_time("the rest were served after the window", || registry.served() >= 9).await;
        assert_eq!(registry.refused(), 0, "never a seventh");
    });
}

#[test]
fn a_dead_holders_permit_comes_back() {
    paused(async {
        let (bus, clock) = on_memory();
        let policy = BudgetPolicy { at_once: 1, ..POLICY };
        let mut fleet = Fleet::start(3, policy, &clock, |_| Arc::new(bus.connect())).await;
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }), "the first leads");
        fleet.release(0, 1, Vec::new()).await;
        assert!(matches!(fleet.acquire(1, 2).await, PermitAnswer::Granted { .. }));
        let before = clock.now().monotonic;
        fleet.kill(1).await;
        assert!(matches!(fleet.acquire(2, 3).await, PermitAnswer::Granted { .. }));
        let waited = clock.now().monotonic - before;
        assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(5), "{waited:?}");
    });
}

#[test]
fn a_node_that_reaches_no_leader_goes_on_alone_and_is_counted() {
    paused(async {
        let (bus, clock) = on_memory();
        let connections: Vec<MemoryBus> = (0..3).map(|_| bus.connect()).collect();
        let policy = BudgetPolicy { at_once: 2, ..POLICY };
        let fleet = Fleet::start(3, policy, &clock, |node| Arc::new(connections[node].clone())).await;
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
        fleet.release(0, 1, Vec::new()).await;
        // Node 2 loses the bus.
        bus::Messaging::drain(&connections[2]).await;
        let before = clock.now().monotonic;
        assert!(matches!(fleet.acquire(2, 2).await, PermitAnswer::Granted { .. }));
        let waited = clock.now().monotonic - before;
        assert!(waited >= Duration::from_secs(14) && waited < Duration::from_secs(18), "{waited:?}");
        let state = fleet.states().await[2].clone().expect("it knows the budget");
        assert!(state.alone && state.alone_total == 1, "{state:?}");
    });
}

/// All nodes lose the bus when the quota is used up: with `share` all wait until the window is over, with `open` the registry refuses them.
#[test]
fn a_fleet_without_a_bus_keeps_a_quota_that_it_knows_by_share_and_asks_by_open() {
    for (alone, after, refused) in [(Alone::Share, WINDOW, 0), (Alone::Open, Duration::from_secs(14), 3)] {
        paused(async {
            let (bus, clock) = on_memory();
            let connections: Vec<MemoryBus> = (0..3).map(|_| bus.connect()).collect();
            let policy = BudgetPolicy { alone, ..POLICY };
            let fleet = Fleet::start(3, policy, &clock, |node| Arc::new(connections[node].clone())).await;
            let registry = Registry::with_quota(3, WINDOW, &clock);
            let used_up = clock.now().monotonic;
            for pull in fleet.begin_everywhere(&registry, &clock) {
                pull.await.unwrap();
            }
            assert_eq!((registry.served(), registry.refused()), (3, 0));
            for connection in &connections {
                bus::Messaging::drain(connection).await;
            }
            let begun = fleet.pull_everywhere(1, &registry, &clock).await;
            let first = *begun.iter().min().expect("they began");
            assert!(first >= used_up + after && first < used_up + after + Duration::from_secs(6), "{alone:?}: {:?}", first - used_up);
            assert_eq!(registry.refused(), refused, "{alone:?}");
        });
    }
}

#[test]
fn a_long_wait_is_reported_at_once() {
    paused(async {
        let (bus, clock) = on_memory();
        let fleet = Fleet::start(2, POLICY, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::with_quota(1, Duration::from_secs(3_600), &clock);
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
        let limits = registry.answer();
        fleet.release(0, 1, limits).await;
        let before = clock.now().monotonic;
        let PermitAnswer::Queued { budget_wait_ms: Some(wait_ms), .. } = fleet.acquire_once(1, 2).await else {
            panic!("the quota is used up");
        };
        assert!(wait_ms > 3_500_000 && wait_ms < 3_700_000, "{wait_ms}");
        assert!(clock.now().monotonic - before < Duration::from_secs(1), "the wait was reported late");
    });
}

/// Lets time pass until a condition holds.
async fn until_in_time(what: &str, met: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if met() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to pass that {what}");
}

#[test]
fn without_a_budget_the_node_decides_alone() {
    paused(async {
        let (bus, clock) = on_memory();
        let fleet = Fleet::start(1, BudgetPolicy { at_once: 1, ..POLICY }, &clock, |_| Arc::new(bus.connect())).await;
        for permit in 1..10 {
            assert!(matches!(fleet.acquire_on(0, permit, None).await, PermitAnswer::Granted { .. }));
        }
        assert_eq!(fleet.states().await, [None]);
    });
}
