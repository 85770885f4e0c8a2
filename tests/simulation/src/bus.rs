//! The simulated bus: one server that orders messages and stores leases. A message takes about 1 ms each way.

use contract::DEADLINES;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{LeaseAnswer, LeaseName, Report};
use clock::Random;
use throttler::core::budget;

/// The mean time of one way; the times are between 0.5 and 1.5 times this.
const ONE_WAY: Duration = Duration::from_millis(1);

/// What a node sends to the server.
#[derive(Clone, Debug)]
pub(crate) enum ToServer {
    Publish(Arc<Report>, Duration),
    Acquire(LeaseName),
    Release(LeaseName),
    /// A message to another node, which the server forwards.
    Forward(usize, Box<PeerMessage>),
    /// The node asks at this time for the lease of a budget; it gets the lease if no node has it.
    Campaign(String, Duration),
    /// The node renews, at this time, the lease of a budget.
    Keep(String, u64, Duration),
    Drop(String, u64),
}

/// A message between two nodes.
#[derive(Clone, Debug)]
pub(crate) enum PeerMessage {
    Call {
        from: usize,
        asked: Duration,
        call: budget::BudgetRequest,
    },
    /// An input for the other node's part in the budget.
    Input(budget::Input),
}

/// A message of the server to all nodes.
#[derive(Clone, Debug)]
pub(crate) enum Broadcast {
    Report {
        report: Arc<Report>,
        /// The time of the finding, by the server's clock.
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

/// The leader of a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetLead {
    pub(crate) by: usize,
    pub(crate) epoch: u64,
    until: Duration,
    dropped: bool,
}

/// The result of asking for a budget's lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CampaignResult {
    /// Another node leads.
    OtherLeads(BudgetLead),
    /// The asking node leads from now on. If it is not the first leader, permits of the previous one may still be out.
    Won { epoch: u64, first: bool },
}

/// The server and its lines to the nodes. A line delivers messages in order.
#[derive(Debug)]
pub(crate) struct Bus {
    leases: BTreeMap<LeaseName, (usize, Duration)>,
    budgets: BTreeMap<String, BudgetLead>,
    epoch: u64,
    up: Vec<Duration>,
    down: Vec<Duration>,
    /// How many leases were granted.
    pub(crate) granted: u64,
}

impl Bus {
    pub(crate) fn new(nodes: usize) -> Self {
        let lines = vec![Duration::ZERO; nodes];
        Self { leases: BTreeMap::new(), budgets: BTreeMap::new(), epoch: 0, up: lines.clone(), down: lines, granted: 0 }
    }

    /// The arrival at the server of a message that a node sends now.
    pub(crate) fn arrives_up(&mut self, now: Duration, node: usize, random: &mut Random) -> Duration {
        arrives(&mut self.up[node], now, random)
    }

    /// The arrival at a node of a message that the server sends now.
    pub(crate) fn arrives_down(&mut self, now: Duration, node: usize, random: &mut Random) -> Duration {
        arrives(&mut self.down[node], now, random)
    }

    /// Grants a lease to one node at a time.
    pub(crate) fn acquire(&mut self, now: Duration, node: usize, name: LeaseName) -> LeaseAnswer {
        match self.leases.get(&name) {
            Some((holder, until)) if now < *until && *holder != node => LeaseAnswer::Lost(*until - now),
            _ => {
                self.granted += 1;
                self.leases.insert(name, (node, now + DEADLINES.attempt_lease));
                LeaseAnswer::Won
            }
        }
    }

    /// Releases a lease if the node holds it. Returns whether it did.
    pub(crate) fn release(&mut self, node: usize, name: LeaseName) -> bool {
        let held = self.leases.get(&name).is_some_and(|(holder, _)| *holder == node);
        if held {
            self.leases.remove(&name);
        }
        held
    }

    /// Grants the lease of a budget to one node at a time.
    pub(crate) fn campaign(&mut self, now: Duration, node: usize, owner: &str) -> CampaignResult {
        let before = self.budgets.get(owner).copied();
        if let Some(led) = before.filter(|led| now < led.until && !led.dropped) {
            return CampaignResult::OtherLeads(led);
        }
        self.epoch += 1;
        let led = BudgetLead { by: node, epoch: self.epoch, until: now + DEADLINES.leader_lease, dropped: false };
        self.budgets.insert(owner.to_owned(), led);
        CampaignResult::Won { epoch: self.epoch, first: before.is_none_or(|led| led.dropped) }
    }

    /// Renews the lease of a budget. Returns whether the node still held it.
    pub(crate) fn keep(&mut self, now: Duration, owner: &str, epoch: u64) -> bool {
        let led = self.budgets.get_mut(owner).filter(|led| led.epoch == epoch && now < led.until && !led.dropped);
        led.map(|led| led.until = now + DEADLINES.leader_lease).is_some()
    }

    /// Releases the lease of a budget.
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
