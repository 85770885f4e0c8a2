//! The node's own rule, without a fleet: kubelet's back-off per (pod, image), with the cause of the last failure, and cleared by success.

use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{Effect, Input, Knowledge, Reply};
use clock::Random;
use contract::messages::backoff_tracker::{
    AttemptFailure, AttemptReported, BackoffAnswer, BackoffCounts, CheckBackoff, LocalKey, Refusal, ReportAttempt,
};
use contract::{AttemptId, FailureClass, PodRef, TraceContext};

use super::node::key;

/// The keys that a node remembers, and the most bytes of a cause.
const MAX_KEYS: u64 = 10_000;
const MAX_CAUSE_BYTES: usize = 64 * 1024 + 128;

struct Node {
    core: Knowledge,
    random: Random,
}

impl Node {
    fn new() -> Self {
        Self { core: Knowledge::new("me".parse().unwrap(), BackoffPolicy::default()), random: Random::seeded(1) }
    }

    fn reply(&mut self, now: Duration, input: Input) -> Reply {
        match self.core.step(now, input).pop() {
            Some(Effect::Reply(reply)) => reply,
            other => panic!("no reply but {other:?}"),
        }
    }

    fn check(&mut self, at: u64, key: &LocalKey, peek: bool) -> BackoffAnswer {
        match self.reply(at_seconds(at), Input::Check(CheckBackoff { key: key.clone(), peek, target: None })) {
            Reply::Checked(answer) => answer,
            other => panic!("not checked but {other:?}"),
        }
    }

    fn refused(&mut self, at: u64, key: &LocalKey) -> Refusal {
        match self.check(at, key, false) {
            BackoffAnswer::Refused(refusal) => refusal,
            other => panic!("not refused but {other:?}"),
        }
    }

    fn report(&mut self, now: Duration, report: ReportAttempt) -> AttemptReported {
        match self.reply(now, Input::PullEnded(report)) {
            Reply::Reported(reported) => reported,
            other => panic!("not reported but {other:?}"),
        }
    }

    fn of_attempt(&mut self, key: &LocalKey, failure: Option<AttemptFailure>) -> ReportAttempt {
        ReportAttempt { key: key.clone(), attempt: AttemptId::random(&mut self.random), attempt_span: None, failure, target: None }
    }

    fn fail(&mut self, at: u64, key: &LocalKey) -> AttemptReported {
        self.fail_in(at, key, None)
    }

    fn fail_in(&mut self, at: u64, key: &LocalKey, attempt_span: Option<TraceContext>) -> AttemptReported {
        let report = self.of_attempt(key, Some(failure("ErrImagePull: 404")));
        self.report(at_seconds(at), ReportAttempt { attempt_span, ..report })
    }

    fn succeed(&mut self, at: u64, key: &LocalKey) -> AttemptReported {
        let report = self.of_attempt(key, None);
        self.report(at_seconds(at), report)
    }

    fn counts(&self, at: u64) -> BackoffCounts {
        self.core.own_counts(at_seconds(at))
    }
}

fn at_seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn failure(cause: &str) -> AttemptFailure {
    AttemptFailure { class: FailureClass::NotFound, cause: cause.to_owned(), ..AttemptFailure::default() }
}

