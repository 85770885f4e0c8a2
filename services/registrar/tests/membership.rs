//! Many agents and a lease without a bus; messages are lost, doubled and late by a seed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::Random;
use contract::NodeName;
use contract::messages::registrar::{FleetDigest, FleetSeen, Place, ReportAlive};
use proptest::prelude::*;
use registrar::core::{Answer, Call, Effect, Input, LEASE_FOR, Looked, Member, Membership, Reply};

const STEP: Duration = Duration::from_millis(100);

fn name(index: usize) -> NodeName {
    format!("n{index:02}").parse().unwrap()
}

/// The lease at the server.
#[derive(Default)]
struct Lease {
    epoch: u64,
    /// The holder, the epoch, and the end of the term.
    holder: Option<(usize, u64, Duration)>,
}

struct World {
    now: Duration,
    random: Random,
    /// None: the agent is dead.
    agents: Vec<Option<Membership>>,
    lease: Lease,
    /// The percentages of messages that are lost and doubled.
    lost: u64,
    doubled: u64,
    bus_is_lost: bool,
    seen: Vec<Option<FleetSeen>>,
    logged_unreadable: Vec<u32>,
    /// Look-ups of the lease's holder, without each agent's first.
    looks: usize,
    /// Reports with an answer.
    reports: usize,
    asked: usize,
}

impl World {
    fn of(count: usize, seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let agents = (0..count).map(|index| Some(agent(index, random.word(), Duration::ZERO))).collect();
        let seen = vec![None; count];
        let (lease, logged_unreadable) = (Lease::default(), Vec::new());
        Self {
            now: Duration::ZERO,
            random,
            agents,
            lease,
            lost: 0,
            doubled: 0,
            bus_is_lost: false,
            seen,
            logged_unreadable,
            looks: 0,
            reports: 0,
            asked: 0,
        }
    }

    fn start(&mut self, index: usize) {
        self.start_reading(&[1], index);
    }

