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

#[test]
fn what_one_node_alone_says_is_over_when_another_pulls_and_hears_of_no_limits() {
    let mut quota = Quota::new(None);
    quota.heard(at(1), &node("b"));
    quota.told(at(10), &node("a"), Some(at(9)), &[nothing_left()], OUT);
    assert!(matches!(quota.allows(at(11), OUT), Allowance::No(_)));
    assert_eq!(quota.allows(at(15), OUT), Allowance::But(BTreeSet::from([node("a")])));

    quota.told(at(16), &node("b"), Some(at(8)), &[], OUT);
    assert!(quota.is_limited(), "a pull that began before says nothing");
    quota.told(at(16), &node("a"), Some(at(15)), &[], OUT);
    assert!(quota.is_limited(), "that has to be another node");
    quota.told(at(16), &node("b"), Some(at(15)), &[], OUT);
    assert_eq!(quota.allows(at(16), Out { open: 50, since: Some(at(15)) }), Allowance::Yes);

    quota.told(at(17), &node("a"), Some(at(16)), &[nothing_left()], OUT);
    assert_eq!(quota.allows(at(18), OUT), Allowance::Yes, "it is not believed again alone");
}

fn left(remaining: u64) -> RegistryLimit {
    RegistryLimit { remaining, ..nothing_left() }
}

#[test]
fn of_what_is_left_by_reports_the_last_is_not_given() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("a"), None, &[left(2)], OUT);
    assert_eq!(quota.allows(at(10), OUT), Allowance::Yes);
    quota.told(at(10), &node("b"), None, &[left(1)], OUT);
    assert!(matches!(quota.allows(at(20), OUT), Allowance::No(Some(_))), "somebody may have had it who is not heard");
    // The registry itself has stated this to a pull of this leader.
    quota.told(at(12), &node("b"), Some(at(11)), &[left(1)], OUT);
    assert_eq!(quota.allows(at(12), OUT), Allowance::Yes);
}

#[test]
fn a_pull_of_a_leader_before_tells_nothing_of_a_new_window() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("a"), None, &[left(0)], OUT);
    quota.told(at(10), &node("b"), None, &[left(0)], OUT);
    quota.told(at(12), &node("c"), None, &[left(5)], OUT);
    assert!(matches!(quota.allows(at(12), OUT), Allowance::No(Some(_))));
    quota.told(at(12), &node("c"), Some(at(11)), &[left(5)], OUT);
    assert_eq!(quota.allows(at(12), OUT), Allowance::Yes);
}

/// A node without a leader has used the last pull: the next one that is granted is refused, and no other is granted for the same.
#[test]
fn a_pull_that_is_refused_counts_as_one_that_was_let_go() {
    let mut quota = Quota::new(None);
    for name in ["a", "b"] {
        quota.told(at(10), &node(name), Some(at(9)), &[left(1)], OUT);
    }
    assert_eq!(quota.allows(at(11), OUT), Allowance::Yes);
    let refused = RegistryLimit { reset_ms: Some(50_000), ..RegistryLimit::default() };
    quota.told(at(12), &node("c"), Some(at(11)), &[refused], OUT);
    assert!(matches!(quota.allows(at(30), OUT), Allowance::No(Some(_))), "no other node looks for itself");
}

#[test]
fn who_alone_knows_of_the_last_pulls_is_believed_for_a_minute() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("a"), None, &[left(7)], OUT);
    quota.told(at(10), &node("b"), None, &[nothing_left()], OUT);
    assert!(matches!(quota.allows(at(69), OUT), Allowance::No(Some(_))));
    assert_eq!(quota.allows(at(70), OUT), Allowance::But(BTreeSet::from([node("b")])), "a lie does not hold the fleet for hours");
}

