//! Which nodes a quota lets pull.

use super::*;

const OUT: Out = Out { open: 0, since: None };

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node(name: &str) -> NodeName {
    name.parse().expect("a name")
}

fn nothing_left() -> RegistryLimit {
    RegistryLimit { limit: 100, remaining: 0, window_ms: 6 * 3_600_000, ..RegistryLimit::default() }
}

/// Which of the tests' nodes may have no permit; none if no node may have one.
fn passed_over(quota: &Quota, now: Duration, out: Out) -> Option<Vec<&'static str>> {
    let allowance = quota.allows(now, out)?;
    Some(["a", "b", "c", "new"].into_iter().filter(|name| !allowance.is_for(&node(name))).collect())
}

#[test]
fn report_of_one_node_ends_when_another_pulls_and_no_limits_are_stated() {
    let mut quota = Quota::new(None);
    quota.node_called(at(1), &node("b"));
    quota.learn(at(10), &node("a"), Some(at(9)), &[nothing_left()], OUT);
    assert_eq!(passed_over(&quota, at(11), OUT), None);
    assert_eq!(passed_over(&quota, at(15), OUT), Some(vec!["a"]));

    quota.learn(at(16), &node("b"), Some(at(8)), &[], OUT);
    assert!(quota.is_limited(), "a pull that began before shows nothing");
    quota.learn(at(16), &node("a"), Some(at(15)), &[], OUT);
    assert!(quota.is_limited(), "another node has to refute it");
    quota.learn(at(16), &node("b"), Some(at(15)), &[], OUT);
    assert_eq!(passed_over(&quota, at(16), Out { open: 50, since: Some(at(15)) }), Some(vec![]));

    quota.learn(at(17), &node("a"), Some(at(16)), &[nothing_left()], OUT);
    assert_eq!(passed_over(&quota, at(18), OUT), Some(vec![]), "its report alone does not count again");
}

#[test]
fn only_the_first_limits_of_a_message_are_read() {
    let mut quota = Quota::new(None);
    let stated: Vec<RegistryLimit> = (1..=10_000).map(|window_ms| RegistryLimit { window_ms, ..nothing_left() }).collect();
    quota.learn(at(10), &node("a"), Some(at(9)), &stated, OUT);
    let windows: Vec<u64> = quota.windows.keys().map(|(_, window_ms)| *window_ms).collect();
    assert_eq!(windows, [61, 62, 63, 64]);
}

#[test]
fn report_is_refuted_although_as_many_nodes_as_possible_are_distrusted() {
    const MOST: usize = 1_000;
    let mut quota = Quota::new(None);
    let liar = |number: usize| node(&format!("liar{number}"));
    for number in 0..=MOST {
        let began = at(10 * number as u64);
        quota.learn(began + at(2), &liar(number), Some(began + at(1)), &[nothing_left()], OUT);
        quota.learn(began + at(4), &node("b"), Some(began + at(3)), &[], OUT);
        assert!(!quota.is_limited(), "{number} other nodes are distrusted");
    }
    assert_eq!(quota.distrusted.len(), MOST);
    let later = at(20_000);
    quota.learn(later, &liar(MOST), Some(later - at(1)), &[nothing_left()], OUT);
    assert!(!quota.is_limited(), "it is distrusted");
    quota.learn(later, &liar(0), Some(later - at(1)), &[nothing_left()], OUT);
    assert!(quota.is_limited(), "the node that was distrusted first is trusted again");
}

#[test]
fn windows_that_one_node_invents_leave_room_for_the_registrys() {
    let mut quota = Quota::new(None);
    for number in 0..1_000 {
        let invented = RegistryLimit { source: Some(format!("s{number}")), remaining: 9, ..nothing_left() };
        quota.learn(at(1), &node("liar"), Some(at(0)), &[invented], OUT);
    }
    assert!(quota.windows.len() <= 8, "{} windows", quota.windows.len());
    for reporter in ["a", "b"] {
        quota.learn(at(10), &node(reporter), Some(at(9)), &[nothing_left()], OUT);
    }
    assert_eq!(passed_over(&quota, at(20), OUT), None);
}

fn left(remaining: u64) -> RegistryLimit {
    RegistryLimit { remaining, ..nothing_left() }
}

#[test]
fn last_pull_that_reports_leave_is_not_granted() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), None, &[left(2)], OUT);
    assert_eq!(passed_over(&quota, at(10), OUT), Some(vec![]));
    quota.learn(at(10), &node("b"), None, &[left(1)], OUT);
    assert_eq!(passed_over(&quota, at(20), OUT), None, "an unreported pull may have used it");
    // The registry itself has stated this to a pull of this leader.
    quota.learn(at(12), &node("b"), Some(at(11)), &[left(1)], OUT);
    assert_eq!(passed_over(&quota, at(12), OUT), Some(vec![]));
}

