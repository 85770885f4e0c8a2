//! What all reports of one topic come to.
//!
//! An entry is never stored or sent: every node derives it from the same reports, so that no order of arrival and no
//! repetition makes a difference, and nobody can write more than its own word.

use std::sync::Arc;
use std::time::Duration;

use contract::{AttemptId, NodeName};

use super::cadence;
use super::course::Course;
use super::replica::KEPT_FOR;
use super::report::{Finding, Report};
use super::topic::{Reach, Topic};
use super::words::Successes;

/// How long a lead, a probe or a slot may take to have the manifest resolved. A node that comes back later drops its result.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(15);
/// The longest that one node's word alone binds others: together with the release of 1,000 nodes inside a budget of 200 a
/// second it stays under ten seconds.
pub const HEARD_ONCE: Duration = Duration::from_secs(4);
/// An entry outlives its next try by this, so that a prober that died does not release everybody.
pub(super) const OUTLIVES: Duration = Duration::from_secs(2 * PROBE_DEADLINE.as_secs());
/// Failures further apart are not the same failure, where several nodes must say so.
const CORROBORATION_WINDOW: Duration = Duration::from_secs(120);
/// A registry that served somebody lately is down all the same if so many attempts failed since, in a row, of so many nodes.
const DOWN_FAILURES: u64 = 30;
const DOWN_NODES: usize = 3;
/// While the registry answers somebody, more resolutions than this must be unanswered to say that it does not.
const UNANSWERED_AMONG_ANSWERS: usize = 20;

/// A report as this node holds it.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) report: Arc<Report>,
    /// When it was so, on this node's clock.
    pub(super) date: Duration,
    /// Since when this reporter has had nothing else to say, as it says.
    pub(super) failing_since: Duration,
    /// When its last attempt on behalf of all began, or was answered, of those that came to the same.
    pub(super) elected_at: Option<Duration>,
    /// What it says of a failure; none: it says that the topic is in order. Kept beside the report, as thousands are gone through.
    pub(super) claim: Option<Claim>,
}

/// What a report of a failure asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Whether the attempt is over; else it has had no answer so far.
    is_over: bool,
    pub(super) step: u32,
    in_a_row: u32,
    pub(super) early: bool,
    pub(super) retry_after: Option<Duration>,
}

impl Heard {
    pub(super) fn new(report: Arc<Report>, date: Duration) -> Self {
        let trouble = report.finding.trouble();
        let claim = trouble.map(|trouble| Claim {
            is_over: matches!(report.finding, Finding::Failed(_)),
            step: trouble.step,
            in_a_row: trouble.in_a_row,
            early: trouble.early,
            retry_after: trouble.retry_after,
        });
        let before = |by: Duration| date.saturating_sub(by.min(KEPT_FOR));
        let failing_since = before(trouble.map(|trouble| trouble.failing_for).unwrap_or_default());
        let elected_at = report.elected.filter(|ago| *ago <= KEPT_FOR).map(before);
        Self { report, date, failing_since, elected_at, claim }
    }
}

/// From where an entry is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eyes<'a> {
    pub(super) node: &'a NodeName,
    pub(super) now: Duration,
    /// Nodes alive in the zone, at least 1; more than any rule asks for if nobody has said.
    pub(super) alive_in_zone: usize,
    /// Nodes alive, likewise.
    pub(super) alive: usize,
    /// A planted fault for tests of tests: one word is as good as three.
    pub(super) credulous: bool,
    /// Another: each step is twice as long as it was, and twice as long again at the next.
    pub(super) endless: bool,
    /// Another: whoever fails puts the next try off.
    pub(super) postponed_by_anybody: bool,
    /// Another: one node's success is enough.
    pub(super) closed_by_anybody: bool,
}

/// Whom an entry binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Its reporters, by their own local rule: others have not said so.
    Reporters,
    /// Everybody, until the next try.
    Everybody,
}

/// A shared failure.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Of what.
    pub topic: Arc<Topic>,
    /// Whom it binds.
    pub binding: Binding,
    /// The newest failure, whose message is the cause that is shown and whose attempt names the epoch.
    pub newest: Arc<Report>,
    /// When that was, on this node's clock.
    pub failed_at: Duration,
    /// The attempt from which the next try is counted: the last probe, or what opened the entry.
    pub(super) counted_from: Arc<Report>,
    /// The last that two nodes did for all, or that they reported at all: when, and whose.
    pub(super) tries: Vec<(Duration, NodeName)>,
    /// Whether it is due before its time, as one node had success.
    pub(super) early: bool,
    /// When the oldest failure since the last success was.
    pub failing_since: Duration,
    /// How many nodes say so, this one included.
    pub reporters: usize,
    /// How often in a row it failed: no single node moves it by more than one.
    pub step: u32,
    /// When it is due for this node.
    pub next_try: Duration,
    /// Whether this node is one of the reporters.
    pub mine: bool,
    unconfirmed: bool,
}

impl Entry {
    /// The failure that opened the present epoch. Who probes holds the lease of its name.
    #[must_use]
    pub fn epoch(&self) -> AttemptId {
        self.counted_from.attempt
    }

