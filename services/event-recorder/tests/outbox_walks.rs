//! For every order of failures: an event whose recording was answered is in the stream once, in the order of its number, or the stream has
//! an event that states how many were dropped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, MessageId, PullEvent, TraceContext};
use event_recorder::core::{Effect, Identity, Input, Recorder, RecorderPolicy, StreamMark, StreamRead, Token};
use event_recorder::store::OutboxStore;
use event_recorder::store::memory::MemoryStore;
use proptest::prelude::*;

const INCARNATION: &str = "first";
/// How long a stream knows the ids of stored messages.
const IDS_KNOWN: Duration = Duration::from_secs(120);

fn event(random: &mut Random, time_ms: u64, image: &str, reason: EventReason) -> PullEvent {
    PullEvent {
        image: image.to_owned(),
        duration_ms: Some(1),
        ..PullEvent::new(
            MessageId::random(random),
            time_ms,
            "n1".parse().expect("a name"),
            reason,
            String::new(),
            TraceContext::root(random),
        )
    }
}

/// How store and stream answer.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    /// Whether the stream can be reached.
    stream: bool,
    /// Each append whose number is a multiple of this is stored, but its acknowledgement is lost; 0: none is lost.
    loses_answers: u64,
}

struct World {
    now: Now,
    random: Random,
    store: MemoryStore,
    open: Box<dyn OutboxStore>,
    recorder: Recorder,
    /// Effects that are not answered yet, in order.
    pending: VecDeque<Effect>,
    /// The stream's number and contents.
    stream_number: u64,
    stream: Vec<Arc<PullEvent>>,
    /// When the stream stored each published event.
    published_at: BTreeMap<MessageId, Duration>,
    /// Events of streams that were lost.
    in_lost_streams: BTreeSet<MessageId>,
    weather: Weather,
    offered: u64,
    last_token: u64,
    recording: BTreeMap<Token, MessageId>,
    answered: BTreeSet<MessageId>,
    published: Vec<MessageId>,
    max_bytes: u64,
}

impl World {
    fn new(seed: u64, max_bytes: u64) -> Self {
        let store = MemoryStore::default();
        let opened = store.open(INCARNATION);
        let now = Now { monotonic: Duration::ZERO, wall: Duration::from_secs(1_000_000) };
        let recorder = recorder(&opened.recovered, now, max_bytes);
        Self {
            now,
            random: Random::seeded(seed),
            store,
            open: opened.store,
            recorder,
            pending: VecDeque::new(),
            stream_number: 1,
            stream: Vec::new(),
            published_at: BTreeMap::new(),
            in_lost_streams: BTreeSet::new(),
            weather: Weather { stream: true, loses_answers: 0 },
            offered: 0,
            last_token: 0,
            recording: BTreeMap::new(),
            answered: BTreeSet::new(),
            published: Vec::new(),
            max_bytes,
        }
    }

    fn step(&mut self, input: Input) {
        let effects = self.recorder.step(self.now, input);
        for effect in effects {
            match effect {
                Effect::Answer(token) => {
                    self.answered.extend(self.recording.remove(&token));
                }
                Effect::Publish(event) => {
                    self.published.push(event.id);
                    // A stream also stores messages that are published on its subjects.
                    if self.weather.stream && !self.knows_id(&event) {
                        self.published_at.insert(event.id, self.now.monotonic);
                        self.stream.push(event);
                    }
                }
                other => self.pending.push_back(other),
            }
        }
    }

    fn record(&mut self, image: &str, reason: EventReason) {
        let event = event(&mut self.random, self.now.wall_ms(), image, reason);
        self.last_token += 1;
        let token = Token(self.last_token);
        self.recording.insert(token, event.id);
        self.step(Input::Record { token, event: Box::new(event) });
    }

