//! Properties of shared back-off for any reports: replicas agree in any order of arrival, and no entry refuses for long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{BackoffKey, Entry, FailureDetails, Finding, Input, KeyInView, Knowledge, LONGEST, Report, View};
use clock::Random;
use contract::{AttemptId, RETRY_AFTER_MAX};
use proptest::prelude::*;

/// When all reports have been received.
const NOW: Duration = Duration::from_secs(10_000);

/// How many keys the reports are about: see [`keys_in_view`].
const KEYS: u8 = 8;

#[derive(Clone, Debug)]
struct Reported {
    reporter: u8,
    key_number: u8,
    age_ms: u64,
    finding: Finding,
}

fn login(anonymous: bool) -> KeyInView {
    KeyInView::Login { repository: "a".to_owned(), fingerprint: "f".to_owned(), anonymous }
}

fn keys_in_view() -> [KeyInView; 8] {
    [
        KeyInView::Endpoint { endpoint: "e".to_owned(), zone: "z".to_owned() },
        KeyInView::Reference { reference: "r".to_owned(), scope: "s".to_owned(), mirrored: false },
        KeyInView::Reference { reference: "r".to_owned(), scope: "s".to_owned(), mirrored: true },
        KeyInView::BudgetOwner("o".to_owned()),
        KeyInView::Registry,
        login(true),
        login(false),
        KeyInView::Content { reference: "r".to_owned(), endpoint: "e".to_owned() },
    ]
}

fn finding() -> impl Strategy<Value = Finding> {
    // Also values within two hours, because most values are cut to one hour.
    let retry_after = proptest::option::of(prop_oneof![any::<u64>(), 0..7_200_000_u64]);
    let ago = || prop_oneof![Just(0), any::<u64>(), 0..7_200_000_u64];
    let succeeded_ago = proptest::option::of(any::<u64>());
    let details = (any::<u32>(), retry_after, (ago(), ago()), succeeded_ago, 0..3_u8).prop_map(
        |(step, retry_after, (failing_for, for_all_ago), succeeded_ago, repository)| FailureDetails {
            message: "m".to_owned(),
            step,
            retry_after: retry_after.map(Duration::from_millis),
            repository: repository.to_string(),
            in_a_row: step,
            failing_for: Duration::from_millis(failing_for),
            for_all_ago: Duration::from_millis(for_all_ago),
            succeeded_ago: succeeded_ago.map(Duration::from_millis),
        },
    );
    prop_oneof![
        2 => Just(Finding::Succeeded),
        4 => details.clone().prop_map(|details| Finding::Failed(details.bounded())),
        1 => details.prop_map(|details| Finding::Unanswered(details.bounded())),
    ]
}

fn reported(reporters: u8) -> impl Strategy<Value = Vec<Reported>> {
    let one = (0..reporters, 0..KEYS, 0..400_000_u64, finding()).prop_map(|(reporter, key_number, age_ms, finding)| Reported {
        reporter,
        key_number,
        age_ms,
        finding,
    });
    proptest::collection::vec(one, 0..30)
}

/// One report of each reporter on each back-off key, as a bucket keeps them.
fn last_reports(reported: Vec<Reported>) -> Vec<(Arc<Report>, Duration)> {
    let mut random = Random::seeded(5);
    let reports: BTreeMap<(u8, u8), Reported> =
        reported.into_iter().map(|reported| ((reported.reporter, reported.key_number), reported)).collect();
    let report = |reported: Reported| {
        let backoff_key = Arc::new(BackoffKey::new(View::default(), keys_in_view()[usize::from(reported.key_number)].clone()));
        let reporter = format!("n{}", reported.reporter).parse().unwrap();
        let attempt = AttemptId::random(&mut random);
        (
            Arc::new(Report { reporter, backoff_key, attempt, trace: None, finding: reported.finding }),
            Duration::from_millis(reported.age_ms),
        )
    };
    reports.into_values().map(report).collect()
}

