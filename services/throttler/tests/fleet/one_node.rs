//! One node of a fleet, step by step: as a new or former leader, and with a leader that answers late or no more.

use std::collections::VecDeque;
use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::{BudgetAnswer, BudgetRenewed, BudgetReturned, GrantBudget, KnownLimits, RegistryLimit};
use contract::policy::Caps;
use contract::{DEADLINES, NodeName, PermitId};
use throttler::core::budget::{BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, Input, Term};

use super::world::OWNER;

fn at(ms: u64) -> Now {
    Now { monotonic: Duration::from_millis(ms), wall: Duration::ZERO }
}

/// A node that wants a permit itself and leads the budget from the first second on.
fn elected() -> (Budgets, Random) {
    let (mut random, owner) = (Random::seeded(1), OWNER.to_owned());
    let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
    node.step(at(1_000), Input::Want { owner, permit: PermitId::random(&mut random) });
    node.step(at(1_000), in_term());
    (node, random)
}

fn in_term() -> Input {
    Input::Elected { owner: OWNER.to_owned(), term: Term { epoch: 7, first: false, until: Duration::from_secs(60) } }
}

/// Another node asks for a permit, and knows from an earlier leader that `remaining` pulls are left.
fn asks(random: &mut Random, node: &str, remaining: u64) -> Input {
    let known = KnownLimits { none_stated: false, limits: vec![RegistryLimit { remaining, ..used_up() }] };
    let permit = PermitId::random(random);
    let ask = GrantBudget { owner: OWNER.to_owned(), node: node.parse().unwrap(), permit, known, caps: Caps::NONE };
    Input::Called(BudgetRequest::Grant(ask))
}

/// How many pulls a node grants from then on within a minute, its own included.
fn lets_go(node: &mut Budgets, from: u64) -> usize {
    let effects = (from..60_000).step_by(250).flat_map(|ms| node.step(at(ms), Input::Tick)).collect::<Vec<_>>();
    effects.iter().filter(|effect| matches!(effect, Effect::Granted { .. } | Effect::Turn { .. })).count()
}

/// The first nodes of a budget with one slot were sent away for a time by a guess of 5 s a pull, and the slot stood idle.
#[test]
fn wait_for_a_slot_is_unknown_until_a_pull_has_ended() {
    let (mut random, owner) = (Random::seeded(1), OWNER.to_owned());
    let policy = BudgetPolicy { at_once: 1, ..BudgetPolicy::default() };
    let mut node = Budgets::new("n0".parse().unwrap(), policy, Random::seeded(2));
    let [first, second] = [(); 2].map(|()| PermitId::random(&mut random));
    node.step(at(1_000), Input::Want { owner: owner.clone(), permit: first });
    let term = Term { epoch: 7, first: true, until: Duration::from_secs(60) };
    node.step(at(1_000), Input::Elected { owner: owner.clone(), term });
    let mut stated = |node: &mut Budgets, ms: u64| {
        let (owner, node_name, permit) = (OWNER.to_owned(), format!("n{ms}").parse().unwrap(), PermitId::random(&mut random));
        let ask = GrantBudget { owner, node: node_name, permit, known: KnownLimits::default(), caps: Caps::NONE };
        let effects = node.step(at(ms), Input::Called(BudgetRequest::Grant(ask)));
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply(BudgetReply::Granted(BudgetAnswer::Queued { wait_ms, .. })) => Some(wait_ms),
            _ => None,
        })
    };
    assert!(matches!(stated(&mut node, 1_100), Some(0..=500)), "only the rate is known");
    node.step(at(3_000), Input::Release { permit: first, limits: Vec::new(), served: Some(true) });
    node.step(at(3_000), Input::Want { owner, permit: second });
    assert!(matches!(stated(&mut node, 3_100), Some(2_000..=8_000)), "a pull took 2 s");
}

/// A leader knows from nodes' reports that nothing is left, and no node reports that twice.
#[test]
fn repeated_election_keeps_what_the_leader_knows() {
    let (mut node, mut random) = elected();
    for other in ["n1", "n2"] {
        node.step(at(1_000), asks(&mut random, other, 0));
    }
    node.step(at(2_000), in_term());
    assert_eq!(lets_go(&mut node, 2_000), 0);
}

