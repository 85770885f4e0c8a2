//! How far a job on many nodes is, in a bounded number of lines: what has come of how many, then the slowest and the failing few.

use std::collections::BTreeMap;

use contract::NodeName;
use contract::messages::pull_coordinator::{OutcomeKind, PullState, PullStatus, StandingPullState, StandingPullStatus};

use super::known_failures::named_few;
use super::outcome::Row;
use super::{layout, one_line, standing_pull, units};

/// How many pulls under way are shown, the longest first: with more, no eye finds the slow one.
const SLOWEST_SHOWN: usize = 6;
/// How many reasons for waiting are shown.
const REASONS_SHOWN: usize = 4;
/// How many kinds of failure are shown.
const FAILURES_SHOWN: usize = 3;

/// What has come of each image on each node.
#[derive(Debug, Default)]
pub struct Tally {
    /// Images times nodes.
    pairs: usize,
    there: usize,
    failed: usize,
    backoff: usize,
    standing: usize,
    /// Rows of what was not begun and will not be.
    spared: usize,
    /// The most that each node told of each image: done, and in all. In bytes.
    fetched: BTreeMap<NodeName, BTreeMap<String, (u64, u64)>>,
    /// Who failed, by the class of it.
    failing: BTreeMap<&'static str, Vec<NodeName>>,
    /// What is under way on each node.
    doing: BTreeMap<NodeName, Vec<Doing>>,
    /// Nodes that have not begun.
    not_begun: usize,
    /// Nodes that are known and do not answer.
    silent: usize,
    /// Why nobody begins, if that is so.
    paused: bool,
}

/// One image on one node, under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Doing {
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
    /// Held back, with the reason.
    Held(String),
}

impl Tally {
    /// Of so many images on so many nodes.
    #[must_use]
    pub fn of(pairs: usize) -> Self {
        Self { pairs, ..Self::default() }
    }

    /// How many nodes have not begun, and whether none may.
    pub fn see_plan(&mut self, not_begun: usize, paused: bool) {
        (self.not_begun, self.paused) = (not_begun, paused);
    }

    /// How many nodes are known and have not answered.
    pub fn see_silent(&mut self, silent: usize) {
        self.silent = silent;
    }

    /// So many images on so many nodes are wanted in all.
    pub fn see_pairs(&mut self, pairs: usize) {
        self.pairs = pairs;
    }

    /// A row is known.
    pub fn see_row(&mut self, row: &Row) {
        if let Some(doing) = self.doing.get_mut(&row.node) {
            doing.retain(|doing| doing.image != row.image);
            if doing.is_empty() {
                self.doing.remove(&row.node);
            }
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
            // Whether a newer version means success is not known: nobody may take it for one.
            OutcomeKind::Failed | OutcomeKind::Unknown(_) => self.failed += 1,
            OutcomeKind::Backoff => self.backoff += 1,
        }
        if !row.is_there() && !row.outcome.stands && !row.not_begun {
            let kind = if row.outcome.timed_out { "out of time" } else { row.outcome.class.map_or("unknown", |class| class.as_str()) };
            self.failing.entry(kind).or_default().push(row.node.clone());
        }
    }

    /// What is under way on a node, as it says.
    pub fn see_node(&mut self, node: &NodeName, pulls: &[PullStatus], standing_pulls: &[StandingPullStatus], now_ms: u64) {
        let mut doing: Vec<Doing> = pulls.iter().map(Doing::of_pull).collect();
        for pull in pulls.iter().filter(|pull| pull.total_bytes > 0) {
            let (done, total) = self.fetched.entry(node.clone()).or_default().entry(pull.image.clone()).or_default();
            (*done, *total) = ((*done).max(pull.done_bytes), (*total).max(pull.total_bytes));
        }
        for status in standing_pulls.iter().filter(|status| status.state != StandingPullState::Pulling) {
            match doing.iter_mut().find(|doing| doing.image == status.image) {
                Some(waiting) if waiting.what == What::Waiting => waiting.what = Doing::of_standing_pull(node, status, now_ms).what,
                Some(_) => {}
                None => doing.push(Doing::of_standing_pull(node, status, now_ms)),
            }
        }
        if doing.is_empty() {
            self.doing.remove(node);
        } else {
            self.doing.insert(node.clone(), doing);
        }
    }

    /// A node has said its last.
    pub fn forget(&mut self, node: &NodeName) {
        self.doing.remove(node);
    }

    fn all(&self) -> impl Iterator<Item = (&NodeName, &Doing)> {
        self.doing.iter().flat_map(|(node, doing)| doing.iter().map(move |doing| (node, doing)))
    }

