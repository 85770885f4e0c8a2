//! Events about what operators do to a tracker.

use std::time::Duration;

use actix::{AsyncContext as _, Context, WrapFuture as _};
use contract::messages::backoff_tracker::BackoffCleared;
use contract::{EventReason, PullEvent, TraceContext, bounded_name};
use image::Reference;
use image::go::duration;

use crate::actor::BackoffTracker;
use crate::core::knowledge::BackoffKeyId;

/// The most cleared failures that an event names.
const CLEARED_NAMED: usize = 10;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OperatorAction {
    reason: EventReason,
    message: String,
    image: String,
    registry: Option<String>,
}

pub(crate) fn cleared(what: &str, by: &str, done: &BackoffCleared) -> OperatorAction {
    let BackoffCleared { cleared, still_binding } = done;
    let still = still_binding.iter().map(|still| format!("; not cleared: {still}")).collect::<String>();
    // The text of a back-off key could also be an image.
    let reference = Reference::parse(what).ok().filter(|_| BackoffKeyId::parse(what).is_none());
    let more = cleared.len().saturating_sub(CLEARED_NAMED);
    let named: Vec<&str> = cleared.iter().take(CLEARED_NAMED).map(|one| bounded_name(one)).collect();
    let found = match (named.as_slice(), more) {
        ([], _) => ": nothing is known of it on this node".to_owned(),
        ([itself], 0) if *itself == bounded_name(what) => String::new(),
        (named, 0) => format!(": {}", named.join(", ")),
        (named, more) => format!(": {} and {more} more", named.join(", ")),
    };
    OperatorAction {
        reason: EventReason::BackoffCleared,
        message: format!("{} cleared {}{found}{still}", bounded_name(by), bounded_name(what)),
        image: if reference.is_some() { bounded_name(what).to_owned() } else { String::new() },
        registry: reference.map(|reference| bounded_name(reference.registry()).to_owned()),
    }
}

/// An operator paused sharing, or ended a pause if `left` is zero. `is_stored` is false if only this node has the pause.
pub(crate) fn paused(registry: Option<&str>, left: Duration, by: &str, is_stored: bool) -> OperatorAction {
    let (by, of) =
        (bounded_name(by), registry.map_or("every registry".to_owned(), |registry| format!("registry {}", bounded_name(registry))));
    let on = if is_stored { "" } else { ", on this node alone" };
    let (reason, message) = if left.is_zero() {
        (EventReason::SharingResumed, format!("{by} ended the pause of what is shared of {of}{on}"))
    } else {
        (EventReason::SharingPaused, format!("{by} paused what is shared of {of} for {}{on}", duration(left)))
    };
    OperatorAction { reason, message, image: String::new(), registry: registry.map(|registry| bounded_name(registry).to_owned()) }
}

impl BackoffTracker {
    /// Records an operator's action once, on the node that received the command.
    pub(crate) fn record(&mut self, action: OperatorAction, trace: TraceContext, context: &mut Context<Self>) {
        let OperatorAction { reason, message, image, registry } = action;
        self.record_event(Some(trace), reason, context, |event| PullEvent { message, image, registry, ..event });
    }

    /// Records an event within a span; without a span, in a trace of its own.
    pub(crate) fn record_event(
        &mut self,
        within: Option<TraceContext>,
        reason: EventReason,
        context: &mut Context<Self>,
        fill: impl FnOnce(PullEvent) -> PullEvent,
    ) {
        let time_ms = self.clock.now().wall_ms();
        let Some(events) = &mut self.events else { return };
        let recorded = events.record(within, time_ms, reason, fill);
        context.spawn(recorded.into_actor(self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_operator_the_action_and_the_image_or_registry() {
        let done = |cleared: &[String]| BackoffCleared { cleared: cleared.to_vec(), ..BackoffCleared::default() };
        let cleared = |what: &str, by: &str, keys: &[String]| super::cleared(what, by, &done(keys));
        let action = cleared("busybox:1", "ops@desk", &["image docker.io/library/busybox:1".to_owned()]);
        assert_eq!(action.message, "ops@desk cleared busybox:1: image docker.io/library/busybox:1");
        assert_eq!((action.image.as_str(), action.registry.as_deref()), ("busybox:1", Some("docker.io")));
        assert_eq!(cleared("busybox:1", "ops@desk", &["busybox:1".to_owned()]).message, "ops@desk cleared busybox:1");
        let action = cleared(&"a".repeat(32), "ops@desk", &[]);
        assert!(action.message.ends_with(": nothing is known of it on this node"), "{}", action.message);
        assert_eq!((action.image.as_str(), action.registry), ("", None));
        let many: Vec<String> = (0..12).map(|number| format!("image r.example/a:{number}")).collect();
        assert!(cleared("r.example/a", "o", &many).message.ends_with("image r.example/a:9 and 2 more"));
        let alone = BackoffCleared { cleared: vec!["busybox:1".to_owned()], still_binding: vec!["the other nodes".to_owned()] };
        assert_eq!(super::cleared("busybox:1", "o", &alone).message, "o cleared busybox:1; not cleared: the other nodes");
        let action = paused(Some("r.example"), Duration::from_secs(300), "ops@desk", true);
        assert_eq!((action.reason, action.registry.as_deref()), (EventReason::SharingPaused, Some("r.example")));
        assert_eq!(action.message, "ops@desk paused what is shared of registry r.example for 5m0s");
        let alone = paused(Some("r.example"), Duration::from_secs(300), "ops@desk", false).message;
        assert_eq!(alone, "ops@desk paused what is shared of registry r.example for 5m0s, on this node alone");
        let action = paused(None, Duration::ZERO, "ops@desk", true);
        assert_eq!((action.reason, action.registry), (EventReason::SharingResumed, None));
        assert_eq!(action.message, "ops@desk ended the pause of what is shared of every registry");
    }

    #[test]
    fn long_names_are_cut() {
        let action = paused(Some(&"\u{e4}".repeat(100_000)), Duration::from_secs(1), &"x".repeat(1_000_000), true);
        assert!(action.message.len() < 2_000, "{}", action.message.len());
        assert_eq!(action.registry.map(|registry| registry.chars().count()), Some(300));
    }
}
