//! The alarms of the state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::StandingPullId;

use super::step::FlightId;

/// What an alarm is for; each is set at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// A caller of the flight has waited for the fleet as long as the policy allows.
    Patience(FlightId),
    /// The registry must have given the manifest, or the first blob, by now.
    Manifest(FlightId),
    /// Clearance is requested again.
    Clearance(FlightId),
    /// A standing pull's next run begins, or its time is over.
    StandingPull(StandingPullId),
    /// The file of standing pulls is written again after a failure.
    StandingPullFile,
}

/// All alarms, ordered by their time on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Duration, Alarm)>,
    times: BTreeMap<Alarm, Duration>,
}

impl Alarms {
    /// Sets an alarm; an earlier setting of it is replaced.
    pub(super) fn set(&mut self, alarm: Alarm, time: Duration) {
        self.clear(alarm);
        self.times.insert(alarm, time);
        self.by_time.insert((time, alarm));
    }

    /// Removes an alarm.
    pub(super) fn clear(&mut self, alarm: Alarm) {
        if let Some(time) = self.times.remove(&alarm) {
            self.by_time.remove(&(time, alarm));
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Alarm> {
        debug_assert_eq!(self.by_time.len(), self.times.len(), "each alarm has one time");
        self.times.keys()
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Takes one alarm that is due.
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
    fn alarms_ring_in_order_and_once_at_the_time_set_last() {
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
