//! Properties of shared back-off for any reports: replicas agree in any order of arrival, and no entry refuses for long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{
    About, BackoffKey, Binding, Entry, FailureDetails, Finding, Input, Knowledge, LONGEST, LONGEST_RETRY_AFTER, Report, UNCONFIRMED_FOR,
    View,
};
use clock::Random;
use contract::AttemptId;
use proptest::prelude::*;

/// When all reports have been received.
const NOW: Duration = Duration::from_secs(10_000);

/// How many keys the reports are about: see [`abouts`].
const ABOUTS: u8 = 8;

#[derive(Clone, Debug)]
struct Said {
    reporter: u8,
    about: u8,
    age_ms: u64,
    finding: Finding,
}

fn login(anonymous: bool) -> About {
    About::Login { repository: "a".to_owned(), fingerprint: "f".to_owned(), anonymous }
}

fn abouts() -> [About; 8] {
    [
        About::Endpoint { endpoint: "e".to_owned(), zone: "z".to_owned() },
        About::Reference { reference: "r".to_owned(), scope: "s".to_owned(), mirrored: false },
        About::Reference { reference: "r".to_owned(), scope: "s".to_owned(), mirrored: true },
        About::BudgetOwner("o".to_owned()),
        About::Registry,
        login(true),
        login(false),
        About::Content { reference: "r".to_owned(), endpoint: "e".to_owned() },
    ]
}

fn finding() -> impl Strategy<Value = Finding> {
    let details = (any::<u32>(), proptest::option::of(any::<u64>()), 0..3_u8).prop_map(|(step, retry_after, repository)| FailureDetails {
        message: "m".to_owned(),
        step,
        retry_after: retry_after.map(Duration::from_millis),
        repository: repository.to_string(),
        in_a_row: step,
        failing_for: Duration::ZERO,
    });
    prop_oneof![
        2 => Just(Finding::Succeeded),
        4 => details.clone().prop_map(|details| Finding::Failed(details.bounded())),
        1 => details.prop_map(|details| Finding::Unanswered(details.bounded())),
    ]
}

fn said(reporters: u8) -> impl Strategy<Value = Vec<Said>> {
    let one = (0..reporters, 0..ABOUTS, 0..400_000_u64, finding()).prop_map(|(reporter, about, age_ms, finding)| Said {
        reporter,
        about,
        age_ms,
        finding,
    });
    proptest::collection::vec(one, 0..30)
}

/// One report of each reporter on each back-off key, as a bucket keeps them.
fn last_words(said: Vec<Said>) -> Vec<(Arc<Report>, Duration)> {
    let mut random = Random::seeded(5);
    let words: BTreeMap<(u8, u8), Said> = said.into_iter().map(|said| ((said.reporter, said.about), said)).collect();
    let report = |said: Said| {
        let backoff_key = Arc::new(BackoffKey::new(View::default(), abouts()[usize::from(said.about)].clone()));
        let reporter = format!("n{}", said.reporter).parse().unwrap();
        let attempt = AttemptId::random(&mut random);
        (Arc::new(Report { reporter, backoff_key, attempt, trace: None, finding: said.finding }), Duration::from_millis(said.age_ms))
    };
    words.into_values().map(report).collect()
}

fn replica(words: &[(Arc<Report>, Duration)]) -> Knowledge {
    let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
    core.step(NOW, Input::Fleet { alive: 50, rank: None });
    for (report, age) in words {
        core.step(NOW, Input::ReportReceived { report: Arc::clone(report), age: *age });
    }
    core
}

/// The longest delay of a key without `Retry-After`.
fn longest(backoff_key: &BackoffKey) -> Duration {
    match backoff_key.about() {
        About::Endpoint { .. } | About::Registry | About::Repository(_) => Duration::from_secs(8),
        About::Login { anonymous: false, .. } => LONGEST,
        _ => Duration::from_secs(60),
    }
}

/// The longest `Retry-After` in any report on a key, with its spread; an hour at most.
fn asked_for(words: &[(Arc<Report>, Duration)], backoff_key: &BackoffKey) -> Duration {
    let asked = words
        .iter()
        .filter(|(report, _)| report.backoff_key.id() == backoff_key.id())
        .filter_map(|(report, _)| report.finding.details()?.retry_after);
    asked.map(|asked| asked.min(LONGEST_RETRY_AFTER) + Duration::from_secs(2)).max().unwrap_or_default()
}

/// All of an entry that decisions depend on.
type Shown = (u128, bool, AttemptId, Duration, usize, u32, Duration);

fn shown(core: &Knowledge) -> Vec<Shown> {
    let show = |entry: &Entry| {
        let everybody = entry.binding == Binding::Everybody;
        (entry.backoff_key.id().0, everybody, entry.epoch(), entry.failed_at, entry.reporters, entry.step, entry.next_attempt)
    };
    core.entries(NOW).iter().map(show).collect()
}

proptest! {
    #[test]
    fn any_order_and_any_repetition_come_to_the_same(
        said in said(8),
        order in proptest::collection::vec((any::<u64>(), 1..4_usize), 30),
    ) {
        let words = last_words(said);
        let mut shuffled: Vec<(u64, (Arc<Report>, Duration))> = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let (place, times) = order[index % order.len()];
            for time in 0..times as u64 {
                shuffled.push((place.wrapping_mul(time * 2 + 1), word.clone()));
            }
        }
        shuffled.sort_by_key(|(place, _)| *place);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(_, word)| word).collect();
        prop_assert_eq!(shown(&replica(&words)), shown(&replica(&shuffled)));
    }

    #[test]
    fn nothing_binds_longer_than_the_longest_step_of_its_class_or_the_retry_after_that_was_asked_for(said in said(8)) {
        let words = last_words(said);
        for entry in replica(&words).entries(NOW) {
            let bound = longest(&entry.backoff_key).max(asked_for(&words, &entry.backoff_key));
            prop_assert!(entry.next_attempt <= entry.failed_at + bound, "{bound:?} {entry:?}");
        }
    }

    #[test]
    fn one_voice_binds_others_for_seconds(said in said(1)) {
        for entry in replica(&last_words(said)).entries(NOW) {
            prop_assert!(entry.binding == Binding::Reporters || entry.next_attempt <= entry.failing_since + UNCONFIRMED_FOR, "{entry:?}");
        }
    }

    #[test]
    fn nothing_said_in_any_order_panics_or_grows(said in proptest::collection::vec(said(8), 0..6)) {
        let mut core = replica(&[]);
        let keys: BTreeSet<(u8, u8)> = said.iter().flatten().map(|said| (said.reporter, said.about)).collect();
        for words in said {
            for (report, age) in last_words(words) {
                core.step(NOW, Input::ReportReceived { report, age });
            }
        }
        // Only the last report of each node on each back-off key is kept.
        prop_assert!(core.counts().replica.reports <= keys.len() as u64);
    }
}
