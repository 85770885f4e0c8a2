//! A bus between a node and the hub that does what networks do: it loses, doubles, delays, and is cut.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bus::memory::MemoryBus;
use bus::{
    Appended, Asker, BucketSpec, BucketStatus, Bus, BusError, BusHealth, Entry, HealthChanges, KeyValue, KeyValueError, Message, Snapshot,
    StreamPage, StreamQuery, StreamSpec, StreamStatus, Subscription,
};
use bytes::Bytes;
use clock::{Clock, Random};
use contract::know::LEASES;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::leases::Leases;

/// How long a change of a bucket is waited for, as on a real server.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that a message is delayed.
const LONGEST_DELAY: Duration = Duration::from_millis(1_500);

/// So many messages are under way to a node at most.
const UNDER_WAY: usize = 4_096;

/// What may happen to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is gone.
    Loss,
    /// It comes twice.
    Duplication,
    /// It comes late.
    Delay,
    /// The line that it was to take is cut.
    Partition,
}

/// How often what happens, of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Odds {
    pub loss: f64,
    pub duplication: f64,
    pub delay: f64,
}

/// How a node's line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Up,
    /// Nothing gets through, and the node knows.
    Cut,
    /// Nothing gets through, and the node has to find out.
    Silent,
}

/// What the network does to all nodes of a fleet.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<State>>);

struct State {
    random: Random,
    odds: Odds,
    lines: BTreeMap<usize, Line>,
    /// Who wants to know of each line. Not tokio's `watch`, which wakes its listeners in no order that repeats.
    listeners: BTreeMap<usize, Vec<mpsc::UnboundedSender<BusHealth>>>,
    counts: BTreeMap<Kind, u64>,
    /// Whose message was lost or late, and when, in the order of time.
    disturbed: Vec<(Duration, usize)>,
    leases: Leases,
    clock: Clock,
}

impl Weather {
    /// Fair.
    pub fn new(random: Random, clock: Clock) -> Self {
        Self(Arc::new(Mutex::new(State {
            random,
            odds: Odds::default(),
            lines: BTreeMap::new(),
            listeners: BTreeMap::new(),
            counts: BTreeMap::new(),
            disturbed: Vec::new(),
            leases: Leases::default(),
            clock,
        })))
    }

    pub fn set_odds(&self, odds: Odds) {
        self.state().odds = odds;
    }

    pub fn set_line(&self, node: usize, line: Line) {
        let mut state = self.state();
        let before = state.lines.insert(node, line).unwrap_or(Line::Up);
        if (before == Line::Cut) != (line == Line::Cut) {
            let listeners = state.listeners.entry(node).or_default();
            listeners.retain(|listener| listener.send(health(line)).is_ok());
        }
    }

    /// How often what has happened.
    pub fn counts(&self) -> BTreeMap<Kind, u64> {
        self.state().counts.clone()
    }

    /// Whose message was lost or late, and when, in the order of time.
    pub fn disturbed(&self) -> Vec<(Duration, usize)> {
        std::mem::take(&mut self.state().disturbed)
    }

    /// What nodes know of their leases.
    pub fn leases<T>(&self, act: impl FnOnce(&mut Leases, Duration) -> T) -> T {
        let mut state = self.state();
        let now = state.clock.now().monotonic;
        act(&mut state.leases, now)
    }

    /// A connection of a node through this weather.
    pub fn over(&self, inner: MemoryBus, node: usize) -> FaultyBus {
        FaultyBus { inner, node, weather: self.clone() }
    }

    fn line(&self, node: usize) -> Line {
        self.state().lines.get(&node).copied().unwrap_or(Line::Up)
    }

