//! Turns the services' counters into metrics.

use std::collections::BTreeMap;

use backoff_tracker::OpenEntries;
use contract::messages::event_recorder::EventCounts;
use contract::messages::throttler::{BudgetState, RegistryLimit};
use contract::{FailureClass, registry_of_budget};
use metrics::{Instruments, Readings, table};

use super::counters::Counts;
use super::identity::VERSION;

/// The value of a label without information.
const NONE: &str = "none";
/// The lease kind of all attempts: the tracker counts late results without their purpose.
const ATTEMPT: &str = "attempt";

/// The values that only leaders in the fleet export.
#[derive(Clone, Debug, Default)]
pub(super) struct OfFleet {
    /// None if this node is not the registrar.
    pub(super) entries: Option<OpenEntries>,
    pub(super) budgets: Vec<BudgetState>,
}

/// The values that an agent has of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfAgent {
    /// Seconds since 1970.
    pub(super) started_s: f64,
    /// One of [`BUS_STATES`]. None if no bus is configured.
    pub(super) bus_state: Option<&'static str>,
}

/// The states of the bus.
pub(super) const BUS_STATES: [&str; 3] = ["connected", "degraded", "disconnected"];

fn set_outbox(readings: &mut Readings, events: &EventCounts) {
    readings.set(&table::OUTBOX_EVENTS, &[], events.waiting as f64);
    readings.set(&table::OUTBOX_OLDEST, &[], events.oldest_age_ms as f64 / 1_000.0);
}

/// All metrics. `counters` are those of `fleetpull nodes NAME --counters`.
pub(super) fn readings(
    agent: OfAgent,
    counts: &Counts,
    counters: &BTreeMap<String, u64>,
    fleet: &OfFleet,
    instruments: &Instruments,
) -> Readings {
    let mut readings = if counts.registrar.is_shared() { Readings::default().sharing() } else { Readings::default() };
    readings.set_counters(counters);
    readings.set(&table::BUILD_INFO, &[VERSION], 1.0);
    readings.set(&table::START_TIME, &[], agent.started_s);
    for state in BUS_STATES {
        readings.set(&table::BUS_STATE, &[state], f64::from(u8::from(agent.bus_state == Some(state))));
    }
    set_pulls(&mut readings, counts);
    set_outbox(&mut readings, &counts.events);
    if counts.registrar.is_shared() {
        readings.set(&table::LEASES_LOST, &[ATTEMPT], counts.backoff.shared.late_results_total as f64);
    }
    if let Some(open) = &fleet.entries {
        set_fleet(&mut readings, counts, open, instruments);
    }
    set_budgets(&mut readings, &fleet.budgets, instruments);
    readings
}

fn set_pulls(readings: &mut Readings, counts: &Counts) {
    let answered = counts.pulls.answered;
    for (outcome, count) in [
        ("pulled", answered.pulled_total),
        ("present", answered.present_total),
        ("backoff", answered.backoff_total),
        ("timed_out", answered.timed_out_total),
        ("abandoned", answered.abandoned_total),
    ] {
        readings.set(&table::PULLS, &[outcome, NONE], count as f64);
    }
    for class in FailureClass::ALL {
        readings.set(&table::PULLS, &["failed", class.as_str()], answered.failed.of(class) as f64);
    }
}

fn set_fleet(readings: &mut Readings, counts: &Counts, open: &OpenEntries, instruments: &Instruments) {
    readings.set(&table::NODES_ALIVE, &[], counts.registrar.of("presence_alive") as f64);
    readings.set(&table::NODES_KNOWN, &[], counts.registrar.of("presence_known") as f64);
    readings.set(&table::ENTRY_OLDEST, &[], open.oldest.as_secs_f64());
    let mut by_label = BTreeMap::<(String, FailureClass), u64>::new();
    for ((registry, class), entries) in &open.by_registry {
        *by_label.entry((instruments.registry_label(registry), *class)).or_default() += entries;
    }
    for ((registry, class), entries) in by_label {
        readings.set(&table::ENTRIES_OPEN, &[&registry, class.as_str()], entries as f64);
    }
}

/// The sums over the budgets with one label.
#[derive(Clone, Copy, Debug, Default)]
struct OfRegistry<'a> {
    rate_cap: f64,
    rate_in_force: f64,
    /// The least share of its cap that a budget has, and why it has no more.
    slowest: Option<(f64, &'a str)>,
    in_flight: u64,
    waiting: u64,
    /// The limit, and how much of it is left.
    quota: Option<(u64, u64)>,
}

