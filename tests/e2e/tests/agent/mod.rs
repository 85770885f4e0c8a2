//! `fleetpull run` as systemd and people use it: ready, one agent for each name, reachable without the bus, and stopped on request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abandoned;
mod alone;
mod bus_lost;
mod discovery;
mod duplicate_agent;
mod durable_events;
mod ending;
mod events_misused;
mod far_away;
mod killed_pulling;
mod local_delivery;
mod metrics;
mod metrics_misused;
mod on_the_bus;
mod one_sick;
mod permissions;
mod runtime;
mod services_api;
mod sharing;
mod unfit_bus;
mod unit;
