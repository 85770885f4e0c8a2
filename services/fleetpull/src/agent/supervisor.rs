//! What started the agent and wants to know how it is: systemd, or nobody.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Interval;
use tracing::warn;

/// systemd asks for a sign of life within its period; half of it leaves room for a busy machine.
const SIGNS_IN_A_PERIOD: u32 = 2;

/// The process that started the agent.
pub(super) struct Supervisor {
    signs: Option<Interval>,
}

impl Supervisor {
    /// The one that this process's environment names, if any.
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

    /// The actors share this thread: while it comes by here, they get their turn.
    pub(super) fn say_alive(&self) {
        say(&[NotifyState::Watchdog]);
    }

    /// Waits until the next sign of life is due; for ever if nobody wants one.
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
