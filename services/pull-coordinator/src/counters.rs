//! Counts pulls for the node's metrics from the core's inputs and effects; the core itself knows no metrics.

use std::time::Duration;

use clock::Now;
use contract::{EventReason, PullEvent, TraceContext};
use metrics::{Cause, Instruments, Learned};

use crate::actor::PullCoordinator;
use crate::core::{Effect, FlightId, Input};

/// When a flight began to wait for clearance, and when its attempt began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    clearance: Clearance,
    /// When the attempt under way began.
    attempt: Option<(Duration, TraceContext)>,
}

/// How far a flight's request for clearance is.
#[derive(Clone, Copy, Debug, Default)]
enum Clearance {
    /// Clearance was not requested yet for this attempt.
    #[default]
    NotAsked,
    /// Clearance was requested then.
    Asked(Duration, TraceContext),
    /// Clearance was given. It is requested again during the attempt, which is no wait.
    Given,
}

impl Times {
    /// Counts the wait for clearance, which has ended in any way.
    pub(crate) fn count_end(&mut self, now: Now, instruments: &Instruments) {
        if let Clearance::Asked(since, trace) = std::mem::take(&mut self.clearance) {
            instruments.waited(Cause::Clearance, now.monotonic.saturating_sub(since), trace);
        }
    }

    /// Counts the attempt under way, which has ended in any way.
    pub(crate) fn count_attempt(&mut self, now: Now, instruments: &Instruments) {
        if let Some((since, trace)) = self.attempt.take() {
            instruments.attempted(now.monotonic.saturating_sub(since), trace);
        }
    }
}

impl PullCoordinator {
    pub(crate) fn count_input(&mut self, now: Now, input: &Input) {
        let Input::Pulled { flight, .. } = input else { return };
        let Some(under_way) = self.flights.get_mut(flight) else { return };
        under_way.times.clearance = Clearance::NotAsked;
        under_way.times.count_attempt(now, &self.instruments);
    }

    pub(crate) fn count_effect(&mut self, now: Now, effect: &Effect) {
        match effect {
            Effect::RequestClearance { flight, trace, .. } => {
                let times = &mut self.flights.entry(*flight).or_default().times;
                if matches!(times.clearance, Clearance::NotAsked) {
                    times.clearance = Clearance::Asked(now.monotonic, *trace);
                }
            }
            Effect::AcquirePermit { flight, .. } => self.count_clearance(now, *flight),
            Effect::StartPull { flight, trace, .. } => {
                self.flights.entry(*flight).or_default().times.attempt = Some((now.monotonic, *trace));
            }
            Effect::Record { request, event } => count_event(&self.instruments, event, self.core.flight_of(*request).is_some()),
            _ => {}
        }
    }

    fn count_clearance(&mut self, now: Now, flight: FlightId) {
        let Some(under_way) = self.flights.get_mut(&flight) else { return };
        under_way.times.count_end(now, &self.instruments);
        under_way.times.clearance = Clearance::Given;
    }
}

