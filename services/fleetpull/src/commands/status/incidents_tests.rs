use console::measure_text_width;
use contract::messages::backoff_tracker::{BackoffEntry, KeyParts, Pause};
use contract::messages::throttler::BudgetState;

use super::super::samples::{OWNER, Sample, budget, limited, missing, node, own, silent, unavailable};
use super::*;

pub(super) const APP: &str = "registry.example/team/app:v9";
const WIDTHS: [usize; 2] = [80, 140];

pub(super) fn shown(sample: Sample, width: usize) -> String {
    lines(&Status::of(sample.answers()), width, false).join("\n")
}

/// Compares an incident's screen at 80 and at 140 columns. Its first five lines name cause, since when, waiting nodes and next attempt.
pub(super) fn assert_shown(sample: impl Fn() -> Sample, first_five: &[&str], expected: [&str; 2]) {
    for (width, expected) in WIDTHS.into_iter().zip(expected) {
        let text = shown(sample(), width);
        assert_eq!(text, expected.trim_matches('\n'), "at {width} columns:\n{text}\n");
        assert!(text.lines().all(|line| measure_text_width(line) <= width), "{text}");
        let five: String = text.lines().take(5).map(|line| format!("{} ", line.trim_start())).collect();
        for part in first_five {
            assert!(five.contains(part), "{part} in {five}");
        }
    }
}

#[test]
fn a_registry_that_answers_503() {
    let sample = || {
        let (job, web) = (missing("0be1", "registry.example/team/job:v3"), "registry.example/team/web:v1");
        Sample::of(5).knowing(&unavailable()).knowing(&job).waiting(5, APP, 240_000).waiting(3, web, 60_000)
    };
    assert_shown(
        sample,
        &["503 (n1)", "for 4m12s", "5 nodes wait for 2 images", "next attempt in 3s"],
        [
            r"
registry.example: unavailable for 4m12s, 503 (n1), 5 nodes wait for 2 images,
    next attempt in 3s
FLEET    prod-eu, 5 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    5: 5 ready, version 0.1.0
PULLS    0 running, 8 waiting, oldest wait 4m
ID    WHAT                         STATE        CAUSE     SINCE  NEXT    WAITING
7f3a  registry.example             unavailable  503 (n1)  4m12s  in 3s   5 nodes
0be1  registry.exa.../team/job:v3  not found    404 (n1)  11m    in 41s  0
",
            r"
registry.example: unavailable for 4m12s, 503 (n1), 5 nodes wait for 2 images, next attempt in 3s
FLEET    prod-eu, 5 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    5: 5 ready, version 0.1.0
PULLS    0 running, 8 waiting, oldest wait 4m
ID    WHAT                          SCOPE   STATE        CAUSE     SINCE  NEXT ATTEMPT  WAITING
7f3a  registry.example              zone a  unavailable  503 (n1)  4m12s  in 3s         5 nodes, 2 images
0be1  registry.example/team/job:v3  image   not found    404 (n1)  11m    in 41s        0
",
        ],
    );
}

#[test]
fn a_tag_that_is_missing() {
    let sample = || Sample::of(3).knowing(&missing("0be1", APP)).waiting(2, APP, 660_000);
    assert_shown(
        sample,
        &["404 (n1)", "for 11m", "2 nodes wait for 1 image", "next attempt in 41s"],
        [
            r"
registry.example/team/app:v9: not found for 11m, 404 (n1),
    2 nodes wait for 1 image, next attempt in 41s
FLEET    prod-eu, 3 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 3 ready, version 0.1.0
PULLS    0 running, 2 waiting, oldest wait 11m
ID    WHAT                          STATE      CAUSE     SINCE  NEXT    WAITING
0be1  registry.example/team/app:v9  not found  404 (n1)  11m    in 41s  2 nodes
",
            r"
registry.example/team/app:v9: not found for 11m, 404 (n1), 2 nodes wait for 1 image, next attempt in 41s
FLEET    prod-eu, 3 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 3 ready, version 0.1.0
PULLS    0 running, 2 waiting, oldest wait 11m
ID    WHAT                          SCOPE  STATE      CAUSE     SINCE  NEXT ATTEMPT  WAITING
0be1  registry.example/team/app:v9  image  not found  404 (n1)  11m    in 41s        2 nodes, 1 image
",
        ],
    );
}

