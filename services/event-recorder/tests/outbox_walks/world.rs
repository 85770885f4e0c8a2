//! A recorder with a store and a stream that fail, and a process that is killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, MessageId, PullEvent, TraceContext};
use event_recorder::core::{Effect, Identity, Input, Recorder, RecorderPolicy, StreamMark, StreamRead, Token};
use event_recorder::store::OutboxStore;
use event_recorder::store::memory::MemoryStore;

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
pub(super) struct Weather {
    /// Whether the stream can be reached.
    pub(super) stream: bool,
    /// Each append whose number is a multiple of this is stored, but its acknowledgement is lost; 0: none is lost.
    pub(super) loses_answers: u64,
}

pub(super) struct World {
    now: Now,
    random: Random,
    pub(super) store: MemoryStore,
    pub(super) open: Box<dyn OutboxStore>,
    pub(super) recorder: Recorder,
    /// Effects that are not answered yet, in order.
    pub(super) pending: VecDeque<Effect>,
    /// The stream's number and contents.
    stream_number: u64,
    pub(super) stream: Vec<Arc<PullEvent>>,
    /// When the stream stored each published event.
    published_at: BTreeMap<MessageId, Duration>,
    /// Events of streams that were lost.
    in_lost_streams: BTreeSet<MessageId>,
    pub(super) weather: Weather,
    pub(super) offered: u64,
    last_token: u64,
    recording: BTreeMap<Token, MessageId>,
    pub(super) answered: BTreeSet<MessageId>,
    pub(super) published: Vec<MessageId>,
    max_bytes: u64,
}

impl World {
    pub(super) fn new(seed: u64, max_bytes: u64) -> Self {
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

    pub(super) fn step(&mut self, input: Input) {
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

    pub(super) fn record(&mut self, image: &str, reason: EventReason) {
        let event = event(&mut self.random, self.now.wall_ms(), image, reason);
        self.last_token += 1;
        let token = Token(self.last_token);
        self.recording.insert(token, event.id);
        self.step(Input::Record { token, event: Box::new(event) });
    }

    /// Records an event that nobody waits for.
    pub(super) fn note(&mut self, image: &str, reason: EventReason) {
        let event = event(&mut self.random, self.now.wall_ms(), image, reason);
        self.step(Input::Note { event: Box::new(event) });
    }

    /// Carries out one effect and answers it; effects of one kind keep their order.
    pub(super) fn answer_one(&mut self, which: usize) {
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
    pub(super) fn crash(&mut self) {
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

    pub(super) fn lose_stream(&mut self) {
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

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.step(Input::Tick);
    }

    /// Ends all failures, and runs until no event waits.
    pub(super) fn settle(&mut self) {
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

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.stream.iter().map(|event| event.sequence.as_ref().expect("one").number).collect()
    }

    /// How many recorded events the stream accounts for.
    pub(super) fn accounted_for(&self) -> u64 {
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
