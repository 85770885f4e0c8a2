//! The back-off entry: what all reports on one key amount to.
//!
//! An entry is neither stored nor sent. Every node derives it from the same reports, so order of arrival and repetition make no
//! difference, and no node can write more than its own report.

use std::sync::Arc;
use std::time::Duration;

use contract::{AttemptId, DEADLINES, NodeName, RETRY_AFTER_MAX};

use super::backoff_key::{BackoffKey, Reach, may_be_overload};
use super::cadence;
use super::replica::KEPT_FOR;
use super::report::{Finding, Report};

/// An entry stays this long after the delay since its newest failure, an unconfirmed one after the first failure, so that a prober that died
/// does not release all nodes.
const OUTLIVES: Duration = Duration::from_secs(2 * DEADLINES.attempt_lease.as_secs());
/// Reports further apart do not corroborate each other.
const CORROBORATION_WINDOW: Duration = Duration::from_secs(120);
/// How often the planted bug doubles a delay at most.
const LAST_DOUBLING: u32 = 12;
/// A registry that served a node lately counts as down all the same if this many attempts in a row have failed since, on this many nodes.
const DOWN_FAILURES: u64 = 30;
const DOWN_NODES: usize = 3;
/// While the registry answers some nodes, it counts as silent only if more resolutions than this are unanswered.
const UNANSWERED_AMONG_ANSWERS: usize = 20;

/// The report of an unanswered attempt is published 2 s after the attempt began, and is dated when it began. With this delay the reports of
/// attempts that began within a second after it arrive before the next attempt.
const UNANSWERED_REST_LEAST: Duration = Duration::from_secs(DEADLINES.unanswered_after.as_secs() + 1);

/// A report as this node holds it.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) report: Arc<Report>,
    /// When the attempt had its result, on this node's clock.
    pub(super) date: Duration,
    /// Since when this reporter has had nothing but failures, as it reports.
    pub(super) failing_since: Duration,
    /// When this reporter's last failing attempt for all nodes was, or its first failure if it made none.
    pub(super) for_all_at: Duration,
    /// The failure; none: the report is a success. Kept next to the report, because a node goes through thousands of them.
    pub(super) claim: Option<Claim>,
}

/// The failure in a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Whether the attempt is over; if not, it has had no answer so far.
    is_over: bool,
    step: u32,
    in_a_row: u32,
    pub(super) retry_after: Option<Duration>,
}

impl Received {
    pub(super) fn new(report: Arc<Report>, date: Duration) -> Self {
        let ago = report.finding.details().map(|details| (details.failing_for, details.for_all_ago));
        let (failing_for, for_all_ago) = ago.unwrap_or_default();
        let (failing_since, for_all_at) = (date.saturating_sub(failing_for), date.saturating_sub(for_all_ago));
        let claim = report.finding.details().map(|details| Claim {
            is_over: matches!(report.finding, Finding::Failed(_)),
            step: details.step,
            in_a_row: details.in_a_row,
            retry_after: details.retry_after,
        });
        Self { report, date, failing_since, for_all_at, claim }
    }

    /// When the reporter last succeeded, if its report is a success or names one.
    pub(super) fn succeeded_at(&self) -> Option<Duration> {
        match self.report.finding.details() {
            Some(details) => details.succeeded_ago.map(|ago| self.date.saturating_sub(ago)),
            None => Some(self.date),
        }
    }
}

/// What deriving an entry depends on besides the reports: the node that looks, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Viewpoint<'a> {
    pub(super) node: &'a NodeName,
    pub(super) now: Duration,
    /// Nodes alive in the zone, at least 1; if unknown, more than any rule asks for.
    pub(super) alive_in_zone: usize,
    /// Nodes alive in the fleet, likewise.
    pub(super) alive: usize,
    /// A planted bug: one report counts as three.
    pub(super) trusts_anyone: bool,
    /// Another planted bug: each step is twice as long as the one before.
    pub(super) endless: bool,
}

/// When a back-off key last succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Successes {
    /// By any node's report, and the attempt of that report.
    pub(super) newest: Option<(Duration, AttemptId)>,
    /// The newest success that is confirmed: another node has succeeded since, or it is this node's own.
    pub(super) confirmed: Option<Duration>,
}

