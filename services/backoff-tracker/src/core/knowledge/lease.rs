//! The leases that this node knows of. The bus grants them by compare-and-set.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::RoundTrips;
use contract::{AttemptId, DEADLINES, NodeName};

use super::backoff_key::BackoffKeyId;
use crate::core::remove_from_index;

/// The round trip that is assumed until the bus has answered.
const ANSWER_EXPECTED: Duration = Duration::from_millis(50);
/// Missed answers in a row after which the bus counts as lost. It is then not asked for leases until it is back.
pub const MISSES_UNTIL_LOST: u32 = 3;
/// Leases remembered before expired ones are forgotten; other nodes' leases never exceed this. If a lease is not remembered, the bus
/// answers whether another node holds it.
const LEASES_REMEMBERED: usize = 4_096;
/// Expired leases are looked for this often at most.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// The name of a lease. Its key in the bucket is derived from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// The next attempt of an entry, for all nodes. The attempt is the failure that opened the epoch.
    Probe(BackoffKeyId, AttemptId),
    /// Resolving an image that no node has resolved lately. The second and third lease are used if the holders of those before get no
    /// answer.
    Lead(BackoffKeyId, u8),
    /// An attempt at a registry that has not answered any node lately.
    Slot(BackoffKeyId, u8),
}

impl LeaseName {
    pub(crate) fn backoff_key(self) -> BackoffKeyId {
        let (Self::Probe(backoff_key, _) | Self::Lead(backoff_key, _) | Self::Slot(backoff_key, _)) = self;
        backoff_key
    }
}

/// The id of a request of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[derive(Debug)]
enum Lease {
    /// The bus has been asked.
    Asked { by: RequestId, at: Duration },
    /// Held for a request of this node.
    Mine { by: RequestId, until: Duration },
    /// Held by another node, if known by which.
    Theirs { until: Duration, holder: Option<NodeName> },
    /// Released.
    Free { since: Duration },
}

/// The state of a lease for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is held for this request.
    Held,
    /// The bus is asked now, by an effect of the caller. Look again at this time.
    Ask(Duration),
    /// The bus was asked and has not answered. Look again at this time.
    Asked(Duration),
    /// Another request or node holds it until this time, or this request may ask for it then.
    Wait(Duration),
}

/// The leases that this node knows of.
#[derive(Debug)]
pub(super) struct Leases {
    /// How long answers of the bus take.
    answers: RoundTrips,
    known: BTreeMap<LeaseName, Lease>,
    /// Indexes of `known`, because few leases are this node's: the held ones by request, and in `asked` those that the bus was asked for.
    mine: BTreeMap<RequestId, BTreeSet<LeaseName>>,
    asked: BTreeSet<LeaseName>,
    swept: Duration,
}

impl Default for Leases {
    fn default() -> Self {
        let answers = RoundTrips::expected(ANSWER_EXPECTED);
        Self { answers, known: BTreeMap::new(), mine: BTreeMap::new(), asked: BTreeSet::new(), swept: Duration::ZERO }
    }
}

impl Leases {
    /// The bus has answered a request that was sent at `asked`.
    pub(super) fn answered(&mut self, now: Duration, asked: Duration) {
        self.answers.saw(now, asked);
    }

    /// How long to wait for an answer of the bus.
    pub(super) fn answer_within(&self) -> Duration {
        self.answers.within(DEADLINES.attempt_lease_answer.least, DEADLINES.attempt_lease_answer.most)
    }

    /// Asks for the lease if it may be free: not before `not_before`, and not before `stagger` after it was released or expired, so that
    /// not all nodes ask at once.
    pub(super) fn want(&mut self, now: Duration, name: LeaseName, by: RequestId, not_before: Duration, stagger: Duration) -> Standing {
        let from = match self.known.get(&name) {
            Some(Lease::Mine { by: holder, until }) if now < *until => {
                return if *holder == by { Standing::Held } else { Standing::Wait(*until) };
            }
            Some(Lease::Asked { at, .. }) => return Standing::Asked(*at + self.answer_within()),
            Some(Lease::Theirs { until, .. }) if now < *until => return Standing::Wait(*until),
            Some(Lease::Theirs { until, .. } | Lease::Mine { until, .. }) => *until + stagger,
            Some(Lease::Free { since }) => *since + stagger,
            None => Duration::ZERO,
        };
        let from = from.max(not_before);
        if now < from {
            return Standing::Wait(from);
        }
        self.make_room(now);
        self.put(name, Lease::Asked { by, at: now });
        Standing::Ask(now + self.answer_within())
    }

