//! The bucket keeps the last report of each node on each key. A node that received all of them and one that reads what is left derive the
//! same entries.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{BackoffKey, BackoffKeyId, FailureDetails, Finding, Input, KeyInView, Knowledge, Report, View};
use clock::Random;
use contract::{AttemptId, NodeName};
use proptest::prelude::*;

/// When the first attempt begins.
const BEGINS: Duration = Duration::from_secs(10_000);
/// An attempt without an answer for this long is reported meanwhile.
const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
const REPORTERS: u8 = 4;
const KEYS: u8 = 7;

fn key_in_view(number: u8) -> KeyInView {
    let reference = |reference: &str| KeyInView::Reference { reference: reference.to_owned(), scope: "s".to_owned(), mirrored: false };
    match number {
        0 => KeyInView::Endpoint { endpoint: "e".to_owned(), zone: "z".to_owned() },
        1 => KeyInView::Registry,
        2 => KeyInView::BudgetOwner("o".to_owned()),
        3 => KeyInView::Login { repository: "a".to_owned(), fingerprint: "f".to_owned(), anonymous: false },
        4 => KeyInView::Content { reference: "r".to_owned(), endpoint: "e".to_owned() },
        5 => reference("r"),
        _ => reference("q"),
    }
}

#[derive(Clone, Debug)]
enum Event {
    Attempt {
        reporter: u8,
        key_number: u8,
        takes: Duration,
        failure: Option<FailureDetails>,
    },
    /// An operator clears a key.
    Cleared(u8),
}

fn milliseconds(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

/// Most events are on the key `often`, so that one node may have ten reports on one key.
fn event(often: u8) -> impl Strategy<Value = Event> {
    let key_number = || prop_oneof![4 => Just(often), 1 => 0..KEYS];
    let details = (1..6_u32, proptest::option::weighted(0.3, milliseconds(90_000)), 0..3_u8).prop_map(|(step, retry_after, repository)| {
        let repository = repository.to_string();
        FailureDetails { message: "m".to_owned(), step, retry_after, repository, in_a_row: step, ..FailureDetails::default() }
    });
    let attempt = (0..REPORTERS, key_number(), milliseconds(6_000), proptest::option::weighted(0.7, details));
    prop_oneof![
        12 => attempt.prop_map(|(reporter, key_number, takes, failure)| Event::Attempt { reporter, key_number, takes, failure }),
        1 => key_number().prop_map(Event::Cleared),
    ]
}

/// Events, and how long after the one before each begins.
fn events() -> impl Strategy<Value = Vec<(Duration, Event)>> {
    (0..KEYS).prop_flat_map(|often| proptest::collection::vec((milliseconds(12_000), event(often)), 1..60))
}

/// What happens to a message on its way to a node.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    Late(Duration),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let late = milliseconds(30_000).prop_map(Fate::Late);
    proptest::collection::vec(prop_oneof![3 => Just(Fate::Arrives), 2 => Just(Fate::Lost), 1 => Just(Fate::Twice), 2 => late], 25)
}

/// What is stored.
#[derive(Clone, Debug)]
enum What {
    Report(Arc<Report>),
    Cleared(BackoffKeyId),
}

#[derive(Clone, Debug)]
struct Record {
    /// When it was stored.
    stored: Duration,
    /// The date of what it reports.
    date: Duration,
    /// Its key: the last record of each key is kept.
    key: (Option<u8>, u8),
    what: What,
}

/// What a node knows of its own attempts on one key.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    free_at: Duration,
    failing_since: Option<Duration>,
    for_all_at: Option<Duration>,
    succeeded_at: Option<Duration>,
}

impl Own {
    /// The details of a failure of an attempt that began then.
    fn failed(&mut self, began: Duration, details: FailureDetails) -> FailureDetails {
        let failing_for = began - *self.failing_since.get_or_insert(began);
        // Half of the attempts are for all nodes.
        let is_for_all = details.step.is_multiple_of(2) || self.for_all_at.is_none();
        let for_all_at = if is_for_all { *self.for_all_at.insert(began) } else { self.for_all_at.unwrap_or(began) };
        let succeeded_ago = self.succeeded_at.map(|at| began - at);
        FailureDetails { failing_for, for_all_ago: began - for_all_at, succeeded_ago, ..details }.bounded()
    }
}

