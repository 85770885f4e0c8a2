//! All that a node has heard, bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contract::{FailureClass, NodeName, TraceContext};

use super::backoff_key::{BackoffKey, BackoffKeyId, CORROBORATING_NODES};
use super::cadence;
use super::derived::Derived;
use super::entry::{Binding, Entry, Received, Viewpoint};
use super::key_reports::KeyReports;
use super::report::{Finding, MAX_MESSAGE_BYTES, Report};
use super::reporters::{ReporterId, Reporters};

/// How long a report is kept; corroboration, and who already had a try, look no further back.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(600);
/// A report outlives what the registry asked for by this.
const KEPT_BEYOND_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The longest that any report is kept.
pub const LONGEST_KEPT: Duration = Duration::from_secs(cadence::LONGEST_RETRY_AFTER.as_secs() + KEPT_BEYOND_RETRY_AFTER.as_secs());
/// The oldest a report may be when it comes: older ones are replays or come from a broken clock, and count as this old. Whoever
/// gives this core its time begins to count no later than here, so that what was said before the node began has a date.
pub const OLDEST: Duration = Duration::from_secs(24 * 3_600);
/// How long a reporter whom others contradicted is heard by nobody else.
pub const DISTRUSTED_FOR: Duration = Duration::from_secs(600);
/// Of a back-off key's reporters it is found so often who is contradicted: that it was a second ago changes nothing.
const CONTRADICTED_APART: Duration = Duration::from_secs(1);
/// How often what is too old is looked for, among all: nothing is decided by a report that is seconds too old.
const COLLECTED_EVERY: Duration = Duration::from_secs(10);
/// How often a reporter that failed alone may make good within that time; after that its successes are not taken as such.
const PARDONS: u32 = 2;
/// Back-off keys one node may speak of at once: a bad registry with a few hundred images. At one more its oldest word goes.
pub const MAX_KEYS_OF_ONE: usize = 512;
/// Reports in all, 40 MiB at the most. At one more the oldest word of whoever says the most goes.
pub const MAX_REPORTS: usize = 32_768;

/// Back-off keys remembered as cleared, and images, as long as reports are kept. At one more the oldest is forgotten.
const MAX_CLEARED: usize = 4_096;

/// What the bounds did, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Reports held now.
    pub reports: u64,
    /// Reports that said something new.
    pub heard_total: u64,
    /// Reports that changed nothing: repeated, or older than the reporter's last word.
    pub stale_total: u64,
    /// Reports forgotten for want of room.
    pub evicted_total: u64,
    /// Reports with a time that could not be, clamped.
    pub clamped_total: u64,
    /// Reporters found distrusted.
    pub contradicted_total: u64,
}

/// A kind of failure: of a class, in a view.
type Kind = (u128, FailureClass);

#[derive(Clone, Copy, Debug, Default)]
struct Distrust {
    /// When others last had success where this node had none.
    contradicted_at: Duration,
    /// When the node itself last had success; or others, where it had had it before them.
    sound_at: Option<Duration>,
    /// Whether another had failed so as well when that began: then it was not this node's fault alone.
    together: bool,
    pardons: u32,
}

impl Distrust {
    fn holds(self, now: Duration) -> bool {
        let pardoned = self.sound_at.is_some_and(|sound| sound >= self.contradicted_at) && self.pardons <= PARDONS;
        now < self.contradicted_at + DISTRUSTED_FOR && !pardoned
    }
}

/// Every node's last word on every back-off key.
#[derive(Debug, Default)]
pub struct Replica {
    backoff_keys: BTreeMap<BackoffKeyId, KeyReports>,
    /// The back-off keys that anybody says fail, by their kind.
    failing: BTreeMap<Kind, BTreeSet<BackoffKeyId>>,
    reporters: Reporters,
    /// Who keeps which kind of failure to itself.
    distrust: BTreeMap<Kind, BTreeMap<NodeName, Distrust>>,
    /// When operators cleared back-off keys.
    cleared: BTreeMap<BackoffKeyId, Duration>,
    /// When they cleared images, of which more may be heard later than is known by then.
    cleared_images: BTreeMap<String, Duration>,
    collected: Duration,
    /// No report is too old before this.
    oldest_expires: Duration,
    counts: ReplicaCounts,
    /// What was derived from it, until something is said that matters.
    derived: Derived,
}