#[test]
fn quota_that_shrinks_below_the_permits_that_are_out_allows_no_more_until_enough_are_back() {
    let mut quota = Quota::new(None);
    let out = |open| Out { open, since: Some(at(11)) };
    for name in ["a", "b"] {
        quota.learn(at(10), &node(name), Some(at(9)), &[left(50)], OUT);
    }
    assert_eq!(passed_over(&quota, at(11), out(20)), Some(vec![]));
    quota.learn(at(12), &node("c"), Some(at(11)), &[left(5)], out(20));
    for (now, open, is_allowed) in [(12, 20, false), (100, 19, false), (3_600, 5, false), (3_600, 4, true)] {
        assert_eq!(passed_over(&quota, at(now), out(open)).is_some(), is_allowed, "{open} are out after {now} s");
    }
    quota.learn(at(3_601), &node("a"), Some(at(3_600)), &[left(0)], out(4));
    assert_eq!(passed_over(&quota, at(3_602), out(4)), None);
    assert!(quota.known(at(3_602), out(4)).limits.iter().all(|limit| limit.remaining == 0));
}

#[test]
fn pull_of_an_earlier_leader_shows_no_new_window() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), None, &[left(0)], OUT);
    quota.learn(at(10), &node("b"), None, &[left(0)], OUT);
    quota.learn(at(12), &node("c"), None, &[left(5)], OUT);
    assert_eq!(passed_over(&quota, at(12), OUT), None);
    quota.learn(at(12), &node("c"), Some(at(11)), &[left(5)], OUT);
    assert_eq!(passed_over(&quota, at(12), OUT), Some(vec![]));
}

/// A node without a leader has used the last pull: the next one that is granted is refused, and no other is granted for the same. The
/// refusal states a remainder and a reset, and neither the limit nor its window.
#[test]
fn refused_pull_counts_as_granted() {
    let mut quota = Quota::new(None);
    for name in ["a", "b"] {
        quota.learn(at(10), &node(name), Some(at(9)), &[left(1)], OUT);
    }
    assert_eq!(passed_over(&quota, at(11), OUT), Some(vec![]));
    let refused = RegistryLimit { reset_ms: Some(50_000), ..RegistryLimit::default() };
    quota.learn(at(12), &node("c"), Some(at(11)), &[refused], OUT);
    assert_eq!(passed_over(&quota, at(30), OUT), None, "no other node checks by a pull of its own");
}

#[test]
fn lone_report_of_the_last_pulls_counts_for_a_minute() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), None, &[left(7)], OUT);
    quota.learn(at(10), &node("b"), None, &[nothing_left()], OUT);
    assert_eq!(passed_over(&quota, at(69), OUT), None);
    assert_eq!(passed_over(&quota, at(70), OUT), Some(vec!["b"]), "a lie does not hold the fleet for hours");
}

/// A leader was elected while most nodes were cut off, and only one node that has called it knows the quota.
#[test]
fn no_node_checks_by_a_pull_before_others_had_time_to_report() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), None, &[nothing_left()], OUT);
    assert_eq!(passed_over(&quota, at(60), OUT), None, "no other node has called");
    quota.node_called(at(60), &node("b"));
    assert_eq!(passed_over(&quota, at(60), OUT), None, "a node that comes back at the same time may know");
    assert_eq!(passed_over(&quota, at(61), OUT), Some(vec!["a"]));
    quota.learn(at(61), &node("c"), None, &[nothing_left()], OUT);
    assert_eq!(passed_over(&quota, at(70), OUT), None, "two report it");
}

fn left_to(source: &str, remaining: u64) -> RegistryLimit {
    RegistryLimit { source: Some(source.to_owned()), ..left(remaining) }
}

#[test]
fn each_source_has_a_quota_of_its_own_and_binds_the_nodes_behind_it() {
    let mut quota = Quota::new(None);
    for (name, source, remaining) in [("a", "A", 1), ("b", "B", 50), ("c", "A", 0)] {
        quota.learn(at(10), &node(name), Some(at(9)), &[left_to(source, remaining)], OUT);
    }
    assert_eq!(passed_over(&quota, at(11), OUT), Some(vec!["a", "c"]), "b, and nodes whose source is unknown");
    assert_eq!(quota.wait(at(11), OUT, 0, &node("b")), Duration::ZERO);
    assert!(quota.wait(at(11), OUT, 0, &node("a")) > at(3_600), "its wait is known");
    let known_to = |name: &str| quota.known_to(&node(name), quota.known(at(11), OUT)).limits;
    assert_eq!(known_to("b").iter().map(|limit| limit.remaining).collect::<Vec<_>>(), [50]);
    assert_eq!(known_to("new").len(), 2);

    // The next leader learns the same from what was sent to each node.
    let mut next = Quota::new(None);
    for name in ["a", "b", "c", "new"] {
        let known = quota.known_to(&node(name), quota.known(at(11), OUT));
        next.learn(at(20), &node(name), None, &known.limits, OUT);
    }
    assert_eq!(passed_over(&next, at(20), OUT), Some(vec!["a", "c"]));

    // The node is behind another address now.
    quota.learn(at(12), &node("a"), Some(at(11)), &[left_to("B", 49)], OUT);
    assert_eq!(passed_over(&quota, at(12), OUT), Some(vec!["c"]));
    quota.learn(at(13), &node("b"), Some(at(12)), &[left_to("B", 0)], OUT);
    quota.learn(at(13), &node("a"), Some(at(12)), &[left_to("B", 0)], OUT);
    assert_eq!(passed_over(&quota, at(13), OUT), None, "no source has room");
}

