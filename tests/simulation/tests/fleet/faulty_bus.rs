//! A bus between a node and the hub with the faults of networks: latency, loss, duplication, delay, and cuts in one direction or both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bus::memory::MemoryBus;
use bus::{
    Appended, BucketSpec, Bus, BusError, BusHealth, CallerState, EventLog, HealthChanges, KeyValue, Message, Messaging, SharedState,
    StreamPage, StreamQuery, StreamSpec, StreamStatus, Subscription,
};
use clock::{Clock, Random};
use contract::know::LEASES;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream;
use tokio::sync::mpsc;

use super::arriving::Arriving;
use super::faulty_bucket::FaultyBucket;
use super::latency::ONE_WAY;
use super::leases::Leases;

/// The time-out of a change of a bucket, as on a real server.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest delay of a message.
const LONGEST_DELAY: Duration = Duration::from_millis(1_500);
/// A message that takes this long counts as disturbed: a node goes ahead without an answer of the bus after 250 ms, and may have to ask
/// twice in that time, so a long way may make it too late.
pub const LONG_WAY: Duration = Duration::from_millis(60);

/// The kinds of faults of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The message is lost.
    Loss,
    /// The message arrives twice.
    Duplication,
    /// The message arrives late.
    Delay,
    /// The line of the node is cut.
    Partition,
    /// The line of the node is cut in the direction of the message only.
    OneWay,
    /// The node is slow.
    Slow,
}

/// The probability of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Odds {
    pub loss: f64,
    pub duplication: f64,
    pub delay: f64,
}

/// The state of a node's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Up,
    /// No message passes, and the node's bus reports it.
    Cut,
    /// No message passes, and the node must detect it.
    Silent,
    /// Messages of the node pass; messages to it do not.
    SendOnly,
    /// Messages to the node pass; messages of it do not.
    ReceiveOnly,
}

impl Line {
    /// Whether the line blocks this direction.
    fn blocks(self, direction: Direction) -> bool {
        match self {
            Self::Up => false,
            Self::Cut | Self::Silent => true,
            Self::SendOnly => direction == Direction::In,
            Self::ReceiveOnly => direction == Direction::Out,
        }
    }
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the node to the server.
    Out,
    /// From the server to the node.
    In,
}

/// The state of the network of a fleet.
#[derive(Clone)]
pub struct FaultyNetwork(Arc<Mutex<State>>, Clock);

struct State {
    random: Random,
    odds: Odds,
    lines: BTreeMap<usize, Line>,
    /// The factor by which everything takes longer on a slow node.
    slow: BTreeMap<usize, f64>,
    /// When the last message of each node reaches the server, because no message overtakes another.
    sent: BTreeMap<usize, Duration>,
    /// The listeners of each line. tokio's `watch` is not used, because it wakes its listeners in an order that differs between runs.
    listeners: BTreeMap<usize, Vec<mpsc::UnboundedSender<BusHealth>>>,
    counts: BTreeMap<Kind, u64>,
    /// The times and nodes of lost and late messages, in order of time.
    disturbed: Vec<(Duration, usize)>,
    leases: Leases,
    clock: Clock,
}

