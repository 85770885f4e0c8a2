//! The node's own knowledge of failures.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptReported, BackoffAnswer, BackoffCounts, LocalKey, Refusal, ReportAttempt};
use contract::{AttemptId, PodRef};

use super::delays::{BackoffPolicy, milliseconds};
use super::failed_keys::{Failed, FailedKey};
use super::knowledge::BackoffKeyId;

/// Reports remembered to recognise repeated ones, which come within seconds.
const REPORTS_REMEMBERED: usize = 1_024;

/// The state machine: kubelet's back-off per (pod, image) with the cause of the last failure, and cleared by success.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(super) policy: BackoffPolicy,
    pub(super) failed_keys: BTreeMap<LocalKey, FailedKey>,
    /// The keys whose current failure is about a back-off key.
    pub(super) by_backoff_key: BTreeMap<BackoffKeyId, BTreeSet<LocalKey>>,
    reported: VecDeque<(AttemptId, LocalKey)>,
    counts: BackoffCounts,
}

impl Tracker {
    /// A tracker without failures.
    pub(super) fn new(policy: BackoffPolicy) -> Self {
        let (failed_keys, by_backoff_key) = (BTreeMap::new(), BTreeMap::new());
        Self { policy, failed_keys, by_backoff_key, reported: VecDeque::new(), counts: BackoffCounts::default() }
    }

    /// Whether a pull may be attempted now. If so, the cause of the last failure is forgotten, as kubelet does when it starts an attempt; not
    /// if this is only a look (`peek`).
    pub(super) fn check(&mut self, now: Duration, key: &LocalKey, peek: bool) -> BackoffAnswer {
        let Some(left) = self.held(now, key) else {
            if !peek {
                self.outdate(key);
            }
            return BackoffAnswer::Allowed;
        };
        if !peek {
            self.counts.refused_total += 1;
        }
        let learned = |failed: &FailedKey| Refusal {
            cause: failed.failure.cause.clone(),
            class: failed.failure.class,
            learned_ms_ago: u64::try_from(now.saturating_sub(failed.failure.at).as_millis()).unwrap_or(u64::MAX),
            learned_trace: failed.failure.trace,
            ..Refusal::default()
        };
        let held = self.failed_key(key).map(learned).unwrap_or_default();
        BackoffAnswer::Refused(Refusal { next_attempt_ms: milliseconds(left), ..held })
    }

    /// An attempt ended. A repeated report changes nothing.
    pub(super) fn report(&mut self, now: Duration, report: ReportAttempt) -> AttemptReported {
        let ReportAttempt { key, attempt, attempt_span, failure, .. } = report;
        match failure {
            Some(failure) => self.failed(attempt, &key, Failed::new(now, &failure, attempt_span)),
            None if self.remember_report(attempt, &key) => {
                self.clear(&key);
                self.collect_garbage(now);
            }
            None => {}
        }
        self.answer(now, &key)
    }

    /// An attempt failed. A repeated report changes nothing.
    pub(super) fn failed(&mut self, attempt: AttemptId, key: &LocalKey, failed: Failed) {
        if self.remember_report(attempt, key) {
            self.counts.failures_total += 1;
            self.counts.evicted_total += self.note(key, failed);
        }
    }

    /// An attempt that ended without showing anything about its image. A repeated report changes nothing.
    pub(super) fn report_abandoned(&mut self, attempt: AttemptId, key: &LocalKey) {
        if self.remember_report(attempt, key) {
            self.counts.failures_total += 1;
        }
    }

    /// Counts a refusal.
    pub(super) fn refused(&mut self) {
        self.counts.refused_total += 1;
    }

    pub(crate) fn known_of_pod<'a>(&'a self, pod: &'a PodRef) -> impl Iterator<Item = (&'a LocalKey, Option<&'a FailedKey>)> {
        self.known().filter(move |(key, _)| key.pod.as_ref().is_some_and(|own| own.has_name_of(pod)))
    }

    /// The counters.
    pub(super) fn counts(&self, now: Duration) -> BackoffCounts {
        let held = self.failed_keys.keys().filter(|key| self.held(now, key).is_some());
        BackoffCounts { held: held.count() as u64, known: self.known().count() as u64, ..self.counts }
    }

    /// The answer to a report by the own rule.
    pub(super) fn answer(&self, now: Duration, key: &LocalKey) -> AttemptReported {
        AttemptReported { next_attempt_ms: self.held(now, key).map(milliseconds), entry: None }
    }

    /// Whether this report is new.
    fn remember_report(&mut self, attempt: AttemptId, key: &LocalKey) -> bool {
        if self.reported.iter().any(|(known_attempt, known_key)| *known_attempt == attempt && known_key == key) {
            return false;
        }
        if self.reported.len() == REPORTS_REMEMBERED {
            self.reported.pop_front();
        }
        self.reported.push_back((attempt, key.clone()));
        true
    }
}

