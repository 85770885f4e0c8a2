//! The progress of a job on many nodes in a bounded number of lines: counts of outcomes, then the slowest and some of the failing pulls.

mod causes;
mod eta;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::BusHealth;

use contract::NodeName;
use contract::messages::pull_coordinator::{OutcomeKind, PullState, PullStatus, StandingPullState, StandingPullStatus};

use super::contact::Contact;
use super::known_failures::named_few;
use super::outcome::Row;
use super::quota::SpentQuota;
use super::{layout, one_line, units};
use causes::{Cause, Hold, counted};
use eta::{Eta, LEAST, milliseconds_for};

/// Pulls in progress that are shown, the longest first.
const SLOWEST_SHOWN: usize = 6;
/// Reasons for waiting that are shown.
const REASONS_SHOWN: usize = 4;
/// Causes of failures that are shown.
const FAILURES_SHOWN: usize = 3;

/// The state of each image on each node.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of images times the number of nodes.
    pairs: usize,
    images: usize,
    there: usize,
    failed: usize,
    backoff: usize,
    standing: usize,
    /// Rows of pulls that were not begun and will not be.
    spared: usize,
    /// The most bytes that each node reported for each image: done and total.
    fetched: BTreeMap<NodeName, BTreeMap<String, (u64, u64)>>,
    /// The nodes that failed, by cause.
    failing: BTreeMap<Cause, Vec<NodeName>>,
    /// The pulls in progress on each node.
    in_progress: BTreeMap<NodeName, Vec<InProgress>>,
    /// The used-up quotas by registry, and when they were reported, in milliseconds since 1970-01-01.
    quotas: BTreeMap<String, SpentQuota>,
    quotas_ms: u64,
    /// Nodes that have not begun.
    not_begun: usize,
    /// Nodes that are known but have not answered.
    silent: Vec<NodeName>,
    /// Nodes that have stopped answering, each with the number of its images that were in progress then.
    lost: BTreeMap<NodeName, usize>,
    /// True if no node may begin.
    paused: bool,
    /// The rate of each node with pulls in progress. That of a node that has ended says nothing about the others.
    etas: BTreeMap<NodeName, Eta>,
    contact: Contact,
    /// The name of the connection to the nodes, in one word.
    reached_through: &'static str,
    /// The current time: since the start of the job, and in milliseconds since 1970-01-01.
    now: Duration,
    now_ms: u64,
}

/// An image in progress on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InProgress {
    image: String,
    what: What,
    since_ms: u64,
    done_bytes: u64,
    total_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Pulling,
    Waiting,
    /// Delayed by a hold.
    Held(Hold),
}

impl Tally {
    /// A tally of `images` images on `nodes` nodes, which are reached through NATS or an agent.
    #[must_use]
    pub fn of(nodes: usize, images: usize, reached_through: &'static str) -> Self {
        Self { pairs: nodes * images, images, reached_through, ..Self::default() }
    }

    /// Takes the current time: since the start of the job, and in milliseconds since 1970-01-01.
    pub fn see_time(&mut self, now: Duration, now_ms: u64) {
        (self.now, self.now_ms) = (now, now_ms);
        self.etas.retain(|node, _| self.in_progress.contains_key(node));
        for node in self.in_progress.keys() {
            let images = self.fetched.get(node).into_iter().flat_map(BTreeMap::values);
            let done_bytes = images.map(|(done, _)| *done).fold(0, u64::saturating_add);
            self.etas.entry(node.clone()).or_default().see(now, done_bytes);
        }
    }

    /// Takes the current health of the connection to the nodes.
    pub fn see_bus(&mut self, health: &BusHealth, now: Duration) {
        self.contact.see(health, now);
    }

    /// Takes how many nodes have not begun, and whether none may begin.
    pub fn see_plan(&mut self, not_begun: usize, paused: bool) {
        (self.not_begun, self.paused) = (not_begun, paused);
    }

    /// Takes the nodes that are known but have not answered.
    pub fn see_silent(&mut self, silent: Vec<NodeName>) {
        self.silent = silent;
    }

    /// Takes the number of nodes of the job.
    pub fn see_nodes(&mut self, nodes: usize) {
        self.pairs = nodes * self.images;
    }