    fn start_reading(&mut self, versions: &[u32], index: usize) {
        let seed = self.random.word();
        self.agents[index] = Some(agent_reading(versions, index, seed, self.now));
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.word() % 100 < percent
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now += STEP;
            if self.lease.holder.is_some_and(|(_, _, until)| until <= self.now) {
                self.lease.holder = None;
            }
            for index in 0..self.agents.len() {
                if self.agents[index].as_ref().is_some_and(|agent| agent.next_due().is_some_and(|due| due <= self.now)) {
                    self.step(index, Input::Tick);
                }
            }
            assert!(self.registrars().len() <= 1, "two registrars at {:?}", self.now);
        }
    }

    fn step(&mut self, index: usize, input: Input) {
        let mut inputs = VecDeque::from([(index, input)]);
        while let Some((index, input)) = inputs.pop_front() {
            let Some(agent) = &mut self.agents[index] else { continue };
            for effect in agent.step(self.now, input) {
                let copies = if self.bus_is_lost || self.chance(self.lost) { 0 } else { 1 + usize::from(self.chance(self.doubled)) };
                self.carry_out(index, effect, copies, &mut inputs);
            }
        }
    }

    fn carry_out(&mut self, index: usize, effect: Effect, copies: usize, inputs: &mut VecDeque<(usize, Input)>) {
        match effect {
            Effect::Report(report) => {
                self.reports += 1;
                self.asked += 1;
                let mut answer = None;
                for _ in 0..copies {
                    answer = self.ask_registrar(&report, inputs);
                }
                if !report.leaves {
                    let answer = answer.filter(|_| !self.chance(self.lost));
                    inputs.push_back((index, Input::Reported(answer)));
                }
            }
            Effect::Notify(report) => {
                self.reports += 1;
                for _ in 0..copies {
                    self.ask_registrar(&report, inputs);
                }
            }
            Effect::TryLease => self.ask(index, None, copies, inputs),
            Effect::Renew(epoch) => self.ask(index, Some(epoch), copies, inputs),
            Effect::Look => {
                self.looks += usize::from(self.now > Duration::from_secs(15));
                let holder = self.lease.holder.map_or(Looked::Nobody, |(holder, _, _)| Looked::Holder(name(holder)));
                let looked = if copies == 0 || self.chance(self.lost) { Looked::Unknown } else { holder };
                inputs.push_back((index, Input::Looked(self.now, looked)));
            }
            Effect::GiveBack(epoch) => {
                if copies > 0 && self.lease.holder.is_some_and(|(_, held, _)| held == epoch) {
                    self.lease.holder = None;
                }
            }
            Effect::Publish(mut digest) => {
                // The shell adds the bucket's status from the bus; here it marks whose digest it is.
                digest.reports_created = name(index).to_string();
                for to in 0..self.agents.len() {
                    if !self.bus_is_lost && !self.chance(self.lost) {
                        inputs.push_back((to, Input::DigestReceived(name(index), digest.clone())));
                    }
                }
            }
            Effect::SendFleet(seen) => self.seen[index] = Some(seen),
            Effect::LogUnreadableVersion(version) => self.logged_unreadable.push(version),
            Effect::Lead | Effect::StepDown => {}
            Effect::Reply(_) => unreachable!("no caller asked"),
        }
    }

    /// Gives a report to the registrar, which alone serves it.
    fn ask_registrar(&mut self, report: &ReportAlive, inputs: &mut VecDeque<(usize, Input)>) -> Option<Place> {
        for index in 0..self.agents.len() {
            let Some(agent) = self.agents[index].as_mut().filter(|agent| agent.counts().is_registrar) else { continue };
            let mut answer = None;
            for effect in agent.step(self.now, Input::Called(Call::Alive(report.clone()))) {
                match effect {
                    Effect::Reply(Reply::Place(place)) => answer = Some(place),
                    Effect::Reply(_) => {}
                    other => {
                        let copies = usize::from(!self.bus_is_lost);
                        self.carry_out(index, other, copies, inputs);
                    }
                }
            }
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Asks for the lease, or for its renewal.
    fn ask(&mut self, index: usize, renewed: Option<u64>, copies: usize, inputs: &mut VecDeque<(usize, Input)>) {
        let answer = if copies == 0 { Answer::Unknown } else { self.answer(index, renewed) };
        // The answer may be lost although the request was carried out.
        let answer = if self.chance(self.lost) { Answer::Unknown } else { answer };
        inputs.push_back((index, Input::Asked(self.now, answer)));
    }

    /// A holder that asks for the lease again, because an answer was lost, gets a new epoch.
    fn answer(&mut self, index: usize, renewed: Option<u64>) -> Answer {
        let held = self.lease.holder.map(|(holder, epoch, _)| (holder, epoch));
        let epoch = match (held, renewed) {
            (Some((holder, epoch)), Some(renewed)) if holder == index && epoch == renewed => epoch,
            (_, Some(_)) => return Answer::Taken,
            (Some((holder, _)), None) if holder != index => return Answer::Taken,
            (_, None) => {
                self.lease.epoch += 1;
                self.lease.epoch
            }
        };
        self.lease.holder = Some((index, epoch, self.now + LEASE_FOR));
        Answer::Held { epoch }
    }

    /// The agents that would answer as registrar now.
    fn registrars(&mut self) -> Vec<usize> {
        let now = self.now;
        let answers = |agent: &mut Option<Membership>| {
            let Some(agent) = agent else { return false };
            let effects = agent.step(now, Input::Called(Call::List));
            let [Effect::Reply(reply)] = &effects[..] else { panic!("all that was due is done: {effects:?}") };
            matches!(reply, Reply::Nodes(_))
        };
        (0..self.agents.len()).filter(|index| answers(&mut self.agents[*index])).collect()
    }

    fn place(&self, index: usize) -> Place {
        self.agents[index].as_ref().unwrap().counts().place
    }
}

fn agent(index: usize, seed: u64, now: Duration) -> Membership {
    agent_reading(&[1], index, seed, now)
}

fn agent_reading(versions: &[u32], index: usize, seed: u64, now: Duration) -> Membership {
    let zone = if index.is_multiple_of(2) { "even" } else { "odd" };
    let member = Member { node: name(index), instance: format!("{seed:x}"), zone: zone.to_owned(), reads_versions: versions.to_vec() };
    Membership::new(member, Random::seeded(seed), now)
}

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
