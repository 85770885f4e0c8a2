//! Many agents and a lease without a bus; messages are lost, doubled and late by a seed.

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use contract::DEADLINES;
use contract::messages::registrar::{FleetDigest, Place, ReportAlive};
use proptest::prelude::*;
use registrar::core::{Answer, Call, Effect, Input, Looked, Reply};

use self::world::{World, agent, name};

#[test]
fn fleet_has_one_registrar_and_all_agents_know_their_place() {
    let mut world = World::of(9, 1);
    world.run(1);
    assert_eq!(world.registrars().len(), 1, "the first registrar is there at once");
    world.run(19);
    for index in 0..9 {
        let in_zone = if index % 2 == 0 { 5 } else { 4 };
        assert_eq!(world.place(index), Place { alive: 9, alive_in_zone: in_zone, rank: Some(index as u64) });
        let digest = world.seen[index].clone().unwrap().digest.unwrap();
        assert_eq!(digest.alive, BTreeMap::from([("even".to_owned(), 5), ("odd".to_owned(), 4)]));
    }
}

#[test]
fn dead_registrar_is_replaced_without_a_drop_in_the_count() {
    let mut world = World::of(9, 2);
    world.run(15);
    let first = world.registrars()[0];
    world.agents[first] = None;
    for _ in 0..40 {
        world.run(1);
        for index in (0..9).filter(|index| *index != first) {
            assert!(world.place(index).alive >= 8, "{index} {:?} at {:?}", world.place(index), world.now);
        }
    }
    let second = world.registrars()[0];
    assert_ne!(first, second);
    let expected = (0..9).filter(|index| *index != first).position(|index| index == 8).unwrap_or(7);
    let last = if first == 8 { 7 } else { 8 };
    assert_eq!(world.place(last).rank, Some(expected as u64));
    world.start(first);
    world.run(10);
    assert_eq!((world.place(first).alive, world.place(first).rank), (9, Some(first as u64)));
    assert_eq!(world.registrars(), [second], "an agent that returns does not take the lease away");
}

#[test]
fn registrar_that_leaves_is_replaced_within_2_s() {
    let mut world = World::of(5, 3);
    world.run(15);
    let first = world.registrars()[0];
    world.step(first, Input::Leave);
    assert_eq!(world.registrars(), Vec::<usize>::new());
    world.agents[first] = None;
    world.run(2);
    assert_eq!(world.registrars().len(), 1);
    world.run(20);
    let other = usize::from(first == 0);
    assert_eq!(world.place(other).alive, 4);
}

#[test]
fn fleet_without_a_bus_has_no_registrar_until_the_bus_returns() {
    let mut world = World::of(5, 4);
    world.run(15);
    world.bus_is_lost = true;
    world.run(11);
    assert_eq!(world.registrars(), Vec::<usize>::new(), "a registrar that cannot renew steps down before its lease ends for others");
    world.run(60);
    world.bus_is_lost = false;
    world.run(25);
    assert_eq!(world.registrars().len(), 1);
    assert_eq!(world.place(0).rank, Some(0));
}

#[test]
fn agent_with_a_place_reports_half_as_often_and_seldom_wants_an_answer() {
    let mut world = World::of(4, 10);
    for (bus_is_lost, settles, least, most) in [(false, 30, 36, 44), (true, 15, 72, 88)] {
        world.bus_is_lost = bus_is_lost;
        world.run(settles);
        (world.reports, world.asked) = (0, 0);
        world.run(100);
        let asked = if bus_is_lost { least..=most } else { 12..=16 };
        assert!(asked.contains(&world.asked), "{} of {} reports wanted an answer, bus lost: {bus_is_lost}", world.asked, world.reports);
        assert!((least..=most).contains(&world.reports), "{} reports of 4 in 100 s, bus lost: {bus_is_lost}", world.reports);
    }
}

#[test]
fn digest_of_an_agent_without_the_lease_is_refused() {
    let mut world = World::of(2, 5);
    world.run(20);
    let other = 1 - world.registrars()[0];
    let known = world.seen[other].clone();
    let forged = FleetDigest { reports_sequence: u64::MAX, ..FleetDigest::default() };
    for _ in 0..100 {
        world.step(other, Input::DigestReceived("liar".parse().unwrap(), forged.clone()));
        world.run(1);
    }
    assert_eq!(world.seen[other], known);
    // The last digest is still to be looked up.
    assert_eq!(world.agents[other].as_ref().unwrap().counts().digests_refused_total, 99);
    let looks = world.looks;
    assert!((19..=21).contains(&looks), "looked {looks} times in 100 s");
    assert_eq!(world.registrars(), [1 - other]);
}

#[test]
fn first_digest_of_a_new_registrar_is_accepted() {
    let mut world = World::of(9, 9);
    world.run(15);
    let first = world.registrars()[0];
    let other = (first + 1) % 9;
    world.agents[first] = None;
    while world.registrars().is_empty() {
        world.run(1);
    }
    world.run(1);
    let registrar = name(world.registrars()[0]).to_string();
    assert_eq!(world.seen[other].clone().unwrap().digest.unwrap().reports_created, registrar);
}

/// A fleet whose agents read these versions.
fn of_versions(reads: &[&[u32]], seed: u64) -> World {
    let mut world = World::of(reads.len(), seed);
    for (index, reads) in reads.iter().enumerate() {
        world.start_reading(reads, index);
    }
    world
}

fn written(world: &World) -> Vec<u32> {
    world.agents.iter().flatten().map(|agent| agent.counts().writes_version).collect()
}

