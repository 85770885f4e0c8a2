//! The fleet policy in the core of the throttler, in simulated time.
//!
//! Contracts: a leader uses the policy's cap, whatever its own settings are, and so does a node without a leader. A changed policy applies
//! at once and takes no permit back. A node whose own settings are lower keeps to them, for itself alone. If the policy sets no cap, the
//! median of the settings of the nodes that ask applies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use clock::{Now, Random};
use contract::PermitId;
use contract::messages::throttler::{BudgetAnswer, GrantBudget, KnownLimits, ReturnBudget};
use contract::policy::{Caps, FleetPolicy};
use proptest::prelude::*;
use throttler::core::budget::{BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, Input, Term};

use crate::shares::{Node, OWNER, SECOND, most_in_a_second};

/// The smallest share of the fleet's rate that a leader uses within a second (see `RateLimiter`).
const USED: f64 = 0.8;

fn settings(per_second: f64, own: Caps) -> BudgetPolicy {
    BudgetPolicy { per_second, own, ..BudgetPolicy::default() }
}

fn per_second(rate: f64) -> Caps {
    Caps { pulls_per_second: Some(rate), ..Caps::NONE }
}

fn at_once(most: u64) -> Caps {
    Caps { pulls_at_once: Some(most), ..Caps::NONE }
}

/// The policy for one registry, whose name is the owner's in these tests.
fn policy(caps: Caps) -> Input {
    let registry = BTreeMap::from([(OWNER.to_owned(), caps)]);
    Input::Policy { policy: FleetPolicy { registry, ..FleetPolicy::default() }, revision: 7 }
}

fn none() -> Input {
    Input::Policy { policy: FleetPolicy::default(), revision: 0 }
}

#[test]
fn a_leader_with_any_settings_grants_what_the_policy_allows() {
    // The leader's settings, the policy's cap, and the rate in force.
    for (of_leader, of_policy, counts) in
        [(1.0, Some(100.0), 100.0), (200.0, Some(20.0), 20.0), (0.0, Some(20.0), 20.0), (20.0, None, 20.0)]
    {
        let mut node = Node::leading(200, settings(of_leader, Caps::NONE));
        node.give(of_policy.map_or_else(none, |cap| policy(per_second(cap))));
        let let_go = node.lets_go_in_a_second() as f64;
        assert!(
            let_go <= counts && let_go >= counts * USED,
            "{let_go} of {counts}: the leader's settings are {of_leader}, the policy is {of_policy:?}"
        );
        let state = node.core.list(Now { monotonic: node.now, wall: Duration::ZERO }).budgets.remove(0);
        assert_eq!((state.per_second, state.per_second_by_policy), (counts, of_policy.is_some()));
    }
}

#[test]
fn leader_with_a_low_cap_grants_what_most_nodes_settings_allow() {
    // The leader's cap in pulls a second, that of the nodes that ask it, and the fleet's.
    for (of_leader, of_others, counts) in [(1.0, 100.0, 100.0), (100.0, 20.0, 20.0), (0.0, 20.0, 20.0), (20.0, 20.0, 20.0)] {
        let mut node = Node::leading(200, settings(of_leader, per_second(of_leader)));
        node.others_state = Caps { pulls_per_second: Some(of_others), pulls_at_once: Some(0) };
        let let_go = node.lets_go_in_a_second() as f64;
        assert!(
            let_go <= counts && let_go >= counts * USED,
            "{let_go} of {counts}: the leader's settings are {of_leader}, those of others {of_others}"
        );
        let state = node.core.list(Now { monotonic: node.now, wall: Duration::ZERO }).budgets.remove(0);
        let own = Some(of_leader).filter(|own| *own > 0.0 && *own < counts);
        assert_eq!((state.per_second, state.per_second_by_policy, state.per_second_of_node), (counts, false, own));
    }
}

#[test]
fn node_with_a_lower_cap_than_most_keeps_to_it_alone() {
    let mut node = Node::leading(200, settings(2.0, per_second(2.0)));
    node.others_state = Caps { pulls_per_second: Some(100.0), pulls_at_once: Some(0) };
    assert!(node.lets_go_in_a_second() as f64 >= 100.0 * USED, "others go by the median");
    let (from, mine) = (node.now, node.granted.len());
    for _ in 0..20 {
        node.want();
    }
    node.until(from + 8 * SECOND);
    let times: Vec<Duration> = node.granted[mine..].iter().map(|(at, ..)| *at).collect();
    assert!(most_in_a_second(&times) <= 2 && times.len() >= 12, "{times:?}");
}