    /// Carries out one effect and answers it; effects of one kind keep their order.
    fn answer_one(&mut self, which: usize) {
        if self.pending.is_empty() {
            return;
        }
        let effect = self.pending.remove(which % self.pending.len()).expect("it is there");
        let input = match effect {
            Effect::Write(batch) => Input::Written(self.open.write(&batch).map_err(|error| error.to_string())),
            Effect::Load { after, limit } => Input::Loaded(self.open.load(after, limit).map_err(|error| error.to_string())),
            _ if !self.weather.stream => failed(effect),
            Effect::OpenStream => {
                Input::Opened(Ok(StreamMark { created: self.stream_number.to_string(), sequence: self.stream.len() as u64 }))
            }
            Effect::ReadStream { after } => Input::Read(Ok(self.read(after))),
            Effect::Append(event) => self.append(event),
            Effect::Publish(_) | Effect::Answer(_) => unreachable!("these have no answer"),
        };
        self.step(input);
    }

    /// Whether the stream knows a published event's id. Ids of appends do not matter: the agent reads the stream before it repeats an
    /// append.
    fn knows_id(&self, event: &PullEvent) -> bool {
        self.published_at.get(&event.id).is_some_and(|at| self.now.monotonic < *at + IDS_KNOWN)
    }

    fn append(&mut self, event: Arc<PullEvent>) -> Input {
        self.offered += 1;
        let number = event.sequence.as_ref().expect("it has one").number;
        if !self.knows_id(&event) {
            self.stream.push(event);
        }
        let is_lost = self.weather.loses_answers > 0 && self.offered.is_multiple_of(self.weather.loses_answers);
        let result = if is_lost { Err("no answer".to_owned()) } else { Ok(self.stream.len() as u64) };
        Input::Appended { number, result }
    }

    /// Reads pages of three events, so that there are several.
    fn read(&self, after: u64) -> StreamRead {
        let after = usize::try_from(after).expect("few");
        let page: Vec<u64> = self.stream.iter().skip(after).take(3).map(|event| event.sequence.as_ref().expect("one").number).collect();
        let next = (after + page.len() < self.stream.len()).then_some((after + page.len() + 1) as u64);
        StreamRead { numbers: page, next }
    }

    /// Kills the process; effects under way are never answered.
    fn crash(&mut self) {
        // An append under way may have arrived or not.
        let offered: Vec<Effect> = self.pending.drain(..).collect();
        for effect in offered {
            if let (Effect::Append(event), true) = (effect, self.weather.stream && self.random.word().is_multiple_of(2)) {
                self.stream.push(event);
            }
        }
        self.recording.clear();
        let opened = self.store.open(INCARNATION);
        self.recorder = recorder(&opened.recovered, self.now, self.max_bytes);
        self.open = opened.store;
        self.step(Input::Tick);
    }