    /// This node holds the lease now. Returns the request that asked, if it is still waited for.
    pub(super) fn won(&mut self, now: Duration, name: LeaseName) -> Option<RequestId> {
        let Some(Lease::Asked { by, at }) = self.known.get(&name) else { return None };
        let (by, at) = (*by, *at);
        // The term is counted from when the bus was asked, because the server's count began later.
        let until = at.min(now) + DEADLINES.attempt_lease;
        self.put(name, Lease::Mine { by, until });
        Some(by)
    }

    /// The request that still waits for the bus's answer about a lease.
    pub(super) fn asker(&self, name: LeaseName) -> Option<RequestId> {
        match self.known.get(&name) {
            Some(Lease::Asked { by, .. }) => Some(*by),
            _ => None,
        }
    }

    /// No request of this node needs it any more: it is released.
    pub(super) fn give_up_mine(&mut self, now: Duration, name: LeaseName) {
        if matches!(self.known.get(&name), Some(Lease::Mine { .. })) {
            self.put(name, Lease::Free { since: now });
        }
    }

    /// Another node holds it, for this long at most. Without its name, it is the last one that is known.
    pub(super) fn taken(&mut self, now: Duration, name: LeaseName, left: Duration, holder: Option<NodeName>) {
        let mine = self.is_mine(now, name);
        self.make_room(now);
        if !mine && (self.known.contains_key(&name) || self.known.len() < LEASES_REMEMBERED) {
            let last = match self.known.get(&name) {
                Some(Lease::Theirs { holder, .. }) => holder.clone(),
                _ => None,
            };
            self.put(name, Lease::Theirs { until: now + left.min(DEADLINES.attempt_lease), holder: holder.or(last) });
        }
    }

    /// Another node has released it.
    pub(super) fn freed(&mut self, now: Duration, name: LeaseName) {
        if matches!(self.known.get(&name), Some(Lease::Theirs { .. })) {
            self.put(name, Lease::Free { since: now });
        }
    }

    /// When the first of the leases held for a request expires.
    pub(super) fn runs_out(&self, now: Duration, by: RequestId) -> Option<Duration> {
        self.held(now, by).map(|(_, until)| until).min()
    }

    /// Whether this node holds it, for any request.
    pub(super) fn is_mine(&self, now: Duration, name: LeaseName) -> bool {
        matches!(self.known.get(&name), Some(Lease::Mine { until, .. }) if now < *until)
    }

    /// The leases that are held, and by which other node; none: by this one.
    pub(super) fn holders(&self, now: Duration) -> impl Iterator<Item = (LeaseName, Option<&NodeName>)> {
        self.known.iter().filter_map(move |(name, lease)| match lease {
            Lease::Mine { until, .. } if now < *until => Some((*name, None)),
            Lease::Theirs { until, holder: Some(holder) } if now < *until => Some((*name, Some(holder))),
            _ => None,
        })
    }

    /// When its holder took it, at the latest.
    pub(super) fn taken_at(&self, name: LeaseName) -> Option<Duration> {
        match self.known.get(&name) {
            Some(Lease::Mine { until, .. } | Lease::Theirs { until, .. }) => Some(until.saturating_sub(DEADLINES.attempt_lease)),
            _ => None,
        }
    }

    /// Passes leases of a request on to another request of this node, for the rest of their term: those that `which` selects and that were
    /// taken less than `within` ago. Returns whether there were any.
    pub(super) fn pass_on(
        &mut self,
        now: Duration,
        by: RequestId,
        to: RequestId,
        within: Duration,
        which: impl Fn(LeaseName) -> bool,
    ) -> bool {
        let is_new = |(name, until): &(LeaseName, Duration)| which(*name) && now + DEADLINES.attempt_lease < *until + within;
        let new: Vec<(LeaseName, Duration)> = self.held(now, by).filter(is_new).collect();
        new.iter().for_each(|(name, until)| self.put(*name, Lease::Mine { by: to, until: *until }));
        !new.is_empty()
    }

