//! Whatever is lost, repeated or late, a replica equals its bucket once another change or another node shows that it lacks something.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::Random;
use proptest::prelude::*;
use replication::{Effect, Follower, Input, Position, Reading};

/// The most snapshots that are needed once nothing is lost any more: a hanging one, a planned one, and those for what is missing.
const READS_TO_HEAL: u64 = 4;

#[derive(Clone, Debug)]
enum Event {
    /// A key is stored, and its message is sent this many times; 0: it is lost.
    Put {
        key: u8,
        messages: usize,
    },
    /// One of the messages in transit is received.
    Arrives(usize),
    Passes(u64),
    /// The server takes a snapshot for one of the readings, which lacks this many of the newest changes.
    Taken {
        reading: usize,
        lacks: usize,
    },
    /// One of the snapshots is received, or lost.
    Read {
        reading: usize,
        lost: bool,
    },
    MadeAgain,
    Disconnected,
    BusBack,
    /// Another node publishes how far the bucket has come.
    Announced,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..5_u8, 0..3_usize).prop_map(|(key, messages)| Event::Put { key, messages }),
        8 => (0..3_usize).prop_map(Event::Arrives),
        6 => (0..3_000_u64).prop_map(Event::Passes),
        3 => (0..3_usize, prop_oneof![4 => Just(0), 1 => 0..4_usize]).prop_map(|(reading, lacks)| Event::Taken { reading, lacks }),
        3 => (0..3_usize, prop::bool::weighted(0.2)).prop_map(|(reading, lost)| Event::Read { reading, lost }),
        1 => Just(Event::MadeAgain),
        1 => Just(Event::Disconnected),
        2 => Just(Event::BusBack),
        2 => Just(Event::Announced),
    ]
}

/// A snapshot: how far it goes, and the newest change of each key.
type Snapshot = (Position, BTreeMap<u8, u64>);

struct World {
    now: Duration,
    chance: Random,
    made: u64,
    /// The key of each change since the bucket was made.
    changes: Vec<u8>,
    in_transit: VecDeque<(u8, u64)>,
    later: Vec<(Duration, Input)>,
    readings: Vec<(Reading, Option<Snapshot>)>,
    follower: Follower,
    /// The replica: the newest change of each key.
    known: BTreeMap<u8, u64>,
}

fn newest(changes: &[u8]) -> BTreeMap<u8, u64> {
    changes.iter().copied().zip(1..).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            now: Duration::from_secs(1),
            chance: Random::seeded(seed),
            made: 1,
            changes: vec![0, 1],
            in_transit: VecDeque::new(),
            later: Vec::new(),
            readings: vec![(Reading::default(), None)],
            follower: Follower::default(),
            known: BTreeMap::new(),
        };
        world.taken(0, 0);
        world.read(0, false);
        world
    }

    fn position(&self, lacks: usize) -> Position {
        Position { created: self.made.to_string(), sequence: self.changes.len().saturating_sub(lacks) as u64 }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.follower.step(self.now, &mut self.chance, input);
        for effect in &effects {
            match effect {
                Effect::Later(after, input) => self.later.push((self.now + *after, input.clone())),
                Effect::Read(reading) => self.readings.push((reading.clone(), None)),
                Effect::MadeAgain | Effect::BusBack | Effect::CaughtUp => {}
            }
        }
        effects
    }

    fn put(&mut self, key: u8, messages: usize) {
        self.changes.push(key);
        for _ in 0..messages {
            self.in_transit.push_back((key, self.changes.len() as u64));
        }
    }

    fn arrives(&mut self, number: usize) {
        if let Some((key, sequence)) = self.in_transit.remove(number) {
            self.learn(key, sequence);
            self.step(Input::Changed { sequence });
        }
    }

    fn learn(&mut self, key: u8, sequence: u64) {
        let known = self.known.entry(key).or_default();
        *known = sequence.max(*known);
    }

    fn passes(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.later.iter().map(|(at, _)| *at).min().filter(|at| *at <= until) {
            let place = self.later.iter().position(|(due, _)| *due == at).unwrap();
            let (_, input) = self.later.remove(place);
            self.now = at;
            self.step(input);
        }
        self.now = until;
    }

    fn taken(&mut self, number: usize, lacks: usize) {
        let position = self.position(lacks);
        if let Some((reading, snapshot @ None)) = self.readings.get_mut(number) {
            let since = if reading.since.created == position.created { reading.since.sequence } else { 0 };
            let entries = newest(&self.changes[..position.sequence as usize]).into_iter().filter(|(_, change)| *change > since);
            *snapshot = Some((position, entries.collect()));
        }
    }

    fn read(&mut self, number: usize, lost: bool) {
        if self.readings.get(number).is_none_or(|(_, snapshot)| snapshot.is_none()) {
            return;
        }
        let (reading, Some((position, entries))) = self.readings.remove(number) else { return };
        if lost {
            self.step(Input::NotRead);
            return;
        }
        let effects = self.step(Input::Read { reading, position, newest: entries.values().max().copied() });
        if !effects.contains(&Effect::CaughtUp) {
            return;
        }
        if effects.contains(&Effect::MadeAgain) {
            self.known.clear();
        }
        entries.into_iter().for_each(|(key, sequence)| self.learn(key, sequence));
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Put { key, messages } => self.put(key, messages),
            Event::Arrives(number) => self.arrives(number),
            Event::Passes(milliseconds) => self.passes(Duration::from_millis(milliseconds)),
            Event::Taken { reading, lacks } => self.taken(reading, lacks),
            Event::Read { reading, lost } => self.read(reading, lost),
            Event::MadeAgain => {
                self.made += 1;
                self.changes.clear();
                self.in_transit.clear();
            }
            Event::Disconnected => drop(self.step(Input::Disconnected)),
            Event::BusBack => drop(self.step(Input::BusBack)),
            Event::Announced => drop(self.step(Input::Announced { position: self.position(0), within: Duration::from_millis(250) })),
        }
    }

    /// All hanging snapshots are received, and nothing is lost any more.
    fn settles(&mut self) {
        while !self.readings.is_empty() || !self.later.is_empty() {
            self.passes(Duration::from_millis(100));
            self.taken(0, 0);
            self.read(0, false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn missed_report_is_read_once_a_change_or_digest_shows_the_gap(
        seed in any::<u64>(),
        events in proptest::collection::vec(event(), 0..60),
        (key, is_announced) in (0..5_u8, any::<bool>()),
    ) {
        let mut world = World::new(seed);
        events.iter().for_each(|event| world.happens(event));
        world.in_transit.clear();
        world.settles();
        let before = world.follower.counts().snapshots;
        // The sequences of a bucket that was made again may continue those of the earlier one: then only another node shows it.
        if is_announced || world.made > 1 {
            world.happens(&Event::Announced);
        } else {
            world.put(key, 1);
            world.arrives(0);
        }
        world.settles();
        prop_assert_eq!(&world.known, &newest(&world.changes));
        prop_assert!(world.follower.counts().snapshots - before <= READS_TO_HEAL);
    }

    #[test]
    fn changes_received_once_in_order_need_no_snapshot(seed in any::<u64>(), keys in proptest::collection::vec(0..5_u8, 0..30)) {
        let mut world = World::new(seed);
        for key in keys {
            world.put(key, 1);
            world.happens(&Event::Announced);
            world.arrives(0);
            world.passes(Duration::from_millis(100));
        }
        world.settles();
        prop_assert_eq!(&world.known, &newest(&world.changes));
        prop_assert_eq!(world.follower.counts().snapshots, 1);
    }
}
