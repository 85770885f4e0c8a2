//! Slots and permits of one leader.

use clock::Random;
use contract::DEADLINES;
use contract::messages::throttler::RegistryLimit;

use super::*;
use crate::core::budget::HELD_UP;

fn node(name: &str) -> NodeName {
    name.parse().expect("a name")
}

/// A leader without a rate, so that only slots limit it. If `first`, it has nothing to learn.
fn leader(now: Duration, at_once: usize, first: bool) -> Leader {
    leader_of(now, BudgetPolicy { per_second: 0.0, at_once, ..BudgetPolicy::default() }, first)
}

fn leader_of(now: Duration, policy: BudgetPolicy, first: bool) -> Leader {
    let term = Term { epoch: 1, first, until: Duration::from_secs(10) };
    let mut leader = Leader::new(now, node("leader"), "owner", policy, term, None);
    leader.quota.none_stated();
    leader
}

fn ask(leader: &mut Leader, now: Duration, name: &str, random: &mut Random) -> (PermitId, BudgetAnswer) {
    let permit = PermitId::random(random);
    (permit, leader.ask(now, &request_of(name, permit)))
}

fn request_of(name: &str, permit: PermitId) -> GrantBudget {
    GrantBudget { owner: "owner".to_owned(), node: node(name), permit, known: KnownLimits::default(), caps: contract::policy::Caps::NONE }
}

fn return_of(name: &str, permit: PermitId) -> ReturnBudget {
    ReturnBudget { owner: "owner".to_owned(), node: node(name), permit, used: true, limits: None, served: None }
}

#[test]
fn node_with_many_permits_is_passed_over_while_others_wait() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 8, true);
    leader.reserve(0, 1);
    let requested: Vec<PermitId> = (0..12).map(|_| ask(&mut leader, now, "a", &mut random).0).collect();
    assert_eq!(leader.permits.held_by(&node("a")), 8, "the fleet is this node alone");
    leader.reserve(0, 2);
    ask(&mut leader, now, "b", &mut random);
    ask(&mut leader, now, "b", &mut random);
    for permit in &requested[..2] {
        leader.give_back(now, &return_of("a", *permit));
    }
    assert_eq!((leader.permits.held_by(&node("a")), leader.permits.held_by(&node("b"))), (6, 2));
}

#[test]
fn leader_sleeps_while_each_waiting_node_holds_as_many_permits_as_it_may() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 8, true);
    leader.reserve(0, 2);
    let requested: Vec<PermitId> = (0..12).map(|_| ask(&mut leader, now, "a", &mut random).0).collect();
    assert_eq!((leader.permits.held_by(&node("a")), leader.waiting()), (6, 6));
    assert_eq!(leader.wake_at(now), Some(now + AWAKE_EVERY));
    leader.give_back(now, &return_of("a", requested[0]));
    assert_eq!((leader.permits.held_by(&node("a")), leader.waiting()), (6, 5), "a permit that comes back is granted at once");
}

#[test]
fn leader_looks_at_once_if_a_permit_has_become_due_since_its_last_look() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 8, false);
    ask(&mut leader, now, "a", &mut random);
    let learned = now + DEADLINES.budget_permit_lease;
    assert_eq!((leader.waiting(), leader.wake_at(now)), (1, Some(learned)));
    // The alarm is set again before it fires, for example after a message about another budget.
    assert_eq!(leader.wake_at(learned), Some(learned));
}

#[test]
fn leader_with_permits_out_looks_in_time_although_the_alarm_is_set_again() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 8, true);
    ask(&mut leader, now, "a", &mut random);
    assert_eq!((leader.in_flight(), leader.wake_at(now + AWAKE_EVERY / 2)), (1, Some(now + AWAKE_EVERY)));
}