#[test]
fn a_changed_policy_applies_at_once_and_one_of_another_registry_changes_nothing() {
    let mut node = Node::leading(200, settings(50.0, Caps::NONE));
    for caps in [100.0, 10.0, 60.0] {
        node.give(policy(per_second(caps)));
        let let_go = node.lets_go_in_a_second() as f64;
        assert!(let_go <= caps && let_go >= caps * USED, "{let_go} of {caps}");
        // The requests that still wait lapse.
        node.until(node.now + 40 * SECOND);
    }
    let registry = BTreeMap::from([("other.example".to_owned(), per_second(1.0))]);
    node.give(Input::Policy { policy: FleetPolicy { registry, ..FleetPolicy::default() }, revision: 8 });
    assert!(node.lets_go_in_a_second() as f64 >= 50.0 * USED, "the settings count again");
}

#[test]
fn outstanding_permits_stay_when_the_cap_falls_and_more_are_granted_at_once_when_it_rises() {
    let mut node = Node::leading(200, BudgetPolicy { per_second: 0.0, ..BudgetPolicy::default() });
    node.give(policy(at_once(8)));
    let asked: Vec<(GrantBudget, BudgetAnswer)> = (0..30).map(|other| node.asked(other)).collect();
    let mut out: Vec<&GrantBudget> =
        asked.iter().filter(|(_, answer)| matches!(answer, BudgetAnswer::Granted { .. })).map(|(ask, _)| ask).collect();
    assert_eq!(out.len(), 8);
    node.give(policy(at_once(3)));
    // The permits come back one after the other: none is granted before the sixth is back.
    for back in 1..=6 {
        let GrantBudget { owner, node: holder, permit, .. } = out.pop().unwrap().clone();
        let back_call = ReturnBudget { owner, node: holder, permit, used: true, limits: None, served: Some(true) };
        let before = node.called();
        node.give(Input::Called(BudgetRequest::Return(back_call)));
        assert_eq!(node.called() - before, usize::from(back == 6), "{back} are back");
    }
    let before = node.called();
    node.give(policy(at_once(9)));
    assert_eq!(node.called() - before, 6);
}

#[test]
fn a_nodes_lower_rate_binds_that_node_and_no_other() {
    let mut node = Node::leading(200, settings(2.0, per_second(2.0)));
    node.give(policy(per_second(100.0)));
    assert!(node.lets_go_in_a_second() as f64 >= 100.0 * USED, "others go by the policy, though this node leads them");
    let (from, mine) = (node.now, node.granted.len());
    for _ in 0..20 {
        node.want();
    }
    node.until(from + 8 * SECOND);
    let times: Vec<Duration> = node.granted[mine..].iter().map(|(at, ..)| *at).collect();
    assert!(most_in_a_second(&times) <= 2, "{times:?}");
    assert!(times.len() >= 12, "{} in 8 s by 2 a second", times.len());
    // Without the policy, the same settings are the fleet's cap.
    node.give(none());
    assert!(node.lets_go_in_a_second() <= 2);
}

#[test]
fn a_nodes_lower_number_at_once_binds_that_node_and_no_other() {
    let own = BudgetPolicy { per_second: 0.0, at_once: 2, own: at_once(2), ..BudgetPolicy::default() };
    let mut node = Node::leading(200, own);
    node.give(policy(at_once(40)));
    assert_eq!(node.lets_go_at_once(), 40, "the leader's own settings bind no other node");
    let mine = node.granted.len();
    let wanted: Vec<PermitId> = (0..10).map(|_| node.want()).collect();
    assert_eq!(node.granted.len() - mine, 2);
    assert_eq!(node.lets_go_at_once(), 38);
    node.give(Input::Release { permit: wanted[0], limits: Vec::new(), served: Some(true) });
    assert_eq!(node.granted.len() - mine, 3, "one back, one more");
}

#[test]
fn node_that_goes_alone_keeps_to_its_share_of_the_policy_and_to_its_own_lower_cap() {
    // Ten nodes share 20 a second, two each; the second row has its own cap of 1.
    for (own, most) in [(Caps::NONE, 2), (per_second(1.0), 1)] {
        let mut node = Node::alone(1, 10, settings(500.0, own));
        node.give(policy(per_second(20.0)));
        for _ in 0..100 {
            node.want();
        }
        node.until(40 * SECOND);
        let times: Vec<Duration> = node.granted.iter().map(|(at, ..)| *at).collect();
        assert!(times.len() >= 10 && node.granted.iter().all(|(_, _, alone)| *alone), "{} began", times.len());
        assert!(most_in_a_second(&times) <= most, "{own:?}: {times:?}");
    }
}