fn replica(reports: &[(Arc<Report>, Duration)]) -> Knowledge {
    let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
    core.step(NOW, Input::Fleet { alive: 50, rank: None, in_zone: None });
    for (report, age) in reports {
        core.step(NOW, Input::ReportReceived { report: Arc::clone(report), age: *age });
    }
    core
}

/// The longest delay of a key without `Retry-After`.
fn longest(backoff_key: &BackoffKey) -> Duration {
    match backoff_key.in_view() {
        KeyInView::Endpoint { .. } | KeyInView::Registry | KeyInView::Repository(_) => Duration::from_secs(8),
        KeyInView::Login { anonymous: false, .. } => LONGEST,
        _ => Duration::from_secs(60),
    }
}

/// The longest `Retry-After` in any report on a key, with its spread; an hour at most.
fn asked_for(reports: &[(Arc<Report>, Duration)], backoff_key: &BackoffKey) -> Duration {
    let asked = reports
        .iter()
        .filter(|(report, _)| report.backoff_key.id() == backoff_key.id())
        .filter_map(|(report, _)| report.finding.details()?.retry_after);
    asked.map(|asked| asked.min(RETRY_AFTER_MAX) + Duration::from_secs(2)).max().unwrap_or_default()
}

/// All of an entry that decisions depend on.
type Shown = (u128, bool, AttemptId, Duration, usize, u32, Duration);

fn shown(core: &Knowledge) -> Vec<Shown> {
    let show = |entry: &Entry| {
        (entry.backoff_key.id().0, entry.refuses_all, entry.epoch(), entry.failed_at, entry.reporters, entry.step, entry.next_attempt)
    };
    core.entries(NOW).iter().map(show).collect()
}

proptest! {
    #[test]
    fn reports_in_any_order_and_repetition_give_the_same_entries(
        reported in reported(8),
        order in proptest::collection::vec((any::<u64>(), 1..4_usize), 30),
    ) {
        let reports = last_reports(reported);
        let mut shuffled: Vec<(u64, (Arc<Report>, Duration))> = Vec::new();
        for (index, report) in reports.iter().enumerate() {
            let (place, times) = order[index % order.len()];
            for time in 0..times as u64 {
                shuffled.push((place.wrapping_mul(time * 2 + 1), report.clone()));
            }
        }
        shuffled.sort_by_key(|(place, _)| *place);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(_, report)| report).collect();
        prop_assert_eq!(shown(&replica(&reports)), shown(&replica(&shuffled)));
    }

    #[test]
    fn no_entry_binds_longer_than_its_longest_step_or_retry_after(reported in reported(8)) {
        let reports = last_reports(reported);
        for entry in replica(&reports).entries(NOW) {
            let bound = longest(&entry.backoff_key).max(asked_for(&reports, &entry.backoff_key));
            prop_assert!(entry.next_attempt <= entry.failed_at + bound, "{bound:?} {entry:?}");
        }
    }

    #[test]
    fn failure_of_one_reporter_is_due_for_another_node_at_once(reported in reported(1)) {
        for entry in replica(&last_reports(reported)).entries(NOW) {
            prop_assert!(!entry.refuses_all || entry.next_attempt <= entry.failing_since, "{entry:?}");
        }
    }

    #[test]
    fn reports_in_any_order_neither_panic_nor_grow_the_replica(reported in proptest::collection::vec(reported(8), 0..6)) {
        let mut core = replica(&[]);
        let keys: BTreeSet<(u8, u8)> = reported.iter().flatten().map(|reported| (reported.reporter, reported.key_number)).collect();
        for reports in reported {
            for (report, age) in last_reports(reports) {
                core.step(NOW, Input::ReportReceived { report, age });
            }
        }
        // Only the last report of each node on each back-off key is kept.
        prop_assert!(core.counts().reports <= keys.len() as u64);
    }
}