impl FaultyNetwork {
    /// A network without faults.
    pub fn new(random: Random, clock: Clock) -> Self {
        let state = State {
            random,
            odds: Odds::default(),
            lines: BTreeMap::new(),
            slow: BTreeMap::new(),
            sent: BTreeMap::new(),
            listeners: BTreeMap::new(),
            counts: BTreeMap::new(),
            disturbed: Vec::new(),
            leases: Leases::default(),
            clock: clock.clone(),
        };
        Self(Arc::new(Mutex::new(state)), clock)
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

    /// From now on everything takes `slowness` times as long on a node.
    pub fn set_slowness(&self, node: usize, slowness: f64) {
        self.state().slow.insert(node, slowness);
    }

    /// How often each fault has occurred.
    pub fn counts(&self) -> BTreeMap<Kind, u64> {
        self.state().counts.clone()
    }

    /// The times and nodes of lost and late messages, in order of time.
    pub fn disturbed(&self) -> Vec<(Duration, usize)> {
        std::mem::take(&mut self.state().disturbed)
    }

    /// Reads or changes the record of leases.
    pub fn leases<T>(&self, act: impl FnOnce(&mut Leases, Duration) -> T) -> T {
        let mut state = self.state();
        let now = state.clock.now().monotonic;
        act(&mut state.leases, now)
    }

    /// A connection of a node through this network.
    pub fn over(&self, inner: MemoryBus, node: usize) -> FaultyBus {
        FaultyBus { inner, node, network: self.clone() }
    }

    pub fn line(&self, node: usize) -> Line {
        self.state().lines.get(&node).copied().unwrap_or(Line::Up)
    }

    pub fn now(&self) -> Duration {
        self.1.now().monotonic
    }

    /// Draws the fate of a message from or to this node, and how long it is under way.
    pub fn fate(&self, node: usize, direction: Direction) -> (Fate, Duration) {
        let mut state = self.state();
        let (fate, delay) = state.fate(node, direction);
        let takes = if fate == Fate::Lost { Duration::ZERO } else { state.takes(node, direction) + delay };
        (fate, takes)
    }

    /// How long the answer to a node's request is under way; none if its line is cut in this direction. Loss and delay were drawn with the
    /// request.
    pub fn answer(&self, node: usize) -> Option<Duration> {
        let mut state = self.state();
        if state.is_blocked(node, Direction::In) { None } else { Some(state.takes(node, Direction::In)) }
    }

    /// Records that a request for a lease gets no answer, or may get none in time.
    pub fn unanswered(&self, node: usize, asked: Duration) {
        self.state().leases.unanswered(node, asked);
    }

    pub fn either(&self) -> bool {
        self.state().random.fraction() < 0.5
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fate(&mut self, node: usize, direction: Direction) -> (Fate, Duration) {
        if self.is_blocked(node, direction) {
            return (Fate::Lost, Duration::ZERO);
        }
        let odds = self.odds;
        if odds == Odds::default() {
            return (Fate::Arrives, Duration::ZERO);
        }
        let drawn = self.random.fraction();
        let late = drawn >= odds.loss + odds.duplication && drawn < odds.loss + odds.duplication + odds.delay;
        if drawn < odds.loss || late {
            self.disturb(node);
        }
        if drawn < odds.loss {
            self.count(Kind::Loss);
            (Fate::Lost, Duration::ZERO)
        } else if drawn < odds.loss + odds.duplication {
            self.count(Kind::Duplication);
            (Fate::Doubled, Duration::ZERO)
        } else if late {
            self.count(Kind::Delay);
            (Fate::Arrives, LONGEST_DELAY.mul_f64(self.random.fraction()))
        } else {
            (Fate::Arrives, Duration::ZERO)
        }
    }

    /// Whether the line is cut in this direction; counts the fault.
    fn is_blocked(&mut self, node: usize, direction: Direction) -> bool {
        let line = self.lines.get(&node).copied().unwrap_or(Line::Up);
        if line.blocks(direction) {
            self.count(if matches!(line, Line::SendOnly | Line::ReceiveOnly) { Kind::OneWay } else { Kind::Partition });
        }
        line.blocks(direction)
    }

    /// How long a message is under way without a delay.
    fn takes(&mut self, node: usize, direction: Direction) -> Duration {
        let slowness = self.slow.get(&node).copied().unwrap_or(1.0);
        if slowness > 1.0 {
            self.count(Kind::Slow);
        }
        let takes = ONE_WAY.draw(&mut self.random, slowness);
        if takes >= LONG_WAY {
            self.disturb(node);
        }
        if direction == Direction::In {
            return takes;
        }
        let now = self.clock.now().monotonic;
        let arrives = self.sent.get(&node).copied().unwrap_or_default().max(now + takes);
        self.sent.insert(node, arrives);
        arrives - now
    }

    fn disturb(&mut self, node: usize) {
        let now = self.clock.now().monotonic;
        self.disturbed.push((now, node));
    }

    fn count(&mut self, kind: Kind) {
        *self.counts.entry(kind).or_default() += 1;
    }
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    Doubled,
}

/// The connection of a node.
pub struct FaultyBus {
    inner: MemoryBus,
    node: usize,
    network: FaultyNetwork,
}

impl FaultyBus {
    fn cut(&self) -> Result<(), BusError> {
        if self.network.line(self.node) == Line::Cut {
            self.network.fate(self.node, Direction::Out);
            return Err(BusError::Disconnected { reason: "the line is cut".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl Messaging for FaultyBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        self.cut()?;
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        if fate == Fate::Lost {
            return Ok(());
        }
        tokio::time::sleep(takes).await;
        if fate == Fate::Doubled {
            self.inner.publish(message.clone()).await?;
        }
        self.inner.publish(message).await
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        let inner = self.inner.subscribe(subject, queue).await?;
        Ok(Arriving::new(inner, self.network.clone(), self.node).boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        self.cut()?;
        let (began, subject) = (self.network.now(), message.subject.clone());
        let left = || (began + timeout).saturating_sub(self.network.now());
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        // Either the request is lost, or its answer.
        let arrives = fate != Fate::Lost || (self.network.line(self.node) == Line::Up && self.network.either());
        let mut answer = None;
        if arrives && takes < timeout {
            tokio::time::sleep(takes).await;
            if fate == Fate::Doubled {
                let copy = Message { reply_to: Some(self.inner.new_inbox()), ..message.clone() };
                self.inner.publish(copy).await?;
            }
            answer = if fate == Fate::Lost {
                let _ = self.inner.publish(message).await;
                None
            } else {
                let answer = tokio::time::timeout(left(), self.inner.request(message, timeout)).await.ok();
                answer.and_then(|answer| Some((self.network.answer(self.node).filter(|takes| *takes < left())?, answer)))
            };
        }
        let Some((takes, answer)) = answer else {
            tokio::time::sleep(left()).await;
            return Err(BusError::TimedOut { subject, timeout });
        };
        tokio::time::sleep(takes).await;
        answer
    }

    async fn caller_state(&self, request: &Message) -> CallerState {
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        if fate == Fate::Lost {
            return CallerState::Unknown;
        }
        tokio::time::sleep(takes).await;
        let state = self.inner.caller_state(request).await;
        let Some(takes) = self.network.answer(self.node) else { return CallerState::Unknown };
        tokio::time::sleep(takes).await;
        state
    }

    fn new_inbox(&self) -> String {
        self.inner.new_inbox()
    }

    fn health(&self) -> BusHealth {
        health(self.network.line(self.node))
    }

    fn health_changes(&self) -> HealthChanges {
        let (listener, changes) = mpsc::unbounded_channel();
        let mut state = self.network.state();
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

#[async_trait]
impl SharedState for FaultyBus {
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        self.cut()?;
        let inner = self.inner.bucket(spec).await?;
        let of_leases = spec.name == Fleet::default().bucket(LEASES);
        Ok(Arc::new(FaultyBucket { inner, node: self.node, name: spec.name.clone(), of_leases, network: self.network.clone() }))
    }
}

#[async_trait]
impl EventLog for FaultyBus {
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
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        let lost = BusError::TimedOut { subject: message.subject.clone(), timeout: STORE_TIMEOUT };
        let began = self.network.now();
        let appended = if fate == Fate::Lost {
            None
        } else {
            tokio::time::sleep(takes).await;
            let appended = self.inner.append(message, message_id).await;
            self.network.answer(self.node).map(|takes| (takes, appended))
        };
        let Some((takes, appended)) = appended else {
            tokio::time::sleep((began + STORE_TIMEOUT).saturating_sub(self.network.now())).await;
            return Err(lost);
        };
        tokio::time::sleep(takes).await;
        appended
    }
}

impl Bus for FaultyBus {}

fn health(line: Line) -> BusHealth {
    if line == Line::Cut { BusHealth::Disconnected { reason: "the line is cut".to_owned() } } else { BusHealth::Connected }
}