    /// Takes a row.
    pub fn see_row(&mut self, row: &Row) {
        if let Some(in_progress) = self.in_progress.get_mut(&row.node) {
            in_progress.retain(|in_progress| in_progress.image != row.image);
            if in_progress.is_empty() {
                self.in_progress.remove(&row.node);
            }
        }
        if let Some(open) = self.lost.get_mut(&row.node) {
            *open = open.saturating_sub(1);
        }
        if row.is_there()
            && let Some((done, total)) = self.fetched.get_mut(&row.node).and_then(|images| images.get_mut(&row.image))
        {
            *done = *total;
        }
        match row.outcome.outcome {
            _ if row.outcome.stands => self.standing += 1,
            _ if row.not_begun => self.spared += 1,
            OutcomeKind::Pulled | OutcomeKind::Present => self.there += 1,
            // An outcome of a newer version counts as failed, because it may not be a success.
            OutcomeKind::Failed | OutcomeKind::Unknown(_) => self.failed += 1,
            OutcomeKind::Backoff => self.backoff += 1,
        }
        if !row.is_there() && !row.outcome.stands && !row.not_begun {
            let cause = match row.outcome.timed_out {
                true => Cause::Described("out of time".to_owned()),
                false => Cause::of_failure(&row.image, row.outcome.class.unwrap_or_default(), &row.outcome.message),
            };
            self.failing.entry(cause).or_default().push(row.node.clone());
        }
    }

    /// Takes the state of the pulls on a node, as the node reports it.
    pub fn see_node(&mut self, node: &NodeName, pulls: &[PullStatus], standing_pulls: &[StandingPullStatus], now_ms: u64) {
        self.lost.remove(node);
        let mut in_progress: Vec<InProgress> = pulls.iter().map(InProgress::of_pull).collect();
        for pull in pulls.iter().filter(|pull| pull.total_bytes > 0) {
            let (done, total) = self.fetched.entry(node.clone()).or_default().entry(pull.image.clone()).or_default();
            (*done, *total) = ((*done).max(pull.done_bytes), (*total).max(pull.total_bytes));
        }
        for status in standing_pulls.iter().filter(|status| status.state != StandingPullState::Pulling) {
            match in_progress.iter_mut().find(|in_progress| in_progress.image == status.image) {
                Some(waiting) if waiting.what == What::Waiting => waiting.what = InProgress::of_standing_pull(status, now_ms).what,
                Some(_) => {}
                None => in_progress.push(InProgress::of_standing_pull(status, now_ms)),
            }
        }
        if in_progress.is_empty() {
            self.in_progress.remove(node);
        } else {
            self.in_progress.insert(node.clone(), in_progress);
        }
    }

    /// Takes that a node has stopped answering: it is not known what its pulls do.
    pub fn see_no_answer(&mut self, node: &NodeName) {
        let in_progress = self.in_progress.remove(node).unwrap_or_default().len();
        self.lost.entry(node.clone()).or_insert(in_progress);
    }

    /// The nodes with pulls that were refused for too many requests, and the registries that refused them.
    #[must_use]
    pub fn rate_limited(&self) -> (Vec<NodeName>, BTreeSet<String>) {
        let (mut nodes, mut registries) = (BTreeSet::new(), BTreeSet::new());
        for (node, Hold { cause, .. }) in self.holds() {
            if let Cause::Failed { subject, is_rate_limited: true, .. } = cause {
                nodes.insert(node.clone());
                registries.insert(subject.clone());
            }
        }
        (nodes.into_iter().collect(), registries)
    }

    /// Takes the used-up quotas by registry, as reported at `now_ms`, in milliseconds since 1970-01-01.
    pub fn see_quotas(&mut self, quotas: BTreeMap<String, SpentQuota>, now_ms: u64) {
        (self.quotas, self.quotas_ms) = (quotas, now_ms);
    }

    /// Removes the pulls in progress of a node that has ended.
    pub fn forget(&mut self, node: &NodeName) {
        self.in_progress.remove(node);
        self.lost.remove(node);
    }

    fn all(&self) -> impl Iterator<Item = (&NodeName, &InProgress)> {
        self.in_progress.iter().flat_map(|(node, in_progress)| in_progress.iter().map(move |in_progress| (node, in_progress)))
    }

