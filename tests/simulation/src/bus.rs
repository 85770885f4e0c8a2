//! The simulated bus: one server that puts messages in order, keeps leases, and takes about a millisecond each way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{LeaseAnswer, LeaseName, Report};
use clock::Random;

/// One way takes from half of this to one and a half times this.
const ONE_WAY: Duration = Duration::from_millis(1);

/// What a node sends to the server.
#[derive(Clone, Debug)]
pub(crate) enum Upward {
    Publish(Arc<Report>, Duration),
    Acquire(LeaseName, Duration),
    Release(LeaseName),
}

/// What the server sends to every node.
#[derive(Clone, Debug)]
pub(crate) enum Spread {
    Report {
        report: Arc<Report>,
        /// When it was so, by the server's clock.
        date: Duration,
    },
    Taken {
        name: LeaseName,
        holder: usize,
        until: Duration,
    },
    Freed(LeaseName),
}

/// The server and the lines to it. A line delivers in order.
#[derive(Debug)]
pub(crate) struct Bus {
    leases: BTreeMap<LeaseName, (usize, Duration)>,
    up: Vec<Duration>,
    down: Vec<Duration>,
    /// How many leases were given.
    pub(crate) granted: u64,
}

impl Bus {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { leases: BTreeMap::new(), up: vec![Duration::ZERO; nodes], down: vec![Duration::ZERO; nodes], granted: 0 }
    }

    /// When what a node sends now is at the server.
    pub(crate) fn arrives_up(&mut self, now: Duration, node: usize, random: &mut Random) -> Duration {
        arrives(&mut self.up[node], now, random)
    }

    /// When what the server sends now is at a node.
    pub(crate) fn arrives_down(&mut self, now: Duration, node: usize, random: &mut Random) -> Duration {
        arrives(&mut self.down[node], now, random)
    }

    /// Gives a lease to one.
    pub(crate) fn acquire(&mut self, now: Duration, node: usize, name: LeaseName, ttl: Duration) -> LeaseAnswer {
        match self.leases.get(&name) {
            Some((holder, until)) if now < *until && *holder != node => LeaseAnswer::Lost(*until - now),
            _ => {
                self.granted += 1;
                self.leases.insert(name, (node, now + ttl));
                LeaseAnswer::Won
            }
        }
    }

    /// Takes a lease back from its holder. Returns whether it was.
    pub(crate) fn release(&mut self, node: usize, name: LeaseName) -> bool {
        let held = self.leases.get(&name).is_some_and(|(holder, _)| *holder == node);
        if held {
            self.leases.remove(&name);
        }
        held
    }
}

fn arrives(line: &mut Duration, now: Duration, random: &mut Random) -> Duration {
    *line = (now + ONE_WAY.mul_f64(0.5 + random.fraction())).max(*line);
    *line
}