/// The records of these events, in the order in which they are stored. A node's attempts on one key do not overlap. `recovers`: what has
/// succeeded once does not fail any more.
fn history(events: &[(Duration, Event)], recovers: bool) -> Vec<Record> {
    let (mut now, mut random) = (BEGINS, Random::seeded(3));
    let mut own: BTreeMap<(u8, u8), Own> = BTreeMap::new();
    let mut records = Vec::new();
    for (after, event) in events {
        now += *after;
        match event {
            Event::Cleared(key_number) => {
                let cleared = BackoffKey::new(View::default(), key_in_view(*key_number)).id();
                records.push(Record { stored: now, date: now, key: (None, *key_number), what: What::Cleared(cleared) });
            }
            Event::Attempt { reporter, key_number, takes, failure } => {
                let own = own.entry((*reporter, *key_number)).or_default();
                let failure = failure.clone().filter(|_| !(recovers && own.succeeded_at.is_some()));
                let began = now.max(own.free_at);
                records.extend(attempt(own, (*reporter, *key_number), (began, *takes), failure, AttemptId::random(&mut random)));
            }
        }
    }
    records.sort_by_key(|record| record.stored);
    records
}

/// The reports of one attempt.
fn attempt(
    own: &mut Own,
    (reporter, key_number): (u8, u8),
    (began, takes): (Duration, Duration),
    failure: Option<FailureDetails>,
    attempt: AttemptId,
) -> Vec<Record> {
    let backoff_key = Arc::new(BackoffKey::new(View::default(), key_in_view(key_number)));
    let node: NodeName = format!("n{reporter}").parse().unwrap();
    let record = |stored, date, finding| {
        let report = Report { reporter: node.clone(), backoff_key: Arc::clone(&backoff_key), attempt, trace: None, finding };
        Record { stored, date, key: (Some(reporter), key_number), what: What::Report(Arc::new(report)) }
    };
    let mut records = Vec::new();
    if takes > UNANSWERED_AFTER {
        let details = own.failed(began, FailureDetails { step: 1, ..FailureDetails::default() });
        records.push(record(began + UNANSWERED_AFTER, began, Finding::Unanswered(details)));
    }
    let ended = began + takes;
    match failure {
        Some(details) => {
            records.push(record(ended, began, Finding::Failed(own.failed(began, details))));
        }
        None => {
            records.push(record(ended, ended, Finding::Succeeded));
            (own.failing_since, own.for_all_at, own.succeeded_at) = (None, None, Some(ended));
        }
    }
    own.free_at = ended + Duration::from_millis(1);
    records
}

/// The contents of the bucket at `until`.
fn bucket(records: &[Record], until: Duration) -> Vec<Record> {
    let mut last: BTreeMap<(Option<u8>, u8), usize> = BTreeMap::new();
    for (at, record) in records.iter().enumerate().filter(|(_, record)| record.stored <= until) {
        last.insert(record.key, at);
    }
    let mut places: Vec<usize> = last.into_values().collect();
    places.sort_unstable();
    places.into_iter().map(|at| records[at].clone()).collect()
}

/// A node that receives records.
struct Node(Knowledge);

impl Node {
    fn new(alive: usize) -> Self {
        let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
        core.step(BEGINS, Input::Fleet { alive, rank: None, in_zone: None });
        Self(core)
    }

    fn receives(&mut self, now: Duration, record: &Record) {
        let age = now - record.date;
        let input = match &record.what {
            What::Report(report) => Input::ReportReceived { report: Arc::clone(report), age },
            What::Cleared(backoff_key) => Input::Cleared { image: None, backoff_keys: vec![*backoff_key], age },
        };
        self.0.step(now, input);
    }

    fn reads(mut self, now: Duration, records: &[Record]) -> Self {
        records.iter().for_each(|record| self.receives(now, record));
        self
    }

