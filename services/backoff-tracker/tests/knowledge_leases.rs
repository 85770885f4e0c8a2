//! Leases and attempts when something goes wrong with them: the bus is slow, the request was withdrawn, the registry is silent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{
    BackoffKey, Decision, Effect, FailureDetails, Finding, Input, KeyInView, Knowledge, LeaseAnswer, LeaseName, MISSES_UNTIL_LOST, Outcome,
    Report, RequestId, Target, View,
};
use clock::Random;
use contract::messages::backoff_tracker::{AttemptFailure, LocalKey, ReportAttempt};
use contract::{AttemptId, DEADLINES, FailureClass};

const MS: Duration = Duration::from_millis(1);

/// One node of 1,000, whose bus is played by the test.
struct Node {
    core: Knowledge,
    now: Duration,
    effects: Vec<Effect>,
}

impl Node {
    fn new() -> Self {
        let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
        core.step(Duration::ZERO, Input::Fleet { alive: 1_000, rank: Some(0), in_zone: None });
        Self { core, now: Duration::ZERO, effects: vec![] }
    }

    fn give(&mut self, input: Input) {
        let effects = self.core.step(self.now, input);
        self.effects.extend(effects);
    }

    fn until(&mut self, end: Duration) {
        while let Some(wake) = self.core.next_wake().filter(|wake| *wake <= end) {
            self.now = wake.max(self.now);
            self.give(Input::Tick);
        }
        self.now = end;
    }

    fn ask(&mut self, request: u64, image: &str) {
        let (key, target) = (LocalKey { pod: None, image: image.to_owned() }, target(image));
        self.give(Input::Request { request: RequestId(request), key, target });
    }

    /// The leases asked for since the last call.
    fn asked(&mut self) -> Vec<LeaseName> {
        let asked = |effect: Effect| if let Effect::AcquireLease(name) = effect { Some(name) } else { None };
        std::mem::take(&mut self.effects).into_iter().filter_map(asked).collect()
    }

    /// The last decision on a request since the effects were last taken.
    fn last_decision(&self, request: u64) -> Option<&Decision> {
        let of = |effect: &'_ Effect| matches!(effect, Effect::Answer(id, _) if *id == RequestId(request));
        self.effects.iter().rev().find(|effect| of(effect)).map(|effect| match effect {
            Effect::Answer(_, decision) => decision,
            _ => unreachable!(),
        })
    }

    fn is_clear(&self, request: u64) -> bool {
        matches!(self.last_decision(request), Some(Decision::Granted { .. }))
    }
}

