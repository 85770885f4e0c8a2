use super::super::event_fields::EventFields;
use super::super::observed::KNOWN_MOST;
use super::*;

/// An event at `at_s` seconds.
fn seen(at_s: u64, reason: EventReason, node: &str, image: &str) -> EventFields {
    let is_attempt = matches!(reason, EventReason::Failed | EventReason::Pulled);
    EventFields {
        reason,
        at_ms: at_s * 1_000,
        first_ms: at_s * 1_000,
        count: 1,
        node: node.to_owned(),
        pod: None,
        image: Some(image.to_owned()),
        registry: Some("r.example".to_owned()),
        class: None,
        cause: None,
        entry: None,
        attempt: None,
        duration_ms: is_attempt.then_some(100),
        waiting_ms: None,
        next_attempt_ms: None,
        size_bytes: None,
        reporters: None,
    }
}

fn failed(at_s: u64, node: &str) -> EventFields {
    seen(at_s, EventReason::Failed, node, "r.example/a:1")
}

fn refused(at_s: u64, node: &str) -> EventFields {
    seen(at_s, EventReason::BackOff, node, "r.example/a:1")
}

fn pulled(at_s: u64, node: &str) -> EventFields {
    seen(at_s, EventReason::Pulled, node, "r.example/a:1")
}

fn repeated(times: u64, since_s: u64, last: EventFields) -> EventFields {
    EventFields { count: times, first_ms: since_s * 1_000, ..last }
}

fn of_attempt(attempt: &str, pod: &str, seen: EventFields) -> EventFields {
    EventFields { attempt: Some(attempt.to_owned()), pod: Some(pod.to_owned()), ..seen }
}

fn about_entry(reason: EventReason, at_s: u64, next_attempt_s: u64, image: Option<&str>) -> EventFields {
    let image = image.map(str::to_owned);
    EventFields {
        image,
        entry: Some("e1".to_owned()),
        next_attempt_ms: Some(1_000 * next_attempt_s),
        reporters: Some(2),
        ..seen(at_s, reason, "n1", "")
    }
}

fn figures(events: &[EventFields]) -> Figures {
    let mut figures = Figures::default();
    events.iter().for_each(|seen| figures.take(seen, true));
    figures.end()
}

