//! What operators ask for: counts, clears and pauses.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt as _, Handler, MessageResult, ResponseActFuture, WrapFuture as _};
use actors::Ask;
use contract::CallError;
use contract::know::{ReportKey, StoredClear, StoredPause};
use contract::messages::backoff_tracker::{BackoffCleared, BackoffCounts, ClearBackoff, Pause, PauseSharing, SharedCounts, SharingPaused};

use super::sharing::{UnstoredPause, read};
use super::{pausing, recording as events};
use crate::actor::{BackoffTracker, Share};
use crate::core::knowledge::{Clearing, Input, LONGEST_PAUSE, Reply, hash128};
use crate::core::milliseconds;

/// Part of the answer to an operator's clear while the bus cannot be reached.
const CLEARED_ON_THIS_NODE_ONLY: &str =
    "the other nodes: the bus cannot be reached, so the clear applies to this node only; it is published when the bus is back";

impl Handler<Ask<ClearBackoff>> for BackoffTracker {
    type Result = MessageResult<Ask<ClearBackoff>>;

    fn handle(&mut self, Ask(clear): Ask<ClearBackoff>, context: &mut Self::Context) -> Self::Result {
        let (trace, ClearBackoff { what, by }) = (clear.meta.trace, clear.body);
        let mut cleared = BackoffCleared::default();
        if let Some(Reply::Cleared { cleared: here, clearing: Some(clearing) }) = self.step(Input::Clear(what.clone()), context) {
            cleared.cleared = here;
            cleared.still_binding.extend(self.core.is_without_bus().then(|| CLEARED_ON_THIS_NODE_ONLY.to_owned()));
            self.publish_clear(clearing, &by);
        }
        tracing::info!(what, by, cleared = cleared.cleared.len(), "a back-off was cleared");
        self.record(events::cleared(&what, &by, &cleared), trace, context);
        MessageResult(Ok(cleared))
    }
}

impl Handler<Ask<PauseSharing>> for BackoffTracker {
    type Result = ResponseActFuture<Self, Result<SharingPaused, CallError>>;

    fn handle(&mut self, Ask(pause): Ask<PauseSharing>, _: &mut Self::Context) -> Self::Result {
        let (trace, PauseSharing { registry, for_ms, by }) = (pause.meta.trace, pause.body);
        let Some(sharing) = &self.sharing else {
            let reason =
                "this node does not share failures, so there is no sharing to pause: send the command to a node that shares".to_owned();
            return Box::pin(std::future::ready(Err(CallError::Refused { reason })).into_actor(self));
        };
        let (pauses, version) = (sharing.link.as_ref().map(|link| Arc::clone(&link.pauses)), sharing.version());
        let left = Duration::from_millis(for_ms).min(LONGEST_PAUSE);
        tracing::info!(registry, for_s = left.as_secs(), by, "an operator paused or resumed sharing");
        let stored = StoredPause { registry: registry.clone(), for_ms: milliseconds(left), by: by.clone() };
        let storing = async move {
            match pauses {
                Some(pauses) => pausing::store(pauses, version, stored).await,
                None => Err("the node has no connection to a bus that can store it".to_owned()),
            }
        };
        Box::pin(storing.into_actor(self).map(move |stored, tracker, context| {
            tracker.record(events::paused(registry.as_deref(), left, &by, stored.is_ok()), trace, context);
            let ordered_at = tracker.clock.now().monotonic;
            if let Some(sharing) = &mut tracker.sharing {
                sharing.note_pause(registry.clone(), !left.is_zero());
                if stored.is_err() {
                    sharing.keep_unstored_pause(registry.clone(), UnstoredPause { ordered_at, until: ordered_at + left, by: by.clone() });
                } else {
                    sharing.unstored_pauses.remove(&registry);
                }
            }
            // The pause is in force here even if the bus did not store it.
            tracker.step(Input::Pause { registry, left, by }, context);
            Ok(SharingPaused { pauses: tracker.pauses(), only_here: stored.err() })
        }))
    }
}

impl BackoffTracker {
    fn publish_clear(&mut self, Clearing { image, backoff_keys }: Clearing, by: &str) {
        let Some(sharing) = &mut self.sharing else { return };
        let keys: Vec<String> = backoff_keys.iter().map(ToString::to_string).collect();
        let what = hash128(&[image.as_deref().unwrap_or_default(), &keys.join(" ")]);
        let now = self.clock.now().monotonic;
        let clear = StoredClear { image, backoff_keys: keys, by: by.to_owned(), ..StoredClear::default() };
        let key = ReportKey { node: sharing.node.clone(), class: None, backoff_key: what }.text();
        sharing.clear(key, clear, now);
    }

    pub(super) fn pauses(&self) -> Vec<Pause> {
        let now = self.clock.now().monotonic;
        let to_message = |pause: &crate::core::knowledge::PauseInForce| Pause {
            registry: pause.registry.clone(),
            left_ms: milliseconds(pause.until.saturating_sub(now)),
            by: pause.by.clone(),
        };
        self.core.pauses(now).map(to_message).collect()
    }

    pub(crate) fn counts(&self) -> BackoffCounts {
        let now = self.clock.now().monotonic;
        let mut shared = SharedCounts {
            alone: self.core.is_without_bus(),
            observes: self.takes_part() == Share::Observe,
            entries: self.core.entries(now).len() as u64,
            binding: self.core.binding_count(now) as u64,
            pauses: self.core.pauses(now).count() as u64,
            ..self.core.counts()
        };
        if let Some(sharing) = &self.sharing {
            shared.for_all_total = sharing.counts.for_all_total;
            shared.lapsed_total = sharing.counts.lapsed_total;
            shared.reports_refused_total = sharing.counts.reports_refused_total;
            shared.other_version_total = sharing.counts.other_version_total;
            let (follower, followed) = (&sharing.follower, sharing.follower.counts());
            (shared.replica_lag, shared.gaps_total, shared.snapshots_total) = (follower.lag(), followed.gaps, followed.snapshots);
            shared.reports_sent_total = read(&sharing.written.sent);
            shared.reports_unsent_total = read(&sharing.written.unsent);
        }
        BackoffCounts { shared, ..self.core.own_counts(now) }
    }
}
