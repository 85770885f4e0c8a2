//! The last report of each node on one back-off key.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Received;
use super::replica::{KEPT_FOR, expires};
use super::reporters::ReporterId;

/// The last report of each node on a back-off key. Most keys have thousands of successes and few failures, so frequent queries look at the
/// failures only.
#[derive(Debug, Default)]
pub(super) struct KeyReports {
    /// Reports of success.
    successes: BTreeMap<ReporterId, Received>,
    /// Reports of failure, sorted by reporter. Most failures have one reporter, and a map would allocate room for eleven.
    failing: Vec<(ReporterId, Received)>,
    /// The newest success, and its reporter. The reporter may have failed since.
    success: Option<(Duration, ReporterId)>,
}

impl KeyReports {
    pub(super) fn insert(&mut self, by: ReporterId, received: Received) {
        let succeeded_at = received.succeeded_at();
        if received.claim.is_none() {
            self.remove_failure(by);
            self.successes.insert(by, received);
        } else {
            self.successes.remove(&by);
            match self.place(by) {
                Ok(at) => self.failing[at].1 = received,
                Err(at) => {
                    if self.failing.is_empty() {
                        self.failing.reserve_exact(1);
                    }
                    self.failing.insert(at, (by, received));
                }
            }
        }
        match (succeeded_at, self.success) {
            (Some(at), newest) if newest.is_none_or(|(newest, _)| newest <= at) => self.success = Some((at, by)),
            (_, Some((_, newest))) if newest == by => self.find_success(),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, by: ReporterId) {
        self.remove_failure(by);
        self.successes.remove(&by);
        if self.success.is_some_and(|(_, newest)| newest == by) {
            self.find_success();
        }
    }

    pub(super) fn of(&self, by: ReporterId) -> Option<&Received> {
        self.failing_of(by).or_else(|| self.successes.get(&by))
    }

    /// A reporter's last report, if it is a failure.
    pub(super) fn failing_of(&self, by: ReporterId) -> Option<&Received> {
        self.place(by).ok().map(|at| &self.failing[at].1)
    }

    /// The failures, then the successes.
    pub(super) fn all(&self) -> impl Iterator<Item = (ReporterId, &Received)> {
        let failing = self.failing.iter().map(|(by, received)| (*by, received));
        failing.chain(self.successes.iter().map(|(by, received)| (*by, received)))
    }

    pub(super) fn any(&self) -> Option<&Received> {
        self.failures().chain(self.successes.values()).next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failing.is_empty() && self.successes.is_empty()
    }

    pub(super) fn fails(&self) -> bool {
        !self.failing.is_empty()
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = &Received> + Clone {
        self.failing.iter().map(|(_, received)| received)
    }

    /// Failures later than `since`.
    pub(super) fn failures_since(&self, since: Option<Duration>) -> impl Iterator<Item = &Received> + Clone {
        self.failures().filter(move |received| since.is_none_or(|since| received.date > since))
    }

    /// The newest success.
    pub(super) fn succeeded_at(&self) -> Option<Duration> {
        self.success.map(|(date, _)| date)
    }

    /// The report of the newest success, if its reporter has not failed since.
    pub(super) fn newest_success(&self) -> Option<&Received> {
        self.successes.get(&self.success?.1)
    }

    /// The newest success of the reports that count.
    pub(super) fn succeeded_for(&self, counts: impl Fn(&Received) -> bool) -> Option<Duration> {
        let (date, by) = self.success?;
        if self.of(by).is_some_and(&counts) {
            return Some(date);
        }
        self.all().filter(|(_, received)| counts(received)).filter_map(|(_, received)| received.succeeded_at()).max()
    }

    /// When each report expires. A failure that is not newer than the newest success expires with that success, even if its `Retry-After`
    /// is longer.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (ReporterId, Duration)> {
        let success = self.succeeded_at().map(|success| (success, success + KEPT_FOR));
        let with_success = move |date| success.filter(|(answered, _)| date <= *answered).map_or(Duration::MAX, |(_, expires)| expires);
        self.all().map(move |(by, received)| (by, expires(received).min(with_success(received.date))))
    }

    /// The index of a reporter's report in `failing`, or where it would be inserted.
    fn place(&self, by: ReporterId) -> Result<usize, usize> {
        self.failing.binary_search_by_key(&by, |(by, _)| *by)
    }

    fn remove_failure(&mut self, by: ReporterId) {
        if let Ok(at) = self.place(by) {
            self.failing.remove(at);
        }
    }

    fn find_success(&mut self) {
        self.success = self.all().filter_map(|(by, received)| Some((received.succeeded_at()?, by))).max();
    }
}
