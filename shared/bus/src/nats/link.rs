//! The state of the connection, as the client library's callbacks and the observer tell it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{ClientError, Event, ReconnectToServer, Server};
use futures::StreamExt;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::target::shown_server;
use super::words;
use crate::port::{BusError, BusHealth, HealthChanges};

/// Each failed attempt waits this much longer than the one before.
const RECONNECT_STEP: Duration = Duration::from_millis(50);

/// So that a server which is back is found soon.
const LONGEST_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Random addition, so that a fleet does not come back in one beat.
const RECONNECT_JITTER: Duration = Duration::from_millis(100);

/// What the connection, its callbacks and its users share.
pub(super) struct Link {
    health: watch::Sender<BusHealth>,
    /// Counts connects; a watcher of state lists anew when it changes.
    epoch: watch::Sender<u64>,
    /// Wakes the observer.
    changed: Notify,
    /// Whether state and streams may be gone although the server is there.
    doubted: AtomicBool,
    phase: watch::Sender<Phase>,
    /// The client library has ended the connection.
    ended: Notify,
    dropped: AtomicU64,
    refusals: AtomicU64,
    /// How often each server was tried since there was a connection.
    attempts: Mutex<BTreeMap<String, u64>>,
}

/// How far the connection is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// Draining has begun: nothing new is taken, what has arrived is still read.
    Closed,
    /// It is over, but what has arrived may still be read.
    Over,
    /// What still waits for the server is ended as well.
    Cut,
}

