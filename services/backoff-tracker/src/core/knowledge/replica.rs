//! The replica: every report that this node has received, within bounds.

mod cleared;
mod retention;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::SharedCounts;
use contract::{FailureClass, NodeName, TraceContext};

pub(super) use self::retention::expires;
pub use self::retention::{KEPT_FOR, LONGEST_KEPT, MAX_KEYS_OF_ONE, MAX_REPORTS, OLDEST, keep_for};
use super::backoff_key::{BackoffKey, BackoffKeyId, CORROBORATING_NODES};
use super::entry::{Entry, Received, Viewpoint};
use super::key_reports::KeyReports;
use super::report::Report;
use super::reporters::{ReporterId, Reporters};
use crate::core::remove_from_index;

/// A kind of failure: a class, in a view.
type Kind = (u128, FailureClass);

/// Every node's last report on every key, as one node holds them.
#[derive(Debug)]
pub(super) struct Replica {
    /// The node that holds the replica.
    node: NodeName,
    backoff_keys: BTreeMap<BackoffKeyId, KeyReports>,
    /// The keys that fail, by kind.
    failing: BTreeMap<Kind, BTreeSet<BackoffKeyId>>,
    reporters: Reporters,
    cleared: BTreeMap<BackoffKeyId, Duration>,
    /// When operators cleared images. Reports of more keys of these images may arrive later.
    cleared_images: BTreeMap<String, Duration>,
    collected: Duration,
    /// No report is too old before this.
    oldest_expires: Duration,
    counts: SharedCounts,
}

impl Replica {
    pub(super) fn new(node: NodeName) -> Self {
        Self {
            node,
            backoff_keys: BTreeMap::new(),
            failing: BTreeMap::new(),
            reporters: Reporters::default(),
            cleared: BTreeMap::new(),
            cleared_images: BTreeMap::new(),
            collected: Duration::ZERO,
            oldest_expires: Duration::ZERO,
            counts: SharedCounts::default(),
        }
    }

    /// Takes a report that was `age` old when it arrived. Returns whether it is new.
    pub(super) fn receive(&mut self, now: Duration, report: Arc<Report>, age: Duration) -> bool {
        self.collect_garbage(now);
        let date = now.saturating_sub(self.clamped(&report, age));
        if !self.is_news(now, &report, date) {
            self.counts.reports_stale_total += 1;
            return false;
        }
        let backoff_key = report.backoff_key.id();
        let by = self.reporters.note_report(&report.reporter, backoff_key, date);
        let received = Received::new(report, date);
        self.oldest_expires = self.oldest_expires.min(expires(&received));
        let kind = kind(&received.report.backoff_key);
        let reports = self.backoff_keys.entry(backoff_key).or_default();
        reports.insert(by, received);
        let fails = reports.fails();
        self.note_failing(kind, backoff_key, fails);
        self.make_room(by);
        self.counts.reports_received_total += 1;
        true
    }

    /// True if a report of that date is later than the reporter's last one on the key, and still of use.
    pub(super) fn is_news(&self, now: Duration, report: &Report, date: Duration) -> bool {
        let known = self.received(report.backoff_key.id(), self.reporters.find(&report.reporter));
        known.is_none_or(|known| newer(report, date, known)) && date + keep_for(report) >= now
    }

    /// Since when failures of a key count for this node: since the newest success that is confirmed, or since it was cleared.
    fn in_order_at(&self, reports: &KeyReports) -> Option<Duration> {
        let confirmed = reports.confirmed_at(self.own_id());
        confirmed.max(reports.any().and_then(|received| self.cleared_at(&received.report.backoff_key)))
    }

    /// The keys that reports on an image are about.
    pub(super) fn backoff_keys_of_image(&self, image: &str) -> Vec<BackoffKeyId> {
        let of_image =
            |reports: &KeyReports| reports.any().is_some_and(|received| received.report.backoff_key.in_view().reference() == Some(image));
        self.backoff_keys.iter().filter(|(_, reports)| of_image(reports)).map(|(backoff_key, _)| *backoff_key).collect()
    }

