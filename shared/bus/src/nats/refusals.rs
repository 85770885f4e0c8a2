//! What JetStream refuses to do for this login, by stream. While there is any refusal, the bus is degraded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::jetstream::{CallError, code};
use crate::error::BusError;

/// The most streams whose refusals are kept; a fleet has eight.
const REMEMBERED: usize = 64;
/// How many examinations of the server a refusal outlasts if it does not occur again; refusals with a configuration are tried again
/// instead. The server is examined every 5 s, and events try again within 16 s.
const EXAMINATIONS_KEPT: u32 = 4;
/// The most refusals in one message.
const REASONS_SHOWN: usize = 2;

/// The refused operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// Making the stream.
    Make,
    /// Changing its settings.
    Change,
    /// Storing a message in it.
    Store,
}

/// The current refusals.
#[derive(Default)]
pub(super) struct Refusals {
    by_stream: Mutex<BTreeMap<(String, Act), Refusal>>,
    /// What the server has forbidden to this login on this connection; it is not tried again on it.
    forbidden: Mutex<BTreeSet<(String, Act)>>,
    /// The number of refusals. Storing a message reads only this.
    count: AtomicUsize,
}

struct Refusal {
    reason: String,
    /// The configuration that was refused, to be tried again; none: callers try again by themselves.
    config: Option<Value>,
    /// How often the server was examined since the last refusal.
    examinations: u32,
}

impl Refusals {
    /// Records a refusal; returns whether it is new.
    pub(super) fn add(&self, stream: &str, act: Act, reason: &str, config: Option<Value>) -> bool {
        let mut refused = self.refused();
        let key = (stream.to_owned(), act);
        if refused.len() >= REMEMBERED && !refused.contains_key(&key) {
            return false;
        }
        let before = refused.insert(key, Refusal { reason: reason.to_owned(), config, examinations: 0 });
        self.count.store(refused.len(), Ordering::Relaxed);
        before.is_none_or(|before| before.reason != reason)
    }

    /// Removes the refusal of what has succeeded now; returns whether there was one.
    pub(super) fn remove(&self, stream: &str, act: Act) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut refused = self.refused();
        let removed = refused.remove(&(stream.to_owned(), act)).is_some();
        self.count.store(refused.len(), Ordering::Relaxed);
        removed
    }

    /// Counts an examination of the server. Forgets refusals that did not occur lately, because only another attempt shows whether they
    /// last. Returns whether anything was forgotten.
    pub(super) fn age(&self) -> bool {
        self.forget(|refusal| {
            refusal.examinations += 1;
            refusal.config.is_none() && refusal.examinations > EXAMINATIONS_KEPT
        })
    }

    /// Records that the server has forbidden this to the login.
    pub(super) fn forbid(&self, stream: &str, act: Act) {
        let mut forbidden = self.forbidden();
        if act != Act::Store && forbidden.len() < REMEMBERED {
            forbidden.insert((stream.to_owned(), act));
        }
    }

    /// Whether the server has forbidden this to the login on this connection.
    pub(super) fn is_forbidden(&self, stream: &str, act: Act) -> bool {
        self.forbidden().contains(&(stream.to_owned(), act))
    }

    /// Handles a new connection, which may be allowed more: forgets refusals that are not tried again here. Returns whether there were any.
    pub(super) fn renew(&self) -> bool {
        self.forbidden().clear();
        self.forget(|refusal| refusal.config.is_none())
    }

    fn forget(&self, mut which: impl FnMut(&mut Refusal) -> bool) -> bool {
        let mut refused = self.refused();
        let before = refused.len();
        refused.retain(|_, refusal| !which(refusal));
        self.count.store(refused.len(), Ordering::Relaxed);
        refused.len() < before
    }

    /// Why the bus is degraded, in words that say what to do; none: nothing is refused.
    pub(super) fn reason(&self) -> Option<String> {
        let refused = self.refused();
        let mut reasons: Vec<&str> = refused.values().map(|refusal| refusal.reason.as_str()).collect();
        reasons.dedup();
        let more = reasons.len().saturating_sub(REASONS_SHOWN);
        reasons.truncate(REASONS_SHOWN);
        let shown = reasons.join("; ");
        match more {
            _ if shown.is_empty() => None,
            0 => Some(shown),
            more => Some(format!("{shown}; and {more} more like this")),
        }
    }

    /// The streams that could not be made, with their configurations.
    pub(super) fn to_make(&self) -> Vec<(String, Value)> {
        let refused = self.refused();
        refused.iter().filter_map(|((stream, _), refusal)| Some((stream.clone(), refusal.config.clone()?))).collect()
    }

    fn forbidden(&self) -> MutexGuard<'_, BTreeSet<(String, Act)>> {
        self.forbidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, BTreeMap<(String, Act), Refusal>> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why JetStream refuses this, with what to change; none: it may succeed the next time without a change.
