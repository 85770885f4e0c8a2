//! The rate at which a budget lets pulls begin, and when a change of it is reported.

use std::time::Duration;

/// A change of less than this share of the rate is not reported, because nodes come and go.
const REPORTED_FROM: f64 = 0.2;
/// The shortest time between two reports.
const REPORTS_APART: Duration = Duration::from_secs(10);
/// The same while the registry is overloaded, because then the rate rises and falls all the time.
const OVERLOAD_REPORTS_APART: Duration = Duration::from_secs(60);

/// The rate of a budget as its leader reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Pulls in 1,000 s; none for no limit. While a budget starts, the rate that the start leads to.
    pub per_1000_s: Option<u64>,
    /// The rate in force while a budget starts, in pulls in 1,000 s; none: it does not start.
    pub starts_at: Option<u64>,
    /// Why it is not higher.
    pub cause: RateCause,
}

/// What determines a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateCause {
    /// The cap allows no more.
    Policy,
    /// The registry has stated that nothing is left of its quota.
    Quota,
    /// Nodes are silent, and may pull with their own share.
    SilentNodes,
    /// Several nodes failed, because the registry could not do more.
    Overload,
    /// A budget begins at a low rate, which doubles within seconds while pulls are served.
    Starting,
}

impl RateCause {
    /// The cause as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Quota => "quota",
            Self::SilentNodes => "silent_nodes",
            Self::Overload => "overload",
            Self::Starting => "starting",
        }
    }
}

/// The rate that was reported last.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportedRate {
    rate: Rate,
    at: Option<Duration>,
}

impl ReportedRate {
    /// Nothing was reported yet; `rate` counts as known.
    pub(super) fn of(rate: Rate) -> Self {
        Self { rate, at: None }
    }

    /// Whether the last report was that a quota is used up. Then the end of that has to be reported too.
    pub(super) fn is_spent(&self) -> bool {
        self.rate.cause == RateCause::Quota
    }

    /// Returns the rate that was reported before, if `rate` has to be reported now.
    pub(super) fn report(&mut self, now: Duration, rate: Rate) -> Option<Rate> {
        let of_quota = |rate: Rate| rate.cause == RateCause::Quota;
        let far = |one: u64, other: u64| one.abs_diff(other) as f64 >= REPORTED_FROM * one.max(other) as f64 && one != other;
        let changed = match (self.rate.per_1000_s, rate.per_1000_s) {
            (Some(before), Some(after)) => far(before, after),
            (before, after) => before != after,
        };
        let overloaded = (self.rate.cause == RateCause::Overload, rate.cause == RateCause::Overload);
        let apart = if overloaded == (true, true) { OVERLOAD_REPORTS_APART } else { REPORTS_APART };
        let soon = self.at.is_some_and(|at| now < at + apart) && overloaded != (false, true);
        if !changed || (soon && of_quota(self.rate) == of_quota(rate)) {
            return None;
        }
        self.at = Some(now);
        Some(std::mem::replace(&mut self.rate, rate))
    }
}

#[cfg(test)]
mod tests {
    use clock::{Now, Random};
    use contract::PermitId;
    use contract::messages::throttler::RegistryLimit;

    use super::super::{BudgetPolicy, Budgets, Effect, Input, Term};
    use super::*;

    /// The leader learns from a pull that nothing is left, and from the end of the window that something is left again.
    #[test]
    fn the_leader_of_a_budget_reports_when_its_quota_is_spent_and_when_it_begins_anew() {
        let at = |seconds| Now { monotonic: Duration::from_secs(seconds), wall: Duration::ZERO };
        let mut random = Random::seeded(1);
        let mut budgets = Budgets::new("n1".parse().expect("a name"), BudgetPolicy::default(), Random::seeded(2));
        let (owner, permit) = ("hub".to_owned(), PermitId::random(&mut random));
        let changes = |effects: Vec<Effect>| -> Vec<(Rate, Rate)> {
            let change = |effect| match effect {
                Effect::RateChanged { rate, before, .. } => Some((rate, before)),
                _ => None,
            };
            effects.into_iter().filter_map(change).collect()
        };
        budgets.step(at(100), Input::Fleet { alive: 1 });
        budgets.step(at(100), Input::Want { owner: owner.clone(), permit });
        let term = Term { epoch: 1, first: true, until: Duration::from_secs(10_000) };
        budgets.step(at(100), Input::Lead { owner: owner.clone(), leader: None });
        assert_eq!(changes(budgets.step(at(100), Input::Elected { owner, term })), []);
        let limit = RegistryLimit { limit: 100, remaining: 0, window_ms: 60_000, reset_ms: Some(60_000), source: None };
        let full = Rate { per_1000_s: Some(200_000), starts_at: Some(10_000), cause: RateCause::Policy };
        let spent = Rate { per_1000_s: Some(0), starts_at: None, cause: RateCause::Quota };
        assert_eq!(changes(budgets.step(at(101), Input::Release { permit, limits: vec![limit], served: Some(true) })), [(spent, full)]);
        assert_eq!(changes(budgets.step(at(130), Input::Tick)), []);
        let state = budgets.list(at(131)).budgets.remove(0);
        assert_eq!((state.rate_cause.as_str(), state.rate_cause_ms), ("quota", Some(30_000)));
        assert_eq!(changes(budgets.step(at(163), Input::Tick)), [(full, spent)]);
    }

    #[test]
    fn a_spent_quota_is_reported_at_once_and_small_changes_are_not() {
        let at = Duration::from_secs;
        let rate = |per_1000_s, cause| Rate { per_1000_s, starts_at: None, cause };
        let full = rate(Some(200_000), RateCause::Policy);
        let mut reported = ReportedRate::of(full);
        assert_eq!(reported.report(at(1), rate(Some(190_000), RateCause::SilentNodes)), None);
        let half = rate(Some(100_000), RateCause::SilentNodes);
        assert_eq!(reported.report(at(2), half), Some(full));
        assert_eq!(reported.report(at(3), full), None, "too soon");
        let spent = rate(Some(0), RateCause::Quota);
        assert_eq!(reported.report(at(4), spent), Some(half));
        assert_eq!(reported.report(at(4), spent), None);
        assert_eq!(reported.report(at(5), full), Some(spent));
        let mut without = ReportedRate::of(rate(None, RateCause::Policy));
        assert_eq!(without.report(at(1), rate(None, RateCause::Policy)), None);
        assert_eq!(without.report(at(1), spent), Some(rate(None, RateCause::Policy)), "a quota of a budget without a rate");
    }
}