    /// Whether a message of this node gets through, as the odds have it.
    fn fate(&self, node: usize) -> Fate {
        let mut state = self.state();
        if state.lines.get(&node).is_some_and(|line| *line != Line::Up) {
            return state.count(Kind::Partition, Fate::Lost);
        }
        let odds = state.odds;
        if odds == Odds::default() {
            return Fate::Fine;
        }
        let drawn = state.random.fraction();
        let late = drawn >= odds.loss + odds.duplication && drawn < odds.loss + odds.duplication + odds.delay;
        if drawn < odds.loss || late {
            let now = state.clock.now().monotonic;
            state.disturbed.push((now, node));
        }
        if drawn < odds.loss {
            state.count(Kind::Loss, Fate::Lost)
        } else if drawn < odds.loss + odds.duplication {
            state.count(Kind::Duplication, Fate::Doubled)
        } else if late {
            let by = LONGEST_DELAY.mul_f64(state.random.fraction());
            state.count(Kind::Delay, Fate::Late(by))
        } else {
            Fate::Fine
        }
    }

    fn either(&self) -> bool {
        self.state().random.fraction() < 0.5
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, kind: Kind, fate: Fate) -> Fate {
        *self.counts.entry(kind).or_default() += 1;
        fate
    }
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    Lost,
    Doubled,
    Late(Duration),
}

/// A node's connection.
pub struct FaultyBus {
    inner: MemoryBus,
    node: usize,
    weather: Weather,
}

