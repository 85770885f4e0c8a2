use contract::FailureClass;
use contract::messages::pull_coordinator::PullOutcome;
use contract::messages::throttler::RegistryLimit;

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
fn three_nodes_are_shown_one_by_one() {
    let mut tally = Tally::of(3, 1, "NATS");
    tally.see_row(&row(1, OutcomeKind::Pulled, None));
    tally.see_node(&node(2), &[pull(PullState::Pulling, 2_000, 2_097_152)], &[], 0);
    tally.see_node(&node(3), &[pull(PullState::Waiting, 2_000, 0)], &[held()], 10_000);
    assert_eq!(
        tally.lines(usize::MAX),
        [
            "1 of 3 there, 1 pulling, 1 held back, 2.0 MiB of 8.0 MiB, 1.0 MiB/s",
            "  n0002  a:1  [##########----------]  2.0 MiB of 4.0 MiB, 1.0 MiB/s, for 2s",
            "  1 node: docker.io 503, next attempt 00:00:12Z",
        ]
    );
    tally.see_row(&row(2, OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
    assert_eq!(tally.lines(usize::MAX).last().map(String::as_str), Some("  1 failed: a:1 node_local: n0002"));
}

#[test]
fn node_that_stops_answering_is_silent_and_its_pulls_are_not_shown_as_going_on() {
    let mut tally = Tally::of(2, 1, "NATS");
    let pulling = || [pull(PullState::Pulling, 2_000, 2_097_152)];
    tally.see_node(&node(1), &pulling(), &[], 0);
    tally.see_node(&node(2), &pulling(), &[], 0);
    for _ in 0..2 {
        tally.see_no_answer(&node(2));
        assert_eq!(
            tally.lines(usize::MAX),
            [
                "0 of 2 there, 1 pulling, 1 node is silent (n0002), 4.0 MiB of 8.0 MiB, 1.0 MiB/s",
                "  n0001  a:1  [##########----------]  2.0 MiB of 4.0 MiB, 1.0 MiB/s, for 2s",
            ]
        );
    }
    tally.see_node(&node(2), &pulling(), &[], 0);
    assert!(tally.summary().starts_with("0 of 2 there, 2 pulling, 4.0 MiB"), "it answers again: {}", tally.summary());
    tally.see_no_answer(&node(2));
    tally.see_row(&row(2, OutcomeKind::Failed, None));
    tally.forget(&node(2));
    assert!(tally.summary().starts_with("0 of 2 there, 1 failed, 1 pulling, 4.0 MiB"), "it has ended: {}", tally.summary());
}

#[test]
fn silent_nodes_are_named_and_few_of_many() {
    let mut tally = Tally::of(1_000, 1, "NATS");
    tally.see_no_answer(&node(7));
    tally.see_silent(vec![node(1)]);
    assert_eq!(tally.summary(), "0 of 1000 there, 2 nodes are silent (n0001, n0007)");
    tally.see_silent((10..1_000).map(node).collect());
    assert_eq!(tally.summary(), "0 of 1000 there, 991 nodes are silent (n0010, n0011, n0012, n0013 and 987 more)");
}

#[test]
fn pull_that_waits_for_a_used_up_quota_says_when_the_quota_resets() {
    let limited = || StandingPullStatus {
        image: "r.example/a:1".to_owned(),
        cause: "ErrImagePull: r.example: 429 Too Many Requests for manifest v1".to_owned(),
        class: Some(FailureClass::RateLimited),
        next_attempt_ms: Some(13_000),
        ..held()
    };
    let down = StandingPullStatus { image: "r.example/b:1".to_owned(), next_attempt_ms: Some(5_000), ..held() };
    let mut tally = Tally::of(2, 2, "NATS");
    tally.see_node(&node(1), &[], &[limited(), down], 0);
    tally.see_node(&node(2), &[], &[limited()], 0);
    assert_eq!(tally.rate_limited(), (vec![node(1), node(2)], BTreeSet::from(["r.example".to_owned()])));
    let limit = RegistryLimit { limit: 3, window_ms: 3_600_000, reset_ms: Some(180_000), ..RegistryLimit::default() };
    let quotas = BTreeMap::from([("r.example".to_owned(), SpentQuota { limit, wait_ms: 181_000 })]);
    let quota = "  2 nodes: r.example 429, quota 0 of 3 left per 60m, resets in";
    for (now_ms, expected) in [
        (1_000, format!("{quota} 3m, next attempt 00:03:02Z")),
        (61_000, format!("{quota} 2m, next attempt 00:03:02Z")),
        (182_000, "  2 nodes: r.example 429, the next attempt is due".to_owned()),
    ] {
        tally.see_time(Duration::ZERO, 1_000);
        if now_ms == 1_000 {
            assert_eq!(tally.lines(usize::MAX)[1], "  2 nodes: r.example 429, next attempt 00:00:13Z", "no budget was asked yet");
        }
        tally.see_quotas(quotas.clone(), 1_000);
        tally.see_time(Duration::ZERO, now_ms);
        let lines = tally.lines(usize::MAX);
        assert_eq!(lines[1], expected);
        assert!(lines[2].starts_with("  1 node: r.example 503, ") && !lines[2].contains("quota"), "{lines:#?}");
    }
}

#[test]
fn sums_of_bytes_never_shrink() {
    let mut tally = Tally::of(3, 1, "NATS");
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
    let mut tally = Tally::of(1_000, 1, "NATS");
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
    assert!(lines.iter().any(|line| line == "  35 nodes: docker.io 503, next attempt 00:00:12Z"), "{lines:#?}");
}

#[test]
fn remaining_time_follows_from_byte_rate() {
    let mut tally = Tally::of(6, 1, "NATS");
    let at = |tally: &mut Tally, second: u64| tally.see_time(Duration::from_secs(second), second * 1_000);
    tally.see_node(&node(1), &[pull(PullState::Pulling, 1_000, 0)], &[], 0);
    at(&mut tally, 1);
    assert!(!tally.summary().contains(" left"), "nothing is known yet: {}", tally.summary());
    tally.see_node(&node(1), &[pull(PullState::Pulling, 5_000, 2_097_152)], &[], 0);
    at(&mut tally, 5);
    // 2 of 4 MiB are left, and five nodes have 4 MiB each to fetch, at 512 KiB/s.
    assert!(tally.summary().ends_with("2.0 MiB of 4.0 MiB, 512.0 KiB/s, about 44s left"), "{}", tally.summary());
    tally.see_node(&node(2), &[], &[held()], 5_000);
    assert!(tally.summary().ends_with(", about 36s left for what is not held back"), "{}", tally.summary());
    tally.see_row(&row(1, OutcomeKind::Pulled, None));
    (3..7).for_each(|number| tally.see_row(&row(number, OutcomeKind::Present, None)));
    assert!(!tally.summary().contains(" left"), "what is held back takes as long as it takes: {}", tally.summary());
    at(&mut tally, 2);
    assert!(tally.summary().contains("4.0 MiB of 4.0 MiB"), "a clock that goes back: {}", tally.summary());
}

#[test]
fn node_that_has_ended_counts_neither_in_the_rate_nor_in_the_remaining_time() {
    let mut tally = Tally::of(3, 1, "NATS");
    for (second, done_bytes) in [(1, 0), (5, 2_097_152)] {
        for number in 1..4 {
            tally.see_node(&node(number), &[pull(PullState::Pulling, second * 1_000, done_bytes)], &[], 0);
        }
        tally.see_time(Duration::from_secs(second), second * 1_000);
    }
    assert!(tally.summary().ends_with("6.0 MiB of 12.0 MiB, 1.5 MiB/s, about 4s left"), "{}", tally.summary());
    for number in [1, 2] {
        tally.see_row(&row(number, OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
    }
    assert!(tally.summary().ends_with("512.0 KiB/s, about 4s left"), "{}", tally.summary());
}

#[test]
fn lost_contact_is_first_line() {
    let mut tally = Tally::of(3, 1, "NATS");
    tally.see_bus(&BusHealth::Disconnected { reason: "connection refused".to_owned() }, Duration::from_secs(4));
    tally.see_time(Duration::from_secs(22), 0);
    let lines = tally.lines(80);
    assert!(lines[0].starts_with("contact with NATS lost 18 s ago: ") && lines.contains(&"0 of 3 there".to_owned()), "{lines:#?}");
    tally.see_bus(&BusHealth::Connected, Duration::from_secs(24));
    assert_eq!(tally.lines(80), ["contact with NATS found again 0 s ago, after 20s", "0 of 3 there"]);
}

#[test]
fn extreme_texts_and_figures_of_a_node_stay_in_their_line() {
    let bad = "x\u{1b}[2J\u{9b}2Jz\u{7f}\u{202e}\r\nforged";
    let image = format!("r.example/{}:v1", "a".repeat(4_000));
    let long: NodeName = "n".repeat(253).parse().expect("a name");
    let mut tally = Tally::of(3, 2, "NATS");
    let huge = |image: &str| PullStatus { image: image.to_owned(), ..pull(PullState::Pulling, u64::MAX, u64::MAX) };
    tally.see_node(&long, &[huge(&image), huge(bad)], &[], u64::MAX);
    let held_by = |cause: &str, class| StandingPullStatus {
        image: image.clone(),
        cause: cause.to_owned(),
        class,
        next_attempt_ms: Some(u64::MAX),
        ..held()
    };
    tally.see_node(&node(2), &[], &[held_by(bad, None)], u64::MAX);
    tally.see_node(&node(3), &[], &[held_by(bad, Some(FailureClass::Unknown))], u64::MAX);
    tally.see_row(&Row { image: bad.to_owned(), ..row(4, OutcomeKind::Failed, Some(FailureClass::Denied)) });
    tally.see_node(&node(5), &[], &[held_by(bad, Some(FailureClass::RateLimited))], u64::MAX);
    let limit = RegistryLimit { limit: u64::MAX, window_ms: u64::MAX, reset_ms: Some(u64::MAX), ..RegistryLimit::default() };
    tally.see_quotas(BTreeMap::from([("r.example".to_owned(), SpentQuota { limit, wait_ms: u64::MAX })]), u64::MAX);
    for second in [0, 100] {
        tally.see_time(Duration::from_secs(second), u64::MAX);
        for width in [1, 19, 20, 79, 139, usize::MAX] {
            for line in tally.lines(width) {
                assert!(!line.chars().any(char::is_control) && !line.contains('\u{202e}'), "{line:?}");
                assert!(width < 60 || console::measure_text_width(&line) <= width, "{width}: {line}");
            }
        }
    }
}