    /// All reports of this node, with their dates.
    pub(super) fn own_reports(&self) -> Vec<(Arc<Report>, Duration)> {
        let Some(by) = self.own_id() else { return vec![] };
        let received = self.reporters.backoff_keys_of(by).filter_map(|backoff_key| self.backoff_keys.get(&backoff_key)?.of(by));
        received.map(|received| (Arc::clone(&received.report), received.date)).collect()
    }

    pub(super) fn entry(&self, backoff_key: BackoffKeyId, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        let reports = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails())?;
        let entry = reports.entry(viewpoint, || {
            let confirmed = reports.confirmed_at(self.own_id());
            let successes = [reports.succeeded_at(), confirmed].into_iter().flatten().map(|success| success + KEPT_FOR);
            let expiries = reports.failures().map(expires).chain(successes);
            let until = expiries.filter(|at| viewpoint.now <= *at).min().unwrap_or(Duration::MAX);
            (self.derive_among(reports, false, None, viewpoint), until)
        });
        entry.filter(|entry| entry.matters(viewpoint.now))
    }

    /// The same without this node's own report.
    pub(super) fn entry_without_own(&self, backoff_key: BackoffKeyId, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        let reports = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails())?;
        self.derive_among(reports, true, None, viewpoint).filter(|entry| entry.matters(viewpoint.now))
    }

    /// True if other nodes need an unpublished failure of this node: the first opens the entry, and the next confirm it until no
    /// rule asks for more reporters. A failure whose entry would have expired counts too, because successes are published for back-off keys
    /// with a known failure.
    pub(super) fn is_changed_by(&self, unpublished: &Arc<Report>, date: Duration, viewpoint: Viewpoint<'_>) -> bool {
        let no_reports = KeyReports::default();
        let reports = self.backoff_keys.get(&unpublished.backoff_key.id()).unwrap_or(&no_reports);
        let unpublished = Received::new(Arc::clone(unpublished), date);
        let derive = |unpublished| self.derive_among(reports, true, unpublished, viewpoint);
        match (derive(None), derive(Some(&unpublished))) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(known), Some(with)) => {
                known.reporters < with.reporters && (known.reporters < CORROBORATING_NODES || known.refuses_all != with.refuses_all)
            }
        }
    }

    /// True if a success of this node at `date` ends a failure that others know: another node's before it, or this node's last report.
    pub(super) fn is_answered_by(&self, success: &Report, date: Duration) -> bool {
        let Some(reports) = self.backoff_keys.get(&success.backoff_key.id()) else { return false };
        self.own_failure(reports).is_some() || reports.failures_since(self.in_order_at(reports)).any(|received| received.date < date)
    }

    /// Derives an entry, if asked without the report of this node, and with one more report. Refuted failures count for their reporter alone.
    fn derive_among(&self, reports: &KeyReports, without_own: bool, with: Option<&Received>, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        let backoff_key = &reports.any().or(with)?.report.backoff_key;
        let successes = reports.successes_for(self.own_id(), without_own);
        let since = successes.confirmed.max(self.cleared_at(backoff_key));
        let stands = |received: &Received| since.is_none_or(|since| received.date > since) && viewpoint.now <= expires(received);
        let counts = |received: &Received| match received.report.reporter == self.node {
            true => !without_own,
            false => viewpoint.trusts_anyone || !is_refuted(viewpoint.now, received, successes.confirmed),
        };
        let mine = !without_own && self.own_failure(reports).is_some_and(stands);
        let with = with.filter(|received| stands(received));
        let standing = reports.failures().filter(|received| stands(received) && counts(received)).chain(with);
        Entry::of(&standing.collect::<Vec<_>>(), mine, successes, viewpoint)
    }

    /// True if this node fails where two others have succeeded since.
    pub(super) fn is_refuted(&self, now: Duration, backoff_key: BackoffKeyId) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key) else { return false };
        self.own_failure(reports).is_some_and(|own| is_refuted(now, own, reports.confirmed_at(self.own_id())))
    }

    /// True if any node reports a failure of the key that no confirmed success has ended.
    pub(super) fn is_failing(&self, backoff_key: BackoffKeyId) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails()) else { return false };
        reports.failures_since(self.in_order_at(reports)).next().is_some()
    }

    pub(super) fn succeeded_at(&self, backoff_key: BackoffKeyId) -> Option<Duration> {
        self.backoff_keys.get(&backoff_key)?.succeeded_at()
    }

    /// The newest successes of two nodes: the dates of their attempts, and the nodes.
    pub(super) fn newest_successes(&self, backoff_key: BackoffKeyId) -> impl Iterator<Item = (Duration, NodeName)> {
        self.backoff_keys.get(&backoff_key).into_iter().flat_map(KeyReports::newest_successes)
    }

    /// When a key last succeeded for sure: another node has succeeded since, or this node itself has.
    pub(super) fn confirmed_at(&self, backoff_key: BackoffKeyId) -> Option<Duration> {
        self.backoff_keys.get(&backoff_key)?.confirmed_at(self.own_id())
    }

    /// The span of the attempt that last succeeded, if its node reports it.
    pub(super) fn succeeded_by(&self, backoff_key: BackoffKeyId) -> Option<TraceContext> {
        self.backoff_keys.get(&backoff_key)?.newest_success()?.report.trace
    }

    /// True if this node's last report on a key is a failure, and no confirmed success has come since.
    pub(super) fn is_standing(&self, backoff_key: BackoffKeyId) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key) else { return false };
        let since = self.in_order_at(reports);
        self.own_failure(reports).is_some_and(|own| since.is_none_or(|since| own.date > since))
    }

    /// This node's last report on a key.
    pub(super) fn own_report(&self, backoff_key: BackoffKeyId) -> Option<&Received> {
        self.received(backoff_key, self.own_id())
    }

    fn received(&self, backoff_key: BackoffKeyId, by: Option<ReporterId>) -> Option<&Received> {
        self.backoff_keys.get(&backoff_key)?.of(by?)
    }

    /// This node as a reporter, if any of its reports is kept.
    fn own_id(&self) -> Option<ReporterId> {
        self.reporters.find(&self.node)
    }

    /// This node's last report among these, if it is a failure.
    fn own_failure<'a>(&self, reports: &'a KeyReports) -> Option<&'a Received> {
        reports.failing_of(self.own_id()?)
    }

    /// True if any key of a view has a failure of this class.
    pub(super) fn fails_in(&self, view_id: u128, class: FailureClass) -> bool {
        let failing = self.failing.get(&(view_id, class));
        failing.is_some_and(|backoff_keys| backoff_keys.iter().any(|backoff_key| self.is_failing(*backoff_key)))
    }

    fn note_failing(&mut self, kind: Kind, backoff_key: BackoffKeyId, fails: bool) {
        if fails {
            self.failing.entry(kind).or_default().insert(backoff_key);
        } else {
            remove_from_index(&mut self.failing, &kind, &backoff_key);
        }
    }

    /// The reports on a key, in no particular order.
    pub(super) fn reports(&self, backoff_key: BackoffKeyId) -> impl Iterator<Item = &Report> {
        self.backoff_keys.get(&backoff_key).into_iter().flat_map(|reports| reports.all().map(|(_, received)| &*received.report))
    }

    /// A key that there are reports on.
    pub(super) fn backoff_key(&self, id: BackoffKeyId) -> Option<Arc<BackoffKey>> {
        self.backoff_keys.get(&id)?.any().map(|received| Arc::clone(&received.report.backoff_key))
    }

    pub(super) fn backoff_keys(&self) -> impl Iterator<Item = BackoffKeyId> {
        self.backoff_keys.keys().copied()
    }

    /// How many reports are kept, and what the bounds did.
    pub(super) fn counts(&self) -> SharedCounts {
        SharedCounts { reports: self.reporters.reports() as u64, ..self.counts }
    }
}

fn kind(backoff_key: &BackoffKey) -> Kind {
    (backoff_key.view_id(), backoff_key.class())
}

/// True if two other nodes have succeeded since the reporter began to fail, as long as that success is kept: then the reporter itself may
/// be the cause.
fn is_refuted(now: Duration, failure: &Received, success: Option<Duration>) -> bool {
    success.is_some_and(|success| failure.failing_since < success && now <= success + KEPT_FOR)
}

/// True if a report is later than the known one, on the same clock.
fn newer(report: &Report, date: Duration, known: &Received) -> bool {
    if report.attempt == known.report.attempt {
        return report.finding.weight() > known.report.finding.weight();
    }
    (date, report.finding.weight(), report.attempt) > (known.date, known.report.finding.weight(), known.report.attempt)
}