impl FaultyBus {
    fn cut(&self) -> Result<(), BusError> {
        if self.weather.line(self.node) == Line::Cut {
            self.weather.fate(self.node);
            return Err(BusError::Disconnected { reason: "the line is cut".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl Bus for FaultyBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        self.cut()?;
        match self.weather.fate(self.node) {
            Fate::Fine => {}
            Fate::Lost => return Ok(()),
            Fate::Doubled => self.inner.publish(message.clone()).await?,
            Fate::Late(by) => tokio::time::sleep(by).await,
        }
        self.inner.publish(message).await
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        let arriving = self.inner.subscribe(subject, queue).await?;
        Ok(Arriving { arriving, weather: self.weather.clone(), node: self.node, held_up: VecDeque::new(), ended: false }.boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        self.cut()?;
        let subject = message.subject.clone();
        let lost = || async move {
            tokio::time::sleep(timeout).await;
            Err(BusError::TimedOut { subject, timeout })
        };
        match self.weather.fate(self.node) {
            Fate::Fine => {}
            // The question or its answer.
            Fate::Lost if self.weather.line(self.node) == Line::Up && self.weather.either() => {
                let _ = self.inner.publish(message).await;
                return lost().await;
            }
            Fate::Lost => return lost().await,
            Fate::Doubled => {
                let again = self.inner.new_inbox();
                let mut copy = message.clone();
                copy.reply_to = Some(again);
                self.inner.publish(copy).await?;
            }
            Fate::Late(by) if by >= timeout => return lost().await,
            Fate::Late(by) => tokio::time::sleep(by).await,
        }
        self.inner.request(message, timeout).await
    }

    async fn asker(&self, request: &Message) -> Asker {
        match self.cut() {
            Ok(()) if self.weather.fate(self.node) == Fate::Fine => self.inner.asker(request).await,
            _ => Asker::Unknown,
        }
    }

    fn new_inbox(&self) -> String {
        self.inner.new_inbox()
    }

    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        self.cut()?;
        let inner = self.inner.bucket(spec).await?;
        let of_leases = spec.name == Fleet::default().bucket(LEASES);
        Ok(Arc::new(FaultyBucket { inner, node: self.node, name: spec.name.clone(), of_leases, weather: self.weather.clone() }))
    }

    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError> {
        self.cut()?;
        self.inner.stream(spec).await
    }

    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError> {
        self.cut()?;
        self.inner.read(query).await
    }

    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError> {
        self.cut()?;
        self.inner.append(message, message_id).await
    }

    fn health(&self) -> BusHealth {
        health(self.weather.line(self.node))
    }

    fn health_changes(&self) -> HealthChanges {
        let (listener, changes) = mpsc::unbounded_channel();
        let mut state = self.weather.state();
        let line = state.lines.get(&self.node).copied().unwrap_or(Line::Up);
        state.listeners.entry(self.node).or_default().push(listener);
        let changes = stream::unfold(changes, |mut changes| async move { Some((changes.recv().await?, changes)) });
        stream::iter([health(line)]).chain(changes).boxed()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    async fn drain(&self) {
        self.inner.drain().await;
    }
}

/// What arrives at a node. What is late holds up what comes after it, but several that are late are so together.
struct Arriving {
    arriving: Subscription,
    weather: Weather,
    node: usize,
    /// In the order of their coming, and until when each is late.
    held_up: VecDeque<(Message, Option<Pin<Box<Sleep>>>)>,
    ended: bool,
}

impl Stream for Arriving {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let arrivals = &mut *self;
        while !arrivals.ended && arrivals.held_up.len() < UNDER_WAY {
            let message = match arrivals.arriving.poll_next_unpin(context) {
                Poll::Ready(Some(message)) => message,
                Poll::Ready(None) => {
                    arrivals.ended = true;
                    break;
                }
                Poll::Pending => break,
            };
            match arrivals.weather.fate(arrivals.node) {
                Fate::Fine if arrivals.held_up.is_empty() => return Poll::Ready(Some(message)),
                Fate::Fine => arrivals.held_up.push_back((message, None)),
                Fate::Lost => {}
                Fate::Doubled => arrivals.held_up.extend([(message.clone(), None), (message, None)]),
                Fate::Late(by) => arrivals.held_up.push_back((message, Some(Box::pin(tokio::time::sleep(by))))),
            }
        }
        match arrivals.held_up.front_mut() {
            Some((_, Some(late))) => ready!(late.as_mut().poll(context)),
            Some((_, None)) => {}
            None if arrivals.ended => return Poll::Ready(None),
            None => return Poll::Pending,
        }
        Poll::Ready(arrivals.held_up.pop_front().map(|(message, _)| message))
    }
}

/// A bucket at the far end of a line.
struct FaultyBucket {
    inner: Arc<dyn KeyValue>,
    node: usize,
    name: String,
    /// Who knows that it holds one is written down.
    of_leases: bool,
    weather: Weather,
}

impl FaultyBucket {
    /// Carries out what is asked, and perhaps loses the question or the answer.
    async fn ask<T>(&self, asked: impl Future<Output = Result<T, KeyValueError>>) -> Result<T, KeyValueError> {
        let line = self.weather.line(self.node);
        let fate = self.weather.fate(self.node);
        if self.of_leases && matches!(fate, Fate::Lost | Fate::Late(_)) {
            self.weather.leases(|leases, now| leases.unanswered(self.node, now));
        }
        if line == Line::Cut {
            return Err(BusError::Disconnected { reason: "the line is cut".to_owned() }.into());
        }
        let lost = BusError::TimedOut { subject: self.name.clone(), timeout: STORE_TIMEOUT };
        match fate {
            Fate::Fine | Fate::Doubled => asked.await,
            Fate::Late(by) => {
                tokio::time::sleep(by).await;
                asked.await
            }
            Fate::Lost => {
                if line == Line::Up && self.weather.either() {
                    let _ = asked.await;
                }
                tokio::time::sleep(STORE_TIMEOUT).await;
                Err(lost.into())
            }
        }
    }
}

#[async_trait]
impl KeyValue for FaultyBucket {
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError> {
        self.ask(self.inner.get(key)).await
    }

    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.ask(self.inner.put(key, value, ttl)).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        let asked = self.weather.leases(|_, now| now);
        let created = self.ask(self.inner.create(key, value, ttl)).await;
        if let (true, Some(ttl), true) = (self.of_leases, ttl, created.is_ok()) {
            self.weather.leases(|leases, now| leases.won(self.node, key, asked, now, ttl));
        }
        created
    }

    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.ask(self.inner.update(key, value, revision, ttl)).await
    }

    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError> {
        if self.of_leases {
            self.weather.leases(|leases, now| leases.gave_back(self.node, key, now));
        }
        self.ask(self.inner.delete(key, revision)).await
    }

    async fn status(&self) -> Result<BucketStatus, KeyValueError> {
        self.ask(self.inner.status()).await
    }

    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError> {
        self.ask(self.inner.snapshot(since)).await
    }
}

fn health(line: Line) -> BusHealth {
    if line == Line::Cut { BusHealth::Disconnected { reason: "the line is cut".to_owned() } } else { BusHealth::Connected }
}
