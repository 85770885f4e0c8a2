//! Pauses on the bus: storing them, and storing them again if the bus has forgotten them.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt as _, AsyncContext as _, Context, WrapFuture as _};
use bus::{KeyValue, KeyValueError, Snapshot};
use contract::know::{StoredPause, encode_as, pause_key};
use tokio::time::timeout;

use super::sharing::UnstoredPause;
use crate::actor::BackoffTracker;
use crate::core::knowledge::{Input, LONGEST_PAUSE, PauseInForce};
use crate::core::milliseconds;
use crate::stored;

/// How long storing a pause may take before its operator is answered that it was not stored.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);

/// Stores a pause, or its end if no time is left.
///
/// The end is stored as well, because a snapshot shows no deletion: a node that reads one must know that its own earlier pause, which it
/// could not store, is over. No such pause lasts longer than the record of the end.
///
/// # Errors
/// The reason, as text.
pub(super) async fn store(pauses: Arc<dyn KeyValue>, version: u32, pause: StoredPause) -> Result<(), String> {
    let key = pause_key(pause.registry.as_deref());
    let left = Duration::from_millis(pause.for_ms);
    let stored = async {
        let value = encode_as(version, &pause).map_err(|error| error.to_string())?;
        let kept = if left.is_zero() { LONGEST_PAUSE } else { left };
        // Whole seconds, not fewer than requested; each node counts the time itself.
        let ttl = Duration::from_secs(kept.as_secs() + 1);
        let stored = match pauses.put(&key, value.into(), Some(ttl)).await {
            // Only a deletion has room.
            Err(KeyValueError::Full { .. }) if left.is_zero() => pauses.delete(&key, None).await,
            stored => stored.map(|_| ()),
        };
        stored.map_err(|error| error.to_string())
    };
    timeout(PAUSE_LIMIT, stored).await.unwrap_or_else(|_| Err("the bus does not answer".to_owned()))
}

impl BackoffTracker {
    /// The inputs that a snapshot of the pauses amounts to. A pause that it lacks was ended meanwhile, unless the bucket was made anew and
    /// has lost it. Then the pause stays in force here, and the node that got it from an operator stores it again.
    pub(super) fn pauses_found(&mut self, found: &Snapshot, context: &mut Context<Self>) -> Vec<Input> {
        let now = self.clock.now().monotonic;
        let Some(sharing) = &mut self.sharing else { return vec![] };
        let before = std::mem::replace(&mut sharing.pauses_created, found.status.created.clone());
        let forgotten = !before.is_empty() && before != found.status.created;
        // Of an operator's command to this node and the stored pause, the later one counts.
        let stored_for = |registry: &Option<String>| {
            let key = pause_key(registry.as_deref());
            found.entries.iter().filter(|stored| stored.entry.key == key).map(|stored| stored.age).min()
        };
        sharing.unstored_pauses.retain(|registry, pause| stored_for(registry).is_none_or(|age| pause.ordered_at + age >= now));
        let unstored = &sharing.unstored_pauses;
        let is_lacking = |pause: &&PauseInForce| stored_for(&pause.registry).is_none() && !unstored.contains_key(&pause.registry);
        let lacking: Vec<PauseInForce> = self.core.pauses(now).filter(is_lacking).cloned().collect();
        let own_keys: Vec<String> = unstored.keys().map(|registry| pause_key(registry.as_deref())).collect();
        let stored = found.entries.iter().filter(|stored| !own_keys.contains(&stored.entry.key));
        let mut inputs: Vec<Input> =
            stored.filter_map(|stored| stored::pause(&stored.entry.key, Some(&stored.entry.value), stored.age)).collect();
        for PauseInForce { registry, until, by } in lacking {
            if !forgotten {
                inputs.push(Input::Pause { registry, left: Duration::ZERO, by: String::new() });
            } else if sharing.paused_here.contains(&registry) {
                sharing.keep_unstored_pause(registry, UnstoredPause { ordered_at: now, until, by });
            }
        }
        self.store_unstored_pauses(context);
        inputs
    }

    pub(super) fn store_unstored_pauses(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = &mut self.sharing else { return };
        // A pause that has expired meanwhile is dropped.
        sharing.unstored_pauses.retain(|_, pause| pause.until <= pause.ordered_at || now < pause.until);
        let Some(pauses) = sharing.link.as_ref().map(|link| Arc::clone(&link.pauses)) else { return };
        let version = sharing.version();
        for (registry, UnstoredPause { ordered_at, until, by }) in sharing.unstored_pauses.clone() {
            let pause = StoredPause { registry: registry.clone(), for_ms: milliseconds(until.saturating_sub(now)), by };
            let storing = store(Arc::clone(&pauses), version, pause).into_actor(self);
            context.spawn(storing.map(move |stored, tracker: &mut Self, _| {
                let Some(sharing) = &mut tracker.sharing else { return };
                match stored {
                    // A later command of an operator is kept until it is stored itself.
                    Ok(()) if sharing.unstored_pauses.get(&registry).is_some_and(|pause| pause.ordered_at == ordered_at) => {
                        sharing.unstored_pauses.remove(&registry);
                    }
                    Ok(()) => {}
                    Err(error) => tracing::debug!(error, "a pause is not stored yet"),
                }
            }));
        }
    }
}