impl Replica {
    /// Takes a report that was `age` old when it came. Returns whether it says anything new.
    pub fn receive(&mut self, now: Duration, report: Arc<Report>, age: Duration) -> bool {
        self.collect_garbage(now);
        let date = now.saturating_sub(self.clamped(&report, age));
        let backoff_key = report.backoff_key.id();
        let known = self.reporters.find(&report.reporter).and_then(|by| self.backoff_keys.get(&backoff_key)?.of(by));
        if known.is_some_and(|known| !newer(&report, date, known)) || date + keep_for(&report) < now {
            self.counts.stale_total += 1;
            return false;
        }
        let failing = known.filter(|known| known.claim.is_some()).map(|known| known.failing_since);
        let failing_since = failing.map_or(date, |since| since.min(date));
        if report.finding == Finding::Succeeded {
            self.pardon(now, &report, date, failing.is_some());
        }
        self.derived.forget(backoff_key);
        let by = self.reporters.spoke(&report.reporter, backoff_key, date);
        let received = Received::new(report, date, failing_since);
        self.oldest_expires = self.oldest_expires.min(expires(&received));
        let kind = kind(&received.report.backoff_key);
        let reports = self.backoff_keys.entry(backoff_key).or_default();
        reports.insert(by, received);
        let fails = reports.fails();
        self.note_failing(kind, backoff_key, fails);
        self.contradict(now, backoff_key);
        self.make_room(by);
        self.counts.heard_total += 1;
        true
    }

    /// An operator cleared a back-off key then. Returns whether that is news.
    pub(super) fn clear(&mut self, backoff_key: BackoffKeyId, date: Duration) -> bool {
        self.derived.forget(backoff_key);
        remember(&mut self.cleared, backoff_key, date)
    }

    /// An operator cleared an image then: of what is known, each of its back-off keys is to be cleared besides.
    pub(super) fn clear_image(&mut self, image: &str, date: Duration) {
        // A longer one is no image's name, but somebody's who wants memory.
        if image.len() <= MAX_MESSAGE_BYTES {
            remember(&mut self.cleared_images, image.to_owned(), date);
        }
    }

    /// When what a back-off key is about was cleared last.
    fn cleared_at(&self, backoff_key: &BackoffKey) -> Option<Duration> {
        let image = backoff_key.about().reference();
        self.cleared.get(&backoff_key.id()).max(image.and_then(|image| self.cleared_images.get(image))).copied()
    }

    /// Since when the failures of a back-off key count: its newest success, or when it was cleared.
    fn in_order_at(&self, reports: &KeyReports) -> Option<Duration> {
        reports.succeeded_at().max(reports.any().and_then(|received| self.cleared_at(&received.report.backoff_key)))
    }

    /// The back-off keys that reports of an image are about.
    pub(super) fn backoff_keys_of_image(&self, image: &str) -> Vec<BackoffKeyId> {
        let of_image =
            |reports: &KeyReports| reports.any().is_some_and(|received| received.report.backoff_key.about().reference() == Some(image));
        self.backoff_keys.iter().filter(|(_, reports)| of_image(reports)).map(|(backoff_key, _)| *backoff_key).collect()
    }

    /// All that a node has said, with when it was so.
    pub(super) fn reports_of(&self, node: &NodeName) -> Vec<(Arc<Report>, Duration)> {
        let Some(by) = self.reporters.find(node) else { return vec![] };
        self.heard_of(by).map(|received| (Arc::clone(&received.report), received.date)).collect()
    }