    /// What holds pulls, with the node of each.
    fn holds(&self) -> impl Iterator<Item = (&NodeName, &Hold)> {
        self.all().filter_map(|(node, in_progress)| if let What::Held(hold) = &in_progress.what { Some((node, hold)) } else { None })
    }

    /// The fetched and the total bytes that nodes have reported. Fetched bytes stay in the sums, so that these only grow.
    fn bytes(&self) -> (u64, u64) {
        self.fetched
            .values()
            .flat_map(BTreeMap::values)
            .fold((0, 0), |(done, total): (u64, u64), (of_done, of_total)| (done.saturating_add(*of_done), total.saturating_add(*of_total)))
    }

    fn count(&self, what: fn(&What) -> bool) -> usize {
        self.all().filter(|(_, in_progress)| what(&in_progress.what)).count()
    }

    /// The tally in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let held = self.count(|what| matches!(what, What::Held(_)));
        let mut parts = vec![format!("{} of {} there", self.there, self.pairs)];
        for (number, what) in [
            (self.standing, "standing"),
            (self.failed, "failed"),
            (self.backoff, "in back-off"),
            (self.count(|what| *what == What::Pulling), "pulling"),
            (self.count(|what| *what == What::Waiting), "waiting"),
            (held, "held back"),
            (self.spared, "not begun"),
        ] {
            if number > 0 {
                parts.push(format!("{number} {what}"));
            }
        }
        if self.not_begun > 0 {
            let paused = if self.paused { " (paused: it would fail everywhere)" } else { "" };
            parts.push(format!("{} not begun{paused}", counted(self.not_begun)));
        }
        let silent: Vec<NodeName> = self.silent.iter().chain(self.lost.keys()).cloned().collect();
        if !silent.is_empty() {
            let are = if silent.len() == 1 { "node is" } else { "nodes are" };
            parts.push(format!("{} {are} silent ({})", silent.len(), named_few(&silent)));
        }
        let (done, total) = self.bytes();
        if total > 0 {
            parts.push(format!("{} of {}, {}/s", units::bytes(done), units::bytes(total), units::bytes(self.bytes_per_second())));
        }
        let to_come = self.bytes_to_come(held).filter(|_| self.now >= LEAST);
        if let Some(left_ms) = to_come.and_then(|bytes| milliseconds_for(bytes, self.bytes_per_second())) {
            let but = if held > 0 { " for what is not held back" } else { "" };
            parts.push(format!("about {} left{but}", units::age(left_ms)));
        }
        parts.join(", ")
    }

    /// The rate of the nodes with pulls in progress.
    fn bytes_per_second(&self) -> u64 {
        let of_node = |(node, in_progress): (&NodeName, &Vec<InProgress>)| {
            let of_each = || in_progress.iter().map(InProgress::bytes_per_second).fold(0, u64::saturating_add);
            self.etas.get(node).and_then(Eta::bytes_per_second).unwrap_or_else(of_each)
        };
        self.in_progress.iter().map(of_node).fold(0, u64::saturating_add)
    }

    /// The bytes that are still to fetch by pulls that are not held: for a pull that has not begun, the average of the others. None if no
    /// node has reported a size, or if nothing is left.
    fn bytes_to_come(&self, held: usize) -> Option<u64> {
        let reported = self.fetched.values().flat_map(BTreeMap::values);
        let (count, total) = reported.fold((0_u64, 0_u64), |(count, total), (_, of_total)| (count + 1, total.saturating_add(*of_total)));
        let under_way = self.all().filter(|(_, in_progress)| in_progress.what == What::Pulling && in_progress.total_bytes > 0);
        let (with_size, left) = under_way.fold((0_usize, 0_u64), |(with_size, left), (_, in_progress)| {
            (with_size + 1, left.saturating_add(in_progress.total_bytes.saturating_sub(in_progress.done_bytes)))
        });
        let silent = self.silent.len() * self.images + self.lost.values().sum::<usize>();
        let over = self.there + self.failed + self.backoff + self.standing + self.spared + held + silent + with_size;
        let unknown = u64::try_from(self.pairs.saturating_sub(over)).unwrap_or(u64::MAX);
        let to_come = left.saturating_add(unknown.saturating_mul(total.checked_div(count)?));
        (to_come > 0).then_some(to_come)
    }

    /// The whole screen in lines of `width` columns.
    #[must_use]
    pub fn lines(&self, width: usize) -> Vec<String> {
        let contact = self.contact.line(self.reached_through, self.now);
        let mut lines: Vec<String> = contact.iter().flat_map(|line| layout::wrapped(line, width)).collect();
        lines.extend(layout::wrapped(&self.summary(), width));
        let mut pulling: Vec<(&NodeName, &InProgress)> = self.all().filter(|(_, in_progress)| in_progress.what == What::Pulling).collect();
        pulling.sort_by_key(|(_, in_progress)| Reverse(in_progress.since_ms));
        lines.extend(pulling.iter().take(SLOWEST_SHOWN).map(|(node, in_progress)| in_progress.line(node, width)));
        let causes = self.reasons().into_iter().chain(self.failures());
        lines.extend(causes.flat_map(|line| layout::wrapped(&line, width)));
        lines
    }

    /// Why pulls wait: each cause once, with the number of nodes that it holds.
    fn reasons(&self) -> Vec<String> {
        let elapsed_ms = self.now_ms.saturating_sub(self.quotas_ms);
        let quotas: BTreeMap<&str, SpentQuota> =
            self.quotas.iter().filter_map(|(registry, spent)| Some((registry.as_str(), spent.after(elapsed_ms)?))).collect();
        causes::lines(self.holds(), &quotas, self.now_ms, REASONS_SHOWN)
    }

    /// The final failures, the most frequent first.
    fn failures(&self) -> Vec<String> {
        let mut failing: Vec<(&Cause, &Vec<NodeName>)> = self.failing.iter().collect();
        failing.sort_by_key(|(cause, nodes)| (Reverse(nodes.len()), *cause));
        causes::some(&failing, FAILURES_SHOWN, |(cause, nodes)| {
            format!("  {} failed: {}: {}", nodes.len(), cause.in_words(), named_few(nodes))
        })
    }
}

