//! The permits that a leader has out. The counts that each message needs are updated when a permit changes, so no message
//! needs a scan of all permits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use contract::{DEADLINES, NodeName, PermitId};

use super::fair_queue::{Place, Waiter};
use super::quota::Out;
use super::{COUNTED_ANEW, count_down};

/// How long an offered permit waits to be fetched. On a slow bus the offer takes up to 1 s, and so does the answer.
const CALLED_FOR: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Its turn has come, and its node has not fetched it yet.
    Called(Place, Waiter),
    /// In use.
    Claimed,
}

#[derive(Clone, Debug)]
pub(super) struct Permit {
    pub(super) node: NodeName,
    pub(super) granted: Duration,
    /// When its last turn was: its pull may have begun then.
    pub(super) turn: Duration,
    /// How often it was fetched late and took another turn.
    pub(super) late: u8,
    last_seen: Duration,
    pub(super) stage: Stage,
    /// The registry's answer to this pull is known.
    pub(super) answered: bool,
    /// An earlier leader granted it, at an unknown time.
    inherited: bool,
}

#[derive(Debug, Default)]
pub(super) struct Permits {
    permits: BTreeMap<PermitId, Permit>,
    /// Permits without a known answer of the registry, by the time of their grant.
    open: BTreeSet<(Duration, PermitId)>,
    /// How many permits each node has.
    held: BTreeMap<NodeName, u64>,
    /// Ordered by the time when each lapses, so that lapsed ones are found without a scan of all.
    lapses: BTreeSet<(Duration, PermitId)>,
}

impl Permits {
    pub(super) fn len(&self) -> u64 {
        self.permits.len() as u64
    }

    pub(super) fn assert_invariants(&self) {
        let all = self.permits.len();
        debug_assert_eq!(self.lapses.len(), all, "each permit lapses at one time");
        debug_assert!(self.open.len() <= all, "each open permit is out");
        if all <= COUNTED_ANEW {
            debug_assert_eq!(self.held.values().sum::<u64>(), all as u64, "permits are counted for each node");
            debug_assert_eq!(
                self.open.len(),
                self.permits.values().filter(|permit| !permit.answered).count(),
                "an answered permit is not open"
            );
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }

    pub(super) fn contains(&self, id: PermitId) -> bool {
        self.permits.contains_key(&id)
    }

    pub(super) fn get(&self, id: PermitId) -> Option<&Permit> {
        self.permits.get(&id)
    }

    /// Marks a permit as in use.
    pub(super) fn claim(&mut self, id: PermitId) {
        self.change(id, |permit| permit.stage = Stage::Claimed);
    }

    /// Notes that the permit's holder was seen just now.
    pub(super) fn refresh(&mut self, now: Duration, id: PermitId) {
        self.change(id, |permit| permit.last_seen = now);
    }

    /// Gives a permit another turn, in case its holder has not received the grant. If it has, its pull began earlier, so `granted` stays.
    pub(super) fn grant_again(&mut self, now: Duration, id: PermitId) {
        if let Some(permit) = self.permits.get_mut(&id) {
            (permit.turn, permit.late) = (now, permit.late.saturating_add(1));
        }
    }

    fn change(&mut self, id: PermitId, change: impl FnOnce(&mut Permit)) {
        let Some(permit) = self.permits.get_mut(&id) else { return };
        self.lapses.remove(&(permit.lapses(), id));
        change(permit);
        self.lapses.insert((permit.lapses(), id));
    }

    /// Adds a permit; `inherited`: an earlier leader granted it. None has this id yet.
    pub(super) fn insert(&mut self, now: Duration, id: PermitId, node: NodeName, stage: Stage, inherited: bool) {
        let late = if let Stage::Called(_, waiter) = &stage { waiter.late } else { 0 };
        *self.held.entry(node.clone()).or_default() += 1;
        self.open.insert((now, id));
        let permit = Permit { node, granted: now, turn: now, late, last_seen: now, stage, answered: false, inherited };
        self.lapses.insert((permit.lapses(), id));
        self.permits.insert(id, permit);
    }

    pub(super) fn remove(&mut self, id: PermitId) -> Option<Permit> {
        let permit = self.permits.remove(&id)?;
        self.open.remove(&(permit.granted, id));
        self.lapses.remove(&(permit.lapses(), id));
        count_down(&mut self.held, &permit.node);
        Some(permit)
    }

    /// Notes that the registry's answer to this pull is known. Returns when the permit was granted, if that is known; none if this node has
    /// no such permit, or has reported before.
    pub(super) fn mark_answered(&mut self, node: &NodeName, id: PermitId) -> Option<Option<Duration>> {
        let permit = self.permits.get_mut(&id).filter(|permit| permit.node == *node && !permit.answered)?;
        permit.answered = true;
        self.open.remove(&(permit.granted, id));
        Some(permit.granted_here())
    }

    /// Extends all permits by the time for which the leader was stalled.
    pub(super) fn excuse(&mut self, stalled_for: Duration) {
        self.permits.values_mut().for_each(|permit| permit.last_seen += stalled_for);
        self.lapses = self.permits.iter().map(|(id, permit)| (permit.lapses(), *id)).collect();
    }

    pub(super) fn out(&self) -> Out {
        Out { open: self.open.len() as u64, since: self.open.first().map(|(granted, _)| *granted) }
    }

    /// Permits in use that were granted in this time and have no known answer of the registry.
    pub(super) fn unanswered_of(&self, time: Range<Duration>) -> impl Iterator<Item = PermitId> {
        let first = |granted| (granted, PermitId::from(0_u128));
        let open = self.open.range(first(time.start)..first(time.end.max(time.start))).map(|(_, id)| *id);
        open.filter(|id| self.permits.get(id).is_some_and(|permit| matches!(permit.stage, Stage::Claimed)))
    }

    pub(super) fn held_by(&self, node: &NodeName) -> u64 {
        self.held.get(node).copied().unwrap_or_default()
    }

    pub(super) fn nodes_holding(&self, least: u64) -> impl Iterator<Item = &NodeName> {
        self.held.iter().filter(move |(_, held)| **held >= least).map(|(node, _)| node)
    }

    pub(super) fn lapsed(&self, now: Duration) -> Vec<PermitId> {
        self.lapses.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }
}

impl Permit {
    /// When it was granted; none if an earlier leader granted it.
    pub(super) fn granted_here(&self) -> Option<Duration> {
        (!self.inherited).then_some(self.granted)
    }