#[test]
fn a_429_with_a_quota_spent() {
    let other = || BudgetState {
        owner: "default|ghcr.example|h||anonymous|e".to_owned(),
        per_second_in_force: 37.2,
        rate_cause: "overload".to_owned(),
        ..budget("", 99)
    };
    let sample = || Sample::of(3).knowing(&limited()).led(budget(OWNER, 0)).led(other()).waiting(3, APP, 7_200_000);
    assert_shown(
        sample,
        &["429 (n1)", "quota 0/100 left for 4m12s", "3 nodes wait for 1 image", "next attempt in 134m"],
        [
            r"
registry.example: quota 0/100 left for 4m12s, 429 (n1),
    3 nodes wait for 1 image, next attempt in 134m
FLEET    prod-eu, 3 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 3 ready, version 0.1.0
PULLS    0 running, 3 waiting, oldest wait 120m
ID    WHAT              STATE       CAUSE                SINCE  NEXT     WAITING
91c0  registry.example  0/100 left  429 (n1)             4m12s  in 134m  3 nodes
9c26  ghcr.example      slowed      37/s of 200/s        -      -        0
",
            r"
registry.example: quota 0/100 left for 4m12s, 429 (n1), 3 nodes wait for 1 image, next attempt in 134m
FLEET    prod-eu, 3 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 3 ready, version 0.1.0
PULLS    0 running, 3 waiting, oldest wait 120m
ID    WHAT              SCOPE  STATE       CAUSE                    SINCE  NEXT ATTEMPT  WAITING
91c0  registry.example  quota  0/100 left  429 (n1)                 4m12s  in 134m       3 nodes, 1 image
9c26  ghcr.example      rate   slowed      37/s of 200/s; overload  -      -             0
",
        ],
    );
}

#[test]
fn one_node_that_is_silent() {
    let sample = || Sample::of(2).with(|answers| answers.silent = vec![silent(3, 252)]);
    assert_shown(
        sample,
        &["n3 has been silent for 4m12s", "is its agent running", "2 of 3 nodes continue without it", "reconnects automatically"],
        [
            r"
n3 has been silent for 4m12s: is its agent running,
    and is its bus connected? 2 of 3 nodes continue without it,
    a running agent reconnects automatically
FLEET    prod-eu, 2 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 2 ready, 1 silent (n3 for 4m12s), version 0.1.0
PULLS    0 running, 0 waiting
",
            r"
n3 has been silent for 4m12s: is its agent running, and is its bus connected? 2 of 3 nodes continue without it,
    a running agent reconnects automatically
FLEET    prod-eu, 2 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 2 ready, 1 silent (n3 for 4m12s), version 0.1.0
PULLS    0 running, 0 waiting
",
        ],
    );
}

#[test]
fn silent_node_precedes_a_failure_for_which_no_node_waits_unless_it_is_the_registrys() {
    let sample = |waiting| {
        let sample = Sample::of(2).knowing(&missing("0be1", APP)).waiting(waiting, APP, 1_000);
        shown(sample.with(|answers| answers.silent = vec![silent(3, 252)]), 140)
    };
    for (waiting, expected) in [(0, "n3 has been silent for 4m12s: "), (1, "registry.example/team/app:v9: not found for 11m, ")] {
        let text = sample(waiting);
        assert!(text.starts_with(expected) && text.contains("\n0be1  registry.example/team/app:v9 "), "{text}");
    }
    let outage = |binds: &str| {
        let registry = BackoffEntry { binds: binds.to_owned(), ..unavailable() };
        shown(Sample::of(2).knowing(&registry).with(|answers| answers.silent = vec![silent(3, 252)]), 140)
    };
    let first = "registry.example: unavailable for 4m12s, 503 (n1), no node waits, next attempt in 3s\n";
    assert!(outage("everybody").starts_with(first), "{}", outage("everybody"));
    assert!(outage("reporters").starts_with("n3 has been silent for 4m12s: "), "{}", outage("reporters"));
}

#[test]
fn own_back_off_that_is_over_does_not_head_the_screen_unless_a_pull_waits_for_it() {
    let over = |nodes| Sample::of(nodes).alone(1, BackoffEntry { next_attempt_ms: 0, ..own("third.example/a") });
    for (sample, first) in [
        (over(3), "3 of 3 nodes are ready, nothing is held back\n"),
        (over(1).with(|answers| answers.of_one_node = true), "n1: nothing is held back\n"),
        (over(3).waiting(1, "third.example/a", 1_000), "third.example/a:latest: node fails for 20s, no space left on device (n1), 1 node "),
    ] {
        let text = shown(sample, 140);
        assert!(text.starts_with(first) && text.contains("  third.example/a:latest  n1     node fails  "), "{text}");
    }
}

