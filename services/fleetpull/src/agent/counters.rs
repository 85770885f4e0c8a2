//! Collects the counters of all services of a node.

use std::collections::BTreeMap;

use contract::messages::backoff_tracker::BackoffCounts;
use contract::messages::event_recorder::EventCounts;
use contract::messages::pull_coordinator::{AnswerCounts, PullList, PullState};
use contract::messages::throttler::PermitCounts;
use registrar::RegistrarCounts;
use serde::Serialize;
use serde_json::Value;

/// The counters of a node's services, read at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) pulls: PullCounts,
    pub(super) backoff: BackoffCounts,
    pub(super) permits: PermitCounts,
    pub(super) events: EventCounts,
    /// Zero if the node does not share.
    pub(super) registrar: RegistrarCounts,
}

/// The sums over a list of pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PullCounts {
    pub(super) pulling: u64,
    pub(super) waiting: u64,
    pub(super) callers: u64,
    pub(super) standing: u64,
    pub(super) resting: u64,
    pub(super) answered: AnswerCounts,
}

impl PullCounts {
    pub(super) fn of(list: &PullList) -> Self {
        let in_state = |state| list.pulls.iter().filter(|pull| pull.state == state).count() as u64;
        Self {
            pulling: in_state(PullState::Pulling),
            waiting: in_state(PullState::Waiting),
            callers: list.pulls.iter().map(|pull| u64::from(pull.callers)).sum(),
            standing: list.standing,
            resting: list.resting,
            answered: list.answered,
        }
    }
}

impl Counts {
    /// The counters by name, as `fleetpull nodes NAME --counters` shows them.
    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        let Self { pulls, backoff, permits, events, registrar } = self;
        [
            ("pulls_pulling", pulls.pulling),
            ("pulls_waiting", pulls.waiting),
            ("pulls_callers", pulls.callers),
            ("pulls_standing", pulls.standing),
            ("pulls_pulled_total", pulls.answered.pulled_total),
            ("pulls_present_total", pulls.answered.present_total),
            ("pulls_failed_total", pulls.answered.failed_total),
            ("pulls_backoff_total", pulls.answered.backoff_total),
            ("pulls_timed_out_total", pulls.answered.timed_out_total),
            ("pulls_abandoned_total", pulls.answered.abandoned_total),
            ("backoff_held", backoff.held),
            ("backoff_known", backoff.known),
            ("backoff_refused_total", backoff.refused_total),
            ("backoff_failures_total", backoff.failures_total),
            ("backoff_evicted_total", backoff.evicted_total),
            ("throttle_granted", permits.granted),
            ("throttle_queued", permits.queued),
            ("throttle_granted_total", permits.granted_total),
            ("throttle_refused_total", permits.refused_total),
            ("throttle_reclaimed_total", permits.reclaimed_total),
            ("events_kept", events.kept),
            ("events_recorded_total", events.recorded_total),
            ("events_published_total", events.published_total),
            ("events_unpublished_total", events.unpublished_total),
            ("events_appended_total", events.appended_total),
            ("events_folded_total", events.folded_total),
            ("events_dropped_total", events.dropped_total),
            ("events_write_failures_total", events.write_failures_total),
            ("events_stream_failures_total", events.stream_failures_total),
            ("events_waiting", events.waiting),
            ("events_waiting_bytes", events.waiting_bytes),
            ("events_oldest_waiting_ms", events.oldest_age_ms),
            ("events_delivering", u64::from(events.is_delivering)),
        ]
        .into_iter()
        .chain(registrar.0.iter().copied())
        .map(|(name, value)| (name.to_owned(), value))
        .chain(registrar.is_shared().then(|| self.of_sharing()).into_iter().flatten())
        .collect()
    }
}

impl Counts {
    /// The sharing mode of the node.
    pub(super) fn share(&self) -> &'static str {
        match (self.registrar.is_shared(), self.backoff.shared.observes) {
            (false, _) => "off",
            (true, true) => "observe",
            (true, false) => "enforce",
        }
    }

    fn of_sharing(&self) -> Vec<(String, u64)> {
        let PermitCounts { alone_total, overrun_total, .. } = self.permits;
        let budgets = [("budgets_alone_total", alone_total), ("budgets_overrun_total", overrun_total)];
        let budgets = budgets.map(|(name, value)| (name.to_owned(), value));
        by_field("shared", &self.backoff.shared).into_iter().chain(budgets).collect()
    }
}

/// Every number and switch of an answer under its field's name, so that a new counter of a service needs no code here.
fn by_field(prefix: &str, counts: &impl Serialize) -> Vec<(String, u64)> {
    // Numbers and switches always encode.
    let fields = serde_json::to_value(counts).unwrap_or_default();
    let number = |value: &Value| value.as_u64().or_else(|| value.as_bool().map(u64::from));
    let fields = fields.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((format!("{prefix}_{name}"), number(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use contract::messages::pull_coordinator::PullStatus;

    use super::*;

    #[test]
    fn shared_counters_exist_only_with_a_fleet() {
        let mut counts = Counts::default();
        counts.backoff.shared.alone = true;
        counts.backoff.shared.refused_total = 3;
        assert!(!counts.by_name().contains_key("shared_alone"));
        counts.registrar = RegistrarCounts(vec![("presence_alive", 2)]);
        let by_name = counts.by_name();
        let value = |name: &str| by_name.get(name).copied();
        assert_eq!((value("shared_alone"), value("shared_refused_total"), value("presence_alive")), (Some(1), Some(3), Some(2)));
        assert_eq!(value("backoff_refused_total"), Some(0));
        assert_eq!((Counts::default().share(), counts.share()), ("off", "enforce"));
        counts.backoff.shared.observes = true;
        assert_eq!(counts.share(), "observe");
    }

    #[test]
    fn pulls_are_counted_by_what_they_do() {
        let pull = |state, callers| PullStatus {
            image: "busybox".to_owned(),
            state,
            since_ms: 0,
            callers,
            pods: Vec::new(),
            done_bytes: 0,
            total_bytes: 0,
            layers: Vec::new(),
        };
        let pulls = vec![pull(PullState::Pulling, 3), pull(PullState::Waiting, 1), pull(PullState::Waiting, 1)];
        let answered = AnswerCounts { failed_total: 7, ..AnswerCounts::default() };
        let list = PullList { pulls, answered, standing: 4, resting: 2, left_out: 0 };
        assert_eq!(PullCounts::of(&list), PullCounts { pulling: 1, waiting: 2, callers: 5, standing: 4, resting: 2, answered });
    }
}