/// Counts one event. Each caller of a flight and each run of a standing pull has its own event, so each counts once, as in kubelet. The
/// run of a standing pull that waits on in its flight is not refused, although an event says each minute what it waits for.
fn count_event(instruments: &Instruments, event: &PullEvent, has_flight: bool) {
    match (event.reason, event.duration_ms) {
        (EventReason::Pulled, Some(pull_ms)) => {
            let whole = Duration::from_millis(pull_ms.saturating_add(event.waiting_ms.unwrap_or_default()));
            instruments.pulled(whole, event.size_bytes.unwrap_or_default(), event.trace.trace_id);
        }
        // Without a failed attempt, the caller was refused for the fleet's budget or waited too long for clearance.
        (EventReason::BackOff, _) if !has_flight && event.learned_ms_ago.is_some() => {
            let learned = if event.learned_by.is_some() { Learned::Other } else { Learned::Itself };
            instruments.refused(event.class.unwrap_or_default(), learned);
            if let (Learned::Itself, Some(wait_ms)) = (learned, event.next_attempt_ms) {
                instruments.waited(Cause::LocalBackoff, Duration::from_millis(wait_ms), event.trace);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clock::Random;
    use contract::MessageId;
    use contract::messages::backoff_tracker::{BackoffAnswer, Clearance as Answer, Refusal};
    use contract::messages::pull_coordinator::EnsureImage;
    use metrics::{Readings, samples};

    use super::*;
    use crate::actor::FlightWork;
    use crate::core::{Coordinator, Policy, RequestId};

    fn at(seconds: u64) -> Now {
        Now::default().after(Duration::from_secs(seconds))
    }

    /// A flight that has waited for clearance since the first second.
    fn asked() -> Times {
        Times { clearance: Clearance::Asked(at(1).monotonic, TraceContext::root(&mut Random::seeded(1))), attempt: None }
    }

    /// How many values of a histogram with this cause were counted, and their seconds.
    fn counted(instruments: &Instruments, histogram: &str, cause: Option<&str>) -> (Option<f64>, Option<f64>) {
        let text = instruments.text(Readings::default());
        let value = |what: &str| {
            let name = format!("{histogram}_{what}");
            let mut found = samples(&text).filter(|sample| sample.name == name && sample.label("cause") == cause);
            found.next().map(|sample| sample.value)
        };
        (value("count"), value("sum"))
    }

    fn waits(instruments: &Instruments) -> (Option<f64>, Option<f64>) {
        counted(instruments, "fleetpull_wait_duration_seconds", Some("clearance"))
    }

    /// How many refusals of all classes were counted.
    fn refusals(instruments: &Instruments) -> Option<f64> {
        let text = instruments.text(Readings::default());
        samples(&text)
            .filter(|sample| sample.name == "fleetpull_refusals_total")
            .map(|sample| sample.value)
            .reduce(|one, other| one + other)
    }

    #[test]
    fn wait_for_clearance_is_counted_once() {
        let (instruments, mut times) = (Instruments::default(), asked());
        times.count_end(at(4), &instruments);
        times.count_end(at(9), &instruments);
        Times { clearance: Clearance::Given, attempt: None }.count_end(at(9), &instruments);
        assert_eq!(waits(&instruments), (Some(1.0), Some(3.0)));
    }

    #[test]
    fn wait_for_clearance_that_is_cancelled_is_counted() {
        let instruments = Instruments::default();
        FlightWork { times: asked(), ..FlightWork::default() }.cancel(at(4), &instruments);
        FlightWork::default().cancel(at(9), &instruments);
        assert_eq!(waits(&instruments), (Some(1.0), Some(3.0)));
    }

    #[test]
    fn attempt_that_is_cancelled_is_counted() {
        let instruments = Instruments::default();
        let times = Times { clearance: Clearance::Given, attempt: Some((at(1).monotonic, TraceContext::root(&mut Random::seeded(1)))) };
        FlightWork { times, ..FlightWork::default() }.cancel(at(16), &instruments);
        assert_eq!(counted(&instruments, "fleetpull_attempt_duration_seconds", None), (Some(1.0), Some(15.0)));
    }

    #[test]
    fn refusal_without_a_failed_attempt_is_neither_counted_nor_a_wait_of_the_own_back_off() {
        let instruments = Instruments::default();
        for learned_ms_ago in [None, Some(2_000)] {
            let random = &mut Random::seeded(1);
            let (id, trace) = (MessageId::random(random), TraceContext::root(random));
            let event = PullEvent::new(id, 0, "n1".parse().expect("a name"), EventReason::BackOff, String::new(), trace);
            count_event(&instruments, &PullEvent { next_attempt_ms: Some(8_000), learned_ms_ago, ..event }, false);
        }
        assert_eq!(counted(&instruments, "fleetpull_wait_duration_seconds", Some("local_backoff")), (Some(1.0), Some(8.0)));
        assert_eq!(refusals(&instruments), Some(1.0));
    }

    /// A request that gets no clearance because another node's attempt has failed, and its event.
    fn without_clearance(wait_ms: Option<u64>) -> (Coordinator, RequestId, PullEvent) {
        let answer = |effect: &Effect| match effect {
            Effect::Inspect { request, .. } => {
                Some(Input::Inspected { request: *request, found: Ok(None), target: Some(Arc::default()), free_bytes: None })
            }
            Effect::CheckBackoff { request, .. } => Some(Input::BackoffChecked { request: *request, answer: BackoffAnswer::Allowed }),
            Effect::RequestClearance { flight, turn, .. } => {
                let refusal = Refusal { learned_by: Some("n9".parse().expect("a name")), learned_ms_ago: 2_000, ..Refusal::default() };
                Some(Input::ClearanceAnswered { flight: *flight, turn: *turn, answer: Some(Answer::Refused(refusal)) })
            }
            _ => None,
        };
        let policy = Policy { clearance_within: Some(Duration::from_secs(10)), ..Policy::default() };
        let mut core = Coordinator::new("n1".parse().expect("a name"), policy, Random::seeded(1));
        let ask = EnsureImage { image: "a:1".to_owned(), wait_ms, ..EnsureImage::default() };
        let trace = TraceContext::root(&mut Random::seeded(2));
        let mut effects = core.step(at(1), Input::Asked { request: RequestId(1), ask, trace });
        while let Some(input) = effects.iter().find_map(answer) {
            effects = core.step(at(1), input);
        }
        let recorded = effects.into_iter().find_map(|effect| match effect {
            Effect::Record { request, event } => Some((request, event)),
            _ => None,
        });
        let (request, event) = recorded.expect("an event");
        (core, request, event)
    }

    #[test]
    fn caller_without_clearance_is_refused_and_a_standing_pull_waits() {
        let instruments = Instruments::default();
        for (wait_ms, is_refused) in [(None, true), (Some(60_000), false)] {
            let (core, request, event) = without_clearance(wait_ms);
            assert_eq!((event.reason, core.flight_of(request).is_none()), (EventReason::BackOff, is_refused));
            count_event(&instruments, &event, core.flight_of(request).is_some());
        }
        assert_eq!(refusals(&instruments), Some(1.0));
    }
}
