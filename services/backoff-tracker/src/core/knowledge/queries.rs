//! Checks: whether a pull may be attempted.

use std::sync::Arc;
use std::time::Duration;

use contract::TraceContext;
use contract::messages::backoff_tracker::{self as messages, BackoffAnswer, CheckBackoff, LocalKey};

use super::backoff_key::BackoffKeyId;
use super::binding::not_due;
use super::exemptions::PauseInForce;
use super::input::Refusal;
use super::node::Knowledge;
use super::refusal::refusal_by;
use crate::core::delays::milliseconds_left;
use crate::core::milliseconds;

impl Knowledge {
    /// Whether a pull may be attempted now, before its caller requests clearance, by the local replica. Sends nothing to the bus.
    pub(super) fn check(&mut self, now: Duration, CheckBackoff { key, peek, target }: CheckBackoff) -> BackoffAnswer {
        let Some(target) = target else {
            return self.check_by_own_rule(now, &key, peek);
        };
        let target_keys = self.target_keys(target);
        let binding = if self.is_without_bus() { vec![] } else { self.binding(now, &target_keys) };
        let exempt = self.is_exempt(now, &target_keys.target.view);
        // A failure that one other node alone reports is due and refuses nothing, but a person who looks wants to know of it.
        let unconfirmed = || binding.iter().find(|entry| entry.is_unconfirmed() && self.held_here(now, &key, &binding).is_none());
        let holding = || not_due(now, &binding).or_else(unconfirmed);
        let not_due = || holding().map(|entry| refusal_by(now, entry));
        let without_bus = self.without_bus.and_then(|without_bus| self.still_held(now, without_bus, &target_keys));
        let refusing = without_bus.or_else(not_due).filter(|refusal| peek || !refusal.unconfirmed);
        if let Some(refusal) = refusing {
            let count = u64::from(!peek);
            if !exempt {
                self.counts.refused_total += count;
                self.failed_keys.counts.refused_total += count;
                return BackoffAnswer::Refused(self.refusal_message(now, refusal));
            }
            self.counts.observed_total += count;
        }
        let decided_by_fleet = !exempt && self.failed_keys.held(now, &key).is_some() && self.held_here(now, &key, &binding).is_none();
        if decided_by_fleet { BackoffAnswer::Allowed } else { self.check_by_own_rule(now, &key, peek) }
    }

    /// Whether the node's own rule allows a pull now. If so, the cause of the last failure is forgotten, as kubelet does when it starts an
    /// attempt; not if this is only a look (`peek`).
    fn check_by_own_rule(&mut self, now: Duration, key: &LocalKey, peek: bool) -> BackoffAnswer {
        let failure = self.failed_keys.get(key).map(|failed| Arc::clone(&failed.failure));
        let Some((left, failure)) = self.failed_keys.held(now, key).zip(failure) else {
            if !peek {
                self.failed_keys.outdate(key);
            }
            return BackoffAnswer::Allowed;
        };
        self.failed_keys.counts.refused_total += u64::from(!peek);
        BackoffAnswer::Refused(self.refusal_message(now, self.refusal_by_own_rule(now, &failure, now + left)))
    }

    /// A refusal as a message.
    #[must_use]
    pub fn refusal_message(&self, now: Duration, refusal: Refusal) -> messages::Refusal {
        messages::Refusal {
            cause: refusal.cause,
            class: refusal.class,
            next_attempt_ms: milliseconds_left(refusal.next_attempt.saturating_sub(now)),
            learned_by: Some(refusal.learned_by).filter(|node| *node != self.node),
            learned_ms_ago: milliseconds(refusal.learned_ago),
            learned_trace: refusal.trace,
            unconfirmed: refusal.unconfirmed,
            entry: refusal.entry.map(|backoff_key| backoff_key.to_string()),
        }
    }

    /// The span of the attempt that last succeeded on an entry's key.
    #[must_use]
    pub fn last_success_of(&self, entry: BackoffKeyId) -> Option<TraceContext> {
        self.replica.succeeded_by(entry)
    }

    /// Whether the node only observes.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.exemptions.observes
    }

    /// The pauses in force.
    pub fn pauses(&self, now: Duration) -> impl Iterator<Item = &PauseInForce> {
        self.exemptions.in_force(now)
    }
}