#[test]
fn a_node_that_asks_for_all_and_claims_all_leaves_permits_and_places_to_others() {
    // Slots, whether the leader still learns which permits are held, and the most that one node gets.
    let table = [(2, false, 1), (3, false, 2), (4, true, 3), (8, false, 6), (8, true, 6), (0, false, 1_000), (0, true, 1_000)];
    for (at_once, learns, most) in table {
        let (mut now, mut random) = (Duration::from_secs(1), Random::seeded(1));
        let mut leader = leader(now, at_once, !learns);
        let mut refused = 0;
        for _ in 0..5 {
            let permits = (0..BUDGET_PERMITS_PER_NODE).map(|_| PermitId::random(&mut random)).collect();
            let (known, limits) = (KnownLimits::default(), Vec::new());
            leader.renew(now, &RenewBudget { owner: "owner".to_owned(), node: node("liar"), permits, limits, known });
            for _ in 0..BUDGET_PERMITS_PER_NODE {
                let (_, answer) = ask(&mut leader, now, "liar", &mut random);
                refused += usize::from(matches!(answer, BudgetAnswer::Refused { .. }));
            }
        }
        assert_eq!(leader.permits.held_by(&node("liar")), most, "of {at_once} slots, learns: {learns}");
        assert!(leader.waiting() <= BUDGET_PERMITS_PER_NODE as u64 && refused >= 2 * BUDGET_PERMITS_PER_NODE);
        if learns {
            now += DEADLINES.budget_permit_lease;
        }
        let (permit, answer) = ask(&mut leader, now, "other", &mut random);
        assert!(matches!(answer, BudgetAnswer::Granted { .. }), "of {at_once} slots, learns: {learns}: {answer:?}");
        leader.give_back(now, &return_of("other", permit));
    }
}

#[test]
fn no_node_gives_up_the_place_of_another() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 1, true);
    ask(&mut leader, now, "a", &mut random);
    let (waits, answer) = ask(&mut leader, now, "b", &mut random);
    assert!(matches!(answer, BudgetAnswer::Queued { .. }));
    leader.give_back(now, &return_of("liar", waits));
    assert_eq!(leader.waiting(), 1);
    leader.give_back(now, &return_of("b", waits));
    assert_eq!(leader.waiting(), 0);
}

#[test]
fn no_node_takes_the_place_or_the_turn_of_another() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 1, false);
    let (permit, answer) = ask(&mut leader, now, "b", &mut random);
    assert!(matches!(answer, BudgetAnswer::Queued { .. }), "the leader learns: {answer:?}");
    let (known, limits) = (KnownLimits::default(), Vec::new());
    leader.renew(now, &RenewBudget { owner: "owner".to_owned(), node: node("liar"), permits: vec![permit], limits, known });
    assert_eq!((leader.waiting(), leader.permits.held_by(&node("liar"))), (1, 0), "b keeps its place");
    let now = now + DEADLINES.budget_permit_lease;
    leader.tick(now);
    // The turn has come, and b does not know it yet.
    for asked_at in [now, now + Duration::from_millis(900)] {
        let answer = leader.ask(asked_at, &request_of("liar", permit));
        assert!(matches!(answer, BudgetAnswer::Refused { .. }), "{answer:?}");
    }
    assert_eq!(leader.permits.held_by(&node("b")), 1);
    assert_eq!(leader.take_turns().count(), 1, "b is called");
}

#[test]
fn invented_returns_of_one_node_leave_room_to_remember_others() {
    let (mut random, now) = (Random::seeded(1), Duration::from_secs(1));
    let mut leader = leader(now, 10, true);
    for _ in 0..2 * RETURNED_MAX {
        leader.give_back(now, &return_of("hostile", PermitId::random(&mut random)));
    }
    let (permit, _) = ask(&mut leader, now, "n1", &mut random);
    assert_eq!(leader.permits.held_by(&node("n1")), 1);
    leader.give_back(now, &return_of("n1", permit));
    let answer = leader.ask(now, &request_of("n1", permit));
    assert!(matches!(answer, BudgetAnswer::Refused { .. }), "{answer:?}");
}

#[test]
fn changed_cap_leaves_one_nodes_share_however_many_are_silent() {
    let now = Duration::from_secs(1);
    let mut leader = leader(now, 0, true);
    leader.reserve(4, 4);
    leader.set_policy(now, BudgetPolicy { per_second: 100.0, ..BudgetPolicy::default() });
    assert_eq!(leader.kept_rate(), 25.0);
}

/// Nothing is out, so the leader has nothing to do before the next grant is due, and its long sleep is not a stall.
#[test]
fn silent_node_loses_its_place_although_the_leader_wakes_rarely() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader_of(now, BudgetPolicy { per_second: 0.05, ..BudgetPolicy::default() }, true);
    let (permit, answer) = ask(&mut leader, now, "a", &mut random);
    assert!(matches!(answer, BudgetAnswer::Granted { .. }), "{answer:?}");
    leader.give_back(now, &return_of("a", permit));
    let (_, answer) = ask(&mut leader, now, "b", &mut random);
    assert!(matches!(answer, BudgetAnswer::Queued { .. }), "{answer:?}");
    assert!(leader.wake_at(now).is_some_and(|at| at > now + DEADLINES.budget_place_lapses_after), "the next grant is due later");
    (1..=8_u64).for_each(|step| leader.tick(now + Duration::from_secs(2 * step)));
    assert_eq!((leader.waiting(), leader.in_flight()), (0, 0));
}