fn pod(name: &str, uid: &str) -> PodRef {
    PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

#[test]
fn failure_refuses_only_its_own_key_and_keeps_its_cause() {
    let mut node = Node::new();
    assert_eq!(node.fail(0, &key("busybox")).next_attempt_ms, Some(10_000));
    let (cause, class) = ("ErrImagePull: 404".to_owned(), FailureClass::NotFound);
    let held = Refusal { cause, class, next_attempt_ms: 7_000, learned_ms_ago: 3_000, ..Refusal::default() };
    assert_eq!(node.refused(3, &key("busybox")), held);
    assert_eq!(node.check(3, &key("busybox:latest"), false), BackoffAnswer::Allowed);
    let of_pod = LocalKey { pod: Some(pod("web-0", "")), ..key("busybox") };
    assert_eq!(node.check(3, &of_pod, false), BackoffAnswer::Allowed);
    assert_eq!(node.check(10, &key("busybox"), false), BackoffAnswer::Allowed, "at the very end it may be attempted");
}

#[test]
fn an_attempt_forgets_the_cause_but_not_the_delay() {
    let mut node = Node::new();
    node.fail(0, &key("busybox"));
    assert_eq!(node.check(10, &key("busybox"), false), BackoffAnswer::Allowed);
    assert_eq!(node.core.list(at_seconds(10))[0].cause, "");
    assert_eq!(node.fail(10, &key("busybox")).next_attempt_ms, Some(20_000));
}

#[test]
fn failures_of_a_pod_are_listed_by_its_name_until_success() {
    let mut node = Node::new();
    let of_pod = |name: &str, image: &str| LocalKey { pod: Some(pod(name, "u-1")), ..key(image) };
    for failing in [of_pod("web-0", "a:1"), of_pod("web-0", "b:1"), of_pod("web-1", "c:1"), key("d:1")] {
        node.fail(0, &failing);
    }
    let listed = |node: &Node, at, name| -> Vec<String> {
        let listed = node.core.list_of_pod(at_seconds(at), &pod(name, ""));
        listed.iter().map(|entry| format!("{} {}", entry.key_parts.image, entry.next_attempt_ms)).collect()
    };
    assert_eq!(listed(&node, 3, "web-0"), ["a:1 7000", "b:1 7000"]);
    node.succeed(5, &of_pod("web-0", "a:1"));
    assert_eq!(listed(&node, 30, "web-0"), ["b:1 0"], "it may be attempted again, and has not succeeded");
    assert!(listed(&node, 3, "web-2").is_empty());
}

#[test]
fn peek_changes_no_state() {
    let mut node = Node::new();
    node.fail(0, &key("busybox"));
    assert_eq!(node.check(11, &key("busybox"), true), BackoffAnswer::Allowed);
    assert_eq!(node.core.list(at_seconds(11))[0].cause, "ErrImagePull: 404");
    let counts = node.counts(11);
    assert_eq!((counts.known, counts.refused_total), (1, 0));
}

#[test]
fn a_refusal_names_the_last_failed_attempt_and_its_time() {
    let mut node = Node::new();
    let spans = [1, 2].map(|_| TraceContext::root(&mut node.random));
    for (at, span) in [(0, spans[0]), (10, spans[1])] {
        node.fail_in(at, &key("busybox"), Some(span));
        let held = node.refused(at + 3, &key("busybox"));
        assert_eq!((held.learned_trace, held.learned_ms_ago), (Some(span), 3_000));
        assert_eq!(node.core.list(at_seconds(at + 3))[0].trace, Some(span), "listed with it");
    }
    node.fail(30, &key("busybox"));
    assert_eq!(node.refused(31, &key("busybox")).learned_trace, None, "the last one did not ask the registry");
}

#[test]
fn own_failures_are_listed_since_the_first_of_them_with_their_number() {
    let mut node = Node::new();
    let listed = |node: &Node, at| {
        let entry = node.core.list(at_seconds(at)).remove(0);
        (entry.since_ms, entry.last_ms_ago, entry.step)
    };
    for at in [5, 15, 35] {
        node.fail(at, &key("busybox"));
    }
    assert_eq!(listed(&node, 40), (35_000, 5_000, 3));
    node.fail(635, &key("busybox"));
    assert_eq!(listed(&node, 636), (631_000, 1_000, 4));
    node.fail(1_236, &key("busybox"));
    assert_eq!(listed(&node, 1_237), (1_000, 1_000, 1), "the delay has started over too");
    node.succeed(1_240, &key("busybox"));
    node.fail(1_250, &key("busybox"));
    assert_eq!(listed(&node, 1_251), (1_000, 1_000, 1));
}

#[test]
fn success_clears_unlike_kubelet() {
    let mut node = Node::new();
    node.fail(0, &key("busybox"));
    node.fail(10, &key("busybox"));
    assert_eq!(node.succeed(30, &key("busybox")), AttemptReported::default());
    assert_eq!(node.fail(31, &key("busybox")).next_attempt_ms, Some(10_000));
}

#[test]
fn a_report_that_comes_twice_counts_once_for_each_key() {
    let mut node = Node::new();
    let report = node.of_attempt(&key("busybox"), Some(failure("x")));
    assert_eq!(node.report(at_seconds(0), report.clone()).next_attempt_ms, Some(10_000));
    assert_eq!(node.report(at_seconds(4), report.clone()).next_attempt_ms, Some(6_000));
    assert_eq!(node.counts(4).failures_total, 1);
    let of_another_caller = ReportAttempt { key: key("busybox:latest"), ..report };
    assert_eq!(node.report(at_seconds(4), of_another_caller).next_attempt_ms, Some(10_000));
    assert_eq!(node.counts(4).failures_total, 2);
}

#[test]
fn full_memory_forgets_its_oldest_key() {
    let mut node = Node::new();
    for number in 0..=MAX_KEYS {
        let report = node.of_attempt(&key(&number.to_string()), Some(failure("x")));
        node.report(Duration::from_millis(number), report);
    }
    let counts = node.core.own_counts(Duration::from_millis(MAX_KEYS));
    assert_eq!((counts.known, counts.evicted_total), (MAX_KEYS, 1));
    assert_eq!(node.check(1, &key("0"), false), BackoffAnswer::Allowed);
}

#[test]
fn a_cause_is_kept_whole_up_to_its_bound() {
    let mut node = Node::new();
    let report = node.of_attempt(&key("busybox"), Some(failure(&"é".repeat(MAX_CAUSE_BYTES))));
    node.report(at_seconds(0), report);
    assert_eq!(node.refused(1, &key("busybox")).cause.len(), MAX_CAUSE_BYTES);
}