/// A leader was elected while most nodes were cut off, and only one node that it heard from knows the quota.
#[test]
fn nobody_looks_for_itself_before_others_had_their_say() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("a"), None, &[nothing_left()], OUT);
    assert!(matches!(quota.allows(at(60), OUT), Allowance::No(Some(_))), "nobody else is there");
    quota.heard(at(60), &node("b"));
    assert!(matches!(quota.allows(at(60), OUT), Allowance::No(Some(_))), "who comes back with it may know");
    assert_eq!(quota.allows(at(61), OUT), Allowance::But(BTreeSet::from([node("a")])));
    quota.told(at(61), &node("c"), None, &[nothing_left()], OUT);
    assert!(matches!(quota.allows(at(70), OUT), Allowance::No(Some(_))), "two say so");
}

fn left_to(source: &str, remaining: u64) -> RegistryLimit {
    RegistryLimit { source: Some(source.to_owned()), ..left(remaining) }
}

#[test]
fn each_source_has_a_quota_of_its_own_and_binds_the_nodes_behind_it() {
    let mut quota = Quota::new(None);
    for (name, source, remaining) in [("a", "A", 1), ("b", "B", 50), ("c", "A", 0)] {
        quota.told(at(10), &node(name), Some(at(9)), &[left_to(source, remaining)], OUT);
    }
    let behind_a = BTreeSet::from([node("a"), node("c")]);
    assert_eq!(quota.allows(at(11), OUT), Allowance::But(behind_a), "b, and who has not heard its source");
    assert_eq!(quota.wait(at(11), OUT, 0, &node("b")), Duration::ZERO);
    assert!(quota.wait(at(11), OUT, 0, &node("a")) > at(3_600), "told how long");
    let told = |name: &str| quota.known_to(&node(name), quota.known(at(11), OUT)).limits;
    assert_eq!(told("b").iter().map(|limit| limit.remaining).collect::<Vec<_>>(), [50]);
    assert_eq!(told("new").len(), 2);

    // The next leader learns the same from what each node was told.
    let mut next = Quota::new(None);
    for name in ["a", "b", "c", "new"] {
        let known = quota.known_to(&node(name), quota.known(at(11), OUT));
        next.told(at(20), &node(name), None, &known.limits, OUT);
    }
    assert_eq!(next.allows(at(20), OUT), Allowance::But(BTreeSet::from([node("a"), node("c")])));

    // The node is behind another address now.
    quota.told(at(12), &node("a"), Some(at(11)), &[left_to("B", 49)], OUT);
    assert_eq!(quota.allows(at(12), OUT), Allowance::But(BTreeSet::from([node("c")])));
    quota.told(at(13), &node("b"), Some(at(12)), &[left_to("B", 0)], OUT);
    quota.told(at(13), &node("a"), Some(at(12)), &[left_to("B", 0)], OUT);
    assert!(matches!(quota.allows(at(13), OUT), Allowance::No(Some(_))), "no source has room");
}

#[test]
fn what_a_registry_asks_of_nobody_by_name_binds_all() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("b"), Some(at(9)), &[left_to("B", 50)], OUT);
    let retry_after = RegistryLimit { reset_ms: Some(20_000), ..RegistryLimit::default() };
    for name in ["a", "b"] {
        quota.told(at(11), &node(name), Some(at(10)), std::slice::from_ref(&retry_after), OUT);
    }
    assert!(matches!(quota.allows(at(12), OUT), Allowance::No(Some(_))));
    quota.expire(at(40));
    assert_eq!(quota.allows(at(40), OUT), Allowance::Yes);
}

#[test]
fn what_two_nodes_were_told_is_not_over_because_a_third_hears_nothing() {
    let mut quota = Quota::new(None);
    quota.told(at(10), &node("a"), Some(at(9)), &[nothing_left()], OUT);
    quota.told(at(16), &node("b"), Some(at(15)), &[nothing_left()], OUT);
    quota.told(at(18), &node("c"), Some(at(17)), &[], OUT);
    assert!(matches!(quota.allows(at(30), OUT), Allowance::No(Some(_))));
}