/// Two nodes confirm each other about a quota that the registry does not count. A leader that leads for long learns nothing from others.
#[test]
fn quota_that_an_operator_clears_is_forgotten_by_leader_and_client() {
    let is_granted = |is_cleared: bool| {
        let (mut node, mut random) = elected();
        for other in ["n1", "n2"] {
            node.step(at(1_000), asks(&mut random, other, 0));
        }
        (1_250..35_000).step_by(250).for_each(|ms| drop(node.step(at(ms), Input::Tick)));
        if is_cleared {
            node.step(at(35_000), Input::ForgetQuota { owner: OWNER.to_owned() });
        }
        assert_eq!(node.knows_quota(at(35_000), OWNER), !is_cleared);
        let mut effects = node.step(at(35_000), asks(&mut random, "n3", 0));
        effects.extend((35_250..45_000).step_by(250).flat_map(|ms| node.step(at(ms), Input::Tick)));
        let is_grant = |effect: &Effect| match effect {
            Effect::Reply(reply) => matches!(reply, BudgetReply::Granted(BudgetAnswer::Granted { .. })),
            effect => matches!(effect, Effect::Turn { .. } | Effect::Granted { alone: false, .. }),
        };
        effects.iter().any(is_grant)
    };
    assert_eq!([false, true].map(is_granted), [false, true]);
}

/// A waiting node asks every 5 s, and the last one that asked the earlier leader knows most.
#[test]
fn a_new_leader_waits_for_all_waiting_nodes_before_it_grants_under_a_quota() {
    let (mut node, mut random) = elected();
    node.step(at(1_000), asks(&mut random, "n1", 4));
    let early = (1_000..5_500).step_by(250).flat_map(|ms| node.step(at(ms), Input::Tick)).collect::<Vec<_>>();
    assert!(!early.iter().any(|effect| matches!(effect, Effect::Granted { .. } | Effect::Turn { .. })), "{early:?}");
    node.step(at(5_500), asks(&mut random, "n2", 0));
    assert_eq!(lets_go(&mut node, 5_500), 0);
}

#[test]
fn former_leader_reports_its_knowledge_to_the_next_leader() {
    let (mut node, mut random) = elected();
    node.step(at(1_000), asks(&mut random, "n1", 0));
    let lost = Input::Lead { owner: OWNER.to_owned(), leader: Some(("n9".parse().unwrap(), 8)) };
    let mut effects = node.step(at(2_000), lost);
    effects.extend((2_000..3_000).step_by(250).flat_map(|ms| node.step(at(ms), Input::Tick)));
    let reported = effects.iter().find_map(|effect| match effect {
        Effect::Call { call: BudgetRequest::Renew(renew), .. } => renew.known.limits.first(),
        Effect::Call { call: BudgetRequest::Grant(ask), .. } => ask.known.limits.first(),
        _ => None,
    });
    assert_eq!(reported.map(|limit| (limit.limit, limit.remaining)), Some((6, 0)), "{effects:?}");
}

/// How often a node asks in a minute if its leader gives each answer `late_ms` late, and when the node goes alone.
fn with_a_late_leader(late_ms: u64, answer: impl Fn() -> BudgetAnswer) -> (usize, Vec<u64>) {
    let (mut random, owner, leader) = (Random::seeded(1), OWNER.to_owned(), "n9".parse::<NodeName>().unwrap());
    let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
    let mut happened = VecDeque::from(node.step(at(0), Input::Want { owner: owner.clone(), permit: PermitId::random(&mut random) }));
    let (mut under_way, mut asked_in_all, mut went) = (VecDeque::new(), 0, Vec::new());
    for ms in (0..60_000).step_by(50) {
        happened.extend(node.step(at(ms), Input::Tick));
        while under_way.front().is_some_and(|(at, _, _)| *at <= ms) {
            let (_, asked, call) = under_way.pop_front().unwrap();
            happened.extend(node.step(at(ms), Input::Replied { asked, call, reply: BudgetReply::Granted(answer()) }));
        }
        while let Some(effect) = happened.pop_front() {
            match effect {
                Effect::Campaign { .. } => {
                    let lead = Input::Lead { owner: owner.clone(), leader: Some((leader.clone(), 7)) };
                    happened.extend(node.step(at(ms), lead));
                }
                Effect::Call { asked, call: call @ BudgetRequest::Grant(_), .. } => {
                    asked_in_all += 1;
                    under_way.push_back((ms + late_ms, asked, call));
                }
                Effect::Granted { alone, .. } => went.extend(alone.then_some(ms)),
                _ => {}
            }
        }
    }
    (asked_in_all, went)
}