    /// All in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |what: fn(&What) -> bool| self.all().filter(|(_, doing)| what(&doing.what)).count();
        let pulling = count(|what| *what == What::Pulling);
        let (waiting, held) = (count(|what| *what == What::Waiting), count(|what| matches!(what, What::Held(_))));
        let mut parts = vec![format!("{} of {} there", self.there, self.pairs)];
        for (number, what) in [
            (self.standing, "standing"),
            (self.failed, "failed"),
            (self.backoff, "in back-off"),
            (pulling, "pulling"),
            (waiting, "waiting"),
            (held, "held back"),
            (self.spared, "not begun"),
        ] {
            if number > 0 {
                parts.push(format!("{number} {what}"));
            }
        }
        if self.not_begun > 0 {
            let paused = if self.paused { " (paused: it would fail everywhere)" } else { "" };
            let nodes = if self.not_begun == 1 { "1 node" } else { &format!("{} nodes", self.not_begun) };
            parts.push(format!("{nodes} not begun{paused}"));
        }
        if self.silent > 0 {
            parts.push(format!("{} {} silent", self.silent, if self.silent == 1 { "node is" } else { "nodes are" }));
        }
        // What is fetched stays in the sums: they only grow.
        let (done, total) =
            self.fetched.values().flat_map(BTreeMap::values).fold((0_u64, 0_u64), |(done, total), (of_done, of_total)| {
                (done.saturating_add(*of_done), total.saturating_add(*of_total))
            });
        if total > 0 {
            let per_second: u64 = self.all().map(|(_, doing)| doing.bytes_per_second()).sum();
            parts.push(format!("{} of {}, {}/s", units::bytes(done), units::bytes(total), units::bytes(per_second)));
        }
        parts.join(", ")
    }

    /// The whole screen, in lines of so many columns.
    #[must_use]
    pub fn lines(&self, width: usize) -> Vec<String> {
        let mut lines = layout::wrapped(&self.summary(), width);
        let mut pulling: Vec<(&NodeName, &Doing)> = self.all().filter(|(_, doing)| doing.what == What::Pulling).collect();
        pulling.sort_by_key(|(_, doing)| std::cmp::Reverse(doing.since_ms));
        lines.extend(pulling.iter().take(SLOWEST_SHOWN).map(|(node, doing)| doing.line(node, width)));
        lines.extend(self.reasons().iter().flat_map(|line| layout::wrapped(line, width)));
        let failing = self.failing.iter().take(FAILURES_SHOWN);
        lines.extend(failing.flat_map(|(kind, nodes)| layout::wrapped(&format!("  {} {kind}: {}", nodes.len(), named_few(nodes)), width)));
        lines
    }

    /// Why some wait: each reason once, with how many it holds. The nodes' sentences differ by their own names and by moments.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (_, doing) in self.all() {
            if let What::Held(sentence) = &doing.what {
                let (_, cause) = sentence.split_once(" waits: ").unwrap_or(("", sentence));
                let known = cause.split(", ").next().unwrap_or(cause);
                let entry = reasons.entry(known).or_insert((0, cause));
                entry.0 += 1;
            }
        }
        let mut reasons: Vec<(usize, &str)> = reasons.into_values().collect();
        reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let waits = |count: usize| if count == 1 { "1 waits".to_owned() } else { format!("{count} wait") };
        reasons.into_iter().take(REASONS_SHOWN).map(|(count, cause)| format!("  {}: {cause}", waits(count))).collect()
    }
}

impl Doing {
    fn of_pull(pull: &PullStatus) -> Self {
        let what = match pull.state {
            PullState::Waiting => What::Waiting,
            PullState::Pulling | PullState::Unknown(_) => What::Pulling,
        };
        Self { image: pull.image.clone(), what, since_ms: pull.since_ms, done_bytes: pull.done_bytes, total_bytes: pull.total_bytes }
    }

    fn of_standing_pull(node: &NodeName, status: &StandingPullStatus, now_ms: u64) -> Self {
        // One that waits for another node's word is held as well: by what its last try came to.
        let what = standing_pull::why(node, status, now_ms).map_or(What::Waiting, What::Held);
        Self { image: status.image.clone(), what, since_ms: status.since_ms, done_bytes: 0, total_bytes: 0 }
    }

    fn bytes_per_second(&self) -> u64 {
        self.done_bytes.saturating_mul(1_000).checked_div(self.since_ms).unwrap_or_default()
    }

