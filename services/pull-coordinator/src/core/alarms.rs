//! When the state machine wants to be woken, and for what.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::StandingPullId;

use super::step::FlightId;

/// What an alarm is for. There is at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Callers of a flight have waited long enough for the fleet.
    Patience(FlightId),
    /// The registry must have given the manifest by now.
    Manifest(FlightId),
    /// Clearance is asked for again.
    Clearance(FlightId),
    /// A standing pull begins its next run, or is over.
    StandingPull(StandingPullId),
}

/// Alarms in the order in which they ring, on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Duration, Alarm)>,
    times: BTreeMap<Alarm, Duration>,
}

impl Alarms {
    /// Rings then, and not when it would have before.
    pub(super) fn set(&mut self, alarm: Alarm, time: Duration) {
        self.clear(alarm);
        self.times.insert(alarm, time);
        self.by_time.insert((time, alarm));
    }

    /// Does not ring any more.
    pub(super) fn clear(&mut self, alarm: Alarm) {
        if let Some(time) = self.times.remove(&alarm) {
            self.by_time.remove(&(time, alarm));
        }
    }

    /// All of them. Each stands at one time.
    pub(super) fn all(&self) -> impl Iterator<Item = &Alarm> {
        debug_assert_eq!(self.by_time.len(), self.times.len(), "each alarm stands at one time");
        self.times.keys()
    }

    /// When the next one rings.
    pub(super) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Takes one whose time has come.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<Alarm> {
        let (time, alarm) = *self.by_time.first().filter(|(time, _)| *time <= now)?;
        self.by_time.remove(&(time, alarm));
        self.times.remove(&alarm);
        Some(alarm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_rings_once_at_its_last_time_and_in_order() {
        let (first, second) = (Alarm::Clearance(FlightId(1)), Alarm::Clearance(FlightId(2)));
        let seconds = Duration::from_secs;
        let mut alarms = Alarms::default();
        alarms.set(first, seconds(1));
        alarms.set(second, seconds(2));
        alarms.set(first, seconds(3));
        assert_eq!(alarms.next(), Some(seconds(2)));
        assert_eq!(alarms.take_due(seconds(1)), None);
        assert_eq!(alarms.take_due(seconds(9)), Some(second));
        assert_eq!(alarms.take_due(seconds(9)), Some(first));
        alarms.set(first, seconds(4));
        alarms.clear(first);
        assert_eq!((alarms.next(), alarms.take_due(seconds(9))), (None, None));
    }
}
