//! What a row shows of a budget: a used-up quota, a rate below its cap, or waiting pulls.

use contract::messages::throttler::{BudgetState, RegistryLimit};
use contract::registry_of_budget;

use super::ids;
use super::row::{BudgetFigures, Row, Source, What};
use super::waits::Waiting;
use crate::commands::budget::Budget;
use crate::commands::holds::{hold, tightest, used_up};
use crate::output::units;

/// The cause of a rate that failed pulls have lowered.
const OVERLOAD: &str = "overload";
/// The cause of a rate of 0 while nothing is left of a quota.
const QUOTA: &str = "quota";

impl BudgetFigures {
    /// None if the budget delays nothing.
    pub(super) fn of(state: &BudgetState) -> Option<Self> {
        let slowed_by = match state.rate_cause.as_str() {
            OVERLOAD => Some(OVERLOAD),
            "silent_nodes" => Some("silent nodes"),
            _ => None,
        };
        let held = hold(state);
        let slowed_by = slowed_by.filter(|_| state.leads && !state.observes && state.per_second_in_force < state.per_second);
        if held.is_none() && slowed_by.is_none() {
            return None;
        }
        let limits = &state.known.limits;
        let spent = used_up(limits);
        Some(Self {
            owner: state.owner.clone(),
            rate: (state.leads && state.per_second > 0.0).then_some(state.per_second_in_force),
            cap: (state.per_second > 0.0).then_some(state.per_second),
            quota: tightest(limits).cloned(),
            is_spent: spent.is_some(),
            slowed_by,
            waiting_count: state.waiting_count,
            wait_ms: held.and_then(|held| held.wait_ms),
        })
    }

    /// True if the rate is low because pulls have failed, and the budget delays pulls for no other reason.
    pub(super) fn is_slowed_by_failures(&self) -> bool {
        !self.is_spent && self.slowed_by == Some(OVERLOAD)
    }

    /// A separate row for the budget.
    pub(super) fn row(self, budget: &Budget) -> Row {
        let owner = &budget.state.owner;
        let is_cause_shown = if self.is_spent { budget.state.rate_cause == QUOTA } else { self.slowed_by.is_some() };
        let mut row = Row {
            key: ids::hash("budget", owner),
            id: String::new(),
            what: What::Registry(registry_of_budget(owner)),
            scope: "rate".to_owned(),
            state: "queued",
            state_in_words: "queued".to_owned(),
            cause: self.cause(),
            message: None,
            since_ms: budget.state.rate_cause_ms.filter(|_| is_cause_shown),
            next_attempt_ms: self.wait_ms,
            prober: None,
            node_count: budget.node_count(),
            waiting: Waiting::default(),
            holds_all: false,
            is_over: false,
            figures: None,
            source: Source::Budget,
        };
        if self.slowed_by.is_some() && !self.is_spent {
            (row.state, row.state_in_words) = ("slowed", "slowed".to_owned());
        }
        self.complete(&mut row);
        row
    }

    /// Adds the budget's figures to a row, and its used-up quota, which is then the row's state.
    pub(super) fn complete(self, row: &mut Row) {
        if self.is_spent {
            row.state = "quota_spent";
        }
        if let Some(quota) = self.quota.as_ref().filter(|_| self.is_spent) {
            "quota".clone_into(&mut row.scope);
            row.state_in_words = left(quota);
        }
        row.holds_all |= self.is_spent;
        row.figures = Some(self);
    }

