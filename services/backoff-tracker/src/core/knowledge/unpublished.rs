//! Reports of attempts that this node made while it had no bus.
//!
//! They are not in the replica, because no other node has them. When the bus is back, the node first reads the stored reports. Then, in its
//! turn, it publishes a kept report only if that opens, confirms or closes an entry for the others. So if thousands of nodes met the same
//! outage, each without the others, three of them publish it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::QUIET_AFTER;
use super::backoff_key::BackoffKeyId;
use super::entry::Received;
use super::fleet::purpose;
use super::node::Knowledge;
use super::replica::MAX_KEYS_OF_ONE;
use super::report::{FailureDetails, Finding, Report};
use crate::core::remove_least;

/// The kept reports, the newest one of each back-off key.
#[derive(Debug, Default)]
pub(super) struct Unpublished {
    bus: BusState,
    reports: BTreeMap<BackoffKeyId, Kept>,
}

/// Whether the bus can be reached, and whether the stored reports were read since.
#[derive(Clone, Copy, Debug)]
enum BusState {
    Lost,
    /// It can be reached; the stored reports were not read yet.
    Back,
    /// The stored reports were read at this time.
    CaughtUp(Duration),
}

impl Default for BusState {
    fn default() -> Self {
        Self::CaughtUp(Duration::ZERO)
    }
}

#[derive(Clone, Debug)]
struct Kept {
    report: Arc<Report>,
    /// The date of the report, on this node's clock.
    date: Duration,
    /// This node's turn to publish it; none until the stored reports were read.
    turn: Option<Duration>,
}

impl Unpublished {
    /// True if a report that is published now would reach no other node.
    pub(super) fn is_without_bus(&self) -> bool {
        matches!(self.bus, BusState::Lost)
    }

    /// True if an attempt that began then was made without the reports of other nodes.
    pub(super) fn began_without_bus(&self, began: Duration) -> bool {
        match self.bus {
            BusState::Lost | BusState::Back => true,
            BusState::CaughtUp(at) => began < at,
        }
    }

    pub(super) fn bus_lost(&mut self) {
        self.bus = BusState::Lost;
        self.reports.values_mut().for_each(|kept| kept.turn = None);
    }

    pub(super) fn bus_back(&mut self) {
        if self.is_without_bus() {
            self.bus = BusState::Back;
        }
    }

    /// The kept failure of a back-off key, and its date.
    pub(super) fn failure(&self, backoff_key: BackoffKeyId) -> Option<(&FailureDetails, Duration)> {
        let kept = self.reports.get(&backoff_key)?;
        Some((kept.report.finding.details()?, kept.date))
    }

    pub(super) fn has_succeeded(&self, backoff_key: BackoffKeyId) -> bool {
        self.reports.get(&backoff_key).is_some_and(|kept| kept.report.finding == Finding::Succeeded)
    }

    /// When this node last succeeded, by the kept report of a back-off key.
    pub(super) fn succeeded_at(&self, backoff_key: BackoffKeyId) -> Option<Duration> {
        let kept = self.reports.get(&backoff_key)?;
        Received::new(Arc::clone(&kept.report), kept.date).succeeded_at()
    }

    /// Keeps a report instead of an earlier one of the same back-off key.
    fn keep(&mut self, report: Arc<Report>, date: Duration, turn: Option<Duration>) {
        let backoff_key = report.backoff_key.id();
        if !self.reports.contains_key(&backoff_key) && self.reports.len() >= MAX_KEYS_OF_ONE {
            remove_least(&mut self.reports, |kept| kept.date);
        }
        self.reports.insert(backoff_key, Kept { report, date, turn });
    }

    pub(super) fn forget(&mut self, backoff_key: BackoffKeyId) {
        self.reports.remove(&backoff_key);
    }

    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.reports.values().filter_map(|kept| kept.turn).min()
    }

    fn take_due(&mut self, now: Duration) -> Vec<Kept> {
        self.reports.extract_if(.., |_, kept| kept.turn.is_some_and(|turn| turn <= now)).map(|(_, kept)| kept).collect()
    }
}

impl Knowledge {
    /// Keeps a report until this node's turn to publish it.
    pub(super) fn publish_in_turn(&mut self, now: Duration, report: Arc<Report>, date: Duration) {
        let caught_up = matches!(self.unpublished.bus, BusState::CaughtUp(_));
        let turn = caught_up.then(|| self.turn_to_publish(now, &report));
        self.unpublished.keep(report, date, turn);
    }

    /// The stored reports were read: every kept report gets its turn.
    pub(super) fn caught_up(&mut self, now: Duration) {
        match self.unpublished.bus {
            BusState::Lost => return,
            BusState::Back => self.unpublished.bus = BusState::CaughtUp(now),
            // Reports that were missed meanwhile were read; the bus was not lost.
            BusState::CaughtUp(_) => {}
        }
        let waiting: Vec<Arc<Report>> =
            self.unpublished.reports.values().filter(|kept| kept.turn.is_none()).map(|kept| Arc::clone(&kept.report)).collect();
        for report in waiting {
            let turn = self.turn_to_publish(now, &report);
            self.unpublished.reports.entry(report.backoff_key.id()).and_modify(|kept| kept.turn = Some(turn));
        }
    }

    /// Successes come first, because a failure that one of them answers is not published.
    fn turn_to_publish(&self, now: Duration, report: &Report) -> Duration {
        let successes = if report.finding == Finding::Succeeded { Duration::ZERO } else { self.fleet.publishing_takes() };
        now + successes + self.fleet.publishes_after(&self.node, purpose(report.backoff_key.id(), 0))
    }

    /// Publishes the reports whose turn has come and that others need.
    pub(super) fn publish_unpublished(&mut self, now: Duration) {
        for kept in self.unpublished.take_due(now) {
            if self.is_news(now, &kept) {
                self.touch(kept.report.backoff_key.id());
                self.publish_report(now, kept.report, now.saturating_sub(kept.date));
            }
        }
    }

    fn is_news(&self, now: Duration, Kept { report, date, .. }: &Kept) -> bool {
        if report.finding != Finding::Succeeded {
            let kept_back = self.is_kept_back(now, report.backoff_key.id());
            return !kept_back && self.replica.is_changed_by(report, *date, self.viewpoint(now));
        }
        // A success older than this does not count as a sign that the registry answers.
        let is_lately = |at: Duration| now < at + QUIET_AFTER;
        let is_first = is_lately(*date) && !self.replica.succeeded_at(report.backoff_key.id()).is_some_and(is_lately);
        is_first || self.replica.is_answered_by(report, *date)
    }
}
