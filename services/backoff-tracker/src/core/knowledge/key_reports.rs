//! The last report of each node on one back-off key, and the entry derived from them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;

use super::entry::{Entry, Received, Successes, Viewpoint};
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
    newest: NewestSuccesses,
    /// The entry derived from these reports, until one of them changes: for each event a request looks at about ten back-off keys, and one
    /// back-off key may have thousands of reports.
    derived: RefCell<Option<Box<Derived>>>,
}

#[derive(Debug)]
struct Derived {
    entry: Option<Entry>,
    /// How many nodes were alive, in all and in the zone, when it was derived.
    alive: (usize, usize),
    /// Until when it is valid: then a report expires.
    until: Duration,
}

/// The newest success, and the newest one of another reporter. Both reporters may have failed since.
#[derive(Clone, Copy, Debug, Default)]
struct NewestSuccesses {
    first: Option<(Duration, ReporterId)>,
    second: Option<(Duration, ReporterId)>,
}

impl NewestSuccesses {
    fn names(&self, by: ReporterId) -> bool {
        [self.first, self.second].into_iter().flatten().any(|(_, reporter)| reporter == by)
    }

    /// Replaces a reporter's last success by this one. False if the last one was newer: then a third reporter's success may be one of the
    /// two newest.
    fn add(&mut self, success: (Duration, ReporterId)) -> bool {
        let last = |place: Option<(Duration, ReporterId)>| place.filter(|(_, by)| *by == success.1).map(|(date, _)| date);
        let (first, second) = (last(self.first), last(self.second));
        if first.max(second).is_some_and(|last| last > success.0) {
            return false;
        }
        if first.is_some() {
            self.first = Some(success);
        } else if self.first.is_none_or(|(newest, _)| newest <= success.0) {
            self.second = self.first.replace(success);
        } else if second.is_some() || self.second.is_none_or(|(second, _)| second <= success.0) {
            self.second = Some(success);
        }
        true
    }
}

impl KeyReports {
    pub(super) fn insert(&mut self, by: ReporterId, received: Received) {
        self.forget_entry();
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
        match succeeded_at {
            Some(at) if self.newest.add((at, by)) => {}
            None if !self.newest.names(by) => {}
            _ => self.newest = self.newest_of(|_| true),
        }
    }

    pub(super) fn remove(&mut self, by: ReporterId) {
        self.forget_entry();
        self.remove_failure(by);
        self.successes.remove(&by);
        if self.newest.names(by) {
            self.newest = self.newest_of(|_| true);
        }
    }

    /// Returns the last derived entry if it is valid; otherwise derives it. `derive` returns the entry, and until when it is valid.
    pub(super) fn entry(&self, viewpoint: Viewpoint<'_>, derive: impl FnOnce() -> (Option<Entry>, Duration)) -> Option<Entry> {
        let alive = (viewpoint.alive, viewpoint.alive_in_zone);
        if let Some(known) = self.derived.borrow().as_ref().filter(|known| known.alive == alive && viewpoint.now < known.until) {
            return known.entry.clone();
        }
        let (entry, until) = derive();
        self.derived.replace(Some(Box::new(Derived { entry: entry.clone(), alive, until })));
        entry
    }

    /// The entry must be derived again.
    pub(super) fn forget_entry(&mut self) {
        self.derived.get_mut().take();
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

    pub(super) fn failures_since(&self, since: Option<Duration>) -> impl Iterator<Item = &Received> + Clone {
        self.failures().filter(move |received| since.is_none_or(|since| received.date > since))
    }

    pub(super) fn succeeded_at(&self) -> Option<Duration> {
        self.newest.first.map(|(date, _)| date)
    }

    /// The newest success, and the newest one of another node.
    pub(super) fn newest_successes(&self) -> impl Iterator<Item = (Duration, NodeName)> {
        let successes = [self.newest.first, self.newest.second].into_iter().flatten();
        successes.filter_map(|(date, by)| Some((date, self.of(by)?.report.reporter.clone())))
    }

    /// The report of the newest success, if its reporter has not failed since.
    pub(super) fn newest_success(&self) -> Option<&Received> {
        self.successes.get(&self.newest.first?.1)
    }

    /// The successes as the node `own` sees them, or as it would see them without its own report.
    pub(super) fn successes_for(&self, own: Option<ReporterId>, without_own: bool) -> Successes {
        let newest = match own {
            Some(own) if without_own && self.newest.names(own) => self.newest_of(|by| by != own),
            _ => self.newest,
        };
        let of_own = own.filter(|_| !without_own).and_then(|own| self.of(own)?.succeeded_at());
        let attempt = |(date, by)| Some((date, self.of(by)?.report.attempt));
        Successes { newest: newest.first.and_then(attempt), confirmed: newest.second.map(|(date, _)| date).max(of_own) }
    }

    /// The newest confirmed success, as the node `own` sees it.
    pub(super) fn confirmed_at(&self, own: Option<ReporterId>) -> Option<Duration> {
        self.successes_for(own, false).confirmed
    }

    /// When each report expires. A failure that is not newer than the newest confirmed success expires with that success, even if its
    /// `Retry-After` is longer.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (ReporterId, Duration)> {
        let success = self.newest.second.map(|(success, _)| (success, success + KEPT_FOR));
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

    fn newest_of(&self, counts: impl Fn(ReporterId) -> bool) -> NewestSuccesses {
        let mut newest = NewestSuccesses::default();
        let successes = self.all().filter(|(by, _)| counts(*by)).filter_map(|(by, received)| Some((received.succeeded_at()?, by)));
        for success in successes {
            newest.add(success);
        }
        newest
    }
}