fn target(image: &str) -> Target {
    Target {
        view: View { scope: "default".to_owned(), registry: "r".to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: "r:443".to_owned(),
        zone: "z".to_owned(),
        repository: "a".to_owned(),
        reference: image.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "o".to_owned(),
        ..Target::default()
    }
}

#[test]
fn a_lease_won_for_a_withdrawn_request_goes_to_the_next() {
    let mut node = Node::new();
    node.ask(1, "r/a:1");
    let [lead] = node.asked()[..] else { panic!("one lease is asked for") };
    node.give(Input::Withdraw(RequestId(1)));
    node.ask(2, "r/a:1");
    node.now = 100 * MS;
    node.give(Input::Lease(lead, LeaseAnswer::Won));
    assert!(node.effects.contains(&Effect::ReleaseLease(lead)), "no request needs it: {:?}", node.effects);
    let mut asked = node.asked();
    while asked.is_empty() && node.now < Duration::from_secs(1) {
        node.until(node.now + 10 * MS);
        asked = node.asked();
    }
    assert_eq!(asked, [lead], "the other request asks for it, and waits for no lease of a withdrawn request");
    node.give(Input::Lease(lead, LeaseAnswer::Won));
    for slot in node.asked() {
        node.give(Input::Lease(slot, LeaseAnswer::Won));
    }
    assert!(node.is_clear(2), "{:?}", node.effects);
}

#[test]
fn a_bus_that_always_answers_too_late_counts_as_lost() {
    let mut node = Node::new();
    for number in 0..u64::from(MISSES_UNTIL_LOST) {
        assert!(!node.core.is_without_bus());
        node.ask(number, &format!("r/a:{number}"));
        let asked = node.asked();
        node.until(node.now + 400 * MS);
        assert!(node.is_clear(number), "without an answer it goes ahead");
        let released = |name: &LeaseName| node.effects.contains(&Effect::ReleaseLease(*name));
        assert!(!asked.is_empty() && asked.iter().all(released), "it may hold leases that it does not know of: {:?}", node.effects);
        for name in asked {
            node.give(Input::Lease(name, LeaseAnswer::Won));
        }
    }
    assert!(node.core.is_without_bus());
}

#[test]
fn a_slow_bus_that_answers_in_time_is_waited_for() {
    let mut node = Node::new();
    let answers = |node: &mut Node| {
        let (asked, names) = (node.now, node.asked());
        node.until(asked + 300 * MS);
        node.give(Input::BusAnswered { asked });
        names.into_iter().for_each(|name| node.give(Input::Lease(name, LeaseAnswer::Won)));
    };
    node.ask(1, "r/a:1");
    answers(&mut node);
    assert!(node.is_clear(1), "the first answer is late: the request goes ahead without it");
    node.give(Input::BusBack);
    node.ask(9, "r/b:9");
    answers(&mut node);
    assert!(!node.is_clear(9), "the lease for the registry is asked for too, and its answer is waited for");
    answers(&mut node);
    assert!(node.is_clear(9) && !node.core.is_without_bus(), "{:?}", node.effects);
    node.ask(10, "r/c:10");
    node.until(node.now + 550 * MS);
    assert!(!node.is_clear(10), "twice as long as answers took");
    node.until(node.now + 100 * MS);
    assert!(node.is_clear(10), "and no longer");
}

#[test]
fn a_node_without_answers_of_the_bus_attempts_no_more_often_than_kubelet() {
    let mut node = Node::new();
    let mut random = Random::seeded(1);
    let mut attempts = Vec::new();
    node.ask(1, "r/a:1");
    while node.now < Duration::from_secs(120) {
        node.until(node.now + 250 * MS);
        if !node.is_clear(1) {
            continue;
        }
        attempts.push(node.now.as_secs());
        node.effects.clear();
        let attempt = AttemptId::random(&mut random);
        node.give(Input::AttemptPlanned { request: RequestId(1), attempt, trace: None });
        let failure =
            AttemptFailure { class: FailureClass::NotFound, cause: "no".to_owned(), authoritative: true, ..AttemptFailure::default() };
        node.give(Input::AttemptResolved { request: RequestId(1), attempt, outcome: Outcome::Failed(failure) });
        // The bus could be reached in between.
        node.give(Input::BusBack);
    }
    let kubelet = [0, 10, 30, 70];
    assert!(attempts.len() >= 3, "it goes on: {attempts:?}");
    assert!(attempts.len() <= kubelet.len() && attempts.iter().zip(kubelet).all(|(attempt, allowed)| *attempt >= allowed), "{attempts:?}");
}

#[test]
fn an_observing_node_ends_no_attempt_because_others_are_answered() {
    for observes in [false, true] {
        let mut node = Node::new();
        node.give(Input::Observe(observes));
        let mut random = Random::seeded(1);
        node.ask(1, "r/a:1");
        node.until(Duration::from_secs(1));
        assert!(node.is_clear(1), "{:?}", node.effects);
        let hanging = AttemptId::random(&mut random);
        node.give(Input::AttemptPlanned { request: RequestId(1), attempt: hanging, trace: None });
        node.until(Duration::from_secs(7));
        let silent = |effect: &Effect| matches!(effect, Effect::Publish(report, _) if matches!(report.finding, Finding::Unanswered(_)));
        assert!(node.effects.iter().any(silent), "{:?}", node.effects);
        let endpoint = KeyInView::Endpoint { endpoint: "r:443".to_owned(), zone: "z".to_owned() };
        let (backoff_key, attempt) = (Arc::new(BackoffKey::new(target("r/a:1").view, endpoint)), AttemptId::random(&mut random));
        let report = Report { reporter: "n2".parse().unwrap(), backoff_key, attempt, trace: None, finding: Finding::Succeeded };
        node.give(Input::ReportReceived { report: Arc::new(report), age: Duration::ZERO });
        assert_eq!(node.effects.contains(&Effect::Abandon(RequestId(1))), !observes);
        let (now, key) = (node.now, LocalKey { pod: None, image: "r/a:1".to_owned() });
        let failure = Some(AttemptFailure { class: FailureClass::RegistryUnavailable, ..AttemptFailure::default() });
        node.core.step(now, Input::PullEnded(ReportAttempt { key, attempt: hanging, attempt_span: None, failure, target: None }));
        assert_eq!(node.core.own_counts(now).held > 0, observes, "what an abandoned attempt comes to counts for nothing");
    }
}

/// A node's failure that concerns the image of [`target`].
fn fails(reporter: &str, in_view: KeyInView, random: &mut Random) -> Input {
    let details = FailureDetails { message: "no".to_owned(), step: 1, ..FailureDetails::default() };
    let (backoff_key, attempt) = (Arc::new(BackoffKey::new(target("r/a:1").view, in_view)), AttemptId::random(random));
    let report = Report { reporter: reporter.parse().unwrap(), backoff_key, attempt, trace: None, finding: Finding::Failed(details) };
    Input::ReportReceived { report: Arc::new(report), age: Duration::ZERO }
}

#[test]
fn a_reporter_of_any_binding_entry_leaves_the_probe_to_others() {
    for (reporter, from, to) in [("n3", 1_800, 2_600), ("me", 2_800, 4_200)] {
        let (mut node, mut random) = (Node::new(), Random::seeded(1));
        for one in ["n1", "n2", reporter] {
            node.give(fails(one, KeyInView::Endpoint { endpoint: "r:443".to_owned(), zone: "z".to_owned() }, &mut random));
        }
        // A broader key, reported by another node: its probe lease is the one that is asked for.
        let limited = fails("liar", KeyInView::BudgetOwner("o".to_owned()), &mut random);
        node.give(limited);
        node.ask(1, "r/a:1");
        let mut asked = node.asked();
        while asked.is_empty() && node.now < Duration::from_secs(10) {
            node.until(node.now + 10 * MS);
            asked = node.asked();
        }
        assert!(node.now >= from * MS && node.now <= to * MS, "{reporter} reported: asked for {asked:?} at {:?}", node.now);
    }
}

/// The successes of two other nodes refute the failure. One that was not published, because there was no bus, does not count.
#[test]
fn a_node_that_failed_alone_continues_until_two_others_have_succeeded() {
    for (without_bus, attempts) in [(false, [true, true, false, false]), (true, [true, true, true, false])] {
        continues_after(without_bus, attempts);
    }
}

fn continues_after(without_bus: bool, attempts: [bool; 4]) {
    let (mut node, mut random) = (Node::new(), Random::seeded(1));
    let endpoint = || KeyInView::Endpoint { endpoint: "r:443".to_owned(), zone: "z".to_owned() };
    let fail = |node: &mut Node, random: &mut Random| {
        let (request, attempt) = (RequestId(1), AttemptId::random(random));
        node.give(Input::AttemptPlanned { request, attempt, trace: None });
        let failure = AttemptFailure { class: FailureClass::RegistryUnavailable, cause: "refused".to_owned(), ..AttemptFailure::default() };
        node.give(Input::AttemptResolved { request, attempt, outcome: Outcome::Failed(failure) });
        node.effects.clear();
    };
    let succeeds = |reporter: &str, random: &mut Random| {
        let (backoff_key, attempt) = (Arc::new(BackoffKey::new(target("r/a:1").view, endpoint())), AttemptId::random(random));
        let report = Report { reporter: reporter.parse().unwrap(), backoff_key, attempt, trace: None, finding: Finding::Succeeded };
        Input::ReportReceived { report: Arc::new(report), age: Duration::ZERO }
    };
    node.now = Duration::from_secs(1);
    node.give(Input::BusLost);
    node.ask(1, "r/a:1");
    assert!(node.is_clear(1));
    if !without_bus {
        node.give(Input::BusBack);
        node.give(Input::CaughtUp);
    }
    fail(&mut node, &mut random);
    node.give(Input::BusBack);
    node.give(Input::CaughtUp);
    for ((at, reporter), goes) in [(3, "n2"), (8, "n3"), (13, "n2"), (18, "n3")].into_iter().zip(attempts) {
        node.until(Duration::from_secs(at));
        node.effects.clear();
        node.give(succeeds(reporter, &mut random));
        node.until(Duration::from_secs(at + 4));
        assert_eq!(node.is_clear(1), goes, "at {at} s: {:?}", node.effects);
        fail(&mut node, &mut random);
    }
}

/// What a node that takes leases again and again reports meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reports {
    Nothing,
    /// One failure after the other, each of which names a success right before it.
    FailuresAfterSuccesses,
}

