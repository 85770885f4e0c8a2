//! Who may go ahead: leases by compare-and-set, as far as this node knows of them.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::AttemptId;

use super::entry::PROBE_DEADLINE;
use super::topic::TopicId;

/// How long an answer of the bus is waited for before one goes ahead without it.
pub const BUS_ANSWER: Duration = Duration::from_millis(250);
/// So many answers missing in a row mean that the bus is gone: it is not asked any more until it is back.
pub const MISSES_TO_GONE: u32 = 3;

/// What a lease is for. Its key in the bucket is derived from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// Trying an entry whose time is up, on behalf of all. The attempt is the failure that opened the epoch.
    Probe(TopicId, AttemptId),
    /// Resolving an image that nobody has resolved lately; the second and third when those before stay without answer.
    Lead(TopicId, u8),
    /// Asking a registry that has not answered anybody lately.
    Slot(TopicId, u8),
}

/// Which wish of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WishId(pub u64);

#[derive(Clone, Copy, Debug)]
enum Lease {
    /// The bus has been asked.
    Asked { by: WishId, at: Duration },
    /// Held for a wish of this node.
    Mine { by: WishId, until: Duration },
    /// Held by somebody else.
    Theirs { until: Duration },
    /// Given back by somebody else.
    Free { since: Duration },
}

/// How a wish stands to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is this wish's.
    Held,
    /// The bus was just asked, by the caller's effect.
    Ask,
    /// Asked, no answer yet; look again then.
    Asked(Duration),
    /// Somebody else's until then, or not yet one's turn.
    Wait(Duration),
}

impl Standing {
    /// When an answer that is waited for is overdue.
    pub(super) fn look_again(self, now: Duration) -> Duration {
        match self {
            Self::Asked(overdue) => overdue,
            _ => now + BUS_ANSWER,
        }
    }
}

/// The leases that this node knows of.
#[derive(Debug, Default)]
pub(super) struct Leases(BTreeMap<LeaseName, Lease>);

impl Leases {
    /// Asks for the lease if it may be had: not before `not_before`, and after one was given back or ran out only `stagger`
    /// later, so that not everybody asks at once.
    pub(super) fn want(&mut self, now: Duration, name: LeaseName, by: WishId, not_before: Duration, stagger: Duration) -> Standing {
        let from = match self.0.get(&name) {
            Some(Lease::Mine { by: holder, until }) if now < *until => {
                return if *holder == by { Standing::Held } else { Standing::Wait(*until) };
            }
            Some(Lease::Asked { at, .. }) => return Standing::Asked(*at + BUS_ANSWER),
            Some(Lease::Theirs { until }) if now < *until => return Standing::Wait(*until),
            Some(Lease::Theirs { until } | Lease::Mine { until, .. }) => *until + stagger,
            Some(Lease::Free { since }) => *since + stagger,
            None => Duration::ZERO,
        };
        let from = from.max(not_before);
        if now < from {
            return Standing::Wait(from);
        }
        self.0.insert(name, Lease::Asked { by, at: now });
        Standing::Ask
    }

    /// It is ours. Returns the wish that asked, if it is still asked for.
    pub(super) fn won(&mut self, now: Duration, name: LeaseName) -> Option<WishId> {
        let Some(Lease::Asked { by, at }) = self.0.get(&name).copied() else { return None };
        // Counted from the question: the server's own count began later.
        self.0.insert(name, Lease::Mine { by, until: at.min(now) + PROBE_DEADLINE });
        Some(by)
    }

    /// It is somebody else's, for this long at most.
    pub(super) fn taken(&mut self, now: Duration, name: LeaseName, left: Duration) {
        let mine = matches!(self.0.get(&name), Some(Lease::Mine { until, .. }) if now < *until);
        if !mine {
            self.0.insert(name, Lease::Theirs { until: now + left.min(PROBE_DEADLINE) });
        }
    }

    /// Somebody gave it back.
    pub(super) fn freed(&mut self, now: Duration, name: LeaseName) {
        if matches!(self.0.get(&name), Some(Lease::Theirs { .. })) {
            self.0.insert(name, Lease::Free { since: now });
        }
    }

    /// When the first of the leases held for a wish runs out.
    pub(super) fn runs_out(&self, now: Duration, by: WishId) -> Option<Duration> {
        let until = |lease: &Lease| match lease {
            Lease::Mine { by: holder, until } if *holder == by && now < *until => Some(*until),
            _ => None,
        };
        self.0.values().filter_map(until).min()
    }

    /// Since when at the latest somebody holds it.
    pub(super) fn taken_at(&self, name: LeaseName) -> Option<Duration> {
        match self.0.get(&name) {
            Some(Lease::Mine { until, .. } | Lease::Theirs { until }) => Some(until.saturating_sub(PROBE_DEADLINE)),
            _ => None,
        }
    }

    /// Forgets the leases of a wish; returns those that are still held and have to be given back.
    pub(super) fn drop_of(&mut self, now: Duration, by: WishId, which: impl Fn(LeaseName) -> bool) -> Vec<LeaseName> {
        let held = |lease: &Lease| matches!(lease, Lease::Mine { by: holder, until } if *holder == by && now < *until);
        let mine: Vec<LeaseName> = self.0.iter().filter(|(name, lease)| held(lease) && which(**name)).map(|(name, _)| *name).collect();
        for name in &mine {
            self.0.insert(*name, Lease::Free { since: now });
        }
        mine
    }

    /// Questions that the bus has not answered in time are given up. Returns the wishes that asked.
    pub(super) fn give_up(&mut self, now: Duration) -> Vec<WishId> {
        let late: Vec<(LeaseName, WishId)> = self.0.iter().filter_map(|(name, lease)| late(now, *name, lease)).collect();
        for (name, _) in &late {
            self.0.remove(name);
        }
        late.into_iter().map(|(_, by)| by).collect()
    }

    /// Forgets what ran out a while ago and all that is free.
    pub(super) fn collect_garbage(&mut self, now: Duration) {
        self.0.retain(|_, lease| match lease {
            Lease::Asked { .. } => true,
            Lease::Mine { until, .. } | Lease::Theirs { until } => now < *until + PROBE_DEADLINE,
            Lease::Free { since } => now < *since + PROBE_DEADLINE,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn late(now: Duration, name: LeaseName, lease: &Lease) -> Option<(LeaseName, WishId)> {
    match lease {
        Lease::Asked { by, at } if *at + BUS_ANSWER <= now => Some((name, *by)),
        _ => None,
    }
}