    fn lapses(&self) -> Duration {
        self.last_seen
            + match self.stage {
                Stage::Called(..) => CALLED_FOR,
                Stage::Claimed => DEADLINES.budget_permit_lease,
            }
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    #[test]
    fn counters_match_permits() {
        let (mut permits, mut random, mut ids) = (Permits::default(), Random::seeded(1), Vec::new());
        for step in 0..2_000 {
            let now = Duration::from_millis(step);
            let any = ids.get((random.fraction() * ids.len() as f64) as usize).copied();
            match (any, (random.fraction() * 8.0) as u64) {
                (Some(id), 0..2) => drop(permits.remove(id)),
                (Some(id), 2) => permits.refresh(now, id),
                (Some(id), 3) => permits.grant_again(now, id),
                (Some(_), 4) if step % 100 == 0 => permits.excuse(Duration::from_millis(7)),
                (Some(id), 5) => {
                    let node = permits.get(id).map(|permit| permit.node.clone());
                    let _ = node.and_then(|node| permits.mark_answered(&node, id));
                }
                _ => {
                    let id = PermitId::random(&mut random);
                    let node = format!("n{}", step % 7).parse().expect("a name");
                    permits.insert(now, id, node, Stage::Claimed, false);
                    ids.push(id);
                }
            }
            let open = permits.permits.values().filter(|permit| !permit.answered);
            let since = open.clone().map(|permit| permit.granted).min();
            assert_eq!(permits.out(), Out { open: open.count() as u64, since });
            for (node, held) in &permits.held {
                assert_eq!(*held, permits.permits.values().filter(|permit| permit.node == *node).count() as u64);
            }
            let lapses: BTreeSet<_> = permits.permits.iter().map(|(id, permit)| (permit.lapses(), *id)).collect();
            assert_eq!(permits.lapses, lapses);
            assert_eq!(permits.held.values().sum::<u64>(), permits.len());
        }
    }
}
