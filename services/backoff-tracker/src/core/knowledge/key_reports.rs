//! The last report of each node on one back-off key.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entry::Received;
use super::replica::expires;
use super::reporters::ReporterId;

/// When a success was, and its reporter.
type Success = (Duration, ReporterId);

/// The last report of each node on a back-off key. Most keys have thousands of successes and few failures, so frequent queries look at the
/// failures only.
#[derive(Debug, Default)]
pub(super) struct KeyReports {
    /// Reports of success.
    successes: BTreeMap<ReporterId, Received>,
    /// Reports of failure, sorted by reporter. Most failures have one reporter, and a map would allocate room for eleven.
    failing: Vec<(ReporterId, Received)>,
    /// The newest successes of two nodes, the newest first.
    newest: [Option<Success>; 2],
}

impl KeyReports {
    pub(super) fn insert(&mut self, by: ReporterId, received: Received) {
        let date = received.date;
        let succeeded = received.claim.is_none();
        if succeeded {
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
        if succeeded {
            // A reporter's success is newer than its last one, so that one leaves no gap.
            let others = self.newest.into_iter().flatten().filter(|(_, newest)| *newest != by);
            self.newest = newest_two(others.chain([(date, by)]));
        } else {
            self.find_newest(by);
        }
    }

    pub(super) fn remove(&mut self, by: ReporterId) {
        self.remove_failure(by);
        self.successes.remove(&by);
        self.find_newest(by);
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
        self.newest[0].map(|(date, _)| date)
    }

    /// The report of the newest success.
    pub(super) fn newest_success(&self) -> Option<&Received> {
        self.successes.get(&self.newest[0]?.1)
    }

    /// When two nodes of those that are included last succeeded, the newest first.
    pub(super) fn two_succeeded_at(&self, is_included: impl Fn(&Received) -> bool) -> [Option<Duration>; 2] {
        let is_left_out = |(_, by): Success| self.successes.get(&by).is_some_and(|received| !is_included(received));
        let newest = if self.newest.into_iter().flatten().any(is_left_out) {
            newest_two(self.successes.iter().filter(|(_, received)| is_included(received)).map(|(by, received)| (received.date, *by)))
        } else {
            self.newest
        };
        newest.map(|success| success.map(|(date, _)| date))
    }

    /// When each report expires. A failure that is not newer than the newest success expires with that success, even if its `Retry-After`
    /// is longer.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (ReporterId, Duration)> {
        let success = self.newest_success().map(|success| (success.date, expires(success)));
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

    /// Finds the newest successes again if one of them was of this reporter.
    fn find_newest(&mut self, by: ReporterId) {
        if self.newest.into_iter().flatten().any(|(_, newest)| newest == by) {
            self.newest = newest_two(self.successes.iter().map(|(by, received)| (received.date, *by)));
        }
    }
}

fn newest_two(successes: impl Iterator<Item = Success>) -> [Option<Success>; 2] {
    successes.map(Some).fold([None, None], |[first, second], success| match success {
        _ if success > first => [success, first],
        _ if success > second => [first, success],
        _ => [first, second],
    })
}