/// One random action.
#[derive(Clone, Debug)]
enum Act {
    Policy(Option<(f64, Option<u64>)>),
    Want,
    Asked(u64),
    Release,
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let caps = proptest::option::of((prop_oneof![Just(0.01), Just(100_000.0), 0.5..50.0], proptest::option::of(1..10_u64)));
    prop_oneof![
        1 => caps.prop_map(Act::Policy),
        3 => Just(Act::Want),
        3 => (0..5_u64).prop_map(Act::Asked),
        2 => Just(Act::Release),
        4 => (1..2_000_u64).prop_map(Act::Pass),
    ]
}

/// Whether a pull is granted: one of this node, or one of another node that is called or that asks at the right moment.
fn goes(effect: &Effect) -> bool {
    let granted = |reply: &BudgetReply| matches!(reply, BudgetReply::Granted(BudgetAnswer::Granted { .. }));
    matches!(effect, Effect::Turn { .. } | Effect::Granted { .. }) || matches!(effect, Effect::Reply(reply) if granted(reply))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The policy changes while permits are out and requested. After a change no grant exceeds its limit of pulls at once, and no second
    /// that began after the change has more pulls than its rate. Each step checks the core's own invariants.
    #[test]
    fn no_pull_that_begins_after_a_change_exceeds_the_policy(acts in proptest::collection::vec(act(), 1..150), own in 1.0..300.0_f64) {
        let mut random = Random::seeded(1);
        let mut core = Budgets::new("n0".parse().unwrap(), settings(own, Caps::NONE), Random::seeded(2));
        let mut now = SECOND;
        let at = |now: Duration| Now { monotonic: now, wall: Duration::ZERO };
        let (owner, first) = (OWNER.to_owned(), PermitId::random(&mut random));
        core.step(at(now), Input::Fleet { alive: 6 });
        core.step(at(now), Input::Want { owner: owner.clone(), permit: first });
        core.step(at(now), Input::Elected { owner: owner.clone(), term: Term { epoch: 1, first: true, until: 1_000_000 * SECOND } });
        // The rate, the most pulls at once, and how many pulls had begun when the rate was changed.
        let (mut rate, mut most, mut changed) = (own, None, 0);
        let (mut mine, mut begun): (Vec<PermitId>, Vec<Duration>) = (vec![first], Vec::new());
        for act in acts {
            let input = match act {
                Act::Policy(caps) => {
                    let next = (caps.map_or(own, |(rate, _)| rate), caps.and_then(|(_, most)| most));
                    if next.0 != rate {
                        changed = begun.len();
                    }
                    (rate, most) = next;
                    match caps {
                        Some((rate, most)) => policy(Caps { pulls_per_second: Some(rate), pulls_at_once: most }),
                        None => none(),
                    }
                }
                Act::Want => {
                    mine.push(PermitId::random(&mut random));
                    Input::Want { owner: owner.clone(), permit: *mine.last().unwrap() }
                }
                Act::Asked(node) => {
                    let (node, permit) = (format!("other{node}").parse().unwrap(), PermitId::random(&mut random));
                    let ask = GrantBudget { owner: owner.clone(), node, permit, known: KnownLimits::default(), caps: Caps::NONE };
                    Input::Called(BudgetRequest::Grant(ask))
                }
                Act::Release if mine.is_empty() => Input::Tick,
                Act::Release => Input::Release { permit: mine.remove(0), limits: Vec::new(), served: Some(true) },
                Act::Pass(ms) => {
                    now += Duration::from_millis(ms);
                    Input::Tick
                }
            };
            let effects = core.step(at(now), input);
            let granted = effects.iter().filter(|effect| goes(effect)).count();
            begun.extend(std::iter::repeat_n(now, granted));
            let in_flight = core.list(at(now)).budgets[0].in_flight;
            if let Some(most) = most {
                prop_assert!(granted == 0 || in_flight <= most, "{granted} went, {in_flight} are out, {most} may be");
            }
            let since = begun[changed..].iter().filter(|begun| **begun + SECOND > now).count();
            prop_assert!(since as f64 <= rate.ceil().max(1.0), "{since} in the last second at {rate} a second");
        }
    }
}