/// The node asks again every 5 s, which is longer than the lease of a permit in use.
#[test]
fn late_permit_keeps_its_turn_at_a_low_rate() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader_of(now, BudgetPolicy { per_second: 0.1, ..BudgetPolicy::default() }, true);
    let (permit, answer) = ask(&mut leader, now, "a", &mut random);
    assert!(matches!(answer, BudgetAnswer::Granted { .. }), "{answer:?}");
    let asked = now + Duration::from_secs(1);
    for again in [asked, asked + DEADLINES.budget_asked_again] {
        let answer = leader.ask(again, &request_of("a", permit));
        assert!(matches!(answer, BudgetAnswer::Queued { .. }), "the answer was lost: {answer:?}");
        assert_eq!((leader.waiting(), leader.in_flight()), (0, 1));
        (1..=10_u32).for_each(|half| leader.tick(again + AWAKE_EVERY * half));
    }
    let turn = now + Duration::from_secs(12);
    leader.tick(turn);
    assert_eq!(leader.take_turns().count(), 1, "the permit has its turn");
    let answer = leader.ask(turn + HELD_UP - Duration::from_millis(1), &request_of("a", permit));
    assert!(matches!(answer, BudgetAnswer::Granted { .. }), "{answer:?}");
    assert_eq!((leader.waiting(), leader.in_flight()), (0, 1));
}

/// The message that calls the first of two waiting nodes is lost.
#[test]
fn turn_that_is_not_fetched_is_used_at_a_low_rate() {
    for asks_again in [true, false] {
        let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
        let mut leader = leader_of(now, BudgetPolicy { per_second: 0.1, ..BudgetPolicy::default() }, true);
        let [permit, first, second] = ["a", "b", "c"].map(|name| ask(&mut leader, now, name, &mut random).0);
        leader.give_back(now, &return_of("a", permit));
        let turn = now + Duration::from_secs(12);
        let answer = leader.ask(turn, &request_of("c", second));
        assert!(matches!(answer, BudgetAnswer::Queued { .. }), "{answer:?}");
        assert_eq!((leader.take_turns().count(), leader.permits.held_by(&node("b"))), (1, 1), "b is called");
        if asks_again {
            let answer = leader.ask(turn + Duration::from_millis(300), &request_of("b", first));
            assert!(matches!(answer, BudgetAnswer::Granted { .. }), "{answer:?}");
        }
        (1..=6_u32).for_each(|half| leader.tick(turn + AWAKE_EVERY * half));
        // A silent node loses its turn after 2 s, and nobody has one more.
        let (called, waiting) = if asks_again { (0, 1) } else { (1, 0) };
        assert_eq!((leader.take_turns().count(), leader.waiting()), (called, waiting), "asks again: {asks_again}");
    }
}

/// The registry knows the fleet by two addresses, and nothing is left of the quota of one. If the leader dies, no other node knows of its
/// pull.
#[test]
fn leader_announces_its_own_pull_although_other_nodes_are_passed_over() {
    let (now, mut random) = (Duration::from_secs(1), Random::seeded(1));
    let mut leader = leader(now, 0, true);
    for (name, source, remaining) in [("a", "A", 0), ("b", "A", 0), ("c", "B", 50)] {
        let limit = RegistryLimit { source: Some(source.to_owned()), limit: 100, remaining, window_ms: 60_000, ..RegistryLimit::default() };
        leader.quota.learn(now, &node(name), Some(now), &[limit], Out::default());
    }
    leader.others_last_seen = Some(now);
    let (_, answer) = ask(&mut leader, now, "leader", &mut random);
    assert!(matches!(answer, BudgetAnswer::Queued { .. }), "{answer:?}");
    let (_, answer) = ask(&mut leader, now, "c", &mut random);
    assert!(matches!(answer, BudgetAnswer::Granted { .. }), "{answer:?}");
    leader.tick(now);
    assert_eq!(leader.waiting(), 0, "the answer to c counts one pull of the leader");
}