    fn follows(mut self, records: &[Record]) -> Self {
        records.iter().for_each(|record| self.receives(record.stored, record));
        self
    }

    /// Follows with losses until it reads what is stored in the end.
    fn misses(mut self, records: &[Record], fates: &[Fate], end: Duration) -> Self {
        let mut arriving: Vec<(Duration, &Record)> = Vec::new();
        for (record, fate) in records.iter().zip(fates.iter().cycle()) {
            match fate {
                Fate::Arrives => arriving.push((record.stored, record)),
                Fate::Lost => {}
                Fate::Twice => arriving.extend([(record.stored, record); 2]),
                Fate::Late(by) => arriving.push(((record.stored + *by).min(end), record)),
            }
        }
        arriving.sort_by_key(|(at, _)| *at);
        arriving.into_iter().for_each(|(at, record)| self.receives(at, record));
        self.reads(end, &bucket(records, end))
    }

    fn shows(&self, now: Duration) -> Vec<Shown> {
        let entries = self.0.entries(now);
        let show = entries.into_iter().map(|entry| Shown {
            backoff_key: entry.backoff_key.id(),
            refuses_all: entry.refuses_all,
            epoch: entry.epoch(),
            failed_at: entry.failed_at,
            failing_since: entry.failing_since,
            before: entry.before,
            reporters: entry.reporters,
            step: entry.step,
            next_attempt: entry.next_attempt,
        });
        show.collect()
    }
}

/// All of an entry that decisions depend on.
#[derive(Debug, PartialEq)]
struct Shown {
    backoff_key: BackoffKeyId,
    refuses_all: bool,
    epoch: AttemptId,
    failed_at: Duration,
    failing_since: Duration,
    before: Option<(Duration, NodeName)>,
    reporters: usize,
    step: u32,
    next_attempt: Duration,
}

/// Nodes that have received the same history in different ways.
struct Nodes {
    end: Duration,
    nodes: Vec<(&'static str, Node)>,
}

fn nodes(records: &[Record], alive: usize, fates: &[Fate], restarts: usize, order: u64, later: Duration) -> Nodes {
    let end = records.iter().map(|record| record.stored).max().unwrap_or(BEGINS) + later;
    let stored = bucket(records, end);
    let mut shuffled = stored.clone();
    let mut random = Random::seeded(order);
    shuffled.sort_by_cached_key(|_| random.word());
    let (before, after) = records.split_at(restarts % records.len());
    let restarted_at = before.last().map_or(BEGINS, |record| record.stored);
    let nodes = vec![
        ("started in the end", Node::new(alive).reads(end, &stored)),
        ("saw all", Node::new(alive).follows(records)),
        ("read in another order", Node::new(alive).reads(end, &shuffled)),
        ("started in the middle", Node::new(alive).reads(restarted_at, &bucket(records, restarted_at)).follows(after)),
        ("lost some", Node::new(alive).misses(records, fates, end)),
    ];
    Nodes { end, nodes }
}

impl Nodes {
    fn agree(&self) -> Result<(), TestCaseError> {
        let [(first, known), others @ ..] = &self.nodes[..] else { return Ok(()) };
        for (other, node) in others {
            prop_assert_eq!(node.shows(self.end), known.shows(self.end), "the node that {} and the node that {}", other, first);
        }
        Ok(())
    }
}

/// How long after the last record the nodes are compared; some records may be too old to count then.
fn later() -> impl Strategy<Value = Duration> {
    prop_oneof![3 => milliseconds(100_000), 1 => milliseconds(700_000)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Nodes fail and are served: in turn, or each fails until it is served, as in an outage.
    #[test]
    fn all_derive_the_same_of_a_history(
        (events, recovers) in (events(), any::<bool>()),
        (alive, restarts, order) in (1..60_usize, any::<usize>(), any::<u64>()),
        fates in fates(),
        later in later(),
    ) {
        nodes(&history(&events, recovers), alive, &fates, restarts, order, later).agree()?;
    }
}
