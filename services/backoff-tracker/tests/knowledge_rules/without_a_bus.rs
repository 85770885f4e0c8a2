//! A bus that is lost or does not answer.

use std::time::Duration;

use backoff_tracker::core::knowledge::{AttemptFailure, Decision, Duty, Finding, Input, KeyInView, Outcome};
use contract::FailureClass;
use contract::messages::backoff_tracker::BackoffAnswer;

use super::node::{Node, endpoint, failed, failed_for, failure, image, key, limited};

#[test]
fn known_entries_refuse_without_a_bus_until_next_attempt_or_server_restart() {
    for (lost_at, least, most) in [(0.5, 15.5, 21.0), (1.5, 16.5, 22.0)] {
        let mut node = Node::of(1_000);
        for reporter in ["n1", "n2", "n3"] {
            node.receive(reporter, endpoint(), failed(1));
        }
        node.ask();
        node.until(lost_at);
        node.give(Input::BusLost);
        let next_attempt = node.held().next_attempt.as_secs_f64();
        assert!((least..most).contains(&next_attempt), "{next_attempt}");
        assert_eq!(node.held().learned_by.as_str(), "n3");
        node.give(Input::BusLost);
        assert_eq!(node.held().next_attempt.as_secs_f64(), next_attempt, "the bus is still lost, which changes nothing");
        node.until(next_attempt - 0.01);
        assert!(!node.is_clear());
        node.until(next_attempt + 0.001);
        assert!(node.is_clear(), "{:?}", node.decision);
        node.fail(FailureClass::NotFound);
        assert_eq!(node.held().next_attempt, node.now + Duration::from_secs(10), "kubelet's rule");
    }
}

#[test]
fn list_of_a_node_without_a_bus_shows_when_it_makes_the_next_attempt() {
    let mut node = Node::of(5);
    ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.receive(reporter, image(), failed(2)));
    node.until(1.0);
    let listed = |node: &Node| node.core.list(node.now).iter().map(|entry| entry.next_attempt_ms).collect::<Vec<_>>();
    let by_entry = listed(&node);
    node.give(Input::BusLost);
    let BackoffAnswer::Refused(refusal) = node.check(key("r/a:1"), true) else { panic!("not refused") };
    assert_eq!(listed(&node), [refusal.next_attempt_ms], "as it refuses, and not as with a bus: {by_entry:?}");
    assert_eq!(node.core.binding_count(node.now), 1, "the entry holds the node back");
    node.until(node.now.as_secs_f64() + refusal.next_attempt_ms as f64 / 1_000.0 + 1.0);
    assert_eq!(node.core.binding_count(node.now), 0, "the node follows kubelet's rule");
}

/// The registry serves others, so no entry refuses all nodes, and only the node's own pause remembers the `Retry-After`.
#[test]
fn own_retry_after_is_obeyed_when_the_bus_is_lost() {
    let mut node = Node::of(1_000);
    for in_view in [endpoint(), KeyInView::BudgetOwner("o".to_owned())] {
        node.receive("n1", in_view, Finding::Succeeded);
    }
    node.ask();
    assert!(node.is_clear());
    let attempt = node.begin();
    node.end(attempt, Outcome::Failed(AttemptFailure { retry_after_ms: Some(3_000_000), ..failure(FailureClass::RateLimited) }));
    assert!(node.held().next_attempt >= Duration::from_secs(3_000), "{:?}", node.decision);
    node.until(1.0);
    node.give(Input::BusLost);
    node.until(2_999.0);
    assert!(!node.is_clear(), "{:?}", node.decision);
    node.until(3_010.0);
    assert!(node.is_clear(), "{:?}", node.decision);
}

/// By kubelet's rule a node attempts a pull that fails since 0 s at 10, 30, 70, 150, 310 and 610 s. A node that other nodes' reports
/// refused and that then lost the bus makes each next attempt no later than that, apart from 15 s for the bus and the time until its turn.
#[test]
fn refused_node_that_loses_the_bus_attempts_no_later_than_kubelet() {
    for lost_at in [12.0, 20.0, 27.0, 45.0, 100.0] {
        let mut node = Node::of(5);
        node.ask();
        for second in 0..=(lost_at as u64) {
            node.until(second as f64);
            for reporter in ["n1", "n2", "n3"].into_iter().filter(|_| second % 5 == 0) {
                node.receive(reporter, image(), failed(3));
            }
        }
        node.give(Input::BusLost);
        let mut attempts = Vec::new();
        while node.now < Duration::from_secs(400) {
            if node.is_clear() {
                attempts.push(node.now.as_secs_f64());
                node.fail(FailureClass::NotFound);
            }
            node.until(node.now.as_secs_f64() + 0.5);
        }
        assert!(attempts.len() >= 3, "lost at {lost_at}: attempted at {attempts:?}");
        // The time after the last attempt counts too.
        attempts.push(node.now.as_secs_f64());
        for pair in attempts.windows(2) {
            let due: f64 = [10.0, 30.0, 70.0, 150.0, 310.0, 610.0].into_iter().find(|due| *due > pair[0]).unwrap();
            assert!(pair[1] <= due.max(pair[0] + 5.0).max(lost_at + 15.0) + 6.0, "lost at {lost_at}: attempted at {attempts:?}");
        }
    }
}

