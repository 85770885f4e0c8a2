//! Events about entries: an entry was opened, probed or released, and whether a whole registry is concerned.

use std::time::Duration;

use actix::Context;
use contract::{EventDetails, EventReason, FailureClass, PullEvent, TraceContext};
use image::go::duration;

use crate::actor::BackoffTracker;
use crate::core::knowledge::{EntryNews, EntryNewsKind, KeyInView};
use crate::core::milliseconds;

impl BackoffTracker {
    /// Logs and records the change. If a whole registry is concerned, that is an event of its own.
    pub(crate) fn announce(&mut self, now: Duration, news: &EntryNews, context: &mut Context<Self>) {
        let (reason, of_registry) = match news.kind {
            EntryNewsKind::Opened => (EventReason::BackoffOpened, Some(EventReason::RegistryUnavailable)),
            EntryNewsKind::Probed => (EventReason::BackoffProbed, None),
            EntryNewsKind::Released => (EventReason::BackoffReleased, Some(EventReason::RegistryRecovered)),
        };
        let entry = news.backoff_key.id().to_string();
        tracing::info!(fleetpull.entry.id = entry, what = news.backoff_key.in_words(), attempt = %news.attempt, "{}", log_text(news.kind));
        let holds_all = is_whole_registry(news.backoff_key.in_view());
        for reason in [Some(reason), of_registry.filter(|_| holds_all)].into_iter().flatten() {
            let within = news.trace.filter(TraceContext::has_span);
            self.record_event(within, reason, context, |event| event_of(now, reason, news, event));
        }
    }
}

fn log_text(kind: EntryNewsKind) -> &'static str {
    match kind {
        EntryNewsKind::Opened => "a back-off entry was opened by this node's report",
        EntryNewsKind::Probed => "this node's probe of a back-off entry failed",
        EntryNewsKind::Released => "a back-off entry was closed by this node's success",
    }
}

/// Whether all images of a registry need what this is about.
fn is_whole_registry(in_view: &KeyInView) -> bool {
    matches!(in_view, KeyInView::Endpoint { .. } | KeyInView::TokenServer { .. } | KeyInView::Blobs { .. } | KeyInView::Registry)
}

/// Fills the event about an entry, within the span of the attempt that made the change.
fn event_of(now: Duration, reason: EventReason, news: &EntryNews, event: PullEvent) -> PullEvent {
    let lasted = now.saturating_sub(news.failing_since);
    let is_over = news.kind == EntryNewsKind::Released;
    let number = |number: usize| (!is_over).then_some(number as u64);
    let details = EventDetails {
        lasted_ms: Some(milliseconds(lasted)),
        reporters: number(news.reporters),
        failures: number(news.step as usize),
        ..EventDetails::default()
    };
    PullEvent {
        reason,
        message: message(reason, news, lasted),
        image: news.backoff_key.in_view().reference().unwrap_or_default().to_owned(),
        registry: Some(news.backoff_key.view().registry.clone()),
        class: Some(news.backoff_key.class()),
        attempt: Some(news.attempt),
        next_attempt_ms: news.next_attempt.map(|next| milliseconds(next.saturating_sub(now))),
        entry: Some(news.backoff_key.id().to_string()),
        details: Some(details),
        ..event
    }
}

