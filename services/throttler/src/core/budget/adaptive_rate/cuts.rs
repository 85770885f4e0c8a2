//! Cuts the rate, and judges by the answers that follow whether the registry was overloaded.

use std::time::Duration;

use super::{AdaptiveRate, CHANCE_FOR, Judgement, Phase, start};

/// The cap divided by this is the lowest rate.
const FLOOR_SHARE: f64 = 200.0;
/// No cut goes below this rate, in pulls a second. A lower rate takes too long to show anything, and if few requests succeed, nobody is
/// served meanwhile.
const FLOOR_LEAST: f64 = 2.0;
/// A cut leaves at most this share of what was served in the last second.
const OF_SERVED: f64 = 0.9;
/// A cut also leaves at most this share of the rate: the first while the rate is being found, the second once it was found.
pub(super) const CUT_FIRST: f64 = 0.45;
pub(super) const CUT: f64 = 0.9;
/// While the rate is being found, a cut leaves at least this share of it, because few may be served in a second by chance.
const CUT_MOST: f64 = 0.25;
/// Answers to pulls granted within this time after a cut do not count, because a registry that counts by the second refuses the rest of it.
pub(super) const SETTLES: Duration = Duration::from_secs(1);
/// A cut is judged after this time beyond [`SETTLES`], by [`JUDGED_BY`] answers if none failed.
const JUDGED_FOR: Duration = Duration::from_millis(500);
const JUDGED_BY: u32 = 8;
/// If any failed, a cut is judged by this many answers, at least one of them served.
const JUDGED_BY_IF_SOME_FAIL: u32 = 18;
/// A cut is judged by this many answers in any case.
const JUDGED_BY_AT_MOST: u32 = 24;
/// A cut that could not be judged within this time, because less than [`super::USED`] of the rate was asked for, is taken back.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// The registry was overloaded if at most this part of the failing share is left.
const STILL_FAILING: f64 = 0.4;
/// This many cuts in a row are made before failures count as chance: a registry that counts by the second may have served twice what it can
/// sustain.
const CUTS: u32 = 2;
/// One cut is enough if this share failed before it and no larger share after it.
const PLAIN_SHARE: f64 = 0.42;
/// One cut of the first rate, or of twice that, is also enough if at least this part of the failing share is left, because an overloaded
/// registry would fail far fewer.
const AS_MANY: f64 = 0.7;
/// Requests fail by chance if about as many fail as before. If more fail, the registry can do less than was assumed.
const AS_BEFORE: f64 = 1.3;
const AS_BEFORE_AND: f64 = 0.1;

impl AdaptiveRate {
    /// Cuts the rate to what was served in the last second, and to at most the share `left` of itself.
    pub(super) fn cut(&mut self, now: Duration, left: f64, judgement: Judgement) {
        let served = self.served.in_a_second(now);
        // At the first rate, little was served so far, whatever the registry can do.
        let goodput = if self.rate <= start(self.cap) { served.max(self.rate * (1.0 - judgement.share)) } else { served };
        let least = if left == CUT_FIRST { self.rate * CUT_MOST } else { 0.0 };
        self.rate = (goodput * OF_SERVED).min(self.rate * left).max(floor(self.cap)).max(least).min(self.rate);
        self.recent.clear();
        self.enter(now, Phase::Judging(Judgement { since: now, cuts: judgement.cuts + 1, served: 0, failed: 0, ..judgement }));
    }

    pub(super) fn judge(&mut self, now: Duration, judgement: Judgement) {
        let Judgement { since, share: before, served, failed, .. } = judgement;
        if now >= since + JUDGED_WITHIN && !self.is_used(now) {
            return self.begin_anew(now);
        }
        let answers = served + failed;
        let shows = (answers >= if failed == 0 { JUDGED_BY } else { JUDGED_BY_IF_SOME_FAIL } && served > 0) || answers >= JUDGED_BY_AT_MOST;
        if now < since + SETTLES + JUDGED_FOR || !shows {
            return;
        }
        let share = f64::from(failed) / f64::from(answers);
        if share <= before * STILL_FAILING {
            self.recent.clear();
            self.enter(now, Phase::Growing { clean: 0 });
        } else if (judgement.cuts >= CUTS || (before >= PLAIN_SHARE && share <= before) || self.is_plain_at_first(judgement, share))
            && served > 0
            && share <= before * AS_BEFORE + AS_BEFORE_AND
            && now >= self.no_chance_until
        {
            self.rate = judgement.before;
            self.enter(now, Phase::Chance { until: now + CHANCE_FOR, share: share.max(before), answered: 0, failed: 0 });
        } else {
            self.cut(now, CUT_FIRST, Judgement { share: share.max(before), ..judgement });
        }
    }

    /// Whether one cut is enough to see that as many fail at less than half of the first rate, or at a quarter of twice that.
    fn is_plain_at_first(&self, judgement: Judgement, share: f64) -> bool {
        judgement.before <= start(self.cap) * 2.0 && share >= judgement.share * AS_MANY
    }
}

pub(super) fn floor(cap: f64) -> f64 {
    (cap / FLOOR_SHARE).max(FLOOR_LEAST).min(cap)
}
