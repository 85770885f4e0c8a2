//! The state of the connection, as the client library's callbacks and the observer report it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{ClientError, Event, ReconnectToServer, Server, ServerError};
use futures::StreamExt;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tracing::{debug, info, warn};

use super::no_connection;
use super::options::LoggedHealth;
use super::reconnect_delay::{FailedAttempts, spread};
use super::refusals::{Act, Refusals};
use super::replies::Waiting;
use super::target::shown_server;
use crate::error::BusError;
use crate::health::{BusHealth, HealthChanges};

/// The state that the connection, its callbacks and its users share.
pub(super) struct Link {
    /// The health that users see: that of the connection, and whether JetStream refuses anything on it.
    health: watch::Sender<BusHealth>,
    /// The health of the connection and of the server when it was last examined.
    server: Mutex<BusHealth>,
    pub(super) refusals: Refusals,
    /// The requests that wait for an answer.
    pub(super) waiting: Waiting,
    /// The number of the newest connection; 0: there was none yet.
    epoch: AtomicU64,
    /// Wakes the observer.
    changed: Notify,
    /// Whether state and streams may be unavailable although the server is there.
    recheck_requested: AtomicBool,
    phase: watch::Sender<Phase>,
    /// Why the connection is suspended; none: it is not.
    suspended: watch::Sender<Option<String>>,
    /// The client library has ended the connection.
    ended: Notify,
    dropped: AtomicU64,
    server_errors: AtomicU64,
    /// How often each server was tried since the last connection.
    attempts: Mutex<BTreeMap<String, u64>>,
    /// Whether every server has refused when the next one was last chosen.
    all_refuse: AtomicBool,
    /// How many clients may connect at the same time as this one.
    fleet_size: AtomicU64,
    logged: LoggedHealth,
}

/// How far the connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// Draining has begun: nothing new is taken, received messages are still read.
    Closed,
    /// The connection has ended, but received messages may still be read.
    Over,
    /// Whatever still waits for the server is ended as well.
    Cut,
}

