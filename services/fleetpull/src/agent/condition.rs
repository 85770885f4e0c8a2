//! The health of a node and how long it has lasted: a state machine without a clock.

use std::time::Duration;

use bus::BusHealth;
use clock::Now;
use contract::messages::agent::BusLoss;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::health::Health;
use super::readings::BUS_STATES;

/// The health of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    /// What is wrong with the bus.
    bus: Option<String>,
    /// Since when the bus is lost, and why it is not connected now. None if it is connected.
    loss: Option<Loss>,
    /// What is wrong with the runtime.
    runtime: Option<String>,
    /// Why events cannot be stored.
    events: Option<String>,
    /// When the agent started, on the monotonic clock.
    started: Duration,
    /// Since when something is wrong. None if nothing is.
    unwell_since: Option<Duration>,
    /// How often the bus was lost.
    bus_losses: u64,
    is_connected: bool,
    /// Whether no bus is configured.
    is_bus_unset: bool,
}

/// The loss of the bus.
#[derive(Clone, Debug)]
struct Loss {
    since: Now,
    /// Each attempt to connect brings a new reason; the time of the loss stays.
    reason: String,
}

impl Condition {
    /// An agent that starts now, with nothing wrong.
    pub(super) fn new(now: Now) -> Self {
        Self { started: now.monotonic, ..Self::default() }
    }

    /// An agent without a configured bus, that starts now.
    pub(super) fn without_bus(now: Now) -> Self {
        Self { is_bus_unset: true, ..Self::new(now) }
    }

    /// Takes the current health of the bus. Without a configured bus it is the health of a bus in this process, which is never lost.
    pub(super) fn see_bus(&mut self, now: Now, health: &BusHealth) {
        if self.is_bus_unset {
            return;
        }
        let was_connected = std::mem::replace(&mut self.is_connected, !matches!(health, BusHealth::Disconnected { .. }));
        if was_connected && !self.is_connected {
            self.bus_losses += 1;
        }
        self.loss = match health {
            BusHealth::Connected | BusHealth::Degraded { .. } => None,
            BusHealth::Disconnected { reason } => {
                let since = self.loss.as_ref().map_or(now, |loss| loss.since);
                Some(Loss { since, reason: reason.clone() })
            }
        };
        let problem = match (health, &self.loss) {
            (BusHealth::Degraded { reason, .. }, _) => Some(reason.clone()),
            (_, loss) => loss.as_ref().map(|Loss { since, reason }| format!("no bus since {}: {reason}", rfc_3339(*since))),
        };
        self.change(now, |condition| condition.bus = problem);
    }

    /// Takes the current problem of the runtime, or none.
    pub(super) fn see_runtime(&mut self, now: Now, problem: Option<String>) {
        self.change(now, |condition| condition.runtime = problem);
    }

    /// Takes the reason why events cannot be stored, or none.
    pub(super) fn see_events(&mut self, now: Now, problem: Option<String>) {
        self.change(now, |condition| condition.events = problem);
    }

    /// Whether no event failed to be stored when that was last looked at.
    pub(super) fn stores_events(&self) -> bool {
        self.events.is_none()
    }

    /// `ok`, or `degraded: ` and the problems.
    pub(super) fn state(&self) -> String {
        let runtime = self.runtime.as_ref().map(|problem| format!("runtime {problem}"));
        let events = self.events.as_ref().map(|problem| format!("{problem} (kept in memory, and lost if the agent ends)"));
        let problems: Vec<String> = self.bus.iter().cloned().chain(runtime).chain(events).collect();
        if problems.is_empty() { "ok".to_owned() } else { format!("degraded: {}", problems.join("; ")) }
    }

    /// The problem of each part.
    pub(super) fn health(&self) -> Health {
        let is_bus_unset = self.is_bus_unset;
        Health { runtime: self.runtime.clone(), bus: self.bus.clone(), is_bus_unset, events: self.events.clone() }
    }

    /// The loss of the bus, for the node's description. None if the bus is connected.
    pub(super) fn bus_loss(&self, now: Now) -> Option<BusLoss> {
        let Loss { since, reason } = self.loss.as_ref()?;
        let lasts = now.monotonic.saturating_sub(since.monotonic);
        Some(BusLoss { since_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX), reason: reason.clone() })
    }

    /// One of [`BUS_STATES`](super::readings::BUS_STATES). None if no bus is configured.
    pub(super) fn bus_state(&self) -> Option<&'static str> {
        let [connected, degraded, disconnected] = BUS_STATES;
        let state = match (self.is_connected, &self.bus) {
            (true, None) => connected,
            (true, Some(_)) => degraded,
            (false, _) => disconnected,
        };
        (!self.is_bus_unset).then_some(state)
    }

    /// True if no bus is configured.
    pub(super) fn is_bus_unset(&self) -> bool {
        self.is_bus_unset
    }

    /// Which part has a problem: `bus` before `runtime` before `events`. None if none has.
    pub(super) fn cause(&self) -> Option<&'static str> {
        let parts = [(&self.bus, "bus"), (&self.runtime, "runtime"), (&self.events, "events")];
        parts.into_iter().find(|(problem, _)| problem.is_some()).map(|(_, part)| part)
    }

    /// True if nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        self.cause().is_none()
    }

    /// How long something has been wrong. If nothing is, how long the agent has run; a problem that is over does not count.
    pub(super) fn lasts(&self, now: Now) -> Duration {
        now.monotonic.saturating_sub(self.unwell_since.unwrap_or(self.started))
    }

    /// How often the bus was lost.
    pub(super) fn bus_losses(&self) -> u64 {
        self.bus_losses
    }

    /// True if the bus is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn change(&mut self, now: Now, change: impl FnOnce(&mut Self)) {
        change(self);
        self.unwell_since = if self.is_well() { None } else { self.unwell_since.or(Some(now.monotonic)) };
    }
}

