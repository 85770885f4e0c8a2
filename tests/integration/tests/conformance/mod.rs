//! Kubelet's image manager tests over the real actors.
//!
//! Contracts: each row of kubelet's table gives the same runtime calls, reasons, messages and events, serial and parallel, inside the
//! process, with every message over the memory bus, and with every message over a real nats-server. Other tests, named for it, show where
//! Fleetpull differs on purpose: it waits for a token instead of failing, pulls once for many callers, and forgets the back-off at a
//! success.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod differences;
mod table;

use std::sync::Arc;
use std::time::Duration;

use actors::Delivery;
use bus::nats::{NatsBus, NatsOptions};
use clock::Clock;
use contract::subject::Fleet;
use integration::{Plan, UNLIMITED, paused, real};
use runtimes::scripted::ScriptedRuntime;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;
use throttler::core::{OnExhausted, ThrottlePolicy};

const SERIAL: ThrottlePolicy = ThrottlePolicy { slots: 1, ..UNLIMITED };
/// How long a server on this machine may take to accept a connection.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn kubelets_table_holds_serial_and_parallel_over_both_deliveries() {
    let table = table::rows();
    assert_eq!(table.len(), 12);
    for row in &table {
        for throttle in [SERIAL, UNLIMITED] {
            for delivery in [Delivery::Local, Delivery::Bus] {
                paused(async {
                    let runtime = ScriptedRuntime::new();
                    let (clock, driver) = Clock::driven();
                    let plan = Plan { clock, throttle, delivery, ..Plan::with(runtime.clone()) };
                    table::run(row, plan, &runtime, &driver).await;
                });
            }
        }
    }
}

#[test]
fn kubelets_table_holds_when_a_pull_without_a_token_fails() {
    for row in &table::rows() {
        paused(async {
            let runtime = ScriptedRuntime::new();
            let (clock, driver) = Clock::driven();
            let throttle = ThrottlePolicy { on_exhausted: OnExhausted::Fail, ..UNLIMITED };
            table::run(row, Plan { clock, throttle, ..Plan::with(runtime.clone()) }, &runtime, &driver).await;
        });
    }
}

#[test]
fn kubelets_table_holds_over_a_real_nats_server_both_ways() {
    let Some(_) = met(current_program()) else { return };
    real(async {
        let server = NatsServer::start(NatsConfig::default());
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(CONNECTED_WITHIN).await.unwrap();
        for (number, row) in table::rows().iter().enumerate() {
            for delivery in [Delivery::Local, Delivery::Bus] {
                let runtime = ScriptedRuntime::new();
                let (clock, driver) = Clock::driven();
                // Each row has a fleet of its own, so that no node receives another row's messages.
                let fleet = Fleet::named(&format!("{delivery:?}-{number}")).unwrap();
                let plan = Plan { bus: Arc::new(bus.clone()), fleet, clock, delivery, ..Plan::with(runtime.clone()) };
                table::run(row, plan, &runtime, &driver).await;
            }
        }
    });
}
