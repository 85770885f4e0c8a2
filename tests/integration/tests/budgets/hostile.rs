//! Two leaders, replays, forged calls and clocks that jump: the harm is bounded, and the budget is never stuck.

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use bus::SharedState as _;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::NodeName;
use contract::know::SharedBucket;
use contract::messages::throttler::{
    BudgetAnswer, BudgetTurn, GrantBudget, KnownLimits, PermitAnswer, PermitLimits, RegistryLimit, RenewBudget, ReturnBudget,
};
use contract::policy::Caps;
use integration::paused;
use throttler::core::budget::BudgetPolicy;

use super::fleet::{Fleet, OWNER, Registry, id};
use super::{POLICY, WALL, leader, on_memory};

/// How far clocks jump.
const MINUTES: Duration = Duration::from_secs(300);

fn liar() -> NodeName {
    "liar".parse().unwrap()
}

fn asks(node: NodeName, permit: u64) -> GrantBudget {
    GrantBudget { owner: OWNER.to_owned(), node, permit: id(permit), known: KnownLimits::default(), caps: Caps::NONE }
}

/// Deletes every lease, as any writer of the bucket can; returns how many there were.
async fn steal_leases(bus: &MemoryBus) -> usize {
    let fleet = contract::subject::Fleet::default();
    let bucket = bus.bucket(&bucket_spec(SharedBucket::leaders(&fleet))).await.unwrap();
    let all = bucket.snapshot(None).await.unwrap().entries;
    for held in &all {
        bucket.delete(&held.entry.key, None).await.unwrap();
    }
    all.len()
}

#[test]
fn a_stolen_lease_makes_no_more_than_two_leaders_and_one_in_the_end() {
    paused(async {
        let (bus, clock) = on_memory();
        let policy = BudgetPolicy { at_once: 3, ..POLICY };
        let fleet = Fleet::start(4, policy, &clock, |_| Arc::new(bus.connect())).await;
        let registry = Registry::unlimited();
        let thief = async {
            let mut stolen = 0;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(700)).await;
                stolen += steal_leases(&bus).await;
            }
            stolen
        };
        let (begun, stolen) = futures::join!(fleet.pull_everywhere(60, &registry, &clock), thief);
        assert!(stolen > 0, "the leader had a lease");
        assert_eq!((begun.len(), registry.served()), (240, 240), "all are served");
        assert!(registry.most_at_once() <= 6, "{} at once with two leaders", registry.most_at_once());
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
        let states = fleet.states().await;
        assert_eq!(states.iter().flatten().filter(|state| state.leads).count(), 1, "{states:?}");
    });
}

#[test]
fn replayed_permit_is_not_granted_again() {
    paused(async {
        let (bus, clock) = on_memory();
        let policy = BudgetPolicy { at_once: 1, ..POLICY };
        let fleet = Fleet::start(3, policy, &clock, |_| Arc::new(bus.connect())).await;
        assert!(matches!(fleet.acquire(1, 1).await, PermitAnswer::Granted { .. }));
        let leads = leader(&fleet.states().await).expect("the budget has a leader");
        // Another node requests the same permit, while it is out and after it was returned.
        assert!(matches!(fleet.request(leads, asks(liar(), 1)).await, BudgetAnswer::Refused { .. }));
        let returned = ReturnBudget { owner: OWNER.to_owned(), node: liar(), permit: id(1), used: true, limits: None, served: None };
        fleet.request(leads, returned).await;
        let state = fleet.states().await[leads].clone().expect("it is known");
        assert_eq!(state.in_flight, 1, "no other node can give it back");
        fleet.release(1, 1, Vec::new()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        for node in [liar(), "n1".parse().unwrap()] {
            assert!(matches!(fleet.request(leads, asks(node, 1)).await, BudgetAnswer::Refused { .. }));
        }
        // A late `BudgetTurn` for a permit that was returned grants nothing.
        for _ in 0..100 {
            fleet.request(2, BudgetTurn { owner: OWNER.to_owned(), permit: id(1) }).await;
        }
        let before = clock.now().monotonic;
        assert!(matches!(fleet.acquire(2, 2).await, PermitAnswer::Granted { .. }));
        assert!(clock.now().monotonic - before < Duration::from_secs(1));
    });
}

/// A liar repeatedly claims 1,000 permits, and reports that the registry allows nothing for ten years.
#[test]
fn forged_claims_and_limits_delay_others_for_seconds() {
    paused(async {
        let (bus, clock) = on_memory();
        let policy = BudgetPolicy { at_once: 8, ..POLICY };
        let fleet = Fleet::start(4, policy, &clock, |_| Arc::new(bus.connect())).await;
        assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
        fleet.release(0, 1, Vec::new()).await;
        let leads = leader(&fleet.states().await).expect("the budget has a leader");
        let registry = Registry::unlimited();
        let forge = async {
            let ten_years = 10 * 365 * 24 * 3_600 * 1_000;
            let limit = RegistryLimit { limit: 100, window_ms: ten_years, reset_ms: Some(ten_years), ..RegistryLimit::default() };
            let known = KnownLimits { none_stated: false, limits: vec![limit.clone()] };
            for round in 0..40 {
                let permits: Vec<_> = (0..1_000).map(|number| id(1_000_000 + 1_000 * round + number)).collect();
                let limits = permits.iter().map(|permit| PermitLimits { permit: *permit, limits: vec![limit.clone()] }).collect();
                fleet.request(leads, RenewBudget { owner: OWNER.to_owned(), node: liar(), permits, limits, known: known.clone() }).await;
                fleet.request(leads, asks(liar(), 2_000_000 + round)).await;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        let before = clock.now().monotonic;
        let (begun, ()) = futures::join!(fleet.pull_everywhere(5, &registry, &clock), forge);
        let last = *begun.iter().max().expect("they began") - before;
        // The budget begins at 10 per second, so 20 pulls take 2 s.
        assert!(last <= Duration::from_secs(10 + 2), "the last began after {last:?}");
        assert!(registry.most_at_once() <= 8);
    });
}

#[test]
fn clocks_that_jump_leave_one_leader_and_serve_all() {
    for jumper in [0, 1] {
        for skips in [true, false] {
            paused(async {
                let (bus, clock) = on_memory();
                let policy = BudgetPolicy { at_once: 3, ..POLICY };
                let (jumping, jumps) = Clock::jumping(WALL);
                let clock_of = |node| if node == jumper { jumping.clone() } else { clock.clone() };
                let fleet = Fleet::start_by(4, policy, clock_of, |_| Arc::new(bus.connect())).await;
                // The first node that asks becomes the leader.
                assert!(matches!(fleet.acquire(0, 1).await, PermitAnswer::Granted { .. }));
                fleet.release(0, 1, Vec::new()).await;
                let registry = Registry::unlimited();
                let jump = async {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    match skips {
                        true => jumps.skip(MINUTES),
                        false => jumps.set_wall(-300),
                    }
                };
                let (begun, ()) = futures::join!(fleet.pull_everywhere(40, &registry, &clock), jump);
                assert_eq!((begun.len(), registry.served()), (160, 160));
                assert!(registry.most_at_once() <= 6, "{} at once when n{jumper} jumped", registry.most_at_once());
                let last = *begun.iter().max().expect("they began");
                assert!(last < Duration::from_secs(30), "the last began after {last:?} when n{jumper} jumped");
                assert!(matches!(fleet.acquire(2, 2).await, PermitAnswer::Granted { .. }));
                let states = fleet.states().await;
                assert_eq!(states.iter().flatten().filter(|state| state.leads).count(), 1, "{states:?}");
            });
        }
    }
}