/// A node takes the leases of an image again and again.
#[test]
fn no_node_waits_for_a_lease_holders_result_for_longer_than_two_terms() {
    let term = DEADLINES.attempt_lease;
    // Whether the caller is a standing pull, or asks anew after it was refused after 10 s, as late as kubelet does.
    for (stands, reports) in [(true, Reports::Nothing), (false, Reports::Nothing), (true, Reports::FailuresAfterSuccesses)] {
        let mut node = Node::new();
        let mut random = Random::seeded(1);
        node.ask(0, "r/a:1");
        let [lead @ LeaseName::Lead(backoff_key, 0)] = node.asked()[..] else { panic!("the lead is asked for") };
        let mut taken = vec![lead, LeaseName::Lead(backoff_key, 1), LeaseName::Lead(backoff_key, 2)];
        let (mut request, mut attempts) = (0, Vec::new());
        for second in 0..1_000_u64 {
            node.now = Duration::from_secs(second);
            if reports == Reports::FailuresAfterSuccesses && second % 14 == 0 {
                let image = KeyInView::Reference { reference: "r/a:1".to_owned(), scope: "anonymous".to_owned(), mirrored: false };
                let details = FailureDetails { message: "no".to_owned(), step: 1, succeeded_ago: Some(MS), ..FailureDetails::default() };
                let (backoff_key, attempt) = (Arc::new(BackoffKey::new(target("r/a:1").view, image)), AttemptId::random(&mut random));
                taken.push(LeaseName::Probe(backoff_key.id(), attempt));
                let finding = Finding::Failed(details);
                let report = Report { reporter: "hostile".parse().unwrap(), backoff_key, attempt, trace: None, finding };
                node.give(Input::ReportReceived { report: Arc::new(report), age: Duration::ZERO });
            }
            for name in taken.clone() {
                node.give(Input::LeaseTaken { name, holder: "hostile".parse().unwrap(), left: term });
            }
            for tenth in 1..10 {
                node.until(Duration::from_millis(1_000 * second + 100 * tenth));
                let asked = |effect: &Effect| if let Effect::AcquireLease(name) = effect { Some(*name) } else { None };
                let names: Vec<LeaseName> = node.effects.iter().filter_map(asked).filter(|name| !taken.contains(name)).collect();
                for name in names {
                    taken.push(name);
                    node.give(Input::LeaseTaken { name, holder: "hostile".parse().unwrap(), left: term });
                }
            }
            if node.is_clear(request) {
                attempts.push(second);
                node.effects.clear();
                let attempt = AttemptId::random(&mut random);
                node.give(Input::AttemptPlanned { request: RequestId(request), attempt, trace: None });
                let failure = AttemptFailure {
                    class: FailureClass::NotFound,
                    cause: "no".to_owned(),
                    authoritative: true,
                    ..AttemptFailure::default()
                };
                node.give(Input::AttemptResolved { request: RequestId(request), attempt, outcome: Outcome::Failed(failure) });
                break;
            }
            if !stands && second % 300 == 9 {
                node.give(Input::Withdraw(RequestId(request)));
            }
            if !stands && second > 0 && second % 300 == 0 {
                request += 1;
                node.ask(request, "r/a:1");
            }
        }
        let (at_least, at_most) = match (stands, reports) {
            (true, Reports::Nothing) => (2 * term.as_secs() - 1, 2 * term.as_secs() + 1),
            (true, Reports::FailuresAfterSuccesses) => (0, 4 * term.as_secs()),
            (false, _) => (2 * term.as_secs() - 1, 301),
        };
        assert!(attempts.first().is_some_and(|first| (at_least..=at_most).contains(first)), "{stands} {reports:?}: {attempts:?}");
    }
}

