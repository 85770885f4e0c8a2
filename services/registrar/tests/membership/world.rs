//! Many agents and the lease at the server, without a bus; messages are lost and doubled by a seed.

use std::collections::VecDeque;
use std::time::Duration;

use clock::Random;
use contract::messages::registrar::{FleetSeen, Place, ReportAlive};
use contract::{DEADLINES, NodeName};
use registrar::core::{Answer, Call, Effect, Input, Looked, Member, Membership, Reply};

const STEP: Duration = Duration::from_millis(100);

pub(super) fn name(index: usize) -> NodeName {
    format!("n{index:02}").parse().unwrap()
}

/// The lease at the server.
#[derive(Default)]
struct Lease {
    epoch: u64,
    /// The holder, the epoch, and the end of the term.
    holder: Option<(usize, u64, Duration)>,
}

pub(super) struct World {
    pub(super) now: Duration,
    random: Random,
    /// None: the agent is dead.
    pub(super) agents: Vec<Option<Membership>>,
    lease: Lease,
    /// The percentages of messages that are lost and doubled.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) bus_is_lost: bool,
    pub(super) seen: Vec<Option<FleetSeen>>,
    pub(super) logged_unreadable: Vec<u32>,
    /// Look-ups of the lease's holder, without each agent's first.
    pub(super) looks: usize,
    /// Reports with an answer.
    pub(super) reports: usize,
    pub(super) asked: usize,
}

impl World {
    pub(super) fn of(count: usize, seed: u64) -> Self {
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

    pub(super) fn start(&mut self, index: usize) {
        self.start_reading(&[1], index);
    }

    pub(super) fn start_reading(&mut self, versions: &[u32], index: usize) {
        let seed = self.random.word();
        self.agents[index] = Some(agent_reading(versions, index, seed, self.now));
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.word() % 100 < percent
    }

    pub(super) fn run(&mut self, seconds: u64) {
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

    pub(super) fn step(&mut self, index: usize, input: Input) {
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
        self.lease.holder = Some((index, epoch, self.now + DEADLINES.registrar_lease));
        Answer::Held { epoch }
    }

    /// The agents that would answer as registrar now.
    pub(super) fn registrars(&mut self) -> Vec<usize> {
        let now = self.now;
        let answers = |agent: &mut Option<Membership>| {
            let Some(agent) = agent else { return false };
            let effects = agent.step(now, Input::Called(Call::List));
            let [Effect::Reply(reply)] = &effects[..] else { panic!("all that was due is done: {effects:?}") };
            matches!(reply, Reply::Nodes(_))
        };
        (0..self.agents.len()).filter(|index| answers(&mut self.agents[*index])).collect()
    }

    pub(super) fn place(&self, index: usize) -> Place {
        self.agents[index].as_ref().unwrap().counts().place
    }
}

pub(super) fn agent(index: usize, seed: u64, now: Duration) -> Membership {
    agent_reading(&[1], index, seed, now)
}

fn agent_reading(versions: &[u32], index: usize, seed: u64, now: Duration) -> Membership {
    let zone = if index.is_multiple_of(2) { "even" } else { "odd" };
    let member = Member { node: name(index), instance: format!("{seed:x}"), zone: zone.to_owned(), reads_versions: versions.to_vec() };
    Membership::new(member, Random::seeded(seed), now)
}