#[test]
fn fleet_writes_the_common_version_during_an_upgrade() {
    let mut world = of_versions(&[&[1], &[1, 2], &[1, 2], &[1, 2]], 7);
    world.run(20);
    assert_eq!(written(&world), [1, 1, 1, 1]);
    // The last agent is upgraded; it need not be the registrar.
    world.agents[0] = None;
    world.run(30);
    world.start_reading(&[1, 2], 0);
    world.run(20);
    assert_eq!(written(&world), [2, 2, 2, 2]);
}

#[test]
fn agent_without_a_common_version_logs_it_once_and_others_go_on() {
    let mut world = of_versions(&[&[1], &[1], &[1], &[2]], 8);
    world.run(60);
    assert_eq!(written(&world), [1, 1, 1, 2]);
    let incompatible: Vec<bool> = world.agents.iter().flatten().map(|agent| agent.counts().reads_no_common_version).collect();
    assert_eq!(incompatible, [false, false, false, true]);
    let registrar = world.registrars()[0];
    assert_eq!(world.agents[registrar].as_ref().unwrap().counts().incompatible, 1);
    assert_eq!(world.logged_unreadable, [1], "the unreadable version is logged once");
}

#[test]
fn registrar_that_learns_of_another_holder_steps_down_at_once() {
    let mut world = World::of(1, 6);
    world.run(5);
    let agent = world.agents[0].as_mut().unwrap();
    let (list, other) = (Input::Called(Call::List), Looked::Holder("other".parse().unwrap()));
    assert!(matches!(&agent.step(world.now, list.clone())[..], [Effect::Reply(Reply::Nodes(_))]));
    assert_eq!(agent.step(world.now, Input::Looked(Duration::ZERO, other.clone())), [], "the look-up began before its last renewal");
    assert_eq!(agent.step(world.now, Input::Looked(world.now, other)), [Effect::StepDown]);
    assert_eq!(agent.step(world.now, list), [Effect::Reply(Reply::NotRegistrar)]);
}

/// Without this, the only agent of a fleet would never ask again: it knows a digest, and nobody else publishes one.
#[test]
fn agent_asks_again_for_a_lease_that_came_after_its_term() {
    let mut world = World::of(1, 6);
    world.run(5);
    let agent = world.agents[0].as_mut().unwrap();
    agent.step(world.now, Input::Looked(world.now, Looked::Holder("other".parse().unwrap())));
    let asked = world.now + DEADLINES.registrar_lease + Duration::from_secs(2);
    let effects = agent.step(asked, Input::Tick);
    assert!(effects.contains(&Effect::TryLease), "no digest came: {effects:?}");
    // The agent is suspended until the term is over.
    let late = asked + DEADLINES.registrar_lease;
    let effects = agent.step(late, Input::Asked(asked, Answer::Held { epoch: 9 }));
    assert!(effects.contains(&Effect::GiveBack(9)), "{effects:?}");
    let effects = agent.step(late + Duration::from_secs(6), Input::Tick);
    assert!(effects.contains(&Effect::TryLease), "{effects:?}");
}

#[test]
fn agent_that_has_left_does_nothing_more() {
    let mut agent = agent(0, 1, Duration::ZERO);
    agent.step(Duration::ZERO, Input::Tick);
    let farewell = agent.step(Duration::from_secs(1), Input::Leave);
    assert!(matches!(&farewell[..], [Effect::Report(ReportAlive { leaves: true, .. })]), "{farewell:?}");
    assert_eq!(agent.next_due(), None);
    assert_eq!(agent.step(Duration::from_secs(60), Input::Tick), Vec::new());
    let late = agent.step(Duration::from_secs(60), Input::Asked(Duration::from_secs(1), Answer::Held { epoch: 7 }));
    assert_eq!(late, [Effect::GiveBack(7)], "a lease that comes too late is given back");
}

#[test]
fn registrar_that_leaves_gives_its_lease_back_and_reports_to_nobody() {
    let mut world = World::of(1, 6);
    world.run(5);
    let farewell = world.agents[0].as_mut().unwrap().step(world.now, Input::Leave);
    assert!(farewell.iter().any(|effect| matches!(effect, Effect::GiveBack(_))), "{farewell:?}");
    assert!(matches!(farewell.last(), Some(Effect::Publish(digest)) if digest.leaves), "{farewell:?}");
    assert!(!farewell.iter().any(|effect| matches!(effect, Effect::Report(_))), "{farewell:?}");
}

/// Seconds until all places are known. A node with a lost report is known after its next one, at most 11 s later; a node that got its
/// place just before asks for it again with its third report after that.
const KNOWN_WITHIN: u64 = 11 + 3 * 11 + 1;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Messages are lost and doubled, agents die and restart, and the bus fails. There are never two registrars, and in the end all agents
    /// know their place.
    #[test]
    fn at_most_one_registrar_and_all_nodes_known_after_any_losses(
        seed in any::<u64>(),
        lost in 0_u64..40,
        doubled in 0_u64..40,
        troubles in prop::collection::vec((0_u8..4, 0_usize..6, 1_u64..30), 0..8),
    ) {
        let mut world = World::of(6, seed);
        (world.lost, world.doubled) = (lost, doubled);
        for (kind, index, seconds) in troubles {
            match kind {
                0 => world.agents[index] = None,
                1 => world.start(index),
                2 => world.bus_is_lost = true,
                _ => world.bus_is_lost = false,
            }
            world.run(seconds);
        }
        (world.lost, world.doubled, world.bus_is_lost) = (0, 0, false);
        let lost: Vec<usize> = (0..6).filter(|index| world.agents[*index].is_none()).collect();
        for index in lost {
            world.start(index);
        }
        world.run(KNOWN_WITHIN);
        prop_assert_eq!(world.registrars().len(), 1);
        for index in 0..6 {
            prop_assert_eq!(world.place(index), Place { alive: 6, alive_in_zone: 3, rank: Some(index as u64) });
        }
    }
}
