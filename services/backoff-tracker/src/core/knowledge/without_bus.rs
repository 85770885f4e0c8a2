//! What was known when the bus was lost, and how long it still counts.
//!
//! Without a bus each node uses its own rule. But a bus is mostly lost only for the seconds of a server restart, and by all nodes at once.
//! If each node then attempted what the fleet knows to fail, all of them would ask the registry.

use std::time::Duration;

use contract::{DEADLINES, FailureClass};

use super::entry::Entry;
use super::fleet::purpose;
use super::input::Refusal;
use super::node::Knowledge;
use super::refusal::refusal_by;
use super::target::TargetKeys;
use crate::core::delays::Failing;

#[derive(Clone, Copy, Debug)]
pub(super) struct WithoutBus {
    /// When this node knew that the bus was lost.
    pub(super) since: Duration,
    /// When the bus was lost, as far as this node can tell. It asks the bus seldom, so it may find out late.
    pub(super) lost: Duration,
}

impl Knowledge {
    /// The refusal of a node without a bus, if others are known to fail.
    pub(super) fn still_held(&self, now: Duration, without_bus: WithoutBus, target_keys: &TargetKeys) -> Option<Refusal> {
        let binding = self.binding(now, target_keys).into_iter();
        let holding = binding.filter_map(|entry| Some((self.held_without_bus_until(&entry, without_bus)?, entry)));
        let (next_attempt, entry) = holding.filter(|(until, _)| now < *until).max_by_key(|(until, _)| *until)?;
        Some(Refusal { next_attempt, ..refusal_by(now, &entry) })
    }

    /// Until when an entry refuses a node without a bus. The node waits until the next attempt or until kubelet's rule would have made one,
    /// and then for its own turn, because no lease orders the nodes. It waits at least for `DEADLINES.bus_back_within` if they failed before
    /// the bus was lost: if they failed later, messages still arrive. `Retry-After` is always waited for. None if this node alone found the
    /// failure since: that concerns its own rule only.
    pub(super) fn held_without_bus_until(&self, entry: &Entry, WithoutBus { since, lost }: WithoutBus) -> Option<Duration> {
        let is_known_before = entry.failed_at < since;
        if !is_known_before && entry.newest.reporter == self.node {
            return None;
        }
        let turn = self.fleet.turn_alone(&self.node, purpose(entry.backoff_key.id(), entry.step));
        if entry.is_unconfirmed() {
            let at_most = since + DEADLINES.bus_back_within;
            return Some((entry.failing_since + DEADLINES.unconfirmed_for).min(at_most) + turn);
        }
        let due = if entry.backoff_key.class() == FailureClass::RateLimited {
            entry.next_attempt
        } else {
            let failing = Failing { since: entry.failing_since, took: Duration::ZERO };
            entry.next_attempt.min(self.failed_keys.policy.due_after(failing, since))
        };
        let at_least = if is_known_before { lost + DEADLINES.bus_back_within } else { Duration::ZERO };
        Some(due.max(at_least) + turn)
    }

    /// When this node makes its next attempt at what an entry is about, for lists. Without a bus that is by its own rule.
    pub(super) fn next_attempt_here(&self, now: Duration, entry: &Entry) -> Duration {
        let Some(without_bus) = self.without_bus else { return entry.next_attempt };
        self.held_without_bus_until(entry, without_bus).unwrap_or_else(|| {
            let failed = self.failed_keys.failed_by(entry.backoff_key.id());
            now + failed.filter_map(|(key, _)| self.failed_keys.held(now, key)).max().unwrap_or_default()
        })
    }
}
