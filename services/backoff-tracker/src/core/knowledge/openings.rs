//! Which entries are open, in the order in which the bus has stored the reports.
//!
//! Every node derives the same entries, so every node would record that one was opened. Reports reach all nodes, the reporter included, in
//! the order in which the bus stores them. The node whose report opens or closes the entry records the event. A node's own report counts
//! here only when it has come back from the bus, although the node uses it at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::{AttemptId, TraceContext};

use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::cadence;
use super::entry::Entry;
use super::input::Effect;
use super::node::Knowledge;
use super::replica::KEPT_FOR;
use super::report::{Finding, Report};
use super::request::RunningAttempt;
use super::{Duty, MAX_KEYS_OF_ONE};

/// Open entries that are remembered. For one more all are forgotten, and an entry that is open may be recorded once more.
const OPEN_MOST: usize = 4_096;

/// A change of an entry, to be recorded by one node of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryNews {
    /// The kind of change.
    pub kind: EntryNewsKind,
    /// The entry's key.
    pub backoff_key: Arc<BackoffKey>,
    /// The attempt that made the change.
    pub attempt: AttemptId,
    /// The attempt's span.
    pub trace: Option<TraceContext>,
    /// `<reason>: <message>` of the failure; empty if the entry was released.
    pub cause: String,
    /// Since when it fails.
    pub failing_since: Duration,
    /// When the next attempt is due; none if the entry was released.
    pub next_attempt: Option<Duration>,
    /// How many nodes report the failure.
    pub reporters: usize,
    /// How often in a row it has failed.
    pub step: u32,
}

/// The kinds of changes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryNewsKind {
    /// The entry refuses all nodes from now on.
    Opened,
    /// This node's attempt for all nodes failed.
    Probed,
    /// An attempt succeeded, and the entry is closed.
    Released,
}

/// The open entries, by the reports that the bus has stored.
#[derive(Debug, Default)]
pub(super) struct Openings {
    open: BTreeMap<BackoffKeyId, Open>,
    /// Own reports that have not come back from the bus. True if the report and the node's report before it are both failures.
    unstored: BTreeMap<BackoffKeyId, bool>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    failing_since: Duration,
    /// Until when it counts as open. This is longer than it refuses nodes, so that its release is still recorded; later no report on it is
    /// kept.
    until: Duration,
}

impl Openings {
    fn is_open(&self, now: Duration, backoff_key: BackoffKeyId) -> bool {
        self.open.get(&backoff_key).is_some_and(|open| now <= open.until)
    }

    fn opened(&mut self, now: Duration, backoff_key: BackoffKeyId, open: Open) {
        if self.open.len() >= OPEN_MOST {
            self.open.retain(|_, open| now <= open.until);
        }
        if self.open.len() >= OPEN_MOST {
            self.open.clear();
        }
        self.open.insert(backoff_key, open);
    }

    /// Whether the node's own report does not count yet.
    fn is_without_own(&self, backoff_key: BackoffKeyId) -> bool {
        self.unstored.get(&backoff_key).is_some_and(|fails_again| !fails_again)
    }

    /// An operator has cleared the entry: no release is recorded.
    pub(super) fn forget(&mut self, backoff_key: BackoffKeyId) {
        self.open.remove(&backoff_key);
    }
}

impl Knowledge {
    /// The node publishes a report. What it changes is recorded when the bus has stored it.
    pub(super) fn note_unstored(&mut self, report: &Report) {
        let fails = |report: &Report| report.finding.details().is_some();
        let fails_again = self.replica.own_report(report.backoff_key.id()).is_some_and(|before| fails(&before.report) && fails(report));
        if self.openings.unstored.len() >= MAX_KEYS_OF_ONE {
            self.openings.unstored.clear();
        }
        self.openings.unstored.insert(report.backoff_key.id(), fails_again);
    }

    /// The bus has stored this node's report on a back-off key.
    pub(super) fn own_is_stored(&mut self, now: Duration, backoff_key: BackoffKeyId) {
        if self.openings.unstored.remove(&backoff_key).is_none() {
            return;
        }
        let Some(report) = self.replica.own_report(backoff_key).map(|own| Arc::clone(&own.report)) else { return };
        if let Some(news) = self.follow(now, &report) {
            self.effects.push(Effect::Announce(Box::new(news)));
        }
    }

    /// The change that a report makes to its entry, if any, when the bus has stored it.
    pub(super) fn follow(&mut self, now: Duration, report: &Report) -> Option<EntryNews> {
        let backoff_key = report.backoff_key.id();
        let open = self.openings.is_open(now, backoff_key);
        match (open, report.finding.details()) {
            (true, Some(details)) => {
                // The entry stays open. It is not derived again, because it may have thousands of reports.
                let until = now + cadence::delay(&report.backoff_key, details.step, details.retry_after) + KEPT_FOR;
                self.openings.open.entry(backoff_key).and_modify(|open| open.until = open.until.max(until));
                None
            }
            (false, Some(_)) => {
                let entry = self.entry_as_stored(now, backoff_key).filter(|entry| entry.refuses_all)?;
                let open = Open { failing_since: entry.failing_since, until: entry.next_attempt + KEPT_FOR };
                self.openings.opened(now, backoff_key, open);
                Some(EntryNews::of(EntryNewsKind::Opened, &entry, report))
            }
            (true, None) => {
                if self.entry_as_stored(now, backoff_key).is_some_and(|entry| entry.refuses_all) {
                    return None;
                }
                let open = self.openings.open.remove(&backoff_key)?;
                Some(EntryNews {
                    kind: EntryNewsKind::Released,
                    backoff_key: Arc::clone(&report.backoff_key),
                    attempt: report.attempt,
                    trace: report.trace,
                    cause: String::new(),
                    failing_since: open.failing_since,
                    next_attempt: None,
                    reporters: 0,
                    step: 0,
                })
            }
            (false, None) => None,
        }
    }

    /// Records that this node's probe has failed.
    pub(super) fn note_probe(&mut self, now: Duration, running: &RunningAttempt, backoff_keys: &[Arc<BackoffKey>]) {
        let Duty::Probe(probed) = running.duty else { return };
        let Some(backoff_key) = backoff_keys.iter().find(|backoff_key| backoff_key.id() == probed) else { return };
        let own = self.replica.own_report(probed).filter(|own| matches!(own.report.finding, Finding::Failed(_)));
        if let (Some(entry), Some(own)) = (self.entry(now, backoff_key.id()), own) {
            self.effects.push(Effect::Announce(Box::new(EntryNews::of(EntryNewsKind::Probed, &entry, &own.report))));
        }
    }

    fn entry_as_stored(&self, now: Duration, backoff_key: BackoffKeyId) -> Option<Entry> {
        if self.openings.is_without_own(backoff_key) {
            self.replica.entry_without_own(backoff_key, self.viewpoint(now))
        } else {
            self.entry(now, backoff_key)
        }
    }
}

impl EntryNews {
    fn of(kind: EntryNewsKind, entry: &Entry, report: &Report) -> Self {
        Self {
            kind,
            backoff_key: Arc::clone(&entry.backoff_key),
            attempt: report.attempt,
            trace: report.trace,
            cause: report.finding.details().map(|details| details.message.clone()).unwrap_or_default(),
            failing_since: entry.failing_since,
            next_attempt: Some(entry.next_attempt),
            reporters: entry.reporters,
            step: entry.step,
        }
    }
}