/// The bus becomes slow: other nodes' reports still arrive, but no answer comes in time. The registry works from 62 s on, and by kubelet's
/// rule each node has made an attempt at 70 s, whatever it has attempted before and whenever it has noticed the slow bus.
#[test]
fn slow_bus_delays_no_longer_than_kubelet() {
    const HEALED: f64 = 62.0;
    for slow in (12..60).step_by(3) {
        for others_fail_every in [5.0, 8.0, 11.0, 20.0] {
            let mut node = Node::of(5);
            let (mut attempts, mut others_fail_at) = (Vec::new(), 0.0);
            node.ask();
            while node.now.as_secs_f64() < HEALED + 30.0 {
                let now = node.now.as_secs_f64();
                node.bus_answers = now < f64::from(slow);
                if now >= others_fail_at && now < HEALED {
                    ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.receive(reporter, endpoint(), failed(3)));
                    others_fail_at = now + others_fail_every;
                }
                if node.is_clear() {
                    attempts.push(now);
                    let attempt = node.begin();
                    node.end(
                        attempt,
                        Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }),
                    );
                }
                node.until(now + 0.5);
            }
            let next = attempts.iter().find(|attempt| **attempt >= HEALED).copied();
            assert!(
                next.is_some_and(|next| next <= 76.0),
                "slow at {slow}, others fail every {others_fail_every} s: attempted at {attempts:?}"
            );
        }
    }
}

/// All nodes of a fleet ask for the probe lease, each in its turn. If each node without an answer made an attempt at once, all would ask
/// the registry.
#[test]
fn unanswered_probe_lease_request_delays_as_long_as_a_server_restart() {
    let mut node = Node::of(1_000);
    ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.receive(reporter, endpoint(), failed(1)));
    node.bus_answers = false;
    node.ask();
    node.until(10.0);
    let next_attempt = node.held().next_attempt.as_secs_f64();
    assert!((17.0..24.0).contains(&next_attempt), "{next_attempt}");
    node.until(next_attempt + 1.0);
    assert!(node.is_clear(), "the bus has answered nothing since: {:?}", node.decision);
}

/// A node's attempts for all count when it uses its own rule: after two failures it waits 20 s, as by kubelet's rule, but not beyond the
/// time at which that rule would have made an attempt if it had failed since the beginning, each attempt as long as the last one.
#[test]
fn a_former_prober_without_a_bus_attempts_no_more_often_than_by_kubelets_rule() {
    for (attempts, took, ends, held) in [(1, 10.0, 18.0, 5.0), (2, 10.0, 28.0, 20.0), (2, 0.1, 15.0, 15.0), (8, 10.0, 88.0, 12.0)] {
        let mut node = Node::of(5);
        // They report that they have failed since the beginning.
        let others_fail = |node: &mut Node| {
            let failure = failed_for(3, node.now);
            ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.receive(reporter, endpoint(), failure.clone()));
        };
        others_fail(&mut node);
        node.ask();
        for number in 1..=attempts {
            while !node.is_clear() {
                node.until(node.now.as_secs_f64() + 0.1);
            }
            let attempt = node.begin();
            others_fail(&mut node);
            let listed = node.core.list(node.now);
            assert!(listed.iter().all(|entry| entry.binds != "this node"), "nothing is held here by what all go by: {listed:?}");
            if number == attempts {
                node.give(Input::BusLost);
            }
            node.until(node.now.as_secs_f64() + took);
            node.end(attempt, Outcome::Failed(AttemptFailure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) }));
        }
        let ended = node.now;
        while !node.is_clear() {
            node.until(node.now.as_secs_f64() + 0.1);
        }
        let seconds = (ended.as_secs_f64().round(), (node.now - ended).as_secs_f64().round());
        assert_eq!(seconds, (ends, held), "the last of {attempts} attempts, {took} s each, ended at {ended:?}");
    }
}

