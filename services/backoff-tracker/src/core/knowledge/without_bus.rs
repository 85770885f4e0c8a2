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
    /// The refusal of a node without a bus, if others are known to fail. The node waits until the next attempt or until kubelet's rule
    /// would have made one, and then for its own turn, because no lease orders the nodes. It waits at least for `DEADLINES.bus_back_within`
    /// if they failed before the bus was lost: if they failed later, messages still arrive. `Retry-After` is always waited for. What this
    /// node alone found since concerns its own rule only.
    pub(super) fn still_held(
        &self,
        now: Duration,
        asked_at: Duration,
        without_bus: WithoutBus,
        target_keys: &TargetKeys,
    ) -> Option<Refusal> {
        let (WithoutBus { since, lost }, binding) = (without_bus, self.binding(now, asked_at, target_keys));
        let known_before = |entry: &Entry| entry.failed_at < since;
        let until = |entry: &Entry| {
            let turn = self.fleet.turn_alone(&self.node, purpose(entry.backoff_key.id(), entry.step));
            if entry.is_unconfirmed() {
                return entry.next_attempt + turn;
            }
            let due = if entry.backoff_key.class() == FailureClass::RateLimited {
                entry.next_attempt
            } else {
                let failing = Failing { since: entry.failing_since, took: Duration::ZERO };
                entry.next_attempt.min(self.local.due_after(failing, since))
            };
            let at_least = if known_before(entry) { lost + DEADLINES.bus_back_within } else { Duration::ZERO };
            due.max(at_least) + turn
        };
        let counts = |entry: &&Entry| known_before(entry) || entry.newest.reporter != self.node;
        let holding = binding.iter().filter(counts).map(|entry| (until(entry), entry));
        let (next_attempt, entry) = holding.filter(|(until, _)| now < *until).max_by_key(|(until, _)| *until)?;
        Some(Refusal { next_attempt, ..refusal_by(now, entry) })
    }
}
