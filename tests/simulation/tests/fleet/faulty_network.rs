//! A network with faults: the fate of each message of each node, and how long it is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::BusHealth;
use clock::{Clock, Random};
use tokio::sync::mpsc;

use super::latency::Latency;
use super::leases::Leases;

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
    pub fn health(self) -> BusHealth {
        if self == Self::Cut { BusHealth::Disconnected { reason: "the line is cut".to_owned() } } else { BusHealth::Connected }
    }

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
    one_way: Latency,
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
    /// A network without faults, in which one way between a node and the server takes this long.
    pub fn new(one_way: Latency, random: Random, clock: Clock) -> Self {
        let state = State {
            random,
            one_way,
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
            listeners.retain(|listener| listener.send(line.health()).is_ok());
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

    pub fn line(&self, node: usize) -> Line {
        self.state().lines.get(&node).copied().unwrap_or(Line::Up)
    }

    /// The state of a node's line, and the health of its bus after each change of that.
    pub fn listen(&self, node: usize) -> (Line, mpsc::UnboundedReceiver<BusHealth>) {
        let (listener, changes) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.listeners.entry(node).or_default().push(listener);
        (state.lines.get(&node).copied().unwrap_or(Line::Up), changes)
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
        let takes = self.one_way.draw(&mut self.random, slowness);
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
