//! The simulated bus: one server that puts messages in order, keeps leases, and takes about a millisecond each way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{LeaseAnswer, LeaseName, Report};
use clock::Random;
use throttler::core::budget::{self, LEADER_LEASE};

/// One way takes from half of this to one and a half times this.
const ONE_WAY: Duration = Duration::from_millis(1);

/// What a node sends to the server.
#[derive(Clone, Debug)]
pub(crate) enum Upward {
    Publish(Arc<Report>, Duration),
    Acquire(LeaseName, Duration),
    Release(LeaseName),
    /// To another node, by way of the server.
    Letter(usize, Box<Letter>),
    /// Who leads a budget? This node, if nobody does. Asked then.
    Campaign(String, Duration),
    /// The lease of a budget goes on. Asked then.
    Keep(String, u64, Duration),
    Drop(String, u64),
}

/// From node to node.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    Call { from: usize, asked: Duration, call: budget::BudgetRequest },
    Told(budget::Input),
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
    Leads {
        owner: String,
        leader: usize,
        epoch: u64,
    },
}

/// Who leads a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Led {
    pub(crate) by: usize,
    pub(crate) epoch: u64,
    until: Duration,
    dropped: bool,
}

/// What a campaign comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Campaigned {
    /// Somebody leads already.
    Led(Led),
    /// Who asked leads from now on, as the first or after somebody who may have left permits behind.
    Won { epoch: u64, first: bool },
}

/// The server and the lines to it. A line delivers in order.
#[derive(Debug)]
pub(crate) struct Bus {
    leases: BTreeMap<LeaseName, (usize, Duration)>,
    budgets: BTreeMap<String, Led>,
    epoch: u64,
    up: Vec<Duration>,
    down: Vec<Duration>,
    /// How many leases were given.
    pub(crate) granted: u64,
}

impl Bus {
    pub(crate) fn new(nodes: usize) -> Self {
        let lines = vec![Duration::ZERO; nodes];
        Self { leases: BTreeMap::new(), budgets: BTreeMap::new(), epoch: 0, up: lines.clone(), down: lines, granted: 0 }
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

    /// Gives the lease of a budget to one.
    pub(crate) fn campaign(&mut self, now: Duration, node: usize, owner: &str) -> Campaigned {
        let before = self.budgets.get(owner).copied();
        if let Some(led) = before.filter(|led| now < led.until && !led.dropped) {
            return Campaigned::Led(led);
        }
        self.epoch += 1;
        let led = Led { by: node, epoch: self.epoch, until: now + LEADER_LEASE, dropped: false };
        self.budgets.insert(owner.to_owned(), led);
        Campaigned::Won { epoch: self.epoch, first: before.is_none_or(|led| led.dropped) }
    }

    /// Renews the lease of a budget. Returns whether it was still the node's.
    pub(crate) fn keep(&mut self, now: Duration, owner: &str, epoch: u64) -> bool {
        let led = self.budgets.get_mut(owner).filter(|led| led.epoch == epoch && now < led.until && !led.dropped);
        led.map(|led| led.until = now + LEADER_LEASE).is_some()
    }

    /// Takes the lease of a budget back.
    pub(crate) fn drop_lead(&mut self, owner: &str, epoch: u64) {
        if let Some(led) = self.budgets.get_mut(owner).filter(|led| led.epoch == epoch) {
            led.dropped = true;
        }
    }
}

fn arrives(line: &mut Duration, now: Duration, random: &mut Random) -> Duration {
    *line = (now + ONE_WAY.mul_f64(0.5 + random.fraction())).max(*line);
    *line
}