#[test]
fn saved_requests_are_kubelets_attempts_minus_made_attempts() {
    // The case, its events, attempts by kubelet's rule, attempts made, spans.
    type Row = (&'static str, Vec<EventFields>, u64, u64, u64);
    let table: [Row; 13] = [
        ("nothing", vec![], 0, 0, 0),
        ("a good pull", vec![pulled(5, "n1")], 0, 0, 0),
        ("one failure is the same", vec![failed(0, "n1")], 1, 1, 1),
        ("refused for what another found out", vec![failed(0, "n1"), refused(1, "n2"), refused(2, "n3")], 3, 1, 3),
        ("refused until 40 s: 0, 10, 30", vec![failed(0, "n1"), refused(40, "n1")], 3, 1, 1),
        ("the pull ends it", vec![failed(0, "n1"), refused(5, "n1"), pulled(75, "n1"), failed(80, "n1")], 5, 2, 2),
        ("repeats", vec![failed(0, "n1"), repeated(9, 10, refused(400, "n1")), repeated(2, 20, failed(300, "n1"))], 6, 3, 1),
        ("a prober asks more often", vec![failed(0, "n1"), failed(2, "n1"), failed(6, "n1")], 1, 3, 1),
        ("forgotten after 10 min", vec![failed(0, "n1"), failed(601, "n1")], 2, 2, 2),
        ("and not before", vec![failed(0, "n1"), failed(600, "n1")], 6, 2, 1),
        ("a pull long after is another matter", vec![failed(0, "n1"), pulled(5_000, "n1")], 1, 1, 1),
        ("pods have a back-off each", vec![of_attempt("x", "p1", failed(0, "n1")), of_attempt("x", "p2", failed(0, "n1"))], 2, 1, 2),
        ("without a duration no registry was asked", vec![EventFields { duration_ms: None, ..failed(0, "n1") }], 0, 0, 0),
    ];
    for (what, events, by_rule, made, spans) in table {
        let figures = figures(&events);
        assert_eq!((figures.spared.by_rule, figures.spared.made, figures.spans), (by_rule, made, spans), "{what}");
    }
}

#[test]
fn attempts_that_enforcing_would_have_refused_are_split_by_their_outcome() {
    const IMAGE: Option<&str> = Some("r.example/a:1");
    let opened = |at_s, next_s| about_entry(EventReason::BackoffOpened, at_s, next_s, IMAGE);
    let alone = |at_s, next_s| EventFields { reporters: Some(1), ..opened(at_s, next_s) };
    let probed = |at_s, next_s| about_entry(EventReason::BackoffProbed, at_s, next_s, IMAGE);
    let released = |at_s| about_entry(EventReason::BackoffReleased, at_s, 0, IMAGE);
    let of_registry = |reason, at_s| about_entry(reason, at_s, 10, None);
    // The case, its events, attempts refused rightly and wrongly, entries compared and not compared.
    type Row = (&'static str, Vec<EventFields>, [u64; 4]);
    let table: [Row; 11] = [
        ("no entry", vec![failed(5, "n2")], [0, 0, 0, 0]),
        ("that opened it", vec![failed(1, "n1"), opened(1, 10)], [0, 0, 1, 0]),
        ("while it holds", vec![opened(1, 10), failed(5, "n2"), pulled(6, "n3")], [1, 1, 1, 0]),
        ("one node alone reports it", vec![alone(1, 10), failed(3, "n1"), pulled(5, "n2"), pulled(6, "n3")], [0, 0, 1, 0]),
        ("until a second does", vec![alone(1, 10), failed(3, "n2"), failed(5, "n3"), pulled(6, "n4")], [1, 1, 1, 0]),
        ("another image", vec![opened(1, 10), seen(5, EventReason::Failed, "n2", "r.example/b:1")], [0, 0, 1, 0]),
        (
            "the probe, when it is due, and what it finds",
            vec![opened(1, 10), failed(12, "n2"), probed(12, 20), failed(20, "n3")],
            [1, 0, 1, 0],
        ),
        ("begun before", vec![opened(1, 10), EventFields { duration_ms: Some(4_500), ..pulled(5, "n2") }], [0, 0, 1, 0]),
        ("after the release", vec![opened(1, 10), released(4), pulled(6, "n2")], [0, 0, 1, 0]),
        (
            "a registry",
            vec![
                of_registry(EventReason::BackoffOpened, 1),
                of_registry(EventReason::RegistryUnavailable, 1),
                seen(5, EventReason::Pulled, "n3", "r.example/b:1"),
                of_registry(EventReason::BackoffReleased, 9),
                repeated(3, 2, failed(14, "n2")),
            ],
            [2, 1, 1, 0],
        ),
        ("a repository", vec![of_registry(EventReason::BackoffOpened, 1), failed(5, "n2")], [0, 0, 0, 1]),
    ];
    for (what, events, expected) in table {
        let observed = figures(&events).observed;
        let counted = [observed.failed, observed.pulled, observed.entries_compared, observed.entries_not_compared];
        assert_eq!(counted, expected, "{what}");
    }
}

#[test]
fn waits_are_split_by_their_cause() {
    let waited = |ms, seen| EventFields { waiting_ms: Some(ms), ..seen };
    let throttled = |cause: &str| EventFields { cause: Some(cause.to_owned()), ..seen(1, EventReason::Throttled, "n1", "r.example/a:1") };
    let table = [
        (vec![waited(0, pulled(5, "n1"))], vec![]),
        (vec![waited(700, pulled(5, "n1"))], vec![("other", 700)]),
        (vec![throttled("slots"), waited(700, pulled(5, "n1")), waited(3, pulled(6, "n1"))], vec![("other", 3), ("slots", 700)]),
        (vec![throttled("budget"), waited(9, failed(5, "n1"))], vec![("budget", 9)]),
        (vec![throttled("\u{1b}[2J"), waited(9, pulled(5, "n1"))], vec![("other", 9)]),
        (vec![failed(1, "n1"), waited(9, pulled(5, "n1"))], vec![("backoff", 4_000)]),
    ];
    for (events, expected) in table {
        let waits = figures(&events).waits;
        let sums: Vec<(&str, u64)> = waits.iter().map(|(cause, spread)| (*cause, spread.sum_ms)).collect();
        assert_eq!(sums, expected, "{events:?}");
    }
}

#[test]
fn report_memory_is_bounded_and_dropped_names_are_counted() {
    let mut figures = Figures::default();
    for number in 0..120_000_u64 {
        // All at the same time, so that no span ends.
        figures.take(&of_attempt(&number.to_string(), &format!("shop/web-{number}"), failed(1, "n1")), true);
    }
    assert!(figures.attempts.len() <= ATTEMPTS_MOST && figures.attempts_in_order.len() <= ATTEMPTS_MOST);
    let figures = figures.end();
    assert_eq!((figures.spared.made, figures.spared.by_rule, figures.spans), (120_000, 120_000, 120_000), "nothing is lost");
    assert!(figures.spans_cut > 0);
}

#[test]
fn excess_entries_are_dropped_oldest_first_and_counted() {
    let most = KNOWN_MOST as u64;
    let of_registry = |number: u64, reason, at_s| EventFields {
        entry: Some(format!("e{number}")),
        registry: Some(format!("r{number}.example")),
        ..about_entry(reason, at_s, 600, None)
    };
    let pulled_from = |number: u64, at_s| EventFields { registry: Some(format!("r{number}.example")), ..pulled(at_s, "n3") };
    let mut figures = Figures::default();
    for number in 0..most + 2 {
        figures.take(&of_registry(number, EventReason::RegistryUnavailable, number), true);
    }
    // A known entry needs no room.
    figures.take(&of_registry(most, EventReason::BackoffProbed, most + 2), true);
    figures.take(&of_registry(most - 1, EventReason::BackoffReleased, most + 3), true);
    for number in [most - 1, most] {
        figures.take(&pulled_from(number, most + 5), true);
    }
    let observed = figures.end().observed;
    assert_eq!((observed.cut, observed.entries_compared), (2, most + 2));
    assert_eq!(observed.pulled, 1, "that of the entry that was not released");
}

#[test]
fn excess_open_entries_that_end_first_are_dropped_and_counted() {
    let most = KNOWN_MOST as u64;
    let mut figures = Figures::default();
    for number in 0..=most {
        let image = format!("r.example/a:{number}");
        let opened = about_entry(EventReason::BackoffOpened, 1, 600, Some(&image));
        figures.take(&EventFields { entry: Some(format!("e{number}")), ..opened }, true);
    }
    for number in 0..=most {
        figures.take(&seen(5, EventReason::Pulled, "n3", &format!("r.example/a:{number}")), true);
    }
    let observed = figures.end().observed;
    assert_eq!((observed.cut, observed.pulled), (1 + most / 2, 1 + most / 2), "an entry, and half of the images");
}

#[test]
fn events_of_unselected_nodes_count_only_for_entries() {
    let mut figures = Figures::default();
    figures.take(&about_entry(EventReason::BackoffOpened, 1, 10, Some("r.example/a:1")), false);
    figures.take(&failed(5, "n2"), true);
    figures.take(&failed(5, "n3"), false);
    assert_eq!((figures.events, figures.observed.failed, figures.outcomes["failed"].count), (1, 1, 1));
}

#[test]
fn name_that_cannot_be_parsed_is_no_failure_of_the_runtime() {
    let inspected =
        |cause: Option<&str>| EventFields { cause: cause.map(str::to_owned), ..seen(1, EventReason::InspectFailed, "n1", "app:v1:") };
    let figures = figures(&[inspected(Some("invalid_name")), inspected(Some("invalid_name")), inspected(None)]);
    assert_eq!((figures.outcomes["invalid_name"].count, figures.outcomes["inspect_failed"].count), (2, 1));
}

#[test]
fn unrecognised_class_is_counted_as_unknown() {
    let of = |class: &str| EventFields { class: Some(class.to_owned()), ..failed(1, "n1") };
    let figures = figures(&[of("not_found"), of("not_found"), of("made up")]);
    let classes = BTreeMap::from([("not_found".to_owned(), 2), ("unknown".to_owned(), 1)]);
    assert_eq!(figures.outcomes["failed"], Outcome { count: 3, by_class: classes });
}

#[test]
fn any_number_of_lost_events_adds_up() {
    let mut figures = Figures::default();
    for _ in 0..2 {
        figures.take(&repeated(u64::MAX, 10, seen(10, EventReason::EventsDropped, "n1", "")), true);
    }
    assert_eq!(figures.end().losses, u64::MAX);
}