#[test]
fn nodes_that_do_not_report_their_entries_are_counted() {
    let text = shown(Sample::of(9).with(|answers| answers.unanswered = (1..=6).map(node).collect()), 140);
    assert!(text.starts_with("n1, n2, n3, n4 and 2 more did not list back-off entries or pulls in time: is the agent busy"), "{text}");
    assert!(text.contains("9: 9 ready, 6 did not list back-off entries or pulls (n1, n2, n3, n4 and 2 more), version 0.1.0"), "{text}");
}

#[test]
fn fleet_without_problems_is_shown_as_well() {
    let text = shown(Sample::of(3), 80);
    let expected = "\
all is well: 3 of 3 nodes are ready, nothing is held back
FLEET    prod-eu, 3 enforce, policy r41
BUS      3 of 3 servers, 4 ms
NODES    3: 3 ready, version 0.1.0
PULLS    0 running, 0 waiting";
    assert_eq!(text, expected);
    let busy = shown(Sample::of(3).led(budget(OWNER, 31)).waiting(3, "busybox", 100), 80);
    assert!(busy.starts_with("all is well: ") && busy.ends_with("0 running, 3 waiting, oldest wait 0s"), "{busy}");
    let stuck = || Sample::of(3).waiting(3, "busybox", 252_000);
    let waits = "3 pulls wait, the oldest for 4m12s, and no cause is known: `fleetpull pulls` lists what waits";
    assert!(shown(stuck(), 140).starts_with(&format!("{waits}; 3 of 3 nodes are ready\n")), "{}", shown(stuck(), 140));
    let of_one = shown(Sample::of(1).waiting(1, "busybox", 252_000).with(|answers| answers.of_one_node = true), 140);
    assert!(of_one.starts_with("n1: 1 pull waits, the oldest for 4m12s, and no cause is known: "), "{of_one}");
    let one = Sample::of(1).with(|answers| answers.of_one_node = true);
    assert!(
        shown(one, 80).starts_with("all is well on n1: nothing is held back\nFLEET    prod-eu, as n1 knows it, 1 enforce, policy r41\n")
    );
}

#[test]
fn bus_line_counts_the_servers_that_are_up() {
    let servers = |total, down: &[&str]| {
        let down = down.iter().map(|name| (*name).to_owned()).collect();
        Some(BucketServers { total, down })
    };
    for (servers, answered_in_ms, oldest_unsent_ms, expected) in [
        (servers(3, &[]), Some(4), 0, "3 of 3 servers, 4 ms"),
        (servers(3, &[]), Some(4), 3_000, "3 of 3 servers, 4 ms; oldest unsent event 3s"),
        (servers(3, &["nats-2"]), Some(4), 0, "2 of 3 servers (nats-2 is down), 4 ms"),
        (servers(5, &["nats-2", "nats-4"]), None, 3_000, "3 of 5 servers (nats-2, nats-4 are down); oldest unsent event 3s"),
        (servers(1, &[]), Some(4), 999, "1 server, 4 ms"),
        (None, Some(4), 0, "connected, 4 ms"),
        (None, None, 0, "connected"),
    ] {
        assert_eq!(bus(&BusState { servers, answered_in_ms, oldest_unsent_ms, ..BusState::default() }), expected);
    }
    let unset = BusState { is_unset: true, ..BusState::default() };
    assert_eq!(bus(&unset), "none is configured: this node shares nothing");
}

#[test]
fn server_that_is_down_is_the_first_line_if_nothing_else_is_wrong() {
    let down = || Some(BucketServers { total: 3, down: vec!["nats-2".to_owned()] });
    let text = shown(Sample::of(3).with(|answers| answers.servers = down()), 80);
    assert!(text.starts_with("NATS: nats-2 is down; 3 of 3 nodes are ready, nothing is held back\n"), "{text}");
    let text = shown(Sample::of(3).knowing(&unavailable()).with(|answers| answers.servers = down()), 80);
    assert!(
        text.starts_with("registry.example: unavailable") && text.contains("\nBUS      2 of 3 servers (nats-2 is down), 4 ms\n"),
        "{text}"
    );
}