/// Shortens a text to at most this many bytes, at the boundary of a character.
pub(super) fn shorten(text: &mut String, most_bytes: usize) {
    if text.len() > most_bytes {
        let end = (0..=most_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;
    use contract::messages::backoff_tracker::AttemptFailure;
    use contract::{FailureClass, PodRef, TraceContext};

    use super::super::local_list::own;
    use super::*;
    use crate::core::failed_keys::{MAX_CAUSE_BYTES, MAX_KEYS};

    struct Node {
        tracker: Tracker,
        random: Random,
    }

    impl Node {
        fn new() -> Self {
            Self { tracker: Tracker::new(BackoffPolicy::default()), random: Random::seeded(1) }
        }

        fn check(&mut self, at: u64, key: &LocalKey) -> BackoffAnswer {
            self.tracker.check(at_seconds(at), key, false)
        }

        fn fail(&mut self, at: u64, key: &LocalKey) -> AttemptReported {
            self.fail_in(at, key, None)
        }

        fn fail_in(&mut self, at: u64, key: &LocalKey, attempt_span: Option<TraceContext>) -> AttemptReported {
            let (attempt, failure) = (AttemptId::random(&mut self.random), Some(failure("ErrImagePull: 404")));
            self.tracker.report(at_seconds(at), ReportAttempt { key: key.clone(), attempt, attempt_span, failure, target: None })
        }
    }

    fn at_seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failure(cause: &str) -> AttemptFailure {
        AttemptFailure { class: FailureClass::NotFound, cause: cause.to_owned(), ..AttemptFailure::default() }
    }

    fn key(image: &str) -> LocalKey {
        LocalKey { pod: None, image: image.to_owned() }
    }

    #[test]
    fn failure_refuses_only_its_own_key_and_keeps_its_cause() {
        let mut node = Node::new();
        assert_eq!(node.fail(0, &key("busybox")).next_attempt_ms, Some(10_000));
        let (cause, class) = ("ErrImagePull: 404".to_owned(), FailureClass::NotFound);
        let held = Refusal { cause, class, next_attempt_ms: 7_000, learned_ms_ago: 3_000, ..Refusal::default() };
        assert_eq!(node.check(3, &key("busybox")), BackoffAnswer::Refused(held));
        assert_eq!(node.check(3, &key("busybox:latest")), BackoffAnswer::Allowed);
        let pod = PodRef { namespace: "a".to_owned(), name: "b".to_owned(), uid: String::new() };
        assert_eq!(node.check(3, &LocalKey { pod: Some(pod), image: "busybox".to_owned() }), BackoffAnswer::Allowed);
        assert_eq!(node.check(10, &key("busybox")), BackoffAnswer::Allowed, "at the very end it may be attempted");
    }

    #[test]
    fn an_attempt_forgets_the_cause_but_not_the_delay() {
        let mut node = Node::new();
        node.fail(0, &key("busybox"));
        assert_eq!(node.check(10, &key("busybox")), BackoffAnswer::Allowed);
        assert_eq!(node.fail(10, &key("busybox")).next_attempt_ms, Some(20_000));
    }

    #[test]
    fn failures_of_a_pod_are_listed_by_its_name_until_success() {
        let mut node = Node::new();
        let pod = |name: &str, uid: &str| PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        let of_pod = |name: &str, image: &str| LocalKey { pod: Some(pod(name, "u-1")), ..key(image) };
        for failing in [of_pod("web-0", "a:1"), of_pod("web-0", "b:1"), of_pod("web-1", "c:1"), key("d:1")] {
            node.fail(0, &failing);
        }
        let listed = |node: &Node, at, name| -> Vec<String> {
            let pod = pod(name, "");
            let listed = own(&node.tracker, node.tracker.known_of_pod(&pod), at_seconds(at), |_| None);
            listed.map(|entry| format!("{} {}", entry.key_parts.image, entry.next_attempt_ms)).collect()
        };
        assert_eq!(listed(&node, 3, "web-0"), ["a:1 7000", "b:1 7000"]);
        let attempt = AttemptId::random(&mut node.random);
        node.tracker
            .report(at_seconds(5), ReportAttempt { key: of_pod("web-0", "a:1"), attempt, attempt_span: None, failure: None, target: None });
        assert_eq!(listed(&node, 30, "web-0"), ["b:1 0"], "it may be attempted again, and has not succeeded");
        assert!(listed(&node, 3, "web-2").is_empty());
    }

    #[test]
    fn peek_changes_no_state() {
        let mut node = Node::new();
        node.fail(0, &key("busybox"));
        assert_eq!(node.tracker.check(at_seconds(11), &key("busybox"), true), BackoffAnswer::Allowed);
        assert!(node.tracker.known().all(|(_, failed)| failed.is_some()));
        assert_eq!(node.tracker.counts(at_seconds(11)).known, 1);
        assert_eq!(node.tracker.counts(at_seconds(11)).refused_total, 0);
    }

    #[test]
    fn a_refusal_names_the_last_failed_attempt_and_its_time() {
        let mut node = Node::new();
        let spans = [1, 2].map(|_| TraceContext::root(&mut node.random));
        for (at, span) in [(0, spans[0]), (10, spans[1])] {
            node.fail_in(at, &key("busybox"), Some(span));
            let BackoffAnswer::Refused(held) = node.check(at + 3, &key("busybox")) else { panic!("not held") };
            assert_eq!((held.learned_trace, held.learned_ms_ago), (Some(span), 3_000));
            let listed = own(&node.tracker, node.tracker.held_ones(), at_seconds(at + 3), |_| None).next();
            assert_eq!(listed.and_then(|entry| entry.trace), Some(span), "listed with it");
        }
        node.fail(30, &key("busybox"));
        let BackoffAnswer::Refused(held) = node.check(31, &key("busybox")) else { panic!("not held") };
        assert_eq!(held.learned_trace, None, "the last one did not ask the registry");
    }

    #[test]
    fn success_clears_unlike_kubelet() {
        let mut node = Node::new();
        node.fail(0, &key("busybox"));
        node.fail(10, &key("busybox"));
        let attempt = AttemptId::random(&mut node.random);
        let success = ReportAttempt { key: key("busybox"), attempt, attempt_span: None, failure: None, target: None };
        assert_eq!(node.tracker.report(at_seconds(30), success), AttemptReported::default());
        assert_eq!(node.fail(31, &key("busybox")).next_attempt_ms, Some(10_000));
    }

    #[test]
    fn a_report_that_comes_twice_counts_once() {
        let mut node = Node::new();
        let attempt = AttemptId::random(&mut node.random);
        let report = ReportAttempt { key: key("busybox"), attempt, attempt_span: None, failure: Some(failure("x")), target: None };
        assert_eq!(node.tracker.report(at_seconds(0), report.clone()).next_attempt_ms, Some(10_000));
        assert_eq!(node.tracker.report(at_seconds(4), report).next_attempt_ms, Some(6_000));
        assert_eq!(node.tracker.counts(at_seconds(4)).failures_total, 1);
    }

    #[test]
    fn full_tracker_forgets_its_oldest_key() {
        let mut node = Node::new();
        for number in 0..=MAX_KEYS as u64 {
            let attempt = AttemptId::random(&mut node.random);
            let (key, now) = (key(&number.to_string()), Duration::from_millis(number));
            node.tracker.report(now, ReportAttempt { key, attempt, attempt_span: None, failure: Some(failure("x")), target: None });
        }
        let counts = node.tracker.counts(Duration::from_millis(MAX_KEYS as u64));
        assert_eq!((counts.known, counts.evicted_total, node.tracker.failed_keys.len()), (MAX_KEYS as u64, 1, MAX_KEYS));
        assert_eq!(node.check(1, &key("0")), BackoffAnswer::Allowed);
    }

    #[test]
    fn a_cause_is_kept_whole_up_to_its_bound() {
        let mut node = Node::new();
        let attempt = AttemptId::random(&mut node.random);
        let failure = Some(failure(&"é".repeat(MAX_CAUSE_BYTES)));
        node.tracker.report(at_seconds(0), ReportAttempt { key: key("busybox"), attempt, attempt_span: None, failure, target: None });
        let BackoffAnswer::Refused(held) = node.check(1, &key("busybox")) else { panic!("not held") };
        assert_eq!(held.cause.len(), MAX_CAUSE_BYTES);
    }
}
