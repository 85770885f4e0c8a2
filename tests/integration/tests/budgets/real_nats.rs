//! The same over a real nats-server.

use std::sync::Arc;
use std::time::Duration;

use bus::BusRef;
use bus::nats::{NatsBus, NatsOptions};
use clock::Clock;
use integration::real;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use throttler::core::budget::{Alone, BudgetPolicy};

use crate::fleet::{Fleet, Registry};
use crate::{leader, until_in_time};

/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_quota_of_six_lets_six_of_ten_go_though_the_leader_is_killed_and_the_rest_when_the_window_is_over() {
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
        let policy = BudgetPolicy { per_second: 200.0, at_once: 0, alone: Alone::Open };
        let mut fleet = Fleet::start(10, policy, &clock, |node| Arc::clone(&connections[node])).await;
        let registry = Registry::with_quota(6, Duration::from_secs(12), &clock);
        let pulls = fleet.begin_everywhere(&registry, &clock);
        until_in_time("three pulls began", || registry.begun() >= 3).await;
        let killed = leader(&fleet.states().await).expect("somebody leads");
        pulls[killed].abort();
        fleet.kill(killed).await;
        until_in_time("all others were served", || registry.served() >= 9).await;
        assert_eq!(registry.refused(), 0, "never a seventh");
    });
}