#[test]
fn ten_thousand_nodes_with_hundreds_of_entries_fit_a_screen() {
    let mut sample = Sample::of(10_000).with(|answers| {
        answers.silent = (20_000..20_100).map(|number| silent(number, 100)).collect();
        for (number, described) in answers.nodes.iter_mut().enumerate() {
            described.version = format!("0.{}.0", number % 7);
            described.share = if number < 10 { "observe" } else { "enforce" }.to_owned();
            if number < 50 {
                described.state = "degraded: no JetStream".to_owned();
            }
        }
        let pause = |number: u64| Pause { registry: Some(format!("r{number}.example")), left_ms: 60_000, by: "ann@host".to_owned() };
        answers.pauses = (0..9).map(pause).collect();
    });
    for number in 0..300 {
        sample = sample.alone(1, missing(&format!("{number:04x}"), &format!("registry.example/team/app:v{number}")));
    }
    sample = sample.knowing(&unavailable()).waiting(10_000, APP, 1_000);
    let status = Status::of(sample.answers());
    for width in [80, 140] {
        let lines = lines(&status, width, false);
        assert_eq!(lines.len(), LINES_MOST, "{lines:#?}");
        assert!(lines[0].starts_with("registry.example: unavailable for 4m12s"), "{lines:#?}");
        let last = &lines[LINES_MOST - 1];
        assert!(last.starts_with("and 2") && last.ends_with(" more, fleetpull backoff list"), "{last}");
        assert!(lines.iter().all(|line| measure_text_width(line) <= width), "{lines:#?}");
        let text = lines.join("\n");
        for part in [
            "9990 nodes wait",
            "9990 enforce, 10 observe",
            "100 silent (n20000 for 100s, n20001 for 100s, n20002 for 100s",
            "6 more pauses",
        ] {
            assert!(text.replace("\n    ", " ").contains(part), "{part} in {text}");
        }
    }
    // A node may state any number.
    let last = lines(&Status { left_out: u64::MAX, ..status }, 140, false).pop();
    assert_eq!(last, Some(format!("and {} more, fleetpull backoff list", u64::MAX)));
}

#[test]
fn without_a_terminal_no_line_is_wrapped_or_shortened() {
    let image = format!("registry.example/{}:v1", "a".repeat(200));
    let sample = Sample::of(1).knowing(&missing("0be1", &image)).with(|answers| answers.fleet = "f".repeat(200));
    let text = shown(sample, super::super::WIDTH_OF_FILES);
    assert!(text.contains(&format!("\n0be1  {image}  image  not found  404 (n1) ")), "{text}");
    assert_eq!(text.lines().count(), 7, "{text}");
}

#[test]
fn states_are_coloured_by_whether_they_stop_or_slow_pulls() {
    let slowed = BudgetState { rate_cause: "overload".to_owned(), per_second_in_force: 37.0, ..budget(OWNER, 31) };
    let status = Status::of(Sample::of(1).knowing(&missing("0be1", APP)).led(slowed).answers());
    for width in WIDTHS {
        let (coloured, plain) = (lines(&status, width, true).join("\n"), lines(&status, width, false).join("\n"));
        assert!(coloured.contains("\u{1b}[31mnot found\u{1b}[0m") && coloured.contains("\u{1b}[33mslowed\u{1b}[0m"), "{coloured}");
        assert_eq!(console::strip_ansi_codes(&coloured), plain);
    }
}

#[test]
fn any_terminal_shows_any_text_in_whole_lines() {
    let bad = "x\u{1b}[2J\u{9b}2Jz\u{7f}\u{202e}\r\nforged";
    let (image, name) = ("r.example/".to_owned() + &"a".repeat(4_000) + ":v1", "n".repeat(253));
    let sample = || {
        let hostile = BackoffEntry { probed_by: Some(bad.to_owned()), reporters: vec![bad.to_owned()], ..missing("0be1", bad) };
        let long = BackoffEntry { probed_by: Some(name.clone()), reporters: vec![name.clone()], ..missing("0be2", &image) };
        let huge = BackoffEntry { since_ms: u64::MAX, next_attempt_ms: u64::MAX, key_parts: KeyParts::default(), ..missing("0be3", "") };
        Sample::of(2).knowing(&hostile).knowing(&long).knowing(&huge).waiting(2, &image, u64::MAX).with(|answers| {
            answers.fleet = bad.to_owned();
            answers.servers = Some(BucketServers { total: u64::MAX, down: vec![bad.to_owned(), name.clone()] });
            answers.nodes[0].state = format!("degraded: {bad}");
            answers.nodes[1].version = bad.to_owned();
            answers.pauses = vec![Pause { registry: Some(bad.to_owned()), left_ms: u64::MAX, by: bad.to_owned() }];
        })
    };
    let status = Status::of(sample().answers());
    for width in [0, 1, 19, 20, 40, 80, 200, usize::MAX] {
        for line in lines(&status, width, false) {
            assert!(!line.chars().any(char::is_control) && !line.contains('\u{202e}'), "{line:?}");
            assert!(width < 3 || measure_text_width(&line) <= width, "{width}: {line}");
        }
    }
    let first = lines(&status, 80, false).join(" ");
    assert!(first.starts_with("r.example/") && first.contains("404"), "the figures behind a long name are seen: {first}");
}