impl InProgress {
    fn of_pull(pull: &PullStatus) -> Self {
        let what = match pull.state {
            PullState::Waiting => What::Waiting,
            PullState::Pulling | PullState::Unknown(_) => What::Pulling,
        };
        Self { image: pull.image.clone(), what, since_ms: pull.since_ms, done_bytes: pull.done_bytes, total_bytes: pull.total_bytes }
    }

    fn of_standing_pull(status: &StandingPullStatus, now_ms: u64) -> Self {
        // A standing pull that waits for another node's report is also held, by the failure of its last attempt.
        let next_ms = status.next_attempt_ms.map(|left_ms| now_ms.saturating_add(left_ms));
        let what = match (status.cause.as_str(), status.class) {
            ("", _) => What::Waiting,
            (cause, Some(class)) => What::Held(Hold { cause: Cause::of_failure(&status.image, class, cause), next_ms }),
            // Nothing has failed: the pull waits for another node's report, or in a queue.
            (cause, None) => What::Held(Hold { cause: Cause::described(cause), next_ms: None }),
        };
        Self { image: status.image.clone(), what, since_ms: status.since_ms, done_bytes: 0, total_bytes: 0 }
    }

    fn bytes_per_second(&self) -> u64 {
        self.done_bytes.saturating_mul(1_000).checked_div(self.since_ms).unwrap_or_default()
    }

    fn line(&self, node: &NodeName, width: usize) -> String {
        let image = one_line(&self.image);
        let since = units::age(self.since_ms);
        let figures = if self.total_bytes == 0 {
            format!("asks the registry, for {since}")
        } else {
            let bytes = format!("{} of {}", units::bytes(self.done_bytes), units::bytes(self.total_bytes));
            format!("{bytes}, {}/s, for {since}", units::bytes(self.bytes_per_second()))
        };
        layout::with_figures(&[node.as_str(), &image], self.done_bytes, self.total_bytes, &figures, width)
    }
}

#[cfg(test)]
#[path = "tally/tally_tests.rs"]
mod tests;
