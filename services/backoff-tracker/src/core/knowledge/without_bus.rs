//! What was known when the bus was lost, and how long it still counts.
//!
//! Without a bus each node goes by its own rule. But a bus is mostly lost for the seconds in which a server restarts, and all nodes lose
//! it at once: would each try then what the fleet knows to fail, the registry would be asked by all of them.

use std::time::Duration;

use contract::FailureClass;

use super::decide::{purpose, refusal_by};
use super::entry::Entry;
use super::input::Refusal;
use super::node::Knowledge;
use super::target::TargetKeys;
use crate::core::delays::Failing;

/// A bus that comes back within this has changed nothing. As long as a leader of the registry's budget is waited for, without whom no
/// permit is given anyway.
pub(super) const BACK_WITHIN: Duration = Duration::from_secs(15);

/// A node without a bus.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithoutBus {
    /// When it knew.
    pub(super) since: Duration,
    /// When the bus was lost, as far as this node can tell: it asks so seldom that it may find out long after.
    pub(super) lost: Duration,
}

impl Knowledge {
    /// Why a node without a bus does not try yet: others failed before the bus was lost. It waits for the next attempt, or for when it would
    /// have tried by kubelet's rule, and for the bus, and then for a turn of its own, as nobody says who goes first. What fails after that
    /// is the node's own business. What a registry has asked for is waited for in any case.
    pub(super) fn still_held(&self, now: Duration, without_bus: WithoutBus, target_keys: &TargetKeys) -> Option<Refusal> {
        let (WithoutBus { since, lost }, binding) = (without_bus, self.binding(now, target_keys));
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
            due.max(lost + BACK_WITHIN) + turn
        };
        let before = binding.iter().filter(|entry| entry.failed_at < since).map(|entry| (until(entry), entry));
        let (next_attempt, entry) = before.filter(|(until, _)| now < *until).max_by_key(|(until, _)| *until)?;
        Some(Refusal { next_attempt, ..refusal_by(now, entry) })
    }
}
