//! Detects that a registry that answered has fallen silent. Then no pulls are granted until it answers, or until it is known to be down.
//!
//! A registry that hangs causes no failure that would slow the budget down: at 200 pulls a second, 400 are sent in the 2 s after which an
//! attempt counts as unanswered. If answers came one after the other before, silence shows sooner.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use contract::DEADLINES;

/// A registry is silent if no answer has come for as long as this many answers took to come before.
const ANSWERS: usize = 20;
/// The silence must also last for this many times as long as an answer takes.
const ANSWER_TIMES: u32 = 2;
/// The silence must also last for this long, because answers sometimes come together.
const LEAST: Duration = Duration::from_millis(250);
/// This many pulls must have waited for an answer for that long.
pub(super) const PULLS: usize = 10;
/// How long silence holds pulls back.
const HELD_FOR: Duration = DEADLINES.silence_held_for;
/// Each answer changes the usual length by one part in this many.
const USUAL_FOLLOWS: u32 = 8;

/// The times of a registry's answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Silence {
    /// Oldest first.
    answers: VecDeque<Duration>,
    /// How long an answer usually takes.
    usual: Duration,
}

impl Silence {
    /// Counts an answer. `took` is the time since the grant, if that is known and shows how long answers take.
    pub(super) fn answered(&mut self, now: Duration, took: Option<Duration>) {
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(now);
        if let Some(took) = took {
            self.usual = (self.usual * (USUAL_FOLLOWS - 1) + took) / USUAL_FOLLOWS;
        }
    }

    /// Pulls granted in this time range should have been answered by now; none if the registry is not silent, or has been for too long.
    pub(super) fn unanswered(&self, now: Duration) -> Option<Range<Duration>> {
        let (last, patience) = (*self.answers.back()?, self.patience()?);
        let is_silent = now >= last + patience && now < last + patience + HELD_FOR;
        is_silent.then(|| last.saturating_sub(patience)..now.saturating_sub(patience))
    }

    /// When the silence is over if no answer comes.
    pub(super) fn ends(&self) -> Option<Duration> {
        Some(*self.answers.back()? + self.patience()? + HELD_FOR)
    }

    /// How long without an answer counts as silence; none if too few answers came.
    fn patience(&self) -> Option<Duration> {
        let (first, last) = (self.answers.front()?, self.answers.back()?);
        let came_within = last.saturating_sub(*first);
        (self.answers.len() == ANSWERS).then(|| came_within.max(self.usual * ANSWER_TIMES).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;
    use contract::PermitId;
    use contract::messages::throttler::{BudgetAnswer, GrantBudget, KnownLimits, ReturnBudget};

    use super::super::BudgetPolicy;
    use super::super::leader::{Leader, Term};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// When silence begins and ends, in ms after the last of `answers` answers that came `apart` from each other and each `took` this long.
    fn silence(answers: u32, apart: Duration, took: Duration) -> Option<(u128, u128)> {
        let mut silence = Silence::default();
        (1..=answers).for_each(|number| silence.answered(apart * number, Some(took)));
        let (last, ends) = (apart * answers, silence.ends()?);
        let begins = (0..).map(|number| last + MS * number).find(|at| silence.unanswered(*at).is_some())?;
        assert!(silence.unanswered(ends - MS).is_some() && silence.unanswered(ends).is_none());
        Some(((begins - last).as_millis(), (ends - last).as_millis()))
    }

    #[test]
    fn registry_that_answered_often_and_stops_is_silent() {
        assert_eq!(silence(19, 5 * MS, 50 * MS), None, "too few have come");
        assert_eq!(silence(100, 5 * MS, 50 * MS), Some((250, 2_750)));
        assert_eq!(silence(100, 100 * MS, 50 * MS), Some((1_900, 4_400)), "few answers come in a second");
        assert!(silence(200, 5 * MS, 3_000 * MS) >= Some((5_900, 8_400)), "an answer takes 3 s");
    }

    #[test]
    fn an_answer_ends_the_silence() {
        let mut silence = Silence::default();
        (1..=20).for_each(|number| silence.answered(5 * MS * number, None));
        assert_eq!(silence.unanswered(400 * MS), Some(Duration::ZERO..150 * MS), "those let go then should have been answered");
        silence.answered(401 * MS, None);
        assert_eq!(silence.unanswered(402 * MS), None);
    }
    /// A leader without a rate, so that only silence holds a pull back.
    struct Budget {
        leader: Leader,
        random: Random,
    }

    impl Budget {
        fn new() -> Self {
            let policy = BudgetPolicy { per_second: 0.0, at_once: 1_000, ..BudgetPolicy::default() };
            let term = Term { epoch: 1, first: true, until: Duration::from_secs(60) };
            let leader = Leader::new(Duration::ZERO, "leader".parse().expect("a name"), "owner", policy, term, None);
            Self { leader, random: Random::seeded(1) }
        }

        /// The request of one more node, and whether it was granted.
        fn ask(&mut self, now: Duration) -> (GrantBudget, bool) {
            let permit = PermitId::random(&mut self.random);
            let node = format!("n{permit}").parse().expect("a name");
            let ask = GrantBudget {
                owner: "owner".to_owned(),
                node,
                permit,
                known: KnownLimits { none_stated: true, ..KnownLimits::default() },
                caps: contract::policy::Caps::NONE,
            };
            let has_it = matches!(self.leader.ask(now, &ask), BudgetAnswer::Granted { .. });
            (ask, has_it)
        }

        fn is_answered(&mut self, now: Duration, ask: GrantBudget, served: bool) {
            let GrantBudget { owner, node, permit, .. } = ask;
            self.leader.give_back(now, &ReturnBudget { owner, node, permit, used: true, limits: None, served: Some(served) });
        }
    }

    #[test]
    fn a_registry_that_falls_silent_is_asked_no_more_until_it_answers_or_is_known_to_be_down() {
        for served in [Some(true), Some(false), None] {
            let mut budget = Budget::new();
            let mut now = Duration::ZERO;
            for _ in 0..40 {
                now += 5 * MS;
                let (ask, has_it) = budget.ask(now);
                assert!(has_it);
                budget.is_answered(now, ask, true);
            }
            let (last, mut hang) = (now, Vec::new());
            loop {
                now += 5 * MS;
                match budget.ask(now) {
                    (ask, true) => hang.push(ask),
                    (_, false) => break,
                }
            }
            assert_eq!(now - last, 305 * MS, "ten hang for as long as nothing came: {}", hang.len());
            match served {
                Some(served) => budget.is_answered(now, hang.remove(0), served),
                None => now = last + 2_750 * MS,
            }
            budget.leader.tick(now);
            assert_eq!(budget.leader.waiting(), 0, "{served:?}");
        }
    }
}