/// A shared failure.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub backoff_key: Arc<BackoffKey>,
    /// Whether it refuses all nodes until the next attempt. If not, too few nodes have reported it, and each of them goes by its own rule.
    pub refuses_all: bool,
    /// The newest failure. Its message is the cause that people see.
    pub newest: Arc<Report>,
    /// The last report of the node whose attempt for all the next one is counted from: see `Received::for_all_at`. Its attempt names the
    /// epoch; it is a later one if that node has failed for itself since.
    pub last_for_all: Arc<Report>,
    /// The attempt of a success since, which no other node has confirmed.
    pub succeeded: Option<AttemptId>,
    /// When the newest failed, on this node's clock.
    pub failed_at: Duration,
    /// The newest failure of another node: when, and which node.
    pub before: Option<(Duration, NodeName)>,
    /// When the oldest failure since the last success was.
    pub failing_since: Duration,
    /// How many nodes report it, this one included.
    pub reporters: usize,
    /// How often in a row it failed. A single node moves it by one at most.
    pub step: u32,
    /// How many attempts of its reporters have failed in a row. The step begins anew if the entry expired in between; this does not.
    pub failures: u64,
    /// When the next attempt is due for this node.
    pub next_attempt: Duration,
    /// When it expires.
    pub(super) matters_until: Duration,
    /// Whether this node is one of the reporters.
    pub mine: bool,
}

impl Entry {
    /// The attempt that opened the present epoch: the last failure for all nodes, or the success since. Its name is the name of the probe
    /// lease.
    #[must_use]
    pub fn epoch(&self) -> AttemptId {
        self.succeeded.unwrap_or(self.last_for_all.attempt)
    }

    /// Whether one other node alone reports it. Such an entry refuses no attempt, because that node may itself be the cause: the next one
    /// is due at once, and one of the nodes that wait makes it.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.reporters == 1 && !self.mine
    }

    /// False once expired.
    pub(super) fn matters(&self, now: Duration) -> bool {
        now <= self.matters_until
    }

    /// Derives an entry from the failures that count, whether one of them is this node's, and the newest successes; none if nothing fails.
    pub(super) fn of(standing: &[&Received], mine: bool, successes: Successes, viewpoint: Viewpoint<'_>) -> Option<Self> {
        let newest = *standing.iter().max_by_key(|received| (received.date, &received.report.reporter))?;
        let backoff_key = Arc::clone(&newest.report.backoff_key);
        let reporters = standing.len();
        let unconfirmed = successes.newest.filter(|(date, _)| *date >= newest.date && viewpoint.now <= *date + KEPT_FOR);
        if unconfirmed.is_some() && reporters == 1 {
            // One node's success ends one node's failure.
            return None;
        }
        let degraded = is_degraded(&backoff_key, standing, newest, successes.newest.map(|(date, _)| date), viewpoint);
        let shared =
            viewpoint.trusts_anyone || (!degraded && corroborated(&backoff_key, standing, newest, successes.confirmed, mine, viewpoint));
        let others = standing.iter().filter(|received| received.report.reporter != newest.report.reporter);
        let before = others.max_by_key(|received| (received.date, &received.report.reporter));
        let step = step(standing);
        let failures: u64 = standing.iter().filter_map(|received| received.claim).map(|claim| u64::from(claim.in_a_row.max(1))).sum();
        // Nodes that fail for themselves postpone the attempt that one of the others makes for all by their first failure only.
        let last = *standing.iter().max_by_key(|received| (received.for_all_at, &received.report.reporter))?;
        let others = standing.iter().filter(|received| received.report.reporter != last.report.reporter);
        let last_of_another = others.max_by_key(|received| (received.for_all_at, &received.report.reporter)).copied();
        let doubled = if viewpoint.endless { 1 << step.min(LAST_DOUBLING) } else { 1 };
        let rest = rest(&backoff_key, step, standing, last, last_of_another) * doubled;
        let is_unconfirmed = shared && reporters == 1 && !mine && !viewpoint.trusts_anyone;
        let (due, lasts) = match is_unconfirmed {
            true => (newest.failing_since, Duration::ZERO),
            false => (last.for_all_at + rest, newest.date.saturating_sub(last.for_all_at)),
        };
        // A node that repeats its failure postpones the next attempt of others by one delay, counted from the last failure for all of
        // another node. A prober may begin as much later as its deadline.
        let repeated = last_of_another.filter(|_| last.report.reporter != *viewpoint.node && retry_after(standing, last).is_none());
        let latest = repeated.map(|another| another.for_all_at + rest * 2 + DEADLINES.attempt_lease);
        // One node's success does not end several nodes' failures, but the next attempt is due, at the earliest after the first delay.
        let succeeded = unconfirmed.map(|(date, _)| date.max(newest.date + cadence::delay(&backoff_key, 1, None)));
        let next_attempt = [latest, succeeded].into_iter().flatten().fold(due, Duration::min);
        Some(Self {
            refuses_all: shared,
            newest: Arc::clone(&newest.report),
            last_for_all: Arc::clone(&last.report),
            succeeded: unconfirmed.map(|(_, attempt)| attempt),
            failed_at: newest.date,
            before: before.map(|received| (received.date, received.report.reporter.clone())),
            failing_since: standing.iter().map(|received| received.failing_since).min()?,
            backoff_key,
            reporters,
            step,
            failures,
            next_attempt,
            matters_until: due + lasts + OUTLIVES,
            mine,
        })
    }
}