/// The message. It leaves out the next attempt, for which the event has a field.
fn message(reason: EventReason, news: &EntryNews, lasted: Duration) -> String {
    let (what, cause) = (news.backoff_key.in_words(), &news.cause);
    let is_limit = news.backoff_key.class() == FailureClass::RateLimited;
    let (fails, succeeds) = if is_limit { ("refuses pulls", "allows pulls") } else { ("fails", "succeeds") };
    let since = duration(whole_seconds(lasted));
    let nodes = if news.reporters == 1 { "1 node".to_owned() } else { format!("{} nodes", news.reporters) };
    match reason {
        // Other nodes are not refused because of one node's report.
        EventReason::BackoffOpened if news.reporters == 1 => {
            format!("{what} {fails} on {nodes}, and one of the others that wait makes an attempt at once: {cause}")
        }
        EventReason::BackoffOpened => format!("{what} {fails} on {nodes}, and all nodes wait: {cause}"),
        EventReason::BackoffProbed => format!("{what} still {fails} after {since}, as an attempt for all nodes found: {cause}"),
        EventReason::BackoffReleased => format!("{what} {succeeds} again after {since}, and no node waits for it any more"),
        EventReason::RegistryUnavailable => format!("{what} cannot be used, as {nodes} found: {cause}"),
        _ => format!("{what} can be used again after {since}"),
    }
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_millis().div_ceil(1_000) as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clock::Random;
    use contract::{AttemptId, MessageId, View};

    use super::*;
    use crate::core::knowledge::BackoffKey;

    #[test]
    fn the_event_of_an_entry_contains_its_key_its_cause_and_the_next_attempt() {
        let view = View { registry: "r.example".to_owned(), ..View::default() };
        let in_view = KeyInView::Endpoint { endpoint: "r.example:443".to_owned(), zone: "a".to_owned() };
        let at = Duration::from_secs;
        let opened = EntryNews {
            kind: EntryNewsKind::Opened,
            backoff_key: Arc::new(BackoffKey::new(view, in_view)),
            attempt: AttemptId::from(7),
            trace: None,
            cause: "ErrImagePull: connection refused".to_owned(),
            failing_since: at(90),
            next_attempt: Some(at(102)),
            reporters: 3,
            step: 1,
        };
        let released =
            EntryNews { kind: EntryNewsKind::Released, cause: String::new(), next_attempt: None, reporters: 0, step: 0, ..opened.clone() };
        let opened_by_one = EntryNews { reporters: 1, ..opened.clone() };
        let owner = BackoffKey::new(View { registry: "r.example".to_owned(), ..View::default() }, KeyInView::BudgetOwner("o".to_owned()));
        let limited = EntryNews { backoff_key: Arc::new(owner), ..opened_by_one.clone() };
        let probed = EntryNews { kind: EntryNewsKind::Probed, ..opened.clone() };
        let table = [
            (
                EventReason::BackoffOpened,
                &opened,
                "registry r.example:443 from zone a fails on 3 nodes, and all nodes wait: ErrImagePull: connection refused",
            ),
            (
                EventReason::BackoffOpened,
                &opened_by_one,
                "registry r.example:443 from zone a fails on 1 node, and one of the others that wait makes an attempt at once: ErrImagePull: connection refused",
            ),
            (
                EventReason::BackoffOpened,
                &limited,
                "budget o of registry r.example refuses pulls on 1 node, and one of the others that wait makes an attempt at once: ErrImagePull: connection refused",
            ),
            (
                EventReason::RegistryUnavailable,
                &opened,
                "registry r.example:443 from zone a cannot be used, as 3 nodes found: ErrImagePull: connection refused",
            ),
            (
                EventReason::BackoffProbed,
                &probed,
                "registry r.example:443 from zone a still fails after 10s, as an attempt for all nodes found: ErrImagePull: connection refused",
            ),
            (
                EventReason::BackoffReleased,
                &released,
                "registry r.example:443 from zone a succeeds again after 10s, and no node waits for it any more",
            ),
            (EventReason::RegistryRecovered, &released, "registry r.example:443 from zone a can be used again after 10s"),
        ];
        let mut random = Random::seeded(1);
        for (reason, news, message) in table {
            let node = "n1".parse().unwrap_or_else(|_| unreachable!("a name"));
            let trace = TraceContext::root(&mut random);
            let blank = PullEvent::new(MessageId::random(&mut random), 1, node, EventReason::Pulled, String::new(), trace);
            let event = event_of(at(100), reason, news, blank);
            assert_eq!((event.reason, event.message.as_str()), (reason, message));
            assert_eq!((event.registry.as_deref(), event.image.as_str()), (Some("r.example"), ""));
            let details = event.details.unwrap_or_default();
            let is_over = news.kind == EntryNewsKind::Released;
            assert_eq!(
                (event.next_attempt_ms, details.reporters),
                if is_over { (None, None) } else { (Some(2_000), Some(news.reporters as u64)) }
            );
            assert_eq!(details.lasted_ms, Some(10_000));
        }
    }
}
