//! Processes that all want one lease, while answers are lost and late, processes die and stop for a while, the bus fails, and a stranger
//! writes the key. Checks that never two of them hold it, that epochs rise, and that in the end one holds it.

use std::time::Duration;

use bus::memory::MemoryBus;
use bus::{KeyValueError, SharedState as _};
use bytes::Bytes;
use clock::{Clock, Random};
use contract::know::{StoredLease, encode};
use lease::{Answer, Effect, Held, Input, Lease, LeaseStore, Looked, Taken, Terms};
use proptest::prelude::*;

use crate::{KEY, TERM, bucket, store_of};

const COUNT: usize = 4;
const STEP: Duration = Duration::from_millis(100);
const TERMS: Terms =
    Terms { term: TERM, renew_every: Duration::from_secs(3), renew_again: Duration::from_secs(1), answer_within: Duration::from_secs(2) };
/// How often a process without the lease asks for it, in percent of the steps.
const WANTED: u64 = 10;
/// The longest delay of an answer: after its time-out and after the next request.
const LATEST_MS: u64 = 5_000;

struct Process {
    lease: Lease,
    store: LeaseStore,
    stopped_until: Duration,
    /// Answers that have not arrived, and when they do.
    answers: Vec<(Duration, Input)>,
}

struct World {
    clock: Clock,
    bus: MemoryBus,
    random: Random,
    processes: Vec<Option<Process>>,
    starts: u32,
    /// How many percent of the answers are lost and how many are late.
    lost: u64,
    late: u64,
    bus_is_lost: bool,
    last_epoch: u64,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Dies(usize),
    Starts(usize),
    /// Stops for this many seconds while its clock goes on.
    Stops(usize, u64),
    Releases(usize),
    BusLost,
    BusBack,
    StrangerWrites(u8),
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let bus = MemoryBus::new(clock.clone());
        let random = Random::seeded(seed);
        let mut world = Self { clock, bus, random, processes: Vec::new(), starts: 0, lost: 0, late: 0, bus_is_lost: false, last_epoch: 0 };
        world.processes.resize_with(COUNT, || None);
        (0..COUNT).for_each(|index| world.start(index));
        world
    }

    fn now(&self) -> Duration {
        self.clock.now().monotonic
    }

    fn start(&mut self, index: usize) {
        self.starts += 1;
        let store = store_of(&self.bus, &self.clock, &format!("n{index}"), &self.starts.to_string());
        self.processes[index] = Some(Process { lease: Lease::new(TERMS), store, stopped_until: Duration::ZERO, answers: Vec::new() });
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.word() % 100 < percent
    }

    fn holders(&self) -> Vec<usize> {
        let now = self.now();
        let holds = |index: &usize| self.processes[*index].as_ref().is_some_and(|process| process.lease.epoch(now).is_some());
        (0..COUNT).filter(holds).collect()
    }

    async fn run(&mut self, seconds: u64) {
        let end = self.now() + Duration::from_secs(seconds);
        while self.now() < end {
            tokio::time::sleep(STEP).await;
            for index in 0..COUNT {
                self.turn(index).await;
                assert!(self.holders().len() <= 1, "{:?} hold it at {:?}", self.holders(), self.now());
            }
        }
    }

    async fn turn(&mut self, index: usize) {
        let (now, wants) = (self.now(), self.chance(WANTED));
        let Some(process) = self.processes[index].as_mut().filter(|process| process.stopped_until <= now) else { return };
        let mut inputs: Vec<Input> = process.answers.extract_if(.., |(at, _)| *at <= now).map(|(_, input)| input).collect();
        inputs.extend(process.lease.next_due().filter(|due| *due <= now).map(|_| Input::Tick));
        inputs.extend(wants.then_some(Input::Acquire));
        for input in inputs {
            self.step(index, input).await;
        }
    }

    async fn step(&mut self, index: usize, input: Input) {
        let now = self.now();
        let Some(process) = &mut self.processes[index] else { return };
        for effect in process.lease.step(now, input) {
            match effect {
                Effect::Take | Effect::Renew { .. } => self.ask(index, effect).await,
                Effect::Release { epoch } => {
                    let store = &self.processes[index].as_ref().unwrap().store;
                    if let Some(owned) = store.give_up(KEY, Some(epoch)).filter(|_| !self.bus_is_lost) {
                        // Another process may hold it by now.
                        drop(store.delete(&owned).await);
                    }
                }
                Effect::Won { epoch } => {
                    assert!(epoch > self.last_epoch, "{epoch} after {}", self.last_epoch);
                    self.last_epoch = epoch;
                }
                Effect::Lost { .. } => {}
            }
        }
    }

    async fn ask(&mut self, index: usize, effect: Effect) {
        let asked = self.now();
        let store = &self.processes[index].as_ref().unwrap().store;
        let answer = if self.bus_is_lost { Answer::Unknown } else { answered(store, effect).await.unwrap() };
        let answer = if self.chance(self.lost) { Answer::Unknown } else { answer };
        let delay = if self.chance(self.late) { self.random.word() % LATEST_MS } else { 0 };
        let input = Input::Answered { asked, answer };
        self.processes[index].as_mut().unwrap().answers.push((asked + Duration::from_millis(delay), input));
    }

    async fn trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Dies(index) => self.processes[index] = None,
            Trouble::Starts(index) => self.start(index),
            Trouble::Stops(index, seconds) => {
                let until = self.now() + Duration::from_secs(seconds);
                self.processes[index].iter_mut().for_each(|process| process.stopped_until = until);
            }
            Trouble::Releases(index) => self.step(index, Input::Release).await,
            Trouble::BusLost => self.bus_is_lost = true,
            Trouble::BusBack => self.bus_is_lost = false,
            Trouble::StrangerWrites(what) => {
                let bucket = self.bus.bucket(&bucket()).await.unwrap();
                let there = bucket.get(KEY).await.unwrap().map(|entry| entry.value);
                let named = encode(&StoredLease::of_node("n0".parse().unwrap())).unwrap();
                let value = match what {
                    0 => Bytes::from_static(b"rubbish"),
                    1 => named.into(),
                    _ => there.unwrap_or_default(),
                };
                bucket.put(KEY, value, None).await.unwrap();
            }
        }
    }
}