impl<'a> OfRegistry<'a> {
    fn add(&mut self, budget: &'a BudgetState) {
        self.rate_cap += budget.per_second;
        self.rate_in_force += budget.per_second_in_force;
        // Without a cap only a quota holds a budget back.
        let share = match budget.per_second {
            cap if cap > 0.0 => Some((budget.per_second_in_force / cap, budget.rate_cause.as_str())),
            _ => Some((0.0, budget.rate_cause.as_str())).filter(|(_, cause)| *cause == "quota"),
        };
        self.slowest = self.slowest.into_iter().chain(share).min_by(|one, other| one.0.total_cmp(&other.0));
        self.in_flight += budget.in_flight;
        self.waiting += budget.waiting_count;
        let quotas =
            budget.known.limits.iter().filter(|limit| limit.limit > 0).map(|RegistryLimit { limit, remaining, .. }| (*limit, *remaining));
        let left = |(limit, remaining): &(u64, u64)| (*remaining as f64) / (*limit as f64);
        self.quota = self.quota.into_iter().chain(quotas).min_by(|one, other| left(one).total_cmp(&left(other)));
    }
}

fn set_budgets(readings: &mut Readings, budgets: &[BudgetState], instruments: &Instruments) {
    let mut by_label = BTreeMap::<String, OfRegistry<'_>>::new();
    for budget in budgets.iter().filter(|budget| budget.leads) {
        by_label.entry(instruments.registry_label(&registry_of_budget(&budget.owner))).or_default().add(budget);
    }
    for (registry, of) in &by_label {
        let label = [registry.as_str()];
        // 0 means no limit, but as a rate it would read as nothing allowed.
        if of.rate_cap > 0.0 {
            readings.set(&table::BUDGET_RATE_CAP, &label, of.rate_cap);
            readings.set(&table::BUDGET_RATE_IN_FORCE, &label, of.rate_in_force);
        }
        if let Some((_, cause)) = of.slowest {
            readings.set(&table::BUDGET_RATE_CAUSE, &[registry, cause], 1.0);
        }
        readings.set(&table::BUDGET_IN_FLIGHT, &label, of.in_flight as f64);
        readings.set(&table::BUDGET_WAITING, &label, of.waiting as f64);
        if let Some((limit, remaining)) = of.quota {
            readings.set(&table::QUOTA_LIMIT, &label, limit as f64);
            readings.set(&table::QUOTA_REMAINING, &label, remaining as f64);
        }
    }
}