    fn cause(&self) -> String {
        let rate = match (self.rate, self.cap) {
            (Some(rate), Some(cap)) if rate < cap => format!("{}/s of {cap}/s", short(rate)),
            (_, Some(cap)) => format!("{cap}/s"),
            (_, None) => String::new(),
        };
        let waits = match self.waiting_count {
            0 => String::new(),
            1 => "1 pull waits".to_owned(),
            count => format!("{count} pulls wait"),
        };
        let parts = match (&self.quota, self.slowed_by) {
            (Some(quota), _) if self.is_spent => [window(quota), waits],
            (_, Some(why)) => [rate, why.to_owned()],
            (_, None) => [waits, rate],
        };
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// `3/100 left`
fn left(quota: &RegistryLimit) -> String {
    match quota.limit {
        0 => format!("{} left", quota.remaining),
        limit => format!("{}/{limit} left", quota.remaining),
    }
}

/// `100 per 6h`
fn window(quota: &RegistryLimit) -> String {
    match (quota.limit, quota.window_ms) {
        (0, _) => "quota spent".to_owned(),
        (limit, 0) => format!("quota of {limit}"),
        (limit, window_ms) => format!("{limit} per {}", units::age(window_ms)),
    }
}

/// The rate with about three digits.
fn short(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use contract::NodeName;
    use contract::messages::throttler::{BudgetList, BudgetWaiter, KnownLimits};

    use super::*;
    use crate::commands::budget::Merger;

    fn limit(remaining: u64) -> RegistryLimit {
        RegistryLimit { limit: 100, remaining, window_ms: 21_600_000, reset_ms: Some(8_040_000), ..RegistryLimit::default() }
    }

    fn led(cause: &str, in_force: f64, waits_ms: &[u64], limits: Vec<RegistryLimit>) -> BudgetState {
        let node: NodeName = "n3".parse().expect("a name");
        BudgetState {
            owner: "default|hub.example||||e".to_owned(),
            leads: true,
            per_second: 200.0,
            per_second_in_force: in_force,
            rate_cause: cause.to_owned(),
            waiting: waits_ms.iter().map(|wait_ms| BudgetWaiter { node: node.clone(), wait_ms: *wait_ms }).collect(),
            waiting_count: waits_ms.len() as u64,
            known: KnownLimits { limits, ..KnownLimits::default() },
            ..BudgetState::default()
        }
    }

    #[test]
    fn row_of_a_budget_shows_since_when_it_is_slowed_or_its_quota_is_used_up() {
        for (cause, in_force, limits, expected) in [
            ("overload", 37.4, vec![], Some(63_000)),
            ("quota", 0.0, vec![limit(0)], Some(63_000)),
            // Its leader does not know yet that the quota is used up, or the budget is only queued for.
            ("overload", 37.4, vec![limit(0)], None),
            ("policy", 200.0, vec![], None),
        ] {
            let state = BudgetState { rate_cause_ms: Some(63_000), ..led(cause, in_force, &[700], limits) };
            let figures = BudgetFigures::of(&state).expect("a row");
            let mut merger = Merger::default();
            merger.add(&"n1".parse().expect("a name"), BudgetList { budgets: vec![state], ..BudgetList::default() });
            let row = figures.row(merger.into_budgets().values().next().expect("a budget"));
            assert_eq!(row.since_ms, expected, "{cause}");
        }
    }

    #[test]
    fn a_budget_has_a_row_when_it_holds_pulls_back_or_is_slowed() {
        let nothing = |cause: &str| led(cause, 200.0, &[], vec![limit(31)]);
        assert_eq!(["policy", "starting", "overload"].map(|cause| BudgetFigures::of(&nothing(cause)).is_some()), [false; 3]);
        let observed = BudgetState { observes: true, ..led("overload", 37.4, &[700], vec![limit(0)]) };
        assert_eq!(BudgetFigures::of(&observed), None, "nodes that only observe do not wait");
        for (state, expected) in [
            (led("quota", 0.0, &[], vec![limit(0)]), ("quota", "quota_spent", "0/100 left", "100 per 6h", Some(8_040_000))),
            (
                led("policy", 200.0, &[1_000, 9_000_000], vec![limit(0)]),
                ("quota", "quota_spent", "0/100 left", "100 per 6h; 2 pulls wait", Some(9_000_000)),
            ),
            (led("overload", 37.4, &[], vec![]), ("rate", "slowed", "slowed", "37/s of 200/s; overload", None)),
            (led("silent_nodes", 5.25, &[700], vec![]), ("rate", "slowed", "slowed", "5.2/s of 200/s; silent nodes", Some(700))),
            (led("policy", 200.0, &[700], vec![]), ("rate", "queued", "queued", "1 pull waits; 200/s", Some(700))),
        ] {
            let figures = BudgetFigures::of(&state).expect("a row");
            let mut merger = Merger::default();
            merger.add(&"n1".parse().expect("a name"), BudgetList { budgets: vec![state], ..BudgetList::default() });
            let budgets = merger.into_budgets();
            let row = figures.row(budgets.values().next().expect("a budget"));
            let Row { scope, state, state_in_words, cause, next_attempt_ms, what, .. } = &row;
            assert_eq!((scope.as_str(), *state, state_in_words.as_str(), cause.as_str(), *next_attempt_ms), expected);
            assert_eq!(*what, What::Registry("hub.example".to_owned()));
        }
    }
}
