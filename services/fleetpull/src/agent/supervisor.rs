//! Reports to the supervisor of the agent: systemd, or nobody.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Interval;
use tracing::warn;

/// Watchdog notifications per period of systemd. Two leave room for a busy machine.
const NOTIFICATIONS_PER_PERIOD: u32 = 2;

/// The supervisor of this process.
pub(super) struct Supervisor {
    watchdog: Option<Interval>,
}

impl Supervisor {
    /// The supervisor that the environment of this process names, if any.
    pub(super) fn of_process() -> Self {
        let period = sd_notify::watchdog_enabled().filter(|period| *period > Duration::ZERO);
        Self { watchdog: period.map(|period| tokio::time::interval(period / NOTIFICATIONS_PER_PERIOD)) }
    }

    pub(super) fn notify_ready(&self) {
        notify(&[NotifyState::Ready]);
    }

    pub(super) fn notify_stopping(&self) {
        notify(&[NotifyState::Stopping]);
    }

    /// Shows that this thread is not stuck, and with it the actors, which run on the same thread.
    pub(super) fn notify_alive(&self) {
        notify(&[NotifyState::Watchdog]);
    }

    /// Waits until the next watchdog notification is due; for ever if there is no watchdog.
    pub(super) async fn next_watchdog_notification(&mut self) {
        match &mut self.watchdog {
            Some(watchdog) => drop(watchdog.tick().await),
            None => std::future::pending().await,
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd was not notified: check NOTIFY_SOCKET");
    }
}
