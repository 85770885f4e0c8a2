//! Records events about budgets: changes of a budget's rate, by the node that leads it, and quotas that an operator has cleared.

use actix::{AsyncContext as _, Context, WrapFuture as _};
use actors::EventSender;
use contract::{EventDetails, EventReason, PullEvent, TraceContext, bounded_name};

use crate::actor::Throttler;
use crate::core::budget::{Rate, RateCause};

/// Where events are sent, and how a budget is named.
pub struct Recording {
    /// Sends the node's events.
    pub events: EventSender,
    /// The registry of an owner's budget.
    pub registry_of: fn(&str) -> String,
    /// The name of an owner's budget for people.
    pub in_words: fn(&str) -> String,
}

impl Throttler {
    /// Records that a budget that this node leads lets more or fewer pulls begin.
    pub(crate) fn record_rate(&mut self, owner: &str, rate: Rate, before: Rate, context: &mut Context<Self>) {
        let Some(Recording { registry_of, in_words: name_of, .. }) = self.recording else { return };
        let (reason, message) = in_words(&name_of(owner), rate, before);
        let cause = if reason == EventReason::RateLowered { rate.cause } else { before.cause };
        let details = EventDetails {
            cause: Some(cause.as_str().to_owned()),
            per_1000_s: rate.per_1000_s,
            per_1000_s_before: before.per_1000_s,
            ..EventDetails::default()
        };
        let (registry, details) = (Some(registry_of(owner)), Some(details));
        self.record(None, reason, context, |event| PullEvent { message, registry, details, ..event });
    }

    /// Records that an operator has made nodes forget the quota of a budget.
    pub(crate) fn record_cleared_quota(&mut self, owner: &str, by: &str, trace: TraceContext, context: &mut Context<Self>) {
        let Some(Recording { registry_of, in_words: name_of, .. }) = self.recording else { return };
        let message = format!("{} cleared the quota of {}", bounded_name(by), bounded_name(&name_of(owner)));
        let registry = Some(bounded_name(&registry_of(owner)).to_owned());
        self.record(Some(trace), EventReason::BackoffCleared, context, |event| PullEvent { message, registry, ..event });
    }

    /// Records an event within a span; without a span, in a trace of its own.
    fn record(
        &mut self,
        within: Option<TraceContext>,
        reason: EventReason,
        context: &mut Context<Self>,
        fill: impl FnOnce(PullEvent) -> PullEvent,
    ) {
        let time_ms = self.clock.now().wall_ms();
        let Some(recording) = &mut self.recording else { return };
        let recorded = recording.events.record(within, time_ms, reason, fill);
        context.spawn(recorded.into_actor(self));
    }
}

fn in_words(budget: &str, rate: Rate, before: Rate) -> (EventReason, String) {
    let lowered = rate.per_1000_s.unwrap_or(u64::MAX) < before.per_1000_s.unwrap_or(u64::MAX);
    let number = |rate: Rate| rate.per_1000_s.map_or_else(|| "any number of pulls".to_owned(), per_second);
    let allowed = match rate.starts_at {
        Some(starts_at) => format!("{}, and soon up to {}", per_second(starts_at), number(rate)),
        None => number(rate),
    };
    let why = match (lowered, rate.cause, before.cause) {
        (true, RateCause::Quota, _) => ": the registry's quota is used up",
        (true, RateCause::SilentNodes, _) => ": nodes are silent, and may pull by their own share",
        (true, RateCause::Overload, _) => ": several nodes failed, so the registry is asked as much as it can do",
        (false, RateCause::Overload, _) => ": the registry can do more",
        (_, RateCause::Policy, RateCause::Policy) => ": its cap was changed",
        (false, _, RateCause::Overload) => ": no overload of the registry is known any more",
        (false, _, RateCause::Quota) => ": no used-up quota of the registry is known any more",
        (false, _, RateCause::SilentNodes) => ": fewer nodes are silent",
        _ => "",
    };
    let reason = if lowered { EventReason::RateLowered } else { EventReason::RateRaised };
    (reason, format!("the budget of {budget} now allows {allowed} (before: {}){why}", number(before)))
}

fn per_second(per_1000_s: u64) -> String {
    match per_1000_s {
        0 => "no pulls".to_owned(),
        1_000 => "1 pull a second".to_owned(),
        _ => format!("{} pulls a second", per_1000_s as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_states_the_rate_before_and_after_and_the_cause() {
        let rate = |per_1000_s, cause| Rate { per_1000_s, starts_at: None, cause };
        let (full, none) = (rate(Some(2_500), RateCause::Policy), rate(None, RateCause::Policy));
        let (spent, found) = (rate(Some(0), RateCause::Quota), rate(Some(500), RateCause::Overload));
        let table = [
            (
                spent,
                full,
                EventReason::RateLowered,
                "the budget of hub now allows no pulls (before: 2.5 pulls a second): the registry's quota is used up",
            ),
            (
                full,
                spent,
                EventReason::RateRaised,
                "the budget of hub now allows 2.5 pulls a second (before: no pulls): no used-up quota of the registry is known any more",
            ),
            (
                // Also after a time without pulls, in which the registry has answered nothing.
                full,
                found,
                EventReason::RateRaised,
                "the budget of hub now allows 2.5 pulls a second (before: 0.5 pulls a second): no overload of the registry is known any more",
            ),
            (
                Rate { starts_at: Some(1_000), ..full },
                found,
                EventReason::RateRaised,
                "the budget of hub now allows 1 pull a second, and soon up to 2.5 pulls a second (before: 0.5 pulls a second): no overload of the registry is known any more",
            ),
            (
                Rate { per_1000_s: Some(1_000), ..full },
                full,
                EventReason::RateLowered,
                "the budget of hub now allows 1 pull a second (before: 2.5 pulls a second): its cap was changed",
            ),
            (
                none,
                spent,
                EventReason::RateRaised,
                "the budget of hub now allows any number of pulls (before: no pulls): no used-up quota of the registry is known any more",
            ),
        ];
        for (rate, before, reason, text) in table {
            assert_eq!(in_words("hub", rate, before), (reason, text.to_owned()));
        }
    }
}