impl Link {
    pub(super) fn new(servers: &str) -> Self {
        let reason = format!("not connected yet to {servers}; trying");
        Self {
            health: watch::Sender::new(BusHealth::Disconnected { reason }),
            epoch: watch::Sender::new(0),
            changed: Notify::new(),
            doubted: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Open),
            ended: Notify::new(),
            dropped: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            attempts: Mutex::default(),
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

    /// Waits until messages flow, then gives how the bus is.
    pub(super) async fn wait_up(&self) -> BusHealth {
        let mut states = self.health.subscribe();
        let up = states.wait_for(|health| !matches!(health, BusHealth::Disconnected { .. })).await;
        up.map_or_else(|_| self.health(), |health| health.clone())
    }

    pub(super) fn epochs(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.phase.borrow() >= Phase::Closed
    }

    /// Takes the connection further towards its end; whether it was not so far yet.
    pub(super) fn set_phase(&self, phase: Phase) -> bool {
        self.phase.send_if_modified(|now| {
            let before = std::mem::replace(now, phase.max(*now));
            before < phase
        })
    }

    /// Resolves when the connection has come so far.
    pub(super) fn until(&self, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.phase.subscribe();
        async move {
            // An error says that the link itself is gone, which is as final.
            let _ = phases.wait_for(|now| *now >= phase).await;
        }
    }

    /// Waits until the client library has ended the connection.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Has it looked into whether state and streams can be had still.
    pub(super) fn doubt(&self) {
        if !self.doubted.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }

    /// Whether that is to be looked into; it is taken as done.
    pub(super) fn takes_doubt(&self) -> bool {
        self.doubted.swap(false, Ordering::Relaxed)
    }

    /// Waits for something that may concern the observer.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The connection of that number is there.
    pub(super) fn set_up(&self, health: BusHealth, epoch: u64, server: &str) {
        self.attempts().clear();
        // First the epoch: whoever waited for the health lists once, not twice.
        let renewed = self.epoch.send_if_modified(|now| std::mem::replace(now, epoch) != epoch);
        self.health.send_if_modified(|now| {
            if *now == health && !renewed {
                return false;
            }
            match &health {
                BusHealth::Degraded { reason } => warn!(server, reason, "the bus is degraded"),
                // Whoever was told that it is gone is told that it is there again.
                _ if matches!(&*now, BusHealth::Disconnected { reason } if !reason.is_empty()) && epoch > 1 => {
                    warn!(server, "the bus is connected again");
                }
                _ => info!(server, "the bus is connected"),
            }
            *now = health;
            true
        });
    }

    /// The connection is gone this moment.
    pub(super) fn set_lost(&self) {
        if !matches!(self.health(), BusHealth::Disconnected { .. }) {
            self.set_down("the connection to NATS was lost; trying again".to_owned());
        }
    }

    /// There is no connection, for this reason.
    pub(super) fn set_down(&self, reason: String) {
        self.health.send_if_modified(|now| {
            let down = BusHealth::Disconnected { reason: reason.clone() };
            if *now == down {
                return false;
            }
            warn!(reason, "the bus is not connected");
            *now = down;
            true
        });
    }

    pub(super) fn disconnected(&self) -> BusError {
        match self.health() {
            BusHealth::Disconnected { reason } => BusError::Disconnected { reason },
            // The observer has not seen it yet.
            _ => BusError::Disconnected { reason: "the connection to NATS was lost; trying again".to_owned() },
        }
    }

    /// An event of the client library.
    pub(super) fn on_event(&self, event: Event) {
        match event {
            // A flood of either is told of ever more rarely.
            Event::SlowConsumer(subscription) => {
                let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                if dropped.is_power_of_two() {
                    warn!(subscription, dropped, "messages are dropped: a subscription is not read fast enough");
                }
            }
            Event::ServerError(error) => {
                let refusals = self.refusals.fetch_add(1, Ordering::Relaxed) + 1;
                if refusals.is_power_of_two() {
                    warn!(%error, refusals, "the server refuses something: check what this login may publish and subscribe to");
                }
            }
            Event::LameDuckMode => info!("the server is about to stop: another one is tried when it does"),
            // Told with the reason of each server when the next one is chosen.
            Event::ClientError(ClientError::Other(_)) => {}
            Event::ClientError(error) => warn!(%error, "the client of the bus fails"),
            Event::Closed => self.ended.notify_one(),
            Event::Connected | Event::Disconnected | Event::Draining => {}
        }
        self.changed.notify_one();
    }

    /// Chooses the server to try next: one of those tried least. Every attempt to connect comes by here, so this is also
    /// where it is known that there is no connection, and why.
    pub(super) async fn choose(self: Arc<Self>, pool: Vec<Server>) -> Option<ReconnectToServer> {
        if self.is_closed() {
            // The client library would try for ever, although nobody needs the connection any more.
            std::future::pending::<()>().await;
        }
        let chosen = {
            let mut attempts = self.attempts();
            let tried = |server: &str| attempts.get(server).copied().unwrap_or(0);
            if !attempts.is_empty() {
                self.set_down(words::no_connection(&pool, |server| tried(server) > 0));
            }
            let count = |server: &Server| tried(&shown_server(&server.addr));
            let fewest = pool.iter().map(count).min()?;
            let best: Vec<_> = pool.iter().filter(|server| count(server) == fewest).collect();
            let chosen = best.get(rand::random_range(0..best.len()))?.addr.clone();
            *attempts.entry(shown_server(&chosen)).or_default() += 1;
            chosen
        };
        self.changed.notify_one();
        Some(ReconnectToServer { addr: chosen, delay: None })
    }

    fn attempts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait before attempt number `attempt`, counted from 1 since the connection was lost.
pub(super) fn reconnect_delay(attempt: usize) -> Duration {
    let failed = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    let base = RECONNECT_STEP.saturating_mul(failed).min(LONGEST_RECONNECT_DELAY);
    if failed == 0 { base } else { base + RECONNECT_JITTER.mul_f64(rand::random()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_connect_are_half_a_second_apart_at_most_beside_jitter() {
        for (attempt, base_ms) in [(1, 0), (2, 50), (3, 100), (11, 500), (12, 500), (usize::MAX, 500)] {
            let delay = reconnect_delay(attempt);
            let base = Duration::from_millis(base_ms);
            assert!(delay >= base && delay <= base + RECONNECT_JITTER, "attempt {attempt}: {delay:?}");
        }
    }
}