/// The samples that `fleetpull nodes NAME --counters` shows after the counters: those with labels that are not 0, and each histogram's
/// number of observations. Samples without a label are already among the counters.
pub(super) fn labelled(text: &str) -> impl Iterator<Item = (String, u64)> {
    metrics::samples(text).filter_map(|sample| {
        let instrument = table::of_sample(sample.name)?;
        let is_histogram = !instrument.bounds().is_empty();
        let is_shown = if is_histogram { sample.name.ends_with("_count") } else { instrument.counter.is_none() && sample.value != 0.0 };
        let is_whole = sample.value >= 0.0 && sample.value.fract() == 0.0;
        let name = sample.name.strip_prefix(table::PREFIX)?;
        let name = if sample.labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", sample.labels) };
        (is_shown && is_whole).then_some((name, sample.value as u64))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::messages::throttler::KnownLimits;
    use metrics::samples;

    use registrar::RegistrarCounts;

    use super::*;
    const AGENT: OfAgent = OfAgent { started_s: 1_700_000_000.5, bus_state: Some("degraded") };

    fn text(counts: &Counts, fleet: &OfFleet) -> String {
        text_of(AGENT, counts, fleet)
    }

    fn text_of(agent: OfAgent, counts: &Counts, fleet: &OfFleet) -> String {
        let instruments = Instruments::default();
        instruments.text(readings(agent, counts, &counts.by_name(), fleet, &instruments))
    }

    fn led(owner: &str, limits: &[(u64, u64)]) -> BudgetState {
        let limits =
            limits.iter().map(|(limit, remaining)| RegistryLimit { limit: *limit, remaining: *remaining, ..RegistryLimit::default() });
        let known = KnownLimits { limits: limits.collect(), ..KnownLimits::default() };
        BudgetState {
            owner: owner.to_owned(),
            leads: true,
            per_second: 200.0,
            per_second_in_force: 50.0,
            rate_cause: "overload".to_owned(),
            in_flight: 3,
            known,
            ..BudgetState::default()
        }
    }

    #[test]
    fn counters_are_exported_under_their_metric_names() {
        let mut counts = Counts::default();
        counts.pulls.answered.present_total = 4;
        counts.pulls.answered.failed.not_found = 2;
        counts.events = EventCounts { dropped_total: 1, waiting: 3, oldest_age_ms: 1_500, ..EventCounts::default() };
        let text = text(&counts, &OfFleet::default());
        for line in [
            "fleetpull_pulls_total{outcome=\"present\",class=\"none\"} 4\n",
            "fleetpull_pulls_total{outcome=\"failed\",class=\"not_found\"} 2\n",
            "fleetpull_outbox_events 3\n",
            "fleetpull_outbox_oldest_seconds 1.5\n",
            "fleetpull_events_dropped_total 1\n",
            "fleetpull_bus_state{state=\"degraded\"} 1\n",
            "fleetpull_bus_state{state=\"connected\"} 0\n",
            "fleetpull_start_time_seconds 1700000000.5\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn agent_without_a_configured_bus_has_no_state_of_it() {
        let text = text_of(OfAgent { bus_state: None, ..AGENT }, &Counts::default(), &OfFleet::default());
        for state in BUS_STATES {
            let line = format!("fleetpull_bus_state{{state=\"{state}\"}} 0\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }

    #[test]
    fn fleet_metrics_are_exported_only_by_leaders() {
        let budgets = vec![
            led("s|hub.example|||anonymous|e", &[(100, 60), (1_000, 100)]),
            led("s|hub.example|||login|e", &[(100, 50)]),
            BudgetState { leads: false, ..led("s|other.example|||anonymous|e", &[(10, 1)]) },
        ];
        let by_registry = BTreeMap::from([(("hub.example".to_owned(), FailureClass::NotFound), 3)]);
        let entries = OpenEntries { by_registry, oldest: Duration::from_secs(90) };
        let counts = Counts { registrar: RegistrarCounts(vec![("presence_alive", 7)]), ..Counts::default() };
        let shown = text(&counts, &OfFleet { entries: Some(entries), budgets });
        for line in [
            "fleetpull_budget_rate_cap{registry=\"hub.example\"} 400\n",
            "fleetpull_budget_rate_in_force{registry=\"hub.example\"} 100\n",
            "fleetpull_budget_rate_cause{registry=\"hub.example\",cause=\"overload\"} 1\n",
            "fleetpull_budget_in_flight{registry=\"hub.example\"} 6\n",
            "fleetpull_quota_limit{registry=\"hub.example\"} 1000\n",
            "fleetpull_quota_remaining{registry=\"hub.example\"} 100\n",
            "fleetpull_entries_open{registry=\"hub.example\",class=\"not_found\"} 3\n",
            "fleetpull_entry_oldest_seconds 90\n",
            "fleetpull_nodes_alive 7\n",
        ] {
            assert!(shown.contains(line), "{line} is not in {shown}");
        }
        assert!(!shown.contains("other.example"), "{shown}");
        let of_a_follower = text(&counts, &OfFleet::default());
        assert!(samples(&of_a_follower).all(|sample| table::of_sample(sample.name).map(|of| of.scope) != Some(metrics::Scope::Leader)));
        for lease in ["attempt", "budget", "registrar"] {
            assert!(of_a_follower.contains(&format!("fleetpull_leases_lost_total{{lease=\"{lease}\"}} 0\n")), "{lease} in {of_a_follower}");
        }
    }

    #[test]
    fn cause_of_a_low_rate_is_that_of_the_slowest_budget_of_a_registry() {
        let budget = |login: &str, in_force, cause: &str| BudgetState {
            per_second_in_force: in_force,
            rate_cause: cause.to_owned(),
            ..led(&format!("s|hub.example|||{login}|e"), &[])
        };
        let cases = [
            (vec![("a", 200.0, "policy"), ("b", 0.0, "quota"), ("c", 20.0, "starting")], "quota"),
            (vec![("a", 20.0, "starting"), ("b", 150.0, "silent_nodes")], "starting"),
            (vec![("a", 200.0, "policy")], "policy"),
        ];
        for (budgets, cause) in cases {
            let budgets = budgets.into_iter().map(|(login, in_force, cause)| budget(login, in_force, cause)).collect();
            let text = text(&Counts::default(), &OfFleet { entries: None, budgets });
            let causes = samples(&text).filter(|sample| sample.name == table::BUDGET_RATE_CAUSE.name);
            let causes: Vec<_> = causes.map(|sample| (sample.label("registry"), sample.label("cause"), sample.value)).collect();
            assert_eq!(causes, [(Some("hub.example"), Some(cause), 1.0)], "{text}");
        }
    }

    #[test]
    fn unlimited_rate_is_not_exported_as_zero() {
        let budget = BudgetState { per_second: 0.0, ..led("s|hub.example|||anonymous|e", &[]) };
        let text = text(&Counts::default(), &OfFleet { entries: None, budgets: vec![budget] });
        assert!(!text.contains("budget_rate") && !text.contains("quota") && text.contains("fleetpull_budget_in_flight"), "{text}");
    }

    #[test]
    fn labelled_samples_are_those_that_are_not_among_the_counters() {
        let mut counts = Counts::default();
        counts.pulls.answered.present_total = 4;
        let text = text(&counts, &OfFleet::default());
        let shown: BTreeMap<String, u64> = labelled(&text).collect();
        assert_eq!(shown.get("pulls_total{outcome=\"present\",class=\"none\"}"), Some(&4));
        assert_eq!(shown.get("wait_duration_seconds_count{cause=\"slot\"}"), Some(&0));
        assert!(shown.keys().all(|name| !name.contains("bucket") && name != "pulls_pulling"), "{shown:?}");
    }
}
