//! Which entries refuse which nodes for how long.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{
    BackoffKey, Decision, Duty, FailureDetails, Finding, Input, KeyInView, LeaseName, MAX_KEYS_OF_ONE, MAX_REQUESTS, Report, RequestId,
    Target, View,
};
use contract::messages::backoff_tracker::BackoffAnswer;
use contract::{AttemptId, FailureClass, RETRY_AFTER_MAX, Stage};

use super::node::{Node, endpoint, failed, image, key, limited, target, view};

#[test]
fn a_registry_is_down_when_three_nodes_or_all_report_it() {
    for (alive, needed) in [(1_000, 3), (3, 3), (2, 2)] {
        let mut node = Node::of(alive);
        for reporter in 1..needed {
            node.receive(&format!("n{reporter}"), endpoint(), failed(1));
        }
        node.ask();
        assert!(node.is_clear(), "{alive} alive: {} are not enough", needed - 1);
        let mut node = Node::of(alive);
        for reporter in 1..=needed {
            node.receive(&format!("n{reporter}"), endpoint(), failed(1));
        }
        node.ask();
        let held = node.held();
        assert_eq!((held.class, held.learned_by.as_str()), (FailureClass::RegistryUnavailable, format!("n{needed}").as_str()));
        assert!(held.next_attempt <= Duration::from_secs(2) && held.next_attempt >= Duration::from_millis(1_800));
    }
}

/// A digest of the first seconds may count the node itself only: a report shows that there is another node.
#[test]
fn single_reporter_does_not_corroborate() {
    for alive in 0..3 {
        let mut node = Node::of(alive);
        node.receive("n1", endpoint(), failed(1));
        node.ask();
        assert!(node.is_clear(), "{alive} alive: {:?}", node.decision);
    }
}

#[test]
fn repeated_reports_of_one_node_count_as_one() {
    let mut node = Node::of(1_000);
    for number in 1..=1_000 {
        node.now += Duration::from_millis(10);
        node.receive("n1", endpoint(), failed(number));
    }
    assert_eq!((node.core.counts().reports, node.core.counts().reports_received_total), (1, 1_000));
    assert_eq!(node.core.entries(node.now).iter().map(|entry| entry.reporters).collect::<Vec<_>>(), [1]);
    node.ask();
    assert!(node.is_clear());
}

#[test]
fn entry_that_expired_and_opened_again_counts_all_failures_since_the_oldest() {
    let mut node = Node::of(1_000);
    node.receive("n1", image(), failed(1));
    node.until(148.0);
    assert!(node.core.list(node.now).is_empty(), "it expired");
    node.receive("n2", image(), failed(1));
    let listed = node.core.list(node.now).remove(0);
    assert_eq!((listed.since_ms, listed.step, listed.reporter_count), (148_000, 2, 2));
    assert_eq!(node.core.entries(node.now)[0].step, 1, "the delay begins anew");
}

#[test]
fn when_an_entry_is_due_its_lease_decides_who_probes() {
    let mut node = Node::of(1_000);
    node.receive("n1", image(), failed(1));
    node.ask();
    node.until(1.0);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), answer_by: Some(_), .. })), "{:?}", node.decision);

    let mut node = Node::of(1_000);
    node.bus_answers = false;
    node.receive("n1", image(), failed(1));
    let epoch = node.core.entries(node.now)[0].epoch();
    let name = LeaseName::Probe(BackoffKey::new(view(), image()).id(), epoch);
    node.ask();
    node.give(Input::LeaseTaken { name, holder: "n9".parse().unwrap(), left: Duration::from_secs(15) });
    node.until(14.0);
    assert!(!node.is_clear(), "another probes: {:?}", node.decision);
}

#[test]
fn a_lately_resolved_image_is_pulled_without_waiting() {
    let mut node = Node::of(1_000);
    node.bus_answers = false;
    node.receive("n4", endpoint(), Finding::Succeeded);
    node.receive("n4", image(), Finding::Succeeded);
    node.ask();
    assert_eq!(node.decision, Some(Decision::Granted { duty: Duty::None, answer_by: None, until: Stage::Manifest }));
}

/// In an outage some nodes have to make attempts, and all but one of them are served after another. Their failures count in the next
/// outage.
#[test]
fn failures_of_the_same_nodes_count_each_time_the_registry_is_down() {
    let mut node = Node::of(1_000);
    for outage in 1..=6 {
        node.now = Duration::from_secs(200 * outage);
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, endpoint(), failed(1));
        }
        let bound = node.core.entries(node.now).first().map(|entry| (entry.refuses_all, entry.reporters));
        assert_eq!(bound, Some((true, 3)), "outage {outage}");
        node.now += Duration::from_secs(20);
        for reporter in ["n4", "n1", "n2", "n3"] {
            node.now += Duration::from_secs(2);
            node.receive(reporter, endpoint(), Finding::Succeeded);
        }
        assert_eq!(node.core.entries(node.now).len(), 0, "outage {outage} is over");
    }
}