/// The registry answered no node with a blob lately, so at most three attempts are without an answer at the same time.
#[test]
fn a_slot_passes_to_the_nodes_next_request_if_the_registry_has_answered() {
    // The failure, when it comes, and whether the next request has the slot then.
    let table = [
        (FailureClass::NotFound, true, 1_000, true),
        (FailureClass::NotFound, true, 2_000, false),
        (FailureClass::RegistryUnavailable, false, 1_000, false),
    ];
    for (class, authoritative, after_ms, passes) in table {
        let (mut node, mut random) = (Node::new(), Random::seeded(1));
        let mut slots = Vec::new();
        for request in [1, 2] {
            let key = LocalKey { pod: None, image: format!("r/a:{request}") };
            let target = Target { shows_blobs: true, ..target(&key.image) };
            node.give(Input::Request { request: RequestId(request), key, target });
        }
        while let Some(Effect::AcquireLease(name)) = node.effects.iter().find(|effect| matches!(effect, Effect::AcquireLease(..))).cloned()
        {
            slots.extend(matches!(name, LeaseName::Slot(..)).then_some(name));
            node.effects.retain(|effect| !matches!(effect, Effect::AcquireLease(asked) if *asked == name));
            node.give(Input::Lease(name, LeaseAnswer::Won));
        }
        let [slot] = slots[..] else { panic!("one slot is asked for: {slots:?}") };
        assert!(node.is_clear(1) && !node.is_clear(2));
        node.until(Duration::from_millis(after_ms));
        let attempt = AttemptId::random(&mut random);
        node.give(Input::AttemptPlanned { request: RequestId(1), attempt, trace: None });
        node.effects.clear();
        let failure = AttemptFailure { class, cause: "no".to_owned(), authoritative, ..AttemptFailure::default() };
        node.give(Input::AttemptResolved { request: RequestId(1), attempt, outcome: Outcome::Failed(failure) });
        assert_eq!(node.is_clear(2), passes, "{class:?} after {after_ms} ms: {:?}", node.effects);
        assert_eq!(node.effects.contains(&Effect::ReleaseLease(slot)), !passes, "{class:?} after {after_ms} ms: {:?}", node.effects);
    }
}