    fn line(&self, node: &NodeName, width: usize) -> String {
        let image = one_line(&self.image);
        let since = units::seconds(self.since_ms / 1_000 * 1_000);
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
mod tests {
    use contract::FailureClass;
    use contract::messages::pull_coordinator::PullOutcome;

    use super::*;

    fn node(number: usize) -> NodeName {
        format!("n{number:04}").parse().expect("a name")
    }

    fn pull(state: PullState, since_ms: u64, done_bytes: u64) -> PullStatus {
        PullStatus {
            image: "a:1".to_owned(),
            state,
            since_ms,
            callers: 1,
            pods: Vec::new(),
            done_bytes,
            total_bytes: 4_194_304,
            layers: Vec::new(),
        }
    }

    fn row(number: usize, outcome: OutcomeKind, class: Option<FailureClass>) -> Row {
        let outcome = PullOutcome { outcome, class, ..PullOutcome::default() };
        Row { image: "a:1".to_owned(), node: node(number), outcome, at_ms: 0, under_way: None, not_begun: false }
    }

    fn held() -> StandingPullStatus {
        serde_json::from_str(
            r#"{"standing_pull": "1", "image": "a:1", "state": "held", "cause": "ErrImagePull: 503 Service Unavailable", "learned_by": "n0001",
                "class": "registry_unavailable", "learned_ms_ago": 1000, "next_attempt_ms": 2000}"#,
        )
        .expect("a status")
    }

    #[test]
    fn three_nodes_are_told_one_by_one() {
        let mut tally = Tally::of(3);
        tally.see_row(&row(1, OutcomeKind::Pulled, None));
        tally.see_node(&node(2), &[pull(PullState::Pulling, 2_000, 2_097_152)], &[], 0);
        tally.see_node(&node(3), &[pull(PullState::Waiting, 2_000, 0)], &[held()], 10_000);
        assert_eq!(
            tally.lines(usize::MAX),
            [
                "1 of 3 there, 1 pulling, 1 held back, 2.0 MiB of 8.0 MiB, 1.0 MiB/s",
                "  n0002  a:1  [##########----------]  2.0 MiB of 4.0 MiB, 1.0 MiB/s, for 2.0 s",
                "  1 waits: n0001 got 503 at 00:00:09Z, next attempt in 2.0 s",
            ]
        );
        tally.see_row(&row(2, OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
        assert_eq!(tally.lines(usize::MAX).last().map(String::as_str), Some("  1 node_local: n0002"));
    }

    #[test]
    fn sums_of_bytes_never_shrink() {
        let mut tally = Tally::of(3);
        let sums = |tally: &Tally| tally.summary().split(", ").find(|part| part.contains(" of ") && part.contains("iB")).map(str::to_owned);
        tally.see_node(&node(1), &[pull(PullState::Pulling, 2_000, 2_097_152)], &[], 0);
        tally.see_node(&node(2), &[pull(PullState::Pulling, 2_000, 1_048_576)], &[], 0);
        assert_eq!(sums(&tally).as_deref(), Some("3.0 MiB of 8.0 MiB"));
        tally.see_row(&row(1, OutcomeKind::Pulled, None));
        tally.forget(&node(1));
        assert_eq!(sums(&tally).as_deref(), Some("5.0 MiB of 8.0 MiB"), "what is there is whole");
        tally.see_node(&node(2), &[pull(PullState::Pulling, 100, 0)], &[], 0);
        assert_eq!(sums(&tally).as_deref(), Some("5.0 MiB of 8.0 MiB"), "an attempt that begins anew");
        tally.see_row(&row(2, OutcomeKind::Failed, None));
        tally.forget(&node(2));
        assert_eq!(sums(&tally).as_deref(), Some("5.0 MiB of 8.0 MiB"));
    }

    #[test]
    fn a_thousand_nodes_fit_on_a_screen() {
        let mut tally = Tally::of(1_000);
        tally.see_plan(485, false);
        for number in 0..1_000 {
            match number {
                0..400 => tally.see_row(&row(number, OutcomeKind::Present, None)),
                400..430 => {
                    let class = FailureClass::ALL[number % FailureClass::ALL.len()];
                    tally.see_row(&row(number, OutcomeKind::Failed, Some(class)));
                }
                430..480 => tally.see_node(&node(number), &[pull(PullState::Pulling, number as u64 * 10, 1_000)], &[], 0),
                480..515 => tally.see_node(&node(number), &[], &[held()], 10_000),
                _ => {}
            }
        }
        let lines = tally.lines(usize::MAX);
        assert!(lines.len() <= 14, "{lines:#?}");
        let narrow = tally.lines(59);
        assert!(narrow.len() < 24 && narrow.iter().all(|line| line.chars().count() <= 59), "{narrow:#?}");
        assert!(lines[0].starts_with("400 of 1000 there, 30 failed, 50 pulling, 35 held back, 485 nodes not begun, "), "{lines:#?}");
        assert!(lines[1].starts_with("  n0479  "), "the slowest first: {lines:#?}");
        assert!(lines.iter().any(|line| line == "  35 wait: n0001 got 503 at 00:00:09Z, next attempt in 2.0 s"), "{lines:#?}");
    }
}