#[test]
fn a_node_that_fails_where_others_succeed_publishes_no_failure_and_uses_its_own_rule() {
    let mut node = Node::of(1_000);
    node.receive("n2", endpoint(), Finding::Succeeded);
    node.ask();
    node.fail(FailureClass::NotFound);
    assert_eq!(node.published.iter().filter(|report| report.finding != Finding::Succeeded).count(), 1);
    node.until(1.0);
    node.receive("n2", image(), Finding::Succeeded);
    node.receive("n3", image(), Finding::Succeeded);
    node.until(20.0);
    assert!(node.is_clear());
    node.fail(FailureClass::NotFound);
    assert_eq!(node.published.iter().filter(|report| report.finding != Finding::Succeeded).count(), 1);
    assert_eq!(node.held().next_attempt, node.now + Duration::from_secs(10));
    assert_eq!(node.core.counts().kept_to_itself_total, 1);
}

#[test]
fn an_authoritatively_unavailable_registry_is_down_when_two_repositories_fail() {
    let failing =
        |repository: &str| Finding::Failed(FailureDetails { step: 1, repository: repository.to_owned(), ..FailureDetails::default() });
    let mut node = Node::of(1_000);
    node.receive("n1", KeyInView::Registry, failing("b"));
    node.receive("n2", KeyInView::Registry, failing("b"));
    node.ask();
    assert!(node.is_clear(), "one repository is not the registry");
    let mut node = Node::of(1_000);
    node.receive("n1", KeyInView::Registry, failing("b"));
    node.receive("n2", KeyInView::Registry, failing("c"));
    node.ask();
    assert_eq!(node.held().class, FailureClass::RegistryUnavailable);
}

#[test]
fn entries_about_other_targets_bind_no_request_here() {
    let of = |in_view: KeyInView, change: fn(&mut View)| {
        let mut view = view();
        change(&mut view);
        BackoffKey::new(view, in_view)
    };
    let other_zone = KeyInView::Endpoint { endpoint: "r:443".to_owned(), zone: "other".to_owned() };
    let other_login = KeyInView::Reference { reference: "r/a:1".to_owned(), scope: "other".to_owned(), mirrored: false };
    let backoff_keys = [
        of(other_zone, |_| ()),
        of(other_login, |_| ()),
        of(endpoint(), |view| view.route = "mirror".to_owned()),
        of(endpoint(), |view| view.boot = "another host".to_owned()),
        of(image(), |view| view.scope = "edge".to_owned()),
    ];
    for backoff_key in backoff_keys {
        let mut node = Node::of(1_000);
        let backoff_key = Arc::new(backoff_key);
        for reporter in ["n1", "n2", "n3"] {
            let attempt = AttemptId::random(&mut node.random);
            let report = Report {
                reporter: reporter.parse().unwrap(),
                backoff_key: Arc::clone(&backoff_key),
                attempt,
                trace: None,
                finding: failed(1),
            };
            node.give(Input::ReportReceived { report: Arc::new(report), age: Duration::ZERO });
        }
        node.ask();
        assert!(node.is_clear(), "{:?}", backoff_key.in_view());
    }
}

#[test]
fn retry_after_is_obeyed_when_two_nodes_report_it_and_for_an_hour_at_most() {
    for (seconds, least, most) in [(60, 60, 62), (u64::MAX, 3_600, 3_602)] {
        let mut node = Node::of(1_000);
        node.receive("n1", KeyInView::BudgetOwner("o".to_owned()), limited(seconds));
        node.bus_answers = false;
        node.ask();
        assert!(node.held().unconfirmed, "one reporter refuses nothing");
        node.receive("n2", KeyInView::BudgetOwner("o".to_owned()), limited(seconds));
        let next_attempt = node.held().next_attempt;
        assert!(next_attempt >= Duration::from_secs(least) && next_attempt <= Duration::from_secs(most), "{next_attempt:?}");
        assert!(next_attempt <= RETRY_AFTER_MAX + Duration::from_secs(2));
    }
}

#[test]
fn a_newer_retry_after_counts_although_others_received_theirs_long_ago() {
    let mut node = Node::of(1_000);
    let asked = |step| match limited(20) {
        Finding::Failed(details) => Finding::Failed(FailureDetails { step, ..details }),
        other => other,
    };
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, KeyInView::BudgetOwner("o".to_owned()), asked(4));
    }
    node.until(24.0);
    node.receive("n2", KeyInView::BudgetOwner("o".to_owned()), asked(5));
    node.ask();
    let next_attempt = node.held().next_attempt;
    assert!(next_attempt >= Duration::from_secs(44) && next_attempt <= Duration::from_secs(46), "{next_attempt:?}");
}