impl Link {
    /// `fleet_size` and `logged`: see [`super::NatsOptions`].
    pub(super) fn new(servers: &str, fleet_size: u64, logged: LoggedHealth) -> Self {
        let reason = format!("not connected yet to {servers}; trying");
        let health = BusHealth::Disconnected { reason };
        Self {
            health: watch::Sender::new(health.clone()),
            server: Mutex::new(health),
            refusals: Refusals::default(),
            waiting: Waiting::default(),
            epoch: AtomicU64::new(0),
            changed: Notify::new(),
            recheck_requested: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Open),
            suspended: watch::Sender::new(None),
            ended: Notify::new(),
            dropped: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            attempts: Mutex::default(),
            all_refuse: AtomicBool::new(false),
            fleet_size: AtomicU64::new(fleet_size),
            logged,
        }
    }

    pub(super) fn health(&self) -> BusHealth {
        self.health.borrow().clone()
    }

    pub(super) fn health_changes(&self) -> HealthChanges {
        let states = self.health.subscribe();
        futures::stream::unfold((states, true), |(mut states, first)| async move {
            if first {
                states.mark_changed();
            }
            states.changed().await.ok()?;
            let health = states.borrow_and_update().clone();
            Some((health, (states, false)))
        })
        .take_until(self.until(Phase::Over))
        .boxed()
    }

    /// Waits until messages flow, then returns the health.
    pub(super) async fn wait_up(&self) -> BusHealth {
        let mut states = self.health.subscribe();
        let up = states.wait_for(|health| !matches!(health, BusHealth::Disconnected { .. })).await;
        up.map_or_else(|_| self.health(), |health| health.clone())
    }

    pub(super) fn all_refuse(&self) -> bool {
        self.all_refuse.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.phase.borrow() >= Phase::Closed
    }

    /// Moves the connection to a later phase; returns whether the phase changed.
    pub(super) fn set_phase(&self, phase: Phase) -> bool {
        self.phase.send_if_modified(|now| {
            let before = std::mem::replace(now, phase.max(*now));
            before < phase
        })
    }

    /// Resolves when the connection has reached this phase.
    pub(super) fn until(&self, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.phase.subscribe();
        async move {
            // An error means that the link itself was dropped, which is as final.
            let _ = phases.wait_for(|now| *now >= phase).await;
        }
    }

    /// Waits until the client library has ended the connection.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Makes the observer check whether state and streams still work.
    pub(super) fn request_recheck(&self) {
        if !self.recheck_requested.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }

    /// Returns and clears the request of [`Link::request_recheck`].
    pub(super) fn take_recheck_request(&self) -> bool {
        self.recheck_requested.swap(false, Ordering::Relaxed)
    }

    /// Sets how many clients may connect at the same time as this one.
    pub(super) fn set_fleet_size(&self, nodes: u64) {
        self.fleet_size.store(nodes, Ordering::Relaxed);
    }

    /// Suspends the connection for this reason, or ends that.
    pub(super) fn set_suspended(&self, reason: Option<String>) {
        self.suspended.send_replace(reason);
        self.report_health(false);
        self.changed.notify_one();
    }

    /// Whether the connection is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.borrow().is_some()
    }

    fn suspended_health(&self) -> Option<BusHealth> {
        self.suspended.borrow().clone().map(|reason| BusHealth::Disconnected { reason })
    }

    /// Waits until the connection is not suspended.
    async fn until_resumed(&self) {
        // An error means that the link was dropped, which `self` prevents.
        let _ = self.suspended.subscribe().wait_for(Option::is_none).await;
    }

    /// Waits for a change that may concern the observer.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The connection of this number is up.
    pub(super) fn set_up(&self, health: BusHealth, epoch: u64, server: &str) {
        self.attempts().clear();
        let renewed = self.epoch.swap(epoch, Ordering::Relaxed) != epoch;
        *self.server() = health;
        if renewed {
            info!(server, "connected to NATS");
            self.refusals.renew();
        }
        self.report_health(renewed);
    }

    /// The health of the connection and of the server when it was last examined, without JetStream's refusals.
    pub(super) fn server_health(&self) -> BusHealth {
        self.server().clone()
    }

    /// Records that JetStream refuses something, until an operator changes something or it succeeds.
    pub(super) fn refused(&self, stream: &str, act: Act, reason: &str, config: Option<Value>) {
        if self.refusals.add(stream, act, reason, config) {
            self.report_health(false);
        }
    }

    /// The server is examined again.
    pub(super) fn examined_again(&self) {
        if self.refusals.age() {
            self.report_health(false);
        }
    }

    /// JetStream has done something that it may have refused before.
    pub(super) fn done(&self, stream: &str, act: Act) {
        if self.refusals.remove(stream, act) {
            self.report_health(false);
        }
    }

    /// Reports the health to users if it or the connection has changed.
    fn report_health(&self, renewed: bool) {
        // Locked until the report, so that the later of two changes is reported last.
        let server = self.server();
        let health = match (self.suspended_health(), &*server, self.refusals.reason()) {
            (Some(suspended), ..) => suspended,
            (None, BusHealth::Connected, Some(reason)) => BusHealth::Degraded { reason, transient: false },
            (None, server, _) => server.clone(),
        };
        let connects = self.epoch.load(Ordering::Relaxed);
        let is_quiet = self.is_closed() || (self.logged == LoggedHealth::ChangesOnceConnected && connects == 0);
        self.health.send_if_modified(|now| {
            if *now == health && !renewed {
                return false;
            }
            let again = connects > 1 && matches!(&*now, BusHealth::Disconnected { reason } if !reason.is_empty());
            match &health {
                health if self.logged == LoggedHealth::Nothing => debug!(?health, "the health of another connection to the bus"),
                // Logged as a warning if the loss was logged.
                BusHealth::Connected if again => warn!("the bus is connected again"),
                BusHealth::Connected => info!("the bus is connected"),
                BusHealth::Degraded { reason, .. } => warn!(reason, "the bus is degraded"),
                BusHealth::Disconnected { reason } if is_quiet => debug!(reason, "the bus is not connected"),
                BusHealth::Disconnected { reason } => warn!(reason, "the bus is not connected"),
            }
            *now = health;
            true
        });
    }

    /// The connection was lost.
    pub(super) fn set_lost(&self) {
        if !matches!(self.server_health(), BusHealth::Disconnected { .. }) {
            self.set_down("the connection to NATS was lost".to_owned());
        }
    }

    /// There is no connection, for this reason.
    pub(super) fn set_down(&self, reason: String) {
        *self.server() = BusHealth::Disconnected { reason };
        self.report_health(false);
    }

    pub(super) fn disconnected(&self) -> BusError {
        match self.suspended_health().unwrap_or_else(|| self.server_health()) {
            BusHealth::Disconnected { reason } => BusError::Disconnected { reason },
            // The observer has not seen it yet.
            _ => BusError::Disconnected { reason: "the connection to NATS was lost".to_owned() },
        }
    }

    /// Handles an event of the client library.
    pub(super) fn on_event(&self, event: Event) {
        match event {
            // Repeats of either are logged ever more rarely.
            Event::SlowConsumer(subscription) => {
                let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                if dropped.is_power_of_two() {
                    warn!(subscription, dropped, "messages are dropped: a subscription is not read fast enough");
                }
            }
            Event::ServerError(error) => {
                let refused_a_request = matches!(&error, ServerError::Other(text)
                    if forbidden_subject(text).is_some_and(|subject| self.waiting.forbid(subject)));
                if refused_a_request {
                    // The caller gets the error and reports it.
                    debug!(%error, "the server refuses a request");
                    self.changed.notify_one();
                    return;
                }
                let refusals = self.server_errors.fetch_add(1, Ordering::Relaxed) + 1;
                if refusals.is_power_of_two() {
                    warn!(%error, refusals, "the server refuses something: check what this login may publish and subscribe to");
                }
            }
            Event::LameDuckMode => info!("the server is about to stop: another one is tried when it does"),
            // Reported with the reason of each server when the next one is chosen.
            Event::ClientError(ClientError::Other(_)) => {}
            Event::ClientError(error) => warn!(%error, "the client of the bus fails"),
            Event::Closed => self.ended.notify_one(),
            Event::Connected | Event::Disconnected | Event::Draining => {}
        }
        self.changed.notify_one();
    }

    /// Chooses the server to try next: one of those tried least. Every attempt to connect calls this, so it also reports that there is no
    /// connection, and why.
    pub(super) async fn choose(self: Arc<Self>, pool: Vec<Server>) -> Option<ReconnectToServer> {
        self.until_resumed().await;
        if self.is_closed() {
            // The client library would try for ever, although nobody needs the connection any more.
            std::future::pending::<()>().await;
        }
        // Before the health, so that both belong together.
        self.all_refuse.store(no_connection::all_refuse(&pool), Ordering::Relaxed);
        let (chosen, delay) = {
            let mut attempts = self.attempts();
            let tried = |server: &str| attempts.get(server).copied().unwrap_or(0);
            if !attempts.is_empty() {
                self.set_down(no_connection::no_connection(&pool, |server| tried(server) > 0));
            }
            let count = |server: &Server| tried(&shown_server(&server.addr));
            let fewest = pool.iter().map(count).min()?;
            let best: Vec<_> = pool.iter().filter(|server| count(server) == fewest).collect();
            let chosen = best.get(rand::random_range(0..best.len()))?.addr.clone();
            let failed = FailedAttempts { attempts: attempts.values().sum(), servers: pool.len() as u64 };
            *attempts.entry(shown_server(&chosen)).or_default() += 1;
            (chosen, failed.delay(spread(self.fleet_size.load(Ordering::Relaxed)), rand::random()))
        };
        self.changed.notify_one();
        Some(ReconnectToServer { addr: chosen, delay: Some(delay) })
    }

    fn server(&self) -> MutexGuard<'_, BusHealth> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subject to which the server has just refused a message of this login.
fn forbidden_subject(error: &str) -> Option<&str> {
    error.strip_prefix("Permissions Violation for Publish to \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_subject_is_read() {
        for (text, subject) in [
            ("Permissions Violation for Publish to \"$JS.API.INFO\"", Some("$JS.API.INFO")),
            ("Permissions Violation for Subscription to \"a.>\"", None),
            ("Permissions Violation for Publish to a", None),
        ] {
            assert_eq!(forbidden_subject(text), subject, "{text}");
        }
    }
}