/// One node alone reports a limit without a source.
#[test]
fn node_of_a_used_up_source_does_not_check_the_report_of_another_node() {
    let mut quota = Quota::new(None);
    for (name, source, remaining) in [("a", "A", 0), ("c", "A", 0), ("b", "B", 50)] {
        quota.learn(at(10), &node(name), Some(at(9)), &[left_to(source, remaining)], OUT);
    }
    let spent = RegistryLimit { reset_ms: Some(60_000), ..RegistryLimit::default() };
    quota.learn(at(10), &node("new"), None, &[spent], OUT);
    assert_eq!(passed_over(&quota, at(15), OUT), Some(vec!["a", "c", "new"]));
}

#[test]
fn limit_without_a_source_binds_all_nodes() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("b"), Some(at(9)), &[left_to("B", 50)], OUT);
    let spent = RegistryLimit { reset_ms: Some(20_000), ..RegistryLimit::default() };
    for name in ["a", "b"] {
        quota.learn(at(11), &node(name), Some(at(10)), std::slice::from_ref(&spent), OUT);
    }
    assert_eq!(passed_over(&quota, at(12), OUT), None);
    quota.expire(at(40));
    assert_eq!(passed_over(&quota, at(40), OUT), Some(vec![]));
}

#[test]
fn report_of_two_nodes_is_not_refuted_by_a_third() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), Some(at(9)), &[nothing_left()], OUT);
    quota.learn(at(16), &node("b"), Some(at(15)), &[nothing_left()], OUT);
    quota.learn(at(18), &node("c"), Some(at(17)), &[], OUT);
    assert_eq!(passed_over(&quota, at(30), OUT), None);
}

#[test]
fn permits_that_ended_unanswered_count_in_each_window_until_the_registry_states_it() {
    let minute = RegistryLimit { limit: 60, remaining: 50, window_ms: 60_000, ..RegistryLimit::default() };
    // What a later pull states, when, and whether one more pull may be granted in the window in which two were left.
    let table = [
        (vec![left(2)], 31, true),
        (vec![minute.clone()], 31, false),
        (vec![minute.clone(), left(2)], 31, true),
        // The minute is over.
        (vec![], 90, false),
    ];
    for (stated, now, is_left) in table {
        let mut quota = Quota::new(None);
        quota.learn(at(10), &node("a"), Some(at(9)), &[minute.clone(), left(2)], OUT);
        for _ in 0..2 {
            quota.ended_unanswered(at(20), &node("c"));
        }
        assert_eq!(passed_over(&quota, at(30), OUT), None, "both may have been pulled");
        if !stated.is_empty() {
            quota.learn(at(now), &node("b"), Some(at(30)), &stated, OUT);
        }
        quota.expire(at(now));
        assert_eq!(passed_over(&quota, at(now), OUT) == Some(vec![]), is_left, "{stated:?}");
    }
}

#[test]
fn pull_that_ended_unanswered_counts_for_the_source_of_its_node_until_that_is_stated() {
    // Whose pull ended, and whether the last pull behind B may be granted after an answer to a node behind A.
    for (ended, is_left) in [("a", true), ("b", false), ("new", false)] {
        let mut quota = Quota::new(None);
        for (name, source, remaining) in [("a", "A", 50), ("b", "B", 1)] {
            quota.learn(at(10), &node(name), Some(at(9)), &[left_to(source, remaining)], OUT);
        }
        quota.ended_unanswered(at(20), &node(ended));
        quota.learn(at(31), &node("a"), Some(at(30)), &[left_to("A", 49)], OUT);
        let expected = if is_left { vec![] } else { vec!["b"] };
        assert_eq!(passed_over(&quota, at(31), OUT), Some(expected), "{ended}");
    }
}

/// The registry begins to state sources. The window without a source is not stated again.
#[test]
fn window_without_a_source_is_settled_by_one_of_the_same_length() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), Some(at(9)), &[left(2)], OUT);
    for _ in 0..2 {
        quota.ended_unanswered(at(20), &node("a"));
    }
    assert_eq!(passed_over(&quota, at(21), OUT), None, "both may have been pulled");
    quota.learn(at(31), &node("a"), Some(at(30)), &[left_to("A", 50)], OUT);
    assert_eq!(passed_over(&quota, at(31), OUT), Some(vec![]));
}

#[test]
fn report_of_a_distrusted_node_settles_nothing() {
    let mut quota = Quota::new(None);
    quota.learn(at(10), &node("a"), Some(at(9)), &[left(9)], OUT);
    quota.ended_unanswered(at(20), &node("a"));
    quota.distrusted.insert(node("liar"), at(600));
    quota.learn(at(31), &node("liar"), Some(at(30)), &[left(0)], OUT);
    assert_eq!(quota.known(at(31), OUT).limits.iter().map(|limit| limit.remaining).collect::<Vec<_>>(), [8]);
}