async fn answered(store: &LeaseStore, effect: Effect) -> Result<Answer, KeyValueError> {
    let held: Option<Held> = match effect {
        Effect::Renew { epoch } => store.renew(KEY, "", epoch).await?,
        _ => match store.take(KEY, "").await? {
            Taken::Now(held) => Some(held),
            Taken::Not(Looked::Mine { revision }) => store.regain(KEY, "", revision, 0).await?,
            Taken::Not(_) => None,
        },
    };
    Ok(held.map_or(Answer::Taken, |held| Answer::Held { epoch: held.epoch }))
}

fn troubles() -> impl Strategy<Value = Vec<(Trouble, u64)>> {
    let of = 0..COUNT;
    let trouble = prop_oneof![
        of.clone().prop_map(Trouble::Dies),
        of.clone().prop_map(Trouble::Starts),
        (of.clone(), 1_u64..30).prop_map(|(index, seconds)| Trouble::Stops(index, seconds)),
        of.prop_map(Trouble::Releases),
        Just(Trouble::BusLost),
        Just(Trouble::BusBack),
        (0_u8..3).prop_map(Trouble::StrangerWrites),
    ];
    prop::collection::vec((trouble, 1_u64..15), 0..12)
}

/// A stranger's key expires after two terms of looks, another process's lease after one; and a process that wants it asks every one or two
/// seconds.
const HELD_WITHIN_S: u64 = 2 * TERM.as_secs() + 5;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn lease_has_one_holder_and_rising_epochs_under_random_faults(
        seed in any::<u64>(),
        lost in 0_u64..40,
        late in 0_u64..40,
        troubles in troubles(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(seed);
            (world.lost, world.late) = (lost, late);
            for (trouble, seconds) in troubles {
                world.trouble(trouble).await;
                world.run(seconds).await;
            }
            (world.lost, world.late, world.bus_is_lost) = (0, 0, false);
            for index in 0..COUNT {
                match &mut world.processes[index] {
                    None => world.start(index),
                    Some(process) => process.stopped_until = Duration::ZERO,
                }
            }
            world.run(HELD_WITHIN_S).await;
            assert_eq!(world.holders().len(), 1, "one holds it in the end");
        });
    }
}
