//! What the nodes last said of one topic.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Heard;
use super::reporters::ReporterId;

/// Every node's last word on a topic. Of most topics thousands say that it is in order, and few that it fails: whatever is asked of it
/// often costs by these few.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Of who says that it is in order.
    sound: BTreeMap<ReporterId, Heard>,
    /// Of who says that it fails, by reporter. Of most failures one node speaks: a map would take room for eleven.
    failing: Vec<(ReporterId, Heard)>,
    /// The newest success, and whose.
    success: Option<(Duration, ReporterId)>,
    /// The newest success of another node.
    second: Option<(Duration, ReporterId)>,
    /// The newest success that a node had on behalf of all.
    elected: Option<(Duration, ReporterId)>,
    /// The newest success at which all who say that it fails were found to be contradicted, if nobody said so since.
    contradicted: Option<Duration>,
}

/// When a topic was seen in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Successes {
    /// By anybody.
    pub(super) newest: Option<Duration>,
    /// By the node that tried for all, or by a second node: one other may be wrong, or lie.
    pub(super) closed_at: Option<Duration>,
}

impl Successes {
    fn of(newest: Option<(Duration, ReporterId)>, second: Option<(Duration, ReporterId)>, elected: Option<(Duration, ReporterId)>) -> Self {
        let date = |success: Option<(Duration, ReporterId)>| success.map(|(date, _)| date);
        Self { newest: date(newest), closed_at: date(elected).max(date(second)) }
    }

    /// What one node alone has seen since.
    pub(super) fn lone(self) -> Option<Duration> {
        self.newest.filter(|newest| self.closed_at.is_none_or(|closed| closed < *newest))
    }
}

impl Words {
    pub(super) fn insert(&mut self, by: ReporterId, heard: Heard) {
        let date = heard.date;
        let succeeded = heard.claim.is_none();
        if succeeded {
            self.fails_no_more(by);
            self.sound.insert(by, heard);
        } else {
            self.sound.remove(&by);
            match self.place(by) {
                Ok(at) => self.failing[at].1 = heard,
                Err(at) => {
                    if self.failing.is_empty() {
                        self.failing.reserve_exact(1);
                    }
                    self.failing.insert(at, (by, heard));
                }
            }
            self.contradicted = None;
        }
        if self.is_one_of_the_newest(by) {
            self.find_success();
        } else if succeeded {
            self.rank(by, date);
        }
    }

    /// Takes a success into account without looking at all others.
    fn rank(&mut self, by: ReporterId, date: Duration) {
        if self.success.is_none_or(|(newest, _)| newest <= date) {
            self.second = self.success.replace((date, by));
        } else if self.second.is_none_or(|(second, _)| second <= date) {
            self.second = Some((date, by));
        }
        if let Some(elected) = self.sound.get(&by).and_then(|heard| heard.elected_at)
            && self.elected.is_none_or(|(newest, _)| newest <= elected)
        {
            self.elected = Some((elected, by));
        }
    }

    fn is_one_of_the_newest(&self, by: ReporterId) -> bool {
        [self.success, self.second, self.elected].into_iter().flatten().any(|(_, newest)| newest == by)
    }

    pub(super) fn remove(&mut self, by: ReporterId) {
        self.fails_no_more(by);
        self.sound.remove(&by);
        if self.is_one_of_the_newest(by) {
            self.find_success();
        }
    }

    pub(super) fn of(&self, by: ReporterId) -> Option<&Heard> {
        self.failing_of(by).or_else(|| self.sound.get(&by))
    }

    /// The word of one who says that it fails.
    pub(super) fn failing_of(&self, by: ReporterId) -> Option<&Heard> {
        self.place(by).ok().map(|at| &self.failing[at].1)
    }

    /// Those who say that it fails, then the others.
    pub(super) fn all(&self) -> impl Iterator<Item = (ReporterId, &Heard)> {
        let failing = self.failing.iter().map(|(by, heard)| (*by, heard));
        failing.chain(self.sound.iter().map(|(by, heard)| (*by, heard)))
    }

    pub(super) fn any(&self) -> Option<&Heard> {
        self.troubles().chain(self.sound.values()).next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failing.is_empty() && self.sound.is_empty()
    }

    pub(super) fn fails(&self) -> bool {
        !self.failing.is_empty()
    }

    pub(super) fn troubles(&self) -> impl Iterator<Item = &Heard> + Clone {
        self.failing.iter().map(|(_, heard)| heard)
    }

    /// Failures later than that.
    pub(super) fn troubles_since(&self, since: Option<Duration>) -> impl Iterator<Item = &Heard> + Clone {
        self.troubles().filter(move |heard| since.is_none_or(|since| heard.date > since))
    }

    /// The newest success.
    pub(super) fn succeeded_at(&self) -> Option<Duration> {
        self.success.map(|(date, _)| date)
    }

    /// The report of the newest success.
    pub(super) fn newest_success(&self) -> Option<&Heard> {
        self.sound.get(&self.success?.1)
    }

    /// The newest success of those that count, and when what failed before counts as over.
    pub(super) fn succeeded_for(&self, counts: impl Fn(&Heard) -> bool) -> Successes {
        let all_count = || [self.success, self.second, self.elected].into_iter().flatten();
        if all_count().all(|(_, by)| self.sound.get(&by).is_some_and(&counts)) {
            return Successes::of(self.success, self.second, self.elected);
        }
        let mut dates: Vec<Duration> = self.sound.values().filter(|heard| counts(heard)).map(|heard| heard.date).collect();
        dates.sort_unstable_by_key(|date| std::cmp::Reverse(*date));
        let elected = self.sound.values().filter(|heard| counts(heard)).filter_map(|heard| heard.elected_at).max();
        Successes { newest: dates.first().copied(), closed_at: elected.max(dates.get(1).copied()) }
    }

    /// The same of all.
    pub(super) fn successes(&self) -> Successes {
        Successes::of(self.success, self.second, self.elected)
    }

    /// When the second of two nodes had success.
    pub(super) fn two_succeeded_at(&self) -> Option<Duration> {
        self.second.map(|(date, _)| date)
    }

    /// Whether it is to be found who is contradicted by a success: where all were, it is done anew once in `apart`.
    pub(super) fn contradicts(&mut self, success: Duration, apart: Duration) -> bool {
        if self.failing.is_empty() || self.contradicted.is_some_and(|before| success < before + apart) {
            return false;
        }
        let all = self.troubles().all(|heard| heard.failing_since < success);
        self.contradicted = all.then_some(success);
        true
    }

    /// Where in `failing` the word of a reporter is, or would be.
    fn place(&self, by: ReporterId) -> Result<usize, usize> {
        self.failing.binary_search_by_key(&by, |(by, _)| *by)
    }

    fn fails_no_more(&mut self, by: ReporterId) {
        if let Ok(at) = self.place(by) {
            self.failing.remove(at);
        }
    }

    fn find_success(&mut self) {
        let all = || self.sound.iter().map(|(by, heard)| (heard.date, *by));
        self.success = all().max();
        self.second = all().filter(|one| Some(*one) != self.success).max();
        self.elected = self.sound.iter().filter_map(|(by, heard)| Some((heard.elected_at?, *by))).max();
    }
}
