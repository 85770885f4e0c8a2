//! Reports to the supervisor of the agent: systemd, or nobody.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Interval;
use tracing::warn;

/// Watchdog notifications per period of systemd. Two leave room for a busy machine.
const SIGNS_IN_A_PERIOD: u32 = 2;

/// The supervisor of this process.
pub(super) struct Supervisor {
    signs: Option<Interval>,
}

impl Supervisor {
    /// The supervisor that the environment of this process names, if any.
    pub(super) fn of_process() -> Self {
        let period = sd_notify::watchdog_enabled().filter(|period| *period > Duration::ZERO);
        Self { signs: period.map(|period| tokio::time::interval(period / SIGNS_IN_A_PERIOD)) }
    }

    pub(super) fn say_ready(&self) {
        say(&[NotifyState::Ready]);
    }

    pub(super) fn say_stopping(&self) {
        say(&[NotifyState::Stopping]);
    }

    /// Shows that this thread is not stuck, and with it the actors, which run on the same thread.
    pub(super) fn say_alive(&self) {
        say(&[NotifyState::Watchdog]);
    }

    /// Waits until the next watchdog notification is due; for ever if there is no watchdog.
    pub(super) async fn next_sign_of_life(&mut self) {
        match &mut self.signs {
            Some(signs) => drop(signs.tick().await),
            None => std::future::pending().await,
        }
    }
}

fn say(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "systemd was not told: check NOTIFY_SOCKET");
    }
}