    /// What the reports of a back-off key come to. Who is distrusted is not heard, but by itself.
    pub(super) fn entry(&self, backoff_key: BackoffKeyId, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        let reports = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails())?;
        let entry = self.derived.entry(backoff_key, viewpoint, || (self.derive(reports, viewpoint), self.trust_changes(viewpoint.now)));
        entry.filter(|entry| entry.matters(viewpoint.now))
    }

    /// The same without what this node says.
    pub(super) fn entry_without(&self, backoff_key: BackoffKeyId, node: &NodeName, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        let reports = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails())?;
        self.derive_among(reports, Some(node), None, viewpoint).filter(|entry| entry.matters(viewpoint.now))
    }

    /// True if other nodes need an unpublished failure of `viewpoint.node`: the first opens the entry, and the next confirm it until no rule asks for
    /// more reporters. A failure whose entry would have expired counts too, because successes are published for back-off keys with a known failure.
    pub(super) fn is_changed_by(&self, unpublished: &Arc<Report>, date: Duration, viewpoint: Viewpoint<'_>) -> bool {
        let silent = KeyReports::default();
        let reports = self.backoff_keys.get(&unpublished.backoff_key.id()).unwrap_or(&silent);
        let unpublished = Received::new(Arc::clone(unpublished), date, date);
        let derive = |unpublished| self.derive_among(reports, Some(viewpoint.node), unpublished, viewpoint);
        match (derive(None), derive(Some(&unpublished))) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(known), Some(with)) => {
                known.reporters < with.reporters && (known.reporters < CORROBORATING_NODES || known.binding != with.binding)
            }
        }
    }

    /// Whether a success of then ends a failure that others know of: of another node before it, or the reporter's own last word.
    pub(super) fn is_answered_by(&self, success: &Report, date: Duration) -> bool {
        let Some(reports) = self.backoff_keys.get(&success.backoff_key.id()) else { return false };
        let own = self.reporters.find(&success.reporter).and_then(|by| reports.failing_of(by));
        own.is_some() || reports.failures_since(self.in_order_at(reports)).any(|received| received.date < date)
    }

    fn derive(&self, reports: &KeyReports, viewpoint: Viewpoint<'_>) -> Option<Entry> {
        self.derive_among(reports, None, None, viewpoint)
    }

    /// What the reports come to without those of one node, and with one more.
    fn derive_among(
        &self,
        reports: &KeyReports,
        without: Option<&NodeName>,
        with: Option<&Received>,
        viewpoint: Viewpoint<'_>,
    ) -> Option<Entry> {
        let nobody = BTreeMap::new();
        let about = &reports.any().or(with)?.report.backoff_key;
        let of_kind = self.distrust.get(&kind(about)).unwrap_or(&nobody);
        let counts = |received: &Received| {
            let reporter = &received.report.reporter;
            let believed = of_kind.is_empty() || viewpoint.credulous || reporter == viewpoint.node;
            let received = believed || !of_kind.get(reporter).is_some_and(|distrust| distrust.holds(viewpoint.now));
            received && without.is_none_or(|node| reporter != node)
        };
        let success = reports.succeeded_for(counts);
        let since = success.max(self.cleared_at(about));
        let own = self.reporters.find(viewpoint.node).and_then(|by| reports.failing_of(by));
        let mine = without.is_none() && own.is_some_and(|own| since.is_none_or(|since| own.date > since));
        let with = with.filter(|received| since.is_none_or(|since| received.date > since));
        let standing = reports.failures_since(since).filter(|received| counts(received)).chain(with);
        let mut entry = Entry::derive(standing, mine, success, viewpoint)?;
        if entry.is_unconfirmed() && !viewpoint.credulous && self.doubtful(viewpoint.now, &entry.newest) {
            entry.binding = Binding::Reporters;
        }
        Some(entry)
    }

    /// When somebody who is not heard now is heard again.
    fn trust_changes(&self, now: Duration) -> Duration {
        let ends = self.distrust.values().flat_map(BTreeMap::values).map(|distrust| distrust.contradicted_at + DISTRUSTED_FOR);
        ends.filter(|end| now < *end).min().unwrap_or(Duration::MAX)
    }

    /// Whether others have shown a reporter to be distrusted for any kind of failure in the view: then it is not believed alone.
    fn doubtful(&self, now: Duration, report: &Report) -> bool {
        let view = report.backoff_key.view_id();
        let holds = |class| self.distrust.get(&(view, class)).and_then(|nodes| nodes.get(&report.reporter)).is_some_and(|of| of.holds(now));
        FailureClass::ALL.into_iter().any(holds)
    }

    /// When a back-off key was last seen in order.
    #[must_use]
    pub fn succeeded_at(&self, backoff_key: BackoffKeyId) -> Option<Duration> {
        self.backoff_keys.get(&backoff_key)?.succeeded_at()
    }

    /// The span of the attempt that last succeeded, if its node says it.
    #[must_use]
    pub fn succeeded_by(&self, backoff_key: BackoffKeyId) -> Option<TraceContext> {
        self.backoff_keys.get(&backoff_key)?.newest_success()?.report.trace
    }

    /// Whether anybody says that a back-off key fails, and nobody since that it does not.
    #[must_use]
    pub fn is_doubted(&self, backoff_key: BackoffKeyId) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key).filter(|reports| reports.fails()) else { return false };
        reports.failures_since(self.in_order_at(reports)).next().is_some()
    }

    /// Whether what a node said of a back-off key last is a failure that nothing has answered since.
    pub(super) fn is_standing(&self, backoff_key: BackoffKeyId, node: &NodeName) -> bool {
        let Some(reports) = self.backoff_keys.get(&backoff_key) else { return false };
        let own = self.reporters.find(node).and_then(|by| reports.failing_of(by));
        let since = self.in_order_at(reports);
        own.is_some_and(|own| since.is_none_or(|since| own.date > since))
    }

    /// A node's last word on a back-off key.
    #[must_use]
    pub fn word(&self, backoff_key: BackoffKeyId, node: &NodeName) -> Option<&Report> {
        self.backoff_keys.get(&backoff_key)?.of(self.reporters.find(node)?).map(|received| &*received.report)
    }

    /// Whether others' successes contradict what a node says of this kind of failure.
    pub(super) fn is_distrusted(&self, now: Duration, node: &NodeName, backoff_key: Option<&Arc<BackoffKey>>) -> bool {
        backoff_key.is_some_and(|backoff_key| self.is_distrusted_for(now, node, backoff_key))
    }

    /// Whether any back-off key of a view fails so.
    pub(super) fn fails_in(&self, view_id: u128, class: FailureClass) -> bool {
        self.failing.get(&(view_id, class)).is_some_and(|backoff_keys| backoff_keys.iter().any(|backoff_key| self.is_doubted(*backoff_key)))
    }

    fn note_failing(&mut self, kind: Kind, backoff_key: BackoffKeyId, fails: bool) {
        if fails {
            self.failing.entry(kind).or_default().insert(backoff_key);
        } else if let Some(backoff_keys) = self.failing.get_mut(&kind) {
            backoff_keys.remove(&backoff_key);
            if backoff_keys.is_empty() {
                self.failing.remove(&kind);
            }
        }
    }

    /// A distrusted node that fails again so keeps that kind to itself for as long again: its failures go on.
    pub(super) fn still_distrusted(&mut self, now: Duration, node: &NodeName, backoff_key: &BackoffKey) {
        if let Some(distrust) = self.distrust.get_mut(&kind(backoff_key)).and_then(|nodes| nodes.get_mut(node)) {
            distrust.contradicted_at = distrust.contradicted_at.max(now);
        }
    }

    fn is_distrusted_for(&self, now: Duration, node: &NodeName, backoff_key: &BackoffKey) -> bool {
        self.distrust.get(&kind(backoff_key)).and_then(|nodes| nodes.get(node)).is_some_and(|distrust| distrust.holds(now))
    }

    /// Who says what of a back-off key, in no particular order.
    pub fn reports(&self, backoff_key: BackoffKeyId) -> impl Iterator<Item = &Report> {
        self.backoff_keys.get(&backoff_key).into_iter().flat_map(|reports| reports.all().map(|(_, received)| &*received.report))
    }

    /// A back-off key that there are reports of.
    pub(super) fn backoff_key(&self, id: BackoffKeyId) -> Option<Arc<BackoffKey>> {
        self.backoff_keys.get(&id)?.any().map(|received| Arc::clone(&received.report.backoff_key))
    }

    /// The back-off keys there are reports of.
    pub fn backoff_keys(&self) -> impl Iterator<Item = BackoffKeyId> {
        self.backoff_keys.keys().copied()
    }

    /// What the bounds did.
    #[must_use]
    pub fn counts(&self) -> ReplicaCounts {
        ReplicaCounts { reports: self.reporters.reports() as u64, ..self.counts }
    }

    fn clamped(&mut self, report: &Report, age: Duration) -> Duration {
        let asks_for_years =
            report.finding.details().and_then(|details| details.retry_after).is_some_and(|asked| asked > cadence::LONGEST_RETRY_AFTER);
        if age > OLDEST || asks_for_years {
            self.counts.clamped_total += 1;
        }
        age.min(OLDEST)
    }

    /// Whose failure stands although another has succeeded since keeps its kind of failure to itself for a while.
    fn contradict(&mut self, now: Duration, backoff_key: BackoffKeyId) {
        let (Some(success), Some(reports)) = (self.succeeded_at(backoff_key), self.backoff_keys.get_mut(&backoff_key)) else { return };
        if !reports.contradicts(success, CONTRADICTED_APART) {
            return;
        }
        let together = reports.failures().filter(|received| received.failing_since < success).nth(1).is_some();
        // Who is known to be contradicted is no news; of its own successes since, pardon keeps count.
        let known = |report: &Report| {
            let distrust = self.distrust.get(&kind(&report.backoff_key)).and_then(|nodes| nodes.get(&report.reporter));
            distrust.is_some_and(|distrust| distrust.contradicted_at >= success)
        };
        let distrusted = |received: &&Received| received.failing_since < success && !known(&received.report);
        let distrusted: Vec<Arc<Report>> = reports.failures().filter(distrusted).map(|received| Arc::clone(&received.report)).collect();
        for report in distrusted {
            let sound_at = self.sound_at(&report);
            let held = self.is_distrusted_for(now, &report.reporter, &report.backoff_key);
            let nodes = self.distrust.entry(kind(&report.backoff_key)).or_default();
            let distrust = nodes.entry(report.reporter.clone()).or_default();
            distrust.sound_at = distrust.sound_at.max(sound_at);
            distrust.together = together || (held && distrust.together);
            distrust.contradicted_at = success;
            if distrust.holds(now) != held {
                self.derived.forget_all();
            }
            self.counts.contradicted_total += 1;
        }
    }

    /// When a reporter itself last had success with this kind of thing.
    fn sound_at(&self, report: &Report) -> Option<Duration> {
        let sound = |received: &&Received| received.claim.is_none() && kind(&received.report.backoff_key) == kind(&report.backoff_key);
        self.heard_of(self.reporters.find(&report.reporter)?).filter(sound).map(|received| received.date).max()
    }

    fn heard_of(&self, by: ReporterId) -> impl Iterator<Item = &Received> {
        self.reporters.backoff_keys_of(by).filter_map(move |backoff_key| self.backoff_keys.get(&backoff_key)?.of(by))
    }

    /// Who succeeds itself is sound again, but who failed alone not time after time. A failure that was over then, others' later successes
    /// do not contradict, though they were heard first: without a bus, words wait.
    fn pardon(&mut self, now: Duration, report: &Report, date: Duration, over: bool) {
        if let Some(distrust) = self.distrust.get_mut(&kind(&report.backoff_key)).and_then(|nodes| nodes.get_mut(&report.reporter)) {
            self.derived.forget_all();
            let held = distrust.holds(now);
            let sound_at = if over { date.max(distrust.contradicted_at) } else { date };
            distrust.sound_at = distrust.sound_at.max(Some(sound_at));
            // One success is said of several back-off keys: only the word that makes good counts.
            let makes_good = held && sound_at >= distrust.contradicted_at;
            distrust.pardons += u32::from(makes_good && !distrust.together);
        }
    }

    fn make_room(&mut self, speaker: ReporterId) {
        if self.reporters.count_of(speaker) > MAX_KEYS_OF_ONE {
            self.forget_oldest_of(speaker);
        }
        if self.reporters.reports() > MAX_REPORTS
            && let Some(most) = self.reporters.most_talkative()
        {
            self.forget_oldest_of(most);
        }
    }

    fn forget_oldest_of(&mut self, by: ReporterId) {
        if let Some(backoff_key) = self.reporters.oldest_of(by) {
            self.forget(backoff_key, by);
            self.counts.evicted_total += 1;
        }
    }

    fn forget(&mut self, backoff_key: BackoffKeyId, by: ReporterId) {
        self.derived.forget(backoff_key);
        if let Some(reports) = self.backoff_keys.get_mut(&backoff_key) {
            let kind = reports.any().map(|received| kind(&received.report.backoff_key));
            reports.remove(by);
            let fails = reports.fails();
            if reports.is_empty() {
                self.backoff_keys.remove(&backoff_key);
            }
            if let Some(kind) = kind {
                self.note_failing(kind, backoff_key, fails);
            }
        }
        self.reporters.forget(by, backoff_key);
    }

    fn collect_garbage(&mut self, now: Duration) {
        if now < self.collected + COLLECTED_EVERY {
            return;
        }
        self.collected = now;
        for nodes in self.distrust.values_mut() {
            nodes.retain(|_, distrust| now < distrust.contradicted_at + 2 * DISTRUSTED_FOR);
        }
        self.distrust.retain(|_, nodes| !nodes.is_empty());
        self.cleared.retain(|_, date| now < *date + LONGEST_KEPT);
        self.cleared_images.retain(|_, date| now < *date + LONGEST_KEPT);
        if now <= self.oldest_expires {
            return;
        }
        let all = || {
            self.backoff_keys
                .iter()
                .flat_map(|(backoff_key, reports)| reports.all().map(move |(by, received)| (*backoff_key, by, expires(received))))
        };
        let expired: Vec<(BackoffKeyId, ReporterId)> =
            all().filter(|(_, _, expires)| *expires < now).map(|(backoff_key, by, _)| (backoff_key, by)).collect();
        let oldest = all().map(|(_, _, expires)| expires).filter(|expires| *expires >= now).min();
        self.oldest_expires = oldest.unwrap_or(Duration::MAX);
        for (backoff_key, by) in expired {
            self.forget(backoff_key, by);
        }
    }
}

