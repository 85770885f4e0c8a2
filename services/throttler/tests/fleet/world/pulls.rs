//! Pulls with a permit, and the registry that counts them.

use std::time::Duration;

use contract::messages::throttler::RegistryLimit;
use contract::{DEADLINES, PermitId};
use throttler::core::budget::Input;

use super::{Event, World};

pub(super) struct Pull {
    until: Duration,
    alone: bool,
    /// The permit ran out while the pull continued.
    pub(super) ran_out: bool,
    stated: Option<RegistryLimit>,
}

impl World {
    pub(super) fn granted(&mut self, at: usize, permit: PermitId, alone: bool) {
        if !self.nodes[at].wants.remove(&permit) {
            return;
        }
        let incarnation = self.nodes[at].incarnation;
        let stated = self.registry_asked(at);
        if alone {
            self.seen.alone += 1;
        } else {
            self.seen.begun.push(self.now);
            self.seen.over_quota += usize::from(stated.as_ref().is_some_and(|limit| limit.limit == 0));
        }
        let takes = self.plan.pull_takes.mul_f64(0.5 + self.random.fraction());
        self.pulls.insert((at, permit), Pull { until: self.now + takes, alone, ran_out: false, stated });
        let now = self.now;
        let counted = self.pulls.iter().filter(|((node, _), pull)| !pull.alone && !pull.ran_out && now < pull.until && !self.lapsed(*node));
        self.seen.most_at_once = self.seen.most_at_once.max(counted.count());
        self.later(takes, Event::PullEnds(at, incarnation, permit));
    }

    /// Whether a node's permits may have run out, because it is cut off, down, or was stalled lately. Its pulls are counted apart.
    fn lapsed(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        !node.up || node.cut || node.stalled_until + DEADLINES.budget_permit_lease > self.now
    }

    fn registry_asked(&mut self, at: usize) -> Option<RegistryLimit> {
        let (limit, length) = self.plan.quota?;
        let number = at % self.plan.sources;
        let source = (self.plan.sources > 1).then(|| format!("192.0.2.{number}"));
        let (began, used) = match self.windows.get(&number).copied() {
            Some((began, used)) if self.now < began + length => (began, used),
            _ => (self.now, 0),
        };
        self.windows.insert(number, (began, used + 1));
        let window_ms = length.as_millis() as u64;
        if used >= limit {
            let reset_ms = Some((began + length - self.now).as_millis() as u64);
            return Some(RegistryLimit { source, reset_ms, ..RegistryLimit::default() });
        }
        Some(RegistryLimit { source, limit, remaining: limit - used - 1, window_ms, reset_ms: None })
    }

    pub(super) fn pull_ends(&mut self, at: usize, incarnation: u64, permit: PermitId) {
        let Some(pull) = self.pulls.remove(&(at, permit)) else { return };
        if self.nodes[at].incarnation != incarnation || !self.nodes[at].up {
            return;
        }
        let refused = pull.stated.as_ref().is_some_and(|limit| limit.limit == 0);
        if refused {
            self.later(Duration::from_secs(10), Event::Request(at));
        } else {
            self.seen.served += 1;
            self.nodes[at].todo = self.nodes[at].todo.saturating_sub(1);
        }
        self.give(at, Input::Release { permit, limits: pull.stated.into_iter().collect(), served: Some(true) });
    }
}
