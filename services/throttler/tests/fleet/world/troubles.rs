//! Troubles of a simulated fleet.

use std::time::Duration;

use super::{Event, World, core};

/// How far a clock jumps.
const MINUTES: Duration = Duration::from_secs(300);

impl World {
    pub(super) fn trouble(&mut self) {
        let at = self.leader_or_any_node();
        let takes = Duration::from_secs_f64(0.2 + 9.0 * self.random.fraction());
        self.seen.troubles += 1;
        self.seen.struck += self.pulls.keys().filter(|(node, _)| *node == at).count();
        match (self.random.fraction() * 3.0) as usize {
            0 if self.nodes[at].up => {
                self.nodes[at].up = false;
                self.nodes[at].incarnation += 1;
                // The node's pulls end with it.
                self.pulls.retain(|(node, _), _| *node != at);
                self.later(takes, Event::Restart(at));
            }
            1 => {
                self.nodes[at].cut = true;
                self.later(takes, Event::Heal(at));
            }
            _ => self.nodes[at].stalled_until = self.now + takes,
        }
    }

    pub(super) fn restart(&mut self, at: usize) {
        let wants = self.nodes[at].todo;
        self.nodes[at].core = core(&self.plan, at, &mut self.random);
        self.nodes[at].up = true;
        self.nodes[at].wants.clear();
        self.report_fleet(at);
        for _ in 0..wants {
            self.later(Duration::from_millis(10), Event::Request(at));
        }
    }

    /// Anybody who may write to the bucket takes the leader's lease away. The leader notices when it renews the lease.
    pub(super) fn steal(&mut self) {
        self.seen.thefts += usize::from(self.lease.holder.take().is_some());
    }

    /// A machine's clock jumps by minutes: in half of the cases the leader's.
    pub(super) fn jump(&mut self) {
        let at = self.leader_or_any_node();
        self.nodes[at].ahead += MINUTES;
        self.seen.struck += self.pulls.keys().filter(|(node, _)| *node == at).count();
    }

    fn leader_or_any_node(&mut self) -> usize {
        let anybody = (self.random.fraction() * self.nodes.len() as f64) as usize;
        let leader = self.lease.holder.map_or(anybody, |(holder, _, _)| holder);
        if self.random.fraction() < 0.5 { leader } else { anybody }
    }
}