    fn lose_stream(&mut self) {
        self.in_lost_streams.extend(self.stream.iter().map(|event| event.id));
        self.stream.clear();
        self.published_at.clear();
        self.stream_number += 1;
        // The next append finds no stream.
        while let Some(place) = self.pending.iter().position(|effect| matches!(effect, Effect::Append(_))) {
            let effect = self.pending.remove(place).expect("it is there");
            self.step(failed(effect));
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.step(Input::Tick);
    }

    /// Ends all failures, and runs until no event waits.
    fn settle(&mut self) {
        self.weather = Weather { stream: true, loses_answers: 0 };
        self.store.set_failing(false);
        for _ in 0..100_000 {
            if !self.pending.is_empty() {
                self.answer_one(0);
            } else if self.recorder.counts().waiting > 0 || self.recorder.next_due().is_some() {
                self.pass(Duration::from_secs(10));
            } else {
                return;
            }
        }
        panic!("the core does not come to rest: {:?}", self.recorder.counts());
    }

    fn numbers(&self) -> Vec<u64> {
        self.stream.iter().map(|event| event.sequence.as_ref().expect("one").number).collect()
    }

    /// How many recorded events the stream accounts for.
    fn accounted_for(&self) -> u64 {
        let count = |event: &Arc<PullEvent>| event.repeats.map_or(1, |repeats| repeats.count);
        self.stream.iter().filter(|event| event.reason != EventReason::EventsDropped).map(count).sum()
    }
}

fn recorder(recovered: &event_recorder::core::Recovered, now: Now, max_bytes: u64) -> Recorder {
    let identity = Identity { node: "n1".parse().expect("a name"), incarnation: INCARNATION.to_owned() };
    Recorder::new(identity, RecorderPolicy { max_bytes, has_stream: true }, recovered.clone(), now, Random::seeded(7))
}

fn failed(effect: Effect) -> Input {
    let why = || "no bus".to_owned();
    match effect {
        Effect::OpenStream => Input::Opened(Err(why())),
        Effect::ReadStream { .. } => Input::Read(Err(why())),
        Effect::Append(event) => Input::Appended { number: event.sequence.as_ref().expect("one").number, result: Err(why()) },
        other => panic!("{other:?} does not ask the stream"),
    }
}

const ROOM: u64 = 1 << 30;

#[test]
fn events_are_stored_then_answered_then_offered_in_order() {
    let mut world = World::new(1, ROOM);
    world.step(Input::Tick);
    for image in ["a", "b", "c"] {
        world.record(image, EventReason::Pulling);
    }
    assert!(world.answered.is_empty(), "nothing is stored yet");
    world.settle();
    assert_eq!(world.answered.len(), 3);
    assert_eq!(world.numbers(), [1, 2, 3]);
    assert_eq!(world.open.load(0, 10).unwrap(), [], "events in the stream are deleted");
}

#[test]
fn new_stream_gets_only_events_that_no_stream_had() {
    let mut world = World::new(1, ROOM);
    world.record("a", EventReason::Pulling);
    world.settle();
    world.weather.stream = false;
    world.record("b", EventReason::Pulling);
    world.lose_stream();
    world.settle();
    assert_eq!(world.numbers(), [2]);
}

#[test]
fn full_outbox_drops_refusals_first_and_counts_them() {
    let mut world = World::new(1, 40 * 600);
    world.weather.stream = false;
    for number in 0..30 {
        world.record(&format!("refused-{number}"), EventReason::BackOff);
        world.record(&format!("pulled-{number}"), EventReason::Pulling);
        while !world.pending.is_empty() {
            world.answer_one(0);
        }
    }
    assert!(world.recorder.counts().waiting_bytes <= 40 * 600);
    world.settle();
    let of = |reason| world.stream.iter().filter(|event| event.reason == reason).count();
    assert_eq!(of(EventReason::Pulling), 30, "refusals are dropped first");
    let dropped = world.recorder.counts().dropped_total;
    assert!(dropped > 0);
    assert_eq!(of(EventReason::BackOff) as u64, 30 - dropped);
    let messages: Vec<&str> =
        world.stream.iter().filter(|event| event.reason == EventReason::EventsDropped).map(|event| event.message.as_str()).collect();
    assert_eq!(messages.len(), 1);
    assert!(messages[0].starts_with(&format!("{dropped} events")), "{messages:?}");
}

#[test]
fn full_disk_loses_no_event_that_fits_into_memory() {
    let mut world = World::new(1, ROOM);
    world.store.set_failing(true);
    for number in 0..50 {
        world.record(&number.to_string(), EventReason::Pulling);
        world.answer_one(0);
    }
    for _ in 0..200 {
        world.answer_one(0);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.answered.len(), 50, "a pull is answered although its events cannot be stored");
    assert_eq!(world.published.len(), 50, "each is published once");
    assert_eq!(world.offered, 0, "an event that is not stored is not offered");
    // By now the stream no longer knows their ids.
    world.settle();
    assert_eq!(world.numbers(), (1..=50).collect::<Vec<_>>(), "each once");
    assert_eq!(world.open.load(0, 10).unwrap(), []);
}

#[test]
fn number_of_a_published_but_unstored_event_is_not_reused() {
    let mut world = World::new(1, ROOM);
    world.record("a", EventReason::Pulling);
    world.settle();
    world.store.set_failing(true);
    world.record("b", EventReason::Pulling);
    (0..4).for_each(|_| world.answer_one(0));
    assert_eq!(world.numbers(), [1, 2], "it was published");
    world.crash();
    world.store.set_failing(false);
    world.record("c", EventReason::Pulling);
    world.settle();
    assert_eq!(
        world.stream.iter().filter(|event| event.image == "c").count(),
        1,
        "the stream has another of number 2: {:?}",
        world.numbers()
    );
    assert!(world.stream.iter().any(|event| event.reason == EventReason::EventsDropped), "an event reports that events may be lost");
}

#[test]
fn events_beyond_the_queue_are_loaded_from_the_store() {
    let mut world = World::new(1, ROOM);
    world.weather.stream = false;
    for number in 0..5_000 {
        world.record(&number.to_string(), EventReason::Pulling);
        if number % 7 == 0 {
            while !world.pending.is_empty() {
                world.answer_one(0);
            }
            world.pass(Duration::from_millis(1));
        }
    }
    // None of them was published before.
    while !world.pending.is_empty() {
        world.answer_one(0);
    }
    world.settle();
    assert_eq!(world.numbers(), (1..=5_000).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn answered_events_are_neither_lost_nor_duplicated(
        seed in any::<u64>(),
        acts in prop::collection::vec((0_u8..12, any::<usize>()), 0..200),
    ) {
        let mut world = World::new(seed, ROOM);
        world.step(Input::Tick);
        for (act, which) in acts {
            match act {
                0..=3 => {
                    let reasons = [EventReason::Pulling, EventReason::Failed, EventReason::BackOff, EventReason::Pulled];
                    world.record(&format!("image-{}", which % 3), reasons[usize::from(act)]);
                }
                4..=7 => world.answer_one(which),
                8 => world.crash(),
                9 => world.weather = Weather { stream: which % 3 > 0, loses_answers: which as u64 % 4 },
                10 => world.store.set_failing(which % 2 == 0),
                _ => world.pass(Duration::from_millis(which as u64 % 90_000)),
            }
        }
        // Events that a failing disk kept in memory alone may be lost with the process, so the disk works before the end.
        world.settle();
        world.crash();
        world.settle();
        let numbers = world.numbers();
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        prop_assert_eq!(distinct.len(), numbers.len(), "no event is stored twice: {:?}", numbers);
    }

    #[test]
    fn stream_accounts_for_all_answered_events_if_the_disk_works(
        seed in any::<u64>(),
        acts in prop::collection::vec((0_u8..11, any::<usize>()), 0..200),
    ) {
        let mut world = World::new(seed, ROOM);
        world.step(Input::Tick);
        for (act, which) in acts {
            match act {
                0..=3 => {
                    let reasons = [EventReason::Pulling, EventReason::Failed, EventReason::BackOff, EventReason::Pulled];
                    world.record(&format!("image-{}", which % 3), reasons[usize::from(act)]);
                }
                4..=7 => world.answer_one(which),
                8 => world.crash(),
                9 => world.weather = Weather { stream: which % 3 > 0, loses_answers: which as u64 % 4 },
                _ => world.pass(Duration::from_millis(which as u64 % 90_000)),
            }
        }
        world.settle();
        prop_assert!(world.accounted_for() >= world.answered.len() as u64, "{} are accounted for of {}", world.accounted_for(), world.answered.len());
        let mut numbers = world.numbers();
        numbers.sort_unstable();
        let last = numbers.last().copied().unwrap_or_default();
        prop_assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "no gap");
    }
}
