//! Budgets over a real nats-server.

use std::sync::Arc;
use std::time::Duration;

use bus::BusRef;
use bus::nats::{NatsBus, NatsOptions};
use clock::Clock;
use integration::real;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use throttler::core::budget::BudgetPolicy;

use super::fleet::{Fleet, Registry};
use super::{leader, until_in_time};

/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The window of the quota: long enough for a new leader, after the lease of the dead one has ended and the new one has learned, which
/// takes 6 s.
const WINDOW: Duration = Duration::from_secs(20);

#[test]
fn a_quota_of_six_serves_six_of_ten_though_the_leader_is_killed_and_the_rest_after_the_window() {
    real(async {
        let Some(_) = met(current_program()) else { return };
        let server = NatsServer::start(NatsConfig::default());
        let mut connections: Vec<BusRef> = Vec::new();
        for _ in 0..10 {
            let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
            bus.wait_connected(PATIENCE).await.unwrap();
            connections.push(Arc::new(bus));
        }
        let clock = Clock::host();
        // The pulls begin 0.5 s apart, so that the leader can be killed between two of them.
        let policy = BudgetPolicy { per_second: 2.0, ..BudgetPolicy::default() };
        let mut fleet = Fleet::start(10, policy, &clock, |node| Arc::clone(&connections[node])).await;
        let registry = Registry::with_quota(6, WINDOW, &clock);
        let pulls = fleet.begin_everywhere(&registry, &clock);
        until_in_time("two pulls began", || registry.begun() >= 2).await;
        let killed = leader(&fleet.states().await).expect("the budget has a leader");
        pulls[killed].abort();
        fleet.kill(killed).await;
        assert!(registry.begun() < 6, "it dies in the middle of the release: {} began", registry.begun());
        until_in_time("a window of the quota is used up, without the leader that died", || registry.most_in_window() == 6).await;
        until_in_time("all others were served", || registry.served() >= 9).await;
        assert_eq!((registry.most_in_window(), registry.refused()), (6, 0), "never a seventh");
    });
}