/// True if the registry still serves some requests. Its failures then refuse no other pulls.
fn is_degraded(
    backoff_key: &BackoffKey,
    standing: &[&Received],
    newest: &Received,
    success: Option<Duration>,
    viewpoint: Viewpoint<'_>,
) -> bool {
    let served_lately = success.is_some_and(|success| newest.date <= success + super::SERVED_LATELY);
    if !served_lately || !may_be_overload(backoff_key.class()) {
        return false;
    }
    let (over, unanswered): (Vec<&Claim>, Vec<&Claim>) =
        standing.iter().filter_map(|received| received.claim.as_ref()).partition(|claim| claim.is_over);
    let failures: u64 = over.iter().map(|claim| u64::from(claim.in_a_row)).sum();
    let is_down = failures >= DOWN_FAILURES && over.len() >= DOWN_NODES.min(viewpoint.alive);
    !is_down && unanswered.len() <= UNANSWERED_AMONG_ANSWERS
}

fn corroborated(
    backoff_key: &BackoffKey,
    standing: &[&Received],
    newest: &Received,
    success: Option<Duration>,
    mine: bool,
    viewpoint: Viewpoint<'_>,
) -> bool {
    let recent = || standing.iter().filter(|received| received.date + CORROBORATION_WINDOW >= newest.date);
    match backoff_key.in_view().reach() {
        Reach::AtOnce => true,
        Reach::Repositories(needed) => {
            let mut repositories: Vec<&str> = Vec::with_capacity(needed);
            for details in recent().filter_map(|received| received.report.finding.details()) {
                if repositories.len() < needed && !repositories.contains(&details.repository.as_str()) {
                    repositories.push(&details.repository);
                }
            }
            repositories.len() >= needed
        }
        Reach::Nodes(needed) => {
            let there = if backoff_key.in_view().zone().is_some() { viewpoint.alive_in_zone } else { viewpoint.alive };
            // Another node's report shows that there are at least two nodes, whatever the digest says in the first seconds of a fleet.
            let needed = needed.min(if mine { there } else { there.max(2) });
            let failed = recent().filter(|received| received.claim.is_some_and(|claim| claim.is_over)).count();
            let unanswered = recent().count() - failed;
            let answering = success.is_some_and(|success| success + super::QUIET_AFTER >= newest.date);
            failed >= needed || unanswered > UNANSWERED_AMONG_ANSWERS || (!answering && failed + unanswered >= needed)
        }
    }
}

/// The highest step that two nodes report, or one more: one node's report moves it by one at most.
fn step(standing: &[&Received]) -> u32 {
    let (mut highest, mut second) = (0, 0);
    for claim in standing.iter().filter_map(|received| received.claim).map(|claim| claim.step) {
        second = second.max(claim.min(highest));
        highest = highest.max(claim);
    }
    if standing.len() > 1 { highest.min(second.saturating_add(1)) } else { highest }
}

/// The delay from the last failure for all until the next attempt. `Retry-After` counts in full if two nodes report it, or if only one node
/// reports the failure. If the last two nodes that failed for all each state one, the longer counts, up to the delay without it.
fn rest(backoff_key: &BackoffKey, step: u32, standing: &[&Received], last: &Received, another: Option<&Received>) -> Duration {
    let least = if last.claim.is_some_and(|claim| claim.is_over) { Duration::ZERO } else { UNANSWERED_REST_LEAST };
    let unasked = cadence::delay(backoff_key, step, None).max(least);
    let asked = |asked| cadence::delay(backoff_key, step, Some(asked));
    let stated = |received: &Received| received.claim.and_then(|claim| claim.retry_after);
    let both = stated(last).zip(another.and_then(stated)).map(|(last, another)| asked(last.max(another)).min(unasked));
    retry_after(standing, last).map(asked).max(both).unwrap_or(unasked)
}

/// The `Retry-After` that two nodes report, or that the only reporter reports. Counted from the last failure for all.
fn retry_after(standing: &[&Received], last: &Received) -> Option<Duration> {
    let until = |received: &&Received| Some(received.date + received.claim?.retry_after?.min(RETRY_AFTER_MAX));
    let mut until: Vec<Duration> = standing.iter().filter_map(until).collect();
    until.sort_unstable();
    let vouched = if standing.len() > 1 { until.iter().rev().nth(1) } else { until.last() };
    vouched.map(|until| until.saturating_sub(last.for_all_at)).filter(|left| !left.is_zero())
}