    /// Whether one other node alone reports it. Then another of those that wait confirms it at once, or shows that it is not so, and it delays
    /// an attempt by [`HEARD_ONCE`] at most: the reporter may itself be the cause.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed
    }

    /// When one may try for all: what one other node alone reports, at once.
    pub(super) fn due_at(&self) -> Duration {
        if self.is_unconfirmed() { self.failing_since } else { self.next_try }
    }

    /// Whether it was not so long ago that nobody cares.
    pub(super) fn matters(&self, now: Duration) -> bool {
        now <= self.next_try + OUTLIVES
    }

    /// Derives it from the failures that stand, whether one of them is this node's, and the successes of all; none if nothing fails.
    pub(super) fn derive<'a>(standing: impl Iterator<Item = &'a Heard>, mine: bool, successes: Successes, eyes: Eyes<'_>) -> Option<Self> {
        let standing: Vec<&Heard> = standing.collect();
        let by_reporter = |one: &Heard, other: &Heard| one.report.reporter.cmp(&other.report.reporter);
        let newest = *standing.iter().max_by(|one, other| one.date.cmp(&other.date).then_with(|| by_reporter(one, other)))?;
        Self::of(&standing, newest, mine, successes, eyes)
    }

    fn of(standing: &[&Heard], newest: &Heard, mine: bool, successes: Successes, eyes: Eyes<'_>) -> Option<Self> {
        let topic = Arc::clone(&newest.report.topic);
        let reporters = standing.len();
        let success = successes.closed_at;
        let degraded = is_degraded(&topic, standing, newest, success, eyes);
        let shared = eyes.credulous || (!degraded && corroborated(&topic, standing, newest, success, mine, eyes));
        let course = Course::of(&topic, standing, eyes);
        let unconfirmed = reporters == 1 && !mine && !eyes.credulous;
        let confirmed_by = newest.failing_since + cadence::delay(&topic, 1, None).min(HEARD_ONCE);
        let next_try = if unconfirmed { confirmed_by } else { course.next_try };
        let early = successes.lone().filter(|success| course.may_be_early(*success) && *success < next_try);
        Some(Self {
            binding: if shared { Binding::Everybody } else { Binding::Reporters },
            newest: Arc::clone(&newest.report),
            failed_at: newest.date,
            tries: course.tries(standing),
            counted_from: Arc::clone(&course.from.report),
            failing_since: standing.iter().map(|heard| heard.failing_since).min()?,
            topic,
            reporters,
            step: course.step,
            early: early.is_some(),
            next_try: early.unwrap_or(next_try),
            mine,
            unconfirmed,
        })
    }
}

/// Whether the registry does some of what it is asked: then its failures bind nobody but those that they happen to.
fn is_degraded(topic: &Topic, standing: &[&Heard], newest: &Heard, success: Option<Duration>, eyes: Eyes<'_>) -> bool {
    let served_lately = success.is_some_and(|success| newest.date <= success + super::SERVED_LATELY);
    if !served_lately || !topic.about().may_be_overloaded() {
        return false;
    }
    let (over, unanswered): (Vec<&Claim>, Vec<&Claim>) =
        standing.iter().filter_map(|heard| heard.claim.as_ref()).partition(|claim| claim.is_over);
    let failures: u64 = over.iter().map(|claim| u64::from(claim.in_a_row)).sum();
    let is_down = failures >= DOWN_FAILURES && over.len() >= DOWN_NODES.min(eyes.alive);
    !is_down && unanswered.len() <= UNANSWERED_AMONG_ANSWERS
}

fn corroborated(topic: &Topic, standing: &[&Heard], newest: &Heard, success: Option<Duration>, mine: bool, eyes: Eyes<'_>) -> bool {
    let recent = || standing.iter().filter(|heard| heard.date + CORROBORATION_WINDOW >= newest.date);
    match topic.about().reach() {
        Reach::AtOnce => true,
        Reach::Repositories(needed) => {
            let mut repositories: Vec<&str> = Vec::with_capacity(needed);
            for trouble in recent().filter_map(|heard| heard.report.finding.trouble()) {
                if repositories.len() < needed && !repositories.contains(&trouble.repository.as_str()) {
                    repositories.push(&trouble.repository);
                }
            }
            repositories.len() >= needed
        }
        Reach::Nodes(needed) => {
            let there = if topic.about().zone().is_some() { eyes.alive_in_zone } else { eyes.alive };
            // Another node's report shows that there are at least two, whatever the digest says of the first seconds of a fleet.
            let needed = needed.min(if mine { there } else { there.max(2) });
            let failed = recent().filter(|heard| heard.claim.is_some_and(|claim| claim.is_over)).count();
            let unanswered = recent().count() - failed;
            let answering = success.is_some_and(|success| success + super::QUIET_AFTER >= newest.date);
            failed >= needed || unanswered > UNANSWERED_AMONG_ANSWERS || (!answering && failed + unanswered >= needed)
        }
    }
}