pub(super) fn lasting(error: &CallError, doing: &str) -> Option<String> {
    match error {
        CallError::Refused { code, description } => {
            let advice = advice(*code, description)?;
            Some(format!("JetStream refuses {doing} ({description}): {advice}"))
        }
        CallError::Bus(error @ BusError::Forbidden { .. }) => Some(format!("JetStream refuses {doing}: {error}")),
        CallError::Bus(_) => None,
    }
}

/// Advice for a lasting refusal.
fn advice(code: u64, description: &str) -> Option<&'static str> {
    Some(match code {
        code::ACCOUNT_RESOURCES_EXCEEDED | code::INSUFFICIENT_RESOURCES | code::NO_STORAGE => {
            "give it room on disk: raise `max_file_store` of the server, `max_file` of the account"
        }
        code::STREAMS_LIMIT => "raise `max_streams` of the account: a fleet has eight",
        code::NO_PEERS => "start the cluster's servers that are down, and give them room on disk (`max_file_store`)",
        code::SUBJECT_OVERLAP => "another stream of the account stores these subjects: delete it, or take them from it",
        code::STREAM_BYTES_LIMIT => {
            "raise `disk_max_stream_bytes` of the account: a bucket takes up to 16 MiB, the stream of events as much as `events.stream_max_bytes`"
        }
        code::STREAM_STORE_FAILED if description.contains("maximum bytes") => "raise its limit (`nats stream edit`), or see who fills it",
        code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => super::jetstream::ENABLE_JETSTREAM,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_reason_until_the_operation_succeeds() {
        let refusals = Refusals::default();
        assert_eq!(refusals.reason(), None);
        assert!(refusals.add("KV_a", Act::Make, "no room", Some(Value::Null)));
        assert!(!refusals.add("KV_a", Act::Make, "no room", Some(Value::Null)), "it is known");
        assert!(refusals.add("KV_b", Act::Make, "no room", Some(Value::Null)));
        assert_eq!(refusals.reason().as_deref(), Some("no room"), "the same reason is shown once");
        for stream in ["KV_c", "KV_d"] {
            refusals.add(stream, Act::Store, &format!("{stream} is full"), None);
        }
        assert_eq!(refusals.reason().as_deref(), Some("no room; KV_c is full; and 1 more like this"));
        assert_eq!(refusals.to_make(), [("KV_a".to_owned(), Value::Null), ("KV_b".to_owned(), Value::Null)]);
        assert!(!refusals.remove("KV_a", Act::Store), "that was not refused");
        for (stream, act) in [("KV_a", Act::Make), ("KV_b", Act::Make), ("KV_c", Act::Store), ("KV_d", Act::Store)] {
            assert!(refusals.remove(stream, act));
        }
        assert_eq!(refusals.reason(), None);
    }

    #[test]
    fn a_refused_store_is_forgotten_when_it_does_not_occur_again() {
        let refusals = Refusals::default();
        refusals.add("KV_a", Act::Make, "no room", Some(Value::Null));
        refusals.add("KV_a", Act::Store, "full", None);
        for _ in 0..5 {
            assert!(!refusals.age(), "it occurs again and again");
            refusals.add("KV_a", Act::Store, "full", None);
        }
        let forgets: Vec<bool> = (0..6).map(|_| refusals.age()).collect();
        assert_eq!(forgets, [false, false, false, false, true, false]);
        assert_eq!(refusals.reason().as_deref(), Some("no room"));
        refusals.add("KV_a", Act::Store, "full", None);
        assert!(refusals.renew() && !refusals.renew());
        assert_eq!(refusals.reason().as_deref(), Some("no room"));
    }

    #[test]
    fn refusals_are_bounded() {
        let refusals = Refusals::default();
        let added = (0..2 * REMEMBERED).filter(|number| refusals.add(&number.to_string(), Act::Store, "full", None)).count();
        assert_eq!(added, REMEMBERED);
    }

    #[test]
    fn only_an_error_that_lasts_until_an_operator_changes_something_is_a_refusal() {
        let refused = |code| CallError::Refused { code, description: "described".to_owned() };
        let forbidden = BusError::Forbidden { subject: "$KV.a.b".to_owned() };
        let timed_out = BusError::TimedOut { subject: "a".to_owned(), timeout: std::time::Duration::from_secs(5) };
        for (error, parts) in [
            (refused(code::NO_STORAGE), Some(["the stream KV_a (described)", "max_file_store"])),
            (refused(code::STREAMS_LIMIT), Some(["the stream KV_a (described)", "max_streams"])),
            (CallError::Bus(forbidden), Some(["may not publish to $KV.a.b", "allow"])),
            (refused(code::NOT_AVAILABLE), None),
            (refused(code::WRONG_LAST_SEQUENCE), None),
            (CallError::Bus(timed_out), None),
        ] {
            let reason = lasting(&error, "the stream KV_a");
            assert_eq!(reason.is_some(), parts.is_some(), "{error:?}");
            assert!(parts.into_iter().flatten().all(|part| reason.as_deref().is_some_and(|reason| reason.contains(part))), "{reason:?}");
        }
    }
}
