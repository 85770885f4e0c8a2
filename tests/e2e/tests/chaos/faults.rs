//! The faults of the fleet during the calls. A seed chooses them; they begin and end after a number of answers.

use std::time::Duration;

use clock::Random;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use e2e::{Agent, until_within};

use super::callers::{Callers, below};
use super::{Kill, NODES, World};

/// The most answers between two faults, and the most during a fault.
const BETWEEN: usize = 25;
const LASTS: usize = 40;
/// The most faults at a time.
const AT_ONCE: usize = 3;
/// Progress is printed after this many answers.
const PRINTED_EVERY: usize = 1_000;
/// How long an agent may take to store events after its disk has room; it makes an attempt each second.
const STORES_WITHIN: Duration = Duration::from_secs(60);

/// A fault; a node is an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillAgent(usize),
    KillServer,
    Cut(usize),
    Silence(usize),
    FillDisk(usize),
}

pub(super) struct Faults {
    random: Random,
    /// The faults in force, each with the number of answers at which it ends.
    in_force: Vec<(Fault, usize)>,
    done: Vec<Fault>,
    kills: Vec<Kill>,
}

impl Faults {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { random: Random::seeded(random.word()), in_force: Vec::new(), done: Vec::new(), kills: Vec::new() }
    }

    /// Begins and ends faults until all calls are answered; then ends all faults. Returns the kills of agents.
    pub(super) fn inject_until_answered(mut self, world: &mut World<'_>, callers: &Callers) -> Vec<Kill> {
        let mut printed = 0;
        while !callers.are_done() {
            if callers.answered() >= printed + PRINTED_EVERY {
                printed = callers.answered();
                eprintln!("{printed} answers, {} faults", self.done.len());
            }
            callers.until_answered(callers.answered() + 1 + below(&mut self.random, BETWEEN));
            self.end_expired(world, callers.answered());
            if self.in_force.len() < AT_ONCE {
                self.begin(world, callers.answered());
            }
        }
        self.end_expired(world, usize::MAX);
        let count = |is: fn(&Fault) -> bool| self.done.iter().filter(|fault| is(fault)).count();
        eprintln!(
            "agents killed: {}, nats-server killed: {}, links cut: {}, links silent: {}, disks full: {}",
            count(|fault| matches!(fault, Fault::KillAgent(_))),
            count(|fault| matches!(fault, Fault::KillServer)),
            count(|fault| matches!(fault, Fault::Cut(_))),
            count(|fault| matches!(fault, Fault::Silence(_))),
            count(|fault| matches!(fault, Fault::FillDisk(_)))
        );
        self.kills
    }

    fn begin(&mut self, world: &mut World<'_>, answered: usize) {
        let node = below(&mut self.random, NODES);
        let fault = match below(&mut self.random, 9) {
            0..=3 => Fault::KillAgent(node),
            4..=5 => Fault::KillServer,
            6 => Fault::Cut(node),
            7 => Fault::Silence(node),
            _ => Fault::FillDisk(node),
        };
        // Events of a full disk wait in memory, and a kill would lose them (a known gap), so such an agent is not killed.
        let is_kept_alive =
            matches!(fault, Fault::KillAgent(node) if self.in_force.iter().any(|(other, _)| *other == Fault::FillDisk(node)));
        let is_same = |other: &Fault| std::mem::discriminant(other) == std::mem::discriminant(&fault);
        if is_kept_alive || self.in_force.iter().any(|(other, _)| is_same(other)) {
            return;
        }
        match fault {
            Fault::KillAgent(node) => self.kills.push(world.kill_agent(node)),
            Fault::KillServer => world.server.kill(),
            Fault::Cut(node) => world.bus_links[node].cut(),
            Fault::Silence(node) => world.bus_links[node].fall_silent(),
            Fault::FillDisk(node) => world.disks[node].fill(),
        }
        self.done.push(fault);
        if !matches!(fault, Fault::KillAgent(_)) {
            self.in_force.push((fault, answered + 1 + below(&mut self.random, LASTS)));
        }
    }

    fn end_expired(&mut self, world: &mut World<'_>, answered: usize) {
        for (fault, _) in self.in_force.extract_if(.., |(_, until)| *until <= answered) {
            match fault {
                Fault::KillAgent(_) => {}
                Fault::KillServer => world.server.restart(),
                Fault::Cut(node) | Fault::Silence(node) => world.bus_links[node].heal(),
                Fault::FillDisk(node) => {
                    world.disks[node].free();
                    stores_again(world.agent(node));
                }
            }
        }
    }
}

/// Waits until the events in memory are stored. The pull in this function is answered by a write after the disk has room.
fn stores_again(agent: &Agent<'_>) {
    let ask = EnsureImage { image: "no image".to_owned(), policy: Some(PullPolicy::Always), ..EnsureImage::default() };
    agent.ask(&ask);
    let count = |text: &str| agent.log().matches(text).count();
    until_within("events are stored again", STORES_WITHIN, || {
        (count("they wait in memory") == count("events are stored again")).then_some(())
    });
}