/// The leader's connection is slow, or it has many requests to answer.
#[test]
fn node_that_is_queued_late_waits_and_asks_no_more_often() {
    let queued = || BudgetAnswer::Queued { epoch: 7, ahead: 3, wait_ms: 3_600_000, known: KnownLimits::default(), caps: Caps::NONE };
    for late_ms in [1_000, 3_000] {
        let (asked, went) = with_a_late_leader(late_ms, queued);
        assert_eq!(went, [0; 0]);
        assert!((8..=60).contains(&asked), "asked {asked} times in a minute, each answer {late_ms} ms late");
    }
}

#[test]
fn node_whose_grants_all_come_too_late_goes_alone() {
    let granted = || BudgetAnswer::Granted { epoch: 7, lease_ms: 3_000, known: KnownLimits::default(), caps: Caps::NONE };
    let (_, went) = with_a_late_leader(2_600, granted);
    assert!(matches!(went[..], [15_000..=16_000]), "{went:?}");
}

/// The first call to the next leader, which leads from `leads_from` on, and its time in ms, if the first leader answers only by `answer`.
/// The node pulls when it may, and then learns that the quota is used up.
fn first_call_to_the_next(leads_from: u64, answer: impl Fn(u64, &BudgetRequest) -> Option<BudgetReply>) -> Option<(u64, BudgetRequest)> {
    let (mut random, owner) = (Random::seeded(1), OWNER.to_owned());
    let [first, next]: [NodeName; 2] = ["n8", "n9"].map(|name| name.parse().unwrap());
    let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
    let mut happened = VecDeque::from(node.step(at(0), Input::Want { owner: owner.clone(), permit: PermitId::random(&mut random) }));
    for ms in (0..60_000).step_by(50) {
        happened.extend(node.step(at(ms), Input::Tick));
        while let Some(effect) = happened.pop_front() {
            let input = match effect {
                Effect::Campaign { .. } if ms < leads_from => Input::Lead { owner: owner.clone(), leader: Some((first.clone(), 7)) },
                Effect::Campaign { .. } => Input::Lead { owner: owner.clone(), leader: Some((next.clone(), 8)) },
                Effect::Call { to, call, .. } if to == next => return Some((ms, call)),
                Effect::Call { asked, call, .. } => match answer(ms, &call) {
                    Some(reply) => Input::Replied { asked, call, reply },
                    None => continue,
                },
                Effect::Granted { alone: true, .. } => return None,
                Effect::Granted { permit, .. } => Input::Release { permit, limits: vec![used_up()], served: Some(true) },
                _ => continue,
            };
            happened.extend(node.step(at(ms), input));
        }
    }
    None
}

fn used_up() -> RegistryLimit {
    RegistryLimit { limit: 6, window_ms: 60_000, reset_ms: Some(50_000), ..RegistryLimit::default() }
}

/// A leader that does not answer is asked less and less often, but the lease is still looked up. This was seen in a fleet whose leaders
/// were cut off one after the other.
#[test]
fn successor_of_a_silent_leader_is_found_soon() {
    let queued = || BudgetAnswer::Queued { epoch: 7, ahead: 3, wait_ms: 3_600_000, known: KnownLimits::default(), caps: Caps::NONE };
    let asked = |leads_from| {
        let call = first_call_to_the_next(leads_from, |ms, _| (ms == 0).then(|| BudgetReply::Granted(queued())));
        call.map_or(u64::MAX, |(ms, _)| ms)
    };
    let noticed = asked(250);
    for leads_from in (250..12_000).step_by(250) {
        let asked = asked(leads_from);
        assert!(asked <= leads_from.max(noticed) + 2_500, "asked at {asked} ms, leads from {leads_from} ms");
    }
}

/// The leader took the node's report and died before any waiting node asked again.
#[test]
fn node_that_used_up_a_quota_reports_it_to_the_next_leader() {
    let answer = |ms, call: &BudgetRequest| match call {
        _ if ms > 0 => None,
        BudgetRequest::Grant(_) => {
            Some(BudgetReply::Granted(BudgetAnswer::Granted { epoch: 7, lease_ms: 3_000, known: KnownLimits::default(), caps: Caps::NONE }))
        }
        BudgetRequest::Renew(_) => None,
        BudgetRequest::Return(_) => Some(BudgetReply::Returned(BudgetReturned { epoch: 7 })),
    };
    let (ms, limits) = match first_call_to_the_next(3_000, answer) {
        Some((ms, BudgetRequest::Renew(renew))) => (ms, renew.known.limits),
        other => panic!("the quota was not reported to the next leader: {other:?}"),
    };
    assert!(ms <= 6_000, "reported at {ms} ms");
    assert_eq!(limits.iter().map(|limit| (limit.limit, limit.remaining)).collect::<Vec<_>>(), [(6, 0)]);
}