/// Keeps when something was cleared. Returns whether that is news.
fn remember<What: Ord + Clone>(cleared: &mut BTreeMap<What, Duration>, what: What, date: Duration) -> bool {
    if cleared.get(&what).is_some_and(|known| *known >= date) {
        return false;
    }
    cleared.insert(what, date);
    if cleared.len() > MAX_CLEARED
        && let Some(oldest) = cleared.iter().min_by_key(|(_, date)| **date).map(|(what, _)| what.clone())
    {
        cleared.remove(&oldest);
    }
    true
}

fn kind(backoff_key: &BackoffKey) -> Kind {
    (backoff_key.view_id(), backoff_key.class())
}

/// From when on a report is too old to be kept.
fn expires(received: &Received) -> Duration {
    received.date + kept_for(received.claim.and_then(|claim| claim.retry_after))
}

/// Whether a report is a later word than the one known, on the same clock.
fn newer(report: &Report, date: Duration, known: &Received) -> bool {
    if report.attempt == known.report.attempt {
        return report.finding.weight() > known.report.finding.weight();
    }
    (date, report.finding.weight(), report.attempt) > (known.date, known.report.finding.weight(), known.report.attempt)
}

/// How long a report is of use.
#[must_use]
pub fn keep_for(report: &Report) -> Duration {
    kept_for(report.finding.details().and_then(|details| details.retry_after))
}

fn kept_for(asked: Option<Duration>) -> Duration {
    KEPT_FOR.max(asked.unwrap_or_default().min(cadence::LONGEST_RETRY_AFTER) + KEPT_BEYOND_RETRY_AFTER)
}