#[test]
fn a_known_long_delay_is_kept_without_a_bus_and_given_to_new_requests() {
    let mut node = Node::of(20);
    node.receive("n1", KeyInView::BudgetOwner("o".to_owned()), limited(60));
    node.receive("n2", KeyInView::BudgetOwner("o".to_owned()), limited(60));
    node.until(1.0);
    node.give(Input::BusLost);
    node.ask();
    let next_attempt = node.held().next_attempt;
    assert!(next_attempt >= Duration::from_secs(60) && next_attempt <= Duration::from_secs(67), "{next_attempt:?}");
    let BackoffAnswer::Refused(held) = node.check(key("r/a:1"), false) else { panic!("not held") };
    assert_eq!((held.class, u128::from(held.next_attempt_ms)), (FailureClass::RateLimited, (next_attempt - node.now).as_millis() + 1));
}

#[test]
fn a_node_whose_bus_returns_in_time_continues_as_if_it_had_not_been_lost() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, endpoint(), failed(1));
    }
    node.ask();
    node.until(0.5);
    node.give(Input::BusLost);
    node.until(6.0);
    assert!(matches!(node.decision, Some(Decision::Refused(_))), "{:?}", node.decision);
    node.bus_answers = false;
    node.give(Input::BusBack);
    assert_eq!(node.decision, Some(Decision::Wait), "it asks who probes");
    node.receive("n4", image(), Finding::Succeeded);
    node.receive("n4", endpoint(), Finding::Succeeded);
    node.until(12.0);
    assert!(node.is_clear(), "{:?}", node.decision);
}

/// A node whose connection is back receives new reports at once, but reads the snapshot up to two seconds later. Until then it has no
/// leases.
#[test]
fn one_node_s_failure_received_before_the_snapshot_delays_a_request_until_the_bus_is_back() {
    let mut node = Node::of(6);
    node.give(Input::BusLost);
    node.until(0.5);
    node.receive("n1", image(), failed(1));
    node.until(0.6);
    node.ask();
    let Some(Decision::Refused(refusal)) = &node.decision else { panic!("attempted at once: {:?}", node.decision) };
    assert!(refusal.unconfirmed, "it only waits: {refusal:?}");
    node.until(2.0);
    assert!(!node.is_clear(), "{:?}", node.decision);
    node.give(Input::BusBack);
    node.until(3.0);
    assert!(matches!(node.decision, Some(Decision::Granted { duty: Duty::Probe(_), .. })), "{:?}", node.decision);
}

/// Each of its failures is reported as the first.
#[test]
fn false_failures_of_one_node_delay_a_request_without_a_bus_for_a_bounded_time() {
    let mut node = Node::of(6);
    node.give(Input::BusLost);
    for tenth in 1..=250_u32 {
        node.until(f64::from(tenth) / 10.0);
        node.receive("liar", image(), failed(1));
        if tenth == 6 {
            node.ask();
        }
    }
    assert!(node.is_clear(), "{:?}", node.decision);
}

/// On a bus that is slow, or back without the snapshot, other nodes' new failures arrive. They hold a new request until the next attempt of
/// all or of kubelet's rule, and what the node itself finds then concerns its own rule.
#[test]
fn failures_received_without_a_bus_delay_a_request_as_long_as_on_a_bus() {
    let mut node = Node::of(1_000);
    node.until(1.0);
    node.give(Input::BusLost);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, endpoint(), failed(1));
    }
    node.ask();
    let due = node.core.entries(node.now)[0].next_attempt;
    assert!(node.held().next_attempt >= due && node.held().next_attempt < due + Duration::from_secs(6), "{:?}", node.decision);
    node.until(node.held().next_attempt.as_secs_f64() + 0.001);
    assert!(node.is_clear(), "{:?}", node.decision);
    node.fail(FailureClass::NotFound);
    assert_eq!(node.held().next_attempt, node.now + Duration::from_secs(10), "kubelet's rule");
}

#[test]
fn an_outstanding_answer_of_the_bus_is_waited_for_a_quarter_of_a_second() {
    let mut node = Node::of(1_000);
    node.bus_answers = false;
    node.ask();
    assert_eq!(node.decision, Some(Decision::Wait));
    node.until(0.249);
    assert_eq!(node.decision, Some(Decision::Wait));
    node.until(0.25);
    assert!(node.is_clear());
    assert_eq!(node.core.counts().bus_misses_total, 1);
}