/// A call of this kind among the effects, with the time that its answer has to state.
fn call(effects: &[Effect], is_of_kind: fn(&BudgetRequest) -> bool) -> (Duration, BudgetRequest) {
    let mut calls = effects.iter().filter_map(|effect| match effect {
        Effect::Call { asked, call, .. } => Some((*asked, call.clone())),
        _ => None,
    });
    calls.find(|(_, call)| is_of_kind(call)).unwrap_or_else(|| panic!("no such call: {effects:?}"))
}

fn replied((asked, call): (Duration, BudgetRequest), reply: BudgetReply) -> Input {
    Input::Replied { asked, call, reply }
}

/// The leader has not received the return of the pull that used up the quota when it answers the request for the next permit.
#[test]
fn answer_from_before_a_return_does_not_change_what_the_pull_has_shown() {
    let is_grant: fn(&BudgetRequest) -> bool = |call| matches!(call, BudgetRequest::Grant(_));
    let granted = |known| BudgetReply::Granted(BudgetAnswer::Granted { epoch: 7, lease_ms: 3_000, known, caps: Caps::NONE });
    let none = || KnownLimits { none_stated: true, limits: Vec::new() };
    let some = || KnownLimits { none_stated: false, limits: vec![RegistryLimit { remaining: 5, ..used_up() }] };
    for (known, is_answered_first) in [(none(), true), (none(), false), (some(), true), (some(), false)] {
        let (mut random, owner, leader) = (Random::seeded(1), || OWNER.to_owned(), "n9".parse().unwrap());
        let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
        let [first, second, third] = [(); 3].map(|()| PermitId::random(&mut random));
        node.step(at(0), Input::Want { owner: owner(), permit: first });
        let asked = call(&node.step(at(0), Input::Lead { owner: owner(), leader: Some((leader, 7)) }), is_grant);
        node.step(at(10), replied(asked, granted(KnownLimits::default())));
        let effects = node.step(at(20), Input::Release { permit: first, limits: vec![used_up()], served: None });
        let returned = call(&effects, |call| matches!(call, BudgetRequest::Return(_)));
        let asked = call(&node.step(at(21), Input::Want { owner: owner(), permit: second }), is_grant);
        let mut replies = [replied(asked, granted(known.clone())), replied(returned, BudgetReply::Returned(BudgetReturned { epoch: 7 }))];
        if !is_answered_first {
            replies.reverse();
        }
        for (ms, reply) in [30, 40].into_iter().zip(replies) {
            node.step(at(ms), reply);
            let left: Vec<u64> = node.list(at(ms)).budgets[0].known.limits.iter().map(|limit| limit.remaining).collect();
            assert_eq!(left, [0], "{known:?}, answered first: {is_answered_first}, {ms} ms");
        }
        // By now the leader has received it.
        let asked = call(&node.step(at(60), Input::Want { owner: owner(), permit: third }), is_grant);
        node.step(at(70), replied(asked, granted(none())));
        assert!(!node.knows_quota(at(70), OWNER));
    }
}

/// A node has forged the lease and answers with the highest epoch there is. Then its lease ends, and another node leads.
#[test]
fn forged_epoch_holds_up_the_next_leader_for_two_leases_at_most() {
    let (mut random, owner) = (Random::seeded(1), || OWNER.to_owned());
    let [liar, next]: [NodeName; 2] = ["liar", "n9"].map(|name| name.parse().unwrap());
    let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
    node.step(at(0), Input::Want { owner: owner(), permit: PermitId::random(&mut random) });
    let led_by = |leader: &NodeName, epoch| Input::Lead { owner: owner(), leader: Some((leader.clone(), epoch)) };
    let asked = call(&node.step(at(0), led_by(&liar, u64::MAX)), |call| matches!(call, BudgetRequest::Grant(_)));
    let (known, caps) = (KnownLimits::default(), Caps::NONE);
    let queued = BudgetAnswer::Queued { epoch: u64::MAX, ahead: u64::MAX, wait_ms: 3_600_000, known, caps };
    node.step(at(10), replied(asked, BudgetReply::Granted(queued)));
    let asks_the_next = |ms: &u64| {
        let effects = node.step(at(*ms), led_by(&next, 8));
        effects.iter().any(|effect| matches!(effect, Effect::Call { to, .. } if *to == next))
    };
    let asked_at = (250..20_000).step_by(250).find(asks_the_next);
    let two_leases = 2 * DEADLINES.leader_lease;
    assert!(asked_at.is_some_and(|ms| Duration::from_millis(ms) <= two_leases + Duration::from_millis(250)), "{asked_at:?}");
}