#[test]
fn retry_after_of_one_of_several_reporters_makes_no_next_attempt_earlier() {
    // Seconds that the first reporter states, and those of the second; when the next attempt is due.
    for (first, second, least, most) in [(None, Some(0), 8, 11), (Some(12), Some(0), 8, 11), (Some(2), Some(3), 3, 6)] {
        let mut node = Node::of(1_000);
        let reports = |seconds: Option<u64>| match limited(seconds.unwrap_or_default()) {
            Finding::Failed(details) => {
                Finding::Failed(FailureDetails { retry_after: details.retry_after.filter(|_| seconds.is_some()), ..details })
            }
            other => other,
        };
        node.receive("n1", KeyInView::BudgetOwner("o".to_owned()), reports(first));
        node.until(first.unwrap_or_default() as f64 + 0.5);
        let now = node.now;
        node.receive("n2", KeyInView::BudgetOwner("o".to_owned()), reports(second));
        node.ask();
        let delay = node.held().next_attempt - now;
        assert!((Duration::from_secs(least)..=Duration::from_secs(most)).contains(&delay), "{first:?} {second:?}: {delay:?}");
    }
}

#[test]
fn a_node_local_failure_is_not_published_and_follows_kubelets_rule() {
    for class in [FailureClass::NodeLocal, FailureClass::Unknown] {
        let mut node = Node::of(1_000);
        node.ask();
        node.fail(class);
        assert!(node.published.iter().all(|report| report.finding == Finding::Succeeded), "{class}");
        assert_eq!((node.held().next_attempt, node.held().class), (Duration::from_secs(10), class));
        node.until(10.0);
        assert!(node.is_clear());
        node.fail(class);
        assert_eq!(node.held().next_attempt, Duration::from_secs(30));
    }
}

/// Some runtimes show only at the end of the pull that a manifest was there.
#[test]
fn missing_image_is_reported_with_a_success_of_the_registry() {
    let mut node = Node::of(1_000);
    node.ask();
    node.fail(FailureClass::NotFound);
    let published: Vec<(FailureClass, bool)> =
        node.published.iter().map(|report| (report.backoff_key.class(), report.finding == Finding::Succeeded)).collect();
    assert_eq!(published, [(FailureClass::NotFound, false), (FailureClass::RegistryUnavailable, true)]);
}

#[test]
fn keys_of_one_writer_displace_no_report_of_another() {
    let mut node = Node::of(1_000);
    node.receive("honest", image(), failed(1));
    for number in 0..3 * MAX_KEYS_OF_ONE {
        node.receive("liar", KeyInView::Repository(number.to_string()), failed(1));
    }
    let counts = node.core.counts();
    assert_eq!(counts.reports, 1 + MAX_KEYS_OF_ONE as u64);
    assert_eq!(counts.reports_evicted_total, 2 * MAX_KEYS_OF_ONE as u64);
    let answer = node.check(key("r/a:1"), true);
    assert!(
        matches!(&answer, BackoffAnswer::Refused(held) if held.learned_by.as_ref().is_some_and(|by| by.as_str() == "honest")),
        "{answer:?}"
    );
}

#[test]
fn old_or_impossible_age_is_ignored() {
    let mut node = Node::of(1_000);
    node.now = Duration::from_secs(10_000);
    for age in [Duration::from_secs(700), Duration::MAX] {
        let attempt = AttemptId::random(&mut node.random);
        let backoff_key = Arc::new(BackoffKey::new(view(), image()));
        let report = Report { reporter: "n1".parse().unwrap(), backoff_key, attempt, trace: None, finding: failed(1) };
        node.give(Input::ReportReceived { report: Arc::new(report), age });
    }
    assert_eq!(node.core.counts().reports_stale_total, 2);
    assert_eq!(node.core.counts().reports_clamped_total, 1);
    node.ask();
    assert!(node.is_clear());
}

#[test]
fn requests_are_bounded() {
    let mut node = Node::of(1);
    for number in 0..MAX_REQUESTS as u64 {
        let image = format!("r/a:{number}");
        node.give(Input::Request { request: RequestId(100 + number), key: key(&image), target: Target { reference: image, ..target() } });
    }
    node.ask();
    assert!(node.held().cause.contains("wait until some are pulled"));
    node.give(Input::Withdraw(RequestId(100)));
    node.ask();
    assert!(!matches!(node.decision, Some(Decision::Refused(_))));
}
