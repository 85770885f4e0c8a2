//! What JetStream refuses to do for this login, by the stream it is about: as long as there is any of it, the bus is degraded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::jetstream::{CallError, code};
use crate::error::BusError;

/// The most streams of which refusals are remembered; a fleet has eight.
const REMEMBERED: usize = 64;
/// A refusal that is not tried again here is forgotten when nobody has met it for so many looks at the server.
const LOOKS_KEPT: u32 = 1;
/// So many refusals are said at once.
const SAID: usize = 2;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// To make the stream.
    Make,
    /// To change its settings.
    Change,
    /// To store a message in it.
    Store,
}

/// What is refused now.
#[derive(Default)]
pub(super) struct Refusals {
    by_stream: Mutex<BTreeMap<(String, Act), Refusal>>,
    /// What this login may not do, as the server has said on this connection: it is not tried again on it.
    forbidden: Mutex<BTreeSet<(String, Act)>>,
    /// How many there are: a message that is stored asks for no more than this.
    count: AtomicUsize,
}

struct Refusal {
    reason: String,
    /// The configuration that was refused, to be tried again; none: callers try again by themselves.
    config: Option<Value>,
    /// How often the server was looked at since it was refused last.
    looks: u32,
}

impl Refusals {
    /// Takes note of a refusal; whether that is news.
    pub(super) fn add(&self, stream: &str, act: Act, reason: &str, config: Option<Value>) -> bool {
        let mut refused = self.refused();
        let key = (stream.to_owned(), act);
        if refused.len() >= REMEMBERED && !refused.contains_key(&key) {
            return false;
        }
        let before = refused.insert(key, Refusal { reason: reason.to_owned(), config, looks: 0 });
        self.count.store(refused.len(), Ordering::Relaxed);
        before.is_none_or(|before| before.reason != reason)
    }

    /// It was done: whether it was refused before.
    pub(super) fn remove(&self, stream: &str, act: Act) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut refused = self.refused();
        let removed = refused.remove(&(stream.to_owned(), act)).is_some();
        self.count.store(refused.len(), Ordering::Relaxed);
        removed
    }

    /// The server is looked at again. What nobody has tried for a while may be possible by now: only trying tells. Whether anything was
    /// forgotten.
    pub(super) fn age(&self) -> bool {
        self.forget(|refusal| {
            refusal.looks += 1;
            refusal.config.is_none() && refusal.looks > LOOKS_KEPT
        })
    }

    /// The server has said that this login may not do it.
    pub(super) fn forbid(&self, stream: &str, act: Act) {
        let mut forbidden = self.forbidden();
        if act != Act::Store && forbidden.len() < REMEMBERED {
            forbidden.insert((stream.to_owned(), act));
        }
    }

    /// Whether the server has said on this connection that this login may not do it.
    pub(super) fn is_forbidden(&self, stream: &str, act: Act) -> bool {
        self.forbidden().contains(&(stream.to_owned(), act))
    }

    /// There is another connection, which may be allowed more: forgets what is not tried again here. Whether that was anything.
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
        let more = reasons.len().saturating_sub(SAID);
        reasons.truncate(SAID);
        let said = reasons.join("; ");
        match more {
            _ if said.is_empty() => None,
            0 => Some(said),
            more => Some(format!("{said}; and {more} more like this")),
        }
    }

    /// The streams that could not be made, with what they were to be.
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

/// Why JetStream does not do this, with what to change; none: it may do it the next time, without any change.
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

/// What helps against a refusal that lasts.
fn advice(code: u64, description: &str) -> Option<&'static str> {
    Some(match code {
        code::ACCOUNT_RESOURCES_EXCEEDED | code::INSUFFICIENT_RESOURCES | code::NO_STORAGE => {
            "give it room on disk: raise `max_file_store` of the server, `max_file` of the account"
        }
        code::STREAMS_LIMIT => "raise `max_streams` of the account: a fleet has six",
        code::NO_PEERS => "start the cluster's servers that are down, and give them room on disk (`max_file_store`)",
        code::SUBJECT_OVERLAP => "another stream of the account stores these subjects: delete it, or take them from it",
        code::STREAM_BYTES_LIMIT => "raise `disk_max_stream_bytes` of the account to 16 MiB or more",
        code::STREAM_STORE_FAILED if description.contains("maximum bytes") => "raise its limit (`nats stream edit`), or see who fills it",
        code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => super::jetstream::TURN_IT_ON,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_said_until_it_was_done() {
        let refusals = Refusals::default();
        assert_eq!(refusals.reason(), None);
        assert!(refusals.add("KV_a", Act::Make, "no room", Some(Value::Null)));
        assert!(!refusals.add("KV_a", Act::Make, "no room", Some(Value::Null)), "it is known");
        assert!(refusals.add("KV_b", Act::Make, "no room", Some(Value::Null)));
        assert_eq!(refusals.reason().as_deref(), Some("no room"), "the same is said once");
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
    fn what_is_not_tried_again_here_is_forgotten_when_nobody_meets_it_any_more() {
        let refusals = Refusals::default();
        refusals.add("KV_a", Act::Make, "no room", Some(Value::Null));
        refusals.add("KV_a", Act::Store, "full", None);
        for _ in 0..5 {
            assert!(!refusals.age(), "it is met again and again");
            refusals.add("KV_a", Act::Store, "full", None);
        }
        assert_eq!((refusals.age(), refusals.age(), refusals.age()), (false, true, false));
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
    fn only_what_lasts_until_somebody_changes_something_is_a_refusal() {
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
            let said = lasting(&error, "the stream KV_a");
            assert_eq!(said.is_some(), parts.is_some(), "{error:?}");
            assert!(parts.into_iter().flatten().all(|part| said.as_deref().is_some_and(|said| said.contains(part))), "{said:?}");
        }
    }
}