fn is_renewal(call: &BudgetRequest) -> bool {
    matches!(call, BudgetRequest::Renew(_))
}

fn renewed(epoch: u64, permit: PermitId) -> BudgetReply {
    BudgetReply::Renewed(BudgetRenewed { epoch, kept: vec![permit], known: KnownLimits::default() })
}

/// A node that was granted a permit at 10 ms, in epoch 7, and its first renewal.
fn holding() -> (Budgets, PermitId, (Duration, BudgetRequest)) {
    let (mut random, owner, leader) = (Random::seeded(1), || OWNER.to_owned(), "n9".parse().unwrap());
    let mut node = Budgets::new("n0".parse().unwrap(), BudgetPolicy::default(), Random::seeded(2));
    let permit = PermitId::random(&mut random);
    node.step(at(0), Input::Want { owner: owner(), permit });
    let effects = node.step(at(0), Input::Lead { owner: owner(), leader: Some((leader, 7)) });
    let asked = call(&effects, |call| matches!(call, BudgetRequest::Grant(_)));
    let granted = BudgetAnswer::Granted { epoch: 7, lease_ms: 3_000, known: KnownLimits::default(), caps: Caps::NONE };
    let renewal = call(&node.step(at(10), replied(asked, BudgetReply::Granted(granted))), is_renewal);
    (node, permit, renewal)
}

/// The leader's lease was taken away and it won the next one, before this node noticed. In the new term it knows neither the permits nor
/// what the registry stated.
#[test]
fn leader_in_a_new_term_is_sent_what_it_knew_before() {
    let (mut node, permit, renewal) = holding();
    node.step(at(20), replied(renewal, renewed(7, permit)));
    let renewal = call(&node.step(at(30), Input::Report { permit, limits: vec![used_up()] }), is_renewal);
    node.step(at(40), replied(renewal, renewed(7, permit)));
    let renewal = call(&node.step(at(1_040), Input::Tick), is_renewal);
    assert!(matches!(&renewal.1, BudgetRequest::Renew(renew) if renew.limits.is_empty() && renew.known.limits.is_empty()), "{renewal:?}");
    let (_, sent) = call(&node.step(at(1_050), replied(renewal, renewed(8, permit))), is_renewal);
    let BudgetRequest::Renew(sent) = sent else { unreachable!("it is a renewal") };
    assert_eq!((sent.permits.as_slice(), sent.limits.len(), sent.known.limits.len()), (&[permit][..], 1, 1), "{sent:?}");
}

/// The leader has not answered for so long that it counts as lost when its first answer in the new term arrives.
#[test]
fn lost_leader_in_a_new_term_is_sent_what_it_knew_before_once_it_is_found() {
    let (mut node, permit, renewal) = holding();
    node.step(at(20), replied(renewal, renewed(7, permit)));
    let renewal = call(&node.step(at(30), Input::Report { permit, limits: vec![used_up()] }), is_renewal);
    node.step(at(40), replied(renewal, renewed(7, permit)));
    let (mut last, mut lost_at) = (None, None);
    for ms in (1_000..3_000).step_by(10) {
        for effect in node.step(at(ms), Input::Tick) {
            match effect {
                Effect::Call { asked, call, .. } if is_renewal(&call) => last = Some((asked, call)),
                Effect::Campaign { .. } => lost_at = lost_at.or(Some(ms)),
                _ => {}
            }
        }
        if lost_at.is_some() {
            break;
        }
    }
    let (last, lost_at) = last.zip(lost_at).expect("it was asked, and is lost");
    node.step(at(lost_at), replied(last, renewed(8, permit)));
    let found = Input::Lead { owner: OWNER.to_owned(), leader: Some(("n9".parse().unwrap(), 8)) };
    let (_, sent) = call(&node.step(at(lost_at + 10), found), is_renewal);
    let BudgetRequest::Renew(sent) = sent else { unreachable!("it is a renewal") };
    assert_eq!(sent.known.limits.len(), 1, "{sent:?}");
}

#[test]
fn late_answer_to_an_earlier_renewal_does_not_end_a_permit_sooner() {
    let (mut node, permit, first) = holding();
    let second = call(&node.step(at(260), Input::Tick), is_renewal);
    node.step(at(270), replied(second, renewed(7, permit)));
    node.step(at(300), replied(first, renewed(7, permit)));
    let has_run_out = [3_100, 3_260].map(|ms| node.step(at(ms), Input::Tick).iter().any(|effect| matches!(effect, Effect::RanOut { .. })));
    assert_eq!(has_run_out, [false, true]);
}