    /// Forgets the held leases of a request that `which` selects, and returns them, because they must be released.
    pub(super) fn drop_of(&mut self, now: Duration, by: RequestId, which: impl Fn(LeaseName) -> bool) -> Vec<LeaseName> {
        let mine: Vec<LeaseName> = self.held(now, by).map(|(name, _)| name).filter(|name| which(*name)).collect();
        mine.iter().for_each(|name| self.remove(*name));
        mine
    }

    /// Gives up the leases that the bus has not answered about in time. Returns them with the requests that asked.
    pub(super) fn give_up(&mut self, now: Duration) -> Vec<(LeaseName, RequestId)> {
        let within = self.answer_within();
        let late = |name: &LeaseName| match self.known.get(name)? {
            Lease::Asked { by, at } if *at + within <= now => Some((*name, *by)),
            _ => None,
        };
        let late: Vec<(LeaseName, RequestId)> = self.asked.iter().filter_map(late).collect();
        late.iter().for_each(|(name, _)| self.remove(*name));
        late
    }

    /// If there are too many, forgets those that expired or were released a while ago.
    fn make_room(&mut self, now: Duration) {
        if self.known.len() < LEASES_REMEMBERED || now < self.swept + SWEPT_EVERY {
            return;
        }
        self.swept = now;
        let until = |lease: &Lease| match lease {
            Lease::Asked { .. } => Duration::MAX,
            Lease::Mine { until: ends, .. } | Lease::Theirs { until: ends, .. } | Lease::Free { since: ends } => {
                *ends + DEADLINES.attempt_lease
            }
        };
        let over: Vec<LeaseName> = self.known.iter().filter(|(_, lease)| until(lease) <= now).map(|(name, _)| *name).collect();
        over.into_iter().for_each(|name| self.remove(name));
    }

    /// The leases that are held for a request, and until when.
    fn held(&self, now: Duration, by: RequestId) -> impl Iterator<Item = (LeaseName, Duration)> {
        let until = move |name: &LeaseName| match self.known.get(name)? {
            Lease::Mine { until, .. } if now < *until => Some((*name, *until)),
            _ => None,
        };
        self.mine.get(&by).into_iter().flatten().filter_map(until)
    }

    fn put(&mut self, name: LeaseName, lease: Lease) {
        self.remove(name);
        match &lease {
            Lease::Mine { by, .. } => drop(self.mine.entry(*by).or_default().insert(name)),
            Lease::Asked { .. } => drop(self.asked.insert(name)),
            Lease::Theirs { .. } | Lease::Free { .. } => {}
        }
        self.known.insert(name, lease);
    }

    fn remove(&mut self, name: LeaseName) {
        match self.known.remove(&name) {
            Some(Lease::Mine { by, .. }) => remove_from_index(&mut self.mine, &by, &name),
            Some(Lease::Asked { .. }) => drop(self.asked.remove(&name)),
            Some(Lease::Theirs { .. } | Lease::Free { .. }) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(number: usize) -> LeaseName {
        LeaseName::Lead(BackoffKeyId(number as u128), 0)
    }

    #[test]
    fn leases_of_others_are_bounded_and_a_forgotten_one_may_be_asked_for() {
        let mut leases = Leases::default();
        let second = Duration::from_secs(1);
        for number in 0..3 * LEASES_REMEMBERED {
            leases.taken(second, lead(number), DEADLINES.attempt_lease, None);
        }
        assert_eq!(leases.known.len(), LEASES_REMEMBERED);
        let request = RequestId(1);
        assert_eq!(leases.want(second, lead(0), request, Duration::ZERO, Duration::ZERO), Standing::Wait(second + DEADLINES.attempt_lease));
        let forgotten = lead(2 * LEASES_REMEMBERED);
        assert_eq!(
            leases.want(second, forgotten, request, Duration::ZERO, Duration::ZERO),
            Standing::Ask(second + DEADLINES.attempt_lease_answer.least)
        );
        leases.taken(second, forgotten, DEADLINES.attempt_lease, None);
        assert!(matches!(leases.want(second, forgotten, request, Duration::ZERO, Duration::ZERO), Standing::Wait(_)));
        leases.taken(second + 2 * DEADLINES.attempt_lease, lead(5 * LEASES_REMEMBERED), DEADLINES.attempt_lease, None);
        assert_eq!(leases.known.len(), 1, "expired leases make room");
    }
}