/// RFC 3339 text, to the second.
pub(super) fn rfc_3339(now: Now) -> String {
    let seconds = i64::try_from(now.wall.as_secs()).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_700_000_000 + seconds) }
    }

    fn without(reason: &str) -> BusHealth {
        BusHealth::Disconnected { reason: reason.to_owned() }
    }

    #[test]
    fn lost_bus_is_described_with_its_time_and_the_latest_reason() {
        let mut condition = Condition::new(at(0));
        condition.see_bus(at(1), &BusHealth::Connected);
        assert_eq!((condition.state().as_str(), condition.lasts(at(5)).as_secs()), ("ok", 5));
        assert_eq!(condition.bus_state(), Some("connected"));
        condition.see_bus(at(20), &without("lost"));
        condition.see_bus(at(25), &without("refused"));
        assert_eq!(condition.state(), "degraded: no bus since 2023-11-14T22:13:40Z: refused");
        assert_eq!(condition.lasts(at(30)).as_secs(), 10);
        assert_eq!(condition.bus_loss(at(30)), Some(BusLoss { since_ms: 10_000, reason: "refused".to_owned() }));
        condition.see_bus(at(40), &BusHealth::Connected);
        assert_eq!((condition.state().as_str(), condition.lasts(at(41)).as_secs()), ("ok", 41), "the agent is as old as it is");
        condition.see_bus(at(50), &without("lost"));
        assert!(condition.state().ends_with("22:14:10Z: lost"), "{}", condition.state());
        assert_eq!(condition.bus_losses(), 2);
    }

    #[test]
    fn start_without_bus_is_not_bus_loss() {
        let mut condition = Condition::new(at(0));
        condition.see_bus(at(0), &without("not yet"));
        assert!(condition.state().starts_with("degraded: no bus since"));
        assert_eq!((condition.bus_losses(), condition.is_connected()), (0, false));
    }

    #[test]
    fn state_lists_every_problem_and_lasts_since_the_first() {
        let mut condition = Condition::new(at(0));
        condition.see_bus(at(1), &BusHealth::Degraded { reason: "no JetStream".to_owned(), transient: false });
        condition.see_runtime(at(9), Some("containerd: no answer".to_owned()));
        assert_eq!(condition.state(), "degraded: no JetStream; runtime containerd: no answer");
        assert_eq!((condition.bus_state(), condition.bus_loss(at(9))), (Some("degraded"), None));
        condition.see_bus(at(10), &BusHealth::Connected);
        assert_eq!(condition.state(), "degraded: runtime containerd: no answer");
        assert_eq!(condition.lasts(at(11)).as_secs(), 10);
        condition.see_runtime(at(20), None);
        assert_eq!((condition.state().as_str(), condition.lasts(at(20)).as_secs()), ("ok", 20));
    }

    #[test]
    fn node_whose_events_cannot_be_stored_is_degraded_until_a_write_succeeds() {
        let mut condition = Condition::new(at(0));
        condition.see_events(at(5), Some("events cannot be stored: database or disk is full".to_owned()));
        assert_eq!(
            condition.state(),
            "degraded: events cannot be stored: database or disk is full (kept in memory, and lost if the agent ends)"
        );
        assert_eq!((condition.cause(), condition.is_well(), condition.lasts(at(9)).as_secs()), (Some("events"), false, 4));
        assert!(condition.health().is_ready(), "images can be pulled");
        assert!(!condition.stores_events());
        condition.see_events(at(20), None);
        assert!(condition.stores_events());
        assert_eq!((condition.state().as_str(), condition.cause(), condition.lasts(at(20)).as_secs()), ("ok", None, 20));
    }

    #[test]
    fn bus_that_goes_from_degraded_to_disconnected_is_disconnected() {
        let mut condition = Condition::new(at(0));
        condition.see_bus(at(1), &BusHealth::Degraded { reason: "no JetStream".to_owned(), transient: false });
        condition.see_bus(at(2), &without("lost"));
        assert!(condition.state().starts_with("degraded: no bus since"), "{}", condition.state());
        assert_eq!(condition.bus_state(), Some("disconnected"));
    }

    #[test]
    fn node_without_a_configured_bus_is_well_and_not_connected() {
        let mut condition = Condition::without_bus(at(0));
        // The health of the bus in its process.
        condition.see_bus(at(1), &BusHealth::Connected);
        assert_eq!((condition.state().as_str(), condition.is_connected(), condition.is_bus_unset()), ("ok", false, true));
        assert_eq!((condition.bus_state(), condition.bus_loss(at(2)), condition.bus_losses()), (None, None, 0));
        assert!(condition.health().is_bus_unset);
    }
}
