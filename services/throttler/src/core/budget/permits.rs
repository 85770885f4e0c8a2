//! The requests of nodes for permits of a budget, as its leader knows them: one record for each, from the first message about it to its
//! return.
//!
//! A request waits in the queue until its turn comes. Then its permit is out: called until its node fetches it, and from then on in use. A
//! record ends when its node returns the permit, or lapses when the node is silent. What each message needs is indexed by the record's
//! stage, so no message needs a scan of all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use contract::{DEADLINES, NodeName, PermitId};

use super::fair_queue::{FairQueue, Place};
use super::quota::Out;
use super::{COUNTED_ANEW, count_down};

/// How long an offered permit waits to be fetched. On a slow bus the offer takes up to 1 s, and so does the answer.
const CALLED_FOR: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    Waiting(Place),
    /// Its turn has come, and its node has not fetched it yet.
    Called(Place),
    /// In use.
    Claimed,
    /// Its node has asked again for the granted permit, too late, and waits for another turn of the rate. It may be in use all the same.
    Late,
}

#[derive(Debug)]
pub(super) struct Permit {
    pub(super) node: NodeName,
    pub(super) stage: Stage,
    /// When it was granted. Until then, when it was requested.
    pub(super) granted: Duration,
    /// When its last turn was: its pull may have begun then.
    pub(super) turn: Duration,
    /// How often it was fetched late and took another turn.
    pub(super) late: u8,
    /// When its node was seen last, or when its last turn was if that is later.
    last_seen: Duration,
    /// The registry's answer to this pull is known.
    pub(super) answered: bool,
    /// An earlier leader granted it, at an unknown time.
    inherited: bool,
}

#[derive(Debug, Default)]
pub(super) struct Permits {
    all: BTreeMap<PermitId, Permit>,
    /// Those that wait.
    queue: FairQueue,
    /// Permits without a known answer of the registry, by the time of their grant.
    open: BTreeSet<(Duration, PermitId)>,
    /// How many permits of each node are out.
    held: BTreeMap<NodeName, u64>,
    late: BTreeSet<PermitId>,
    /// Ordered by the time when each lapses.
    lapses: BTreeSet<(Duration, PermitId)>,
}

impl Permits {
    /// How many are out.
    pub(super) fn out_count(&self) -> u64 {
        (self.all.len() - self.queue.len()) as u64
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Whether none waits and none is out.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn assert_invariants(&self) {
        let all = self.all.len();
        debug_assert_eq!(self.lapses.len(), all, "each request lapses at one time");
        debug_assert!(self.open.len() as u64 <= self.out_count(), "each open permit is out");
        if all <= COUNTED_ANEW {
            let count = |which: fn(&Permit) -> bool| self.all.values().filter(|permit| which(permit)).count();
            debug_assert_eq!(self.held.values().sum::<u64>(), count(Permit::is_out) as u64, "permits are counted for each node");
            debug_assert_eq!(self.open.len(), count(|permit| permit.is_out() && !permit.answered), "an answered permit is not open");
            debug_assert_eq!(self.late.len(), count(|permit| permit.stage == Stage::Late), "each late permit is found");
            debug_assert_eq!(self.queue.len(), count(|permit| !permit.is_out()), "what is not out waits");
        }
        self.queue.assert_invariants();
    }

    pub(super) fn get(&self, id: PermitId) -> Option<&Permit> {
        self.all.get(&id)
    }

    /// Adds a request to the queue, or repeats it.
    pub(super) fn request(&mut self, now: Duration, node: &NodeName, id: PermitId) -> Result<(), String> {
        if self.all.contains_key(&id) {
            self.refresh(now, id);
        } else {
            let place = self.queue.join(node)?;
            self.insert(id, Permit::new(now, node.clone(), Stage::Waiting(place)));
        }
        Ok(())
    }

    /// The first waiting request of a node that may have a turn.
    pub(super) fn first_waiting(&self, may: impl Fn(&NodeName) -> bool) -> Option<PermitId> {
        self.queue.first(may).map(|(_, id)| id)
    }

    /// The turn of a waiting request has come. Returns its node.
    pub(super) fn call(&mut self, now: Duration, id: PermitId) -> Option<NodeName> {
        let Stage::Waiting(place) = self.get(id)?.stage else { return None };
        self.queue.begin_round(place);
        self.change(id, |permit| {
            permit.stage = Stage::Called(place);
            (permit.granted, permit.turn, permit.last_seen) = (now, now, now);
        });
        Some(self.get(id)?.node.clone())
    }

    /// Takes back a permit that was called and fetched late: its pull has not begun, so it waits at its place for another turn.
    pub(super) fn put_back(&mut self, id: PermitId) {
        self.change(id, |permit| {
            if let Stage::Called(place) = permit.stage {
                (permit.stage, permit.late) = (Stage::Waiting(place), permit.late.saturating_add(1));
            }
        });
    }

    /// Marks a permit as in use. Mostly it is already, because each renewal shows it again.
    pub(super) fn claim(&mut self, id: PermitId) {
        if self.get(id).is_some_and(|permit| permit.stage != Stage::Claimed) {
            self.change(id, |permit| permit.stage = Stage::Claimed);
        }
    }

    /// Adds a permit in use that an earlier leader granted.
    pub(super) fn take_over(&mut self, now: Duration, id: PermitId, node: NodeName) {
        self.remove(id);
        self.insert(id, Permit { inherited: true, ..Permit::new(now, node, Stage::Claimed) });
    }

    /// Notes that the permit's node was seen just now.
    pub(super) fn refresh(&mut self, now: Duration, id: PermitId) {
        let Some(permit) = self.all.get_mut(&id) else { return };
        self.lapses.remove(&(permit.lapses(), id));
        permit.last_seen = now;
        self.lapses.insert((permit.lapses(), id));
    }

    /// The node of a permit in use has asked for it again: it takes another turn.
    pub(super) fn claimed_late(&mut self, now: Duration, id: PermitId) {
        self.change(id, |permit| (permit.stage, permit.last_seen) = (Stage::Late, now));
    }

    /// The first permit that waits for another turn, and its node.
    pub(super) fn first_late(&self) -> Option<(NodeName, PermitId)> {
        let id = *self.late.first()?;
        Some((self.all.get(&id)?.node.clone(), id))
    }

    /// How many have another turn before this one; none if it does not wait for one.
    pub(super) fn late_before(&self, id: PermitId) -> Option<u64> {
        self.late.contains(&id).then(|| self.late.range(..id).count() as u64)
    }

    /// Gives a permit another turn, in case its holder has not received the grant. If it has, its pull began earlier, so `granted` stays.
    pub(super) fn grant_again(&mut self, now: Duration, id: PermitId) {
        self.change(id, |permit| {
            permit.late = permit.late.saturating_add(1);
            (permit.stage, permit.turn, permit.last_seen) = (Stage::Claimed, now, now);
        });
    }

    /// Ends a request, whether it waits or is out.
    pub(super) fn remove(&mut self, id: PermitId) -> Option<Permit> {
        let permit = self.all.remove(&id)?;
        self.lapses.remove(&(permit.lapses(), id));
        if let Stage::Waiting(place) = permit.stage {
            self.queue.remove(place);
        } else {
            self.open.remove(&(permit.granted, id));
            self.late.remove(&id);
            count_down(&mut self.held, &permit.node);
        }
        Some(permit)
    }

    /// Adds a record. None has this id yet.
    fn insert(&mut self, id: PermitId, permit: Permit) {
        self.lapses.insert((permit.lapses(), id));
        if let Stage::Waiting(place) = permit.stage {
            self.queue.insert(place, permit.node.clone(), id);
        } else {
            *self.held.entry(permit.node.clone()).or_default() += 1;
        }
        if permit.is_out() && !permit.answered {
            self.open.insert((permit.granted, id));
        }
        if permit.stage == Stage::Late {
            self.late.insert(id);
        }
        self.all.insert(id, permit);
    }

    fn change(&mut self, id: PermitId, change: impl FnOnce(&mut Permit)) {
        let Some(mut permit) = self.remove(id) else { return };
        change(&mut permit);
        self.insert(id, permit);
    }

    /// Notes that the registry's answer to this pull is known. Returns when the permit was granted, if that is known; none if this node has
    /// no such permit, or has reported before.
    pub(super) fn mark_answered(&mut self, node: &NodeName, id: PermitId) -> Option<Option<Duration>> {
        let permit = self.get(id).filter(|permit| permit.is_out() && permit.node == *node && !permit.answered)?;
        let granted = permit.granted_here();
        self.change(id, |permit| permit.answered = true);
        Some(granted)
    }

    /// Extends the permits that are out by the time for which the leader was stalled. Places lapse: who still waits asks again.
    pub(super) fn excuse(&mut self, stalled_for: Duration) {
        self.all.values_mut().filter(|permit| permit.is_out()).for_each(|permit| permit.last_seen += stalled_for);
        self.lapses = self.all.iter().map(|(id, permit)| (permit.lapses(), *id)).collect();
    }

    pub(super) fn out(&self) -> Out {
        Out { open: self.open.len() as u64, since: self.open.first().map(|(granted, _)| *granted) }
    }

    /// Permits in use that were granted in this time and have no known answer of the registry.
    pub(super) fn unanswered_of(&self, time: Range<Duration>) -> impl Iterator<Item = PermitId> {
        let first = |granted| (granted, PermitId::from(0_u128));
        let open = self.open.range(first(time.start)..first(time.end.max(time.start))).map(|(_, id)| *id);
        open.filter(move |id| self.get(*id).is_some_and(Permit::is_in_use))
    }

    pub(super) fn held_by(&self, node: &NodeName) -> u64 {
        self.held.get(node).copied().unwrap_or_default()
    }

    /// The nodes of all waiting requests, in the order of their turns.
    pub(super) fn waiting_nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.queue.nodes()
    }

    /// How many requests have their turn before this one; none if it does not wait.
    pub(super) fn ahead_of(&self, id: PermitId) -> Option<u64> {
        match self.get(id)?.stage {
            Stage::Waiting(place) => Some(self.queue.ahead_of(place)),
            _ => None,
        }
    }

    pub(super) fn lapsed(&self, now: Duration) -> Vec<PermitId> {
        self.lapses.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }
}

impl Permit {
    fn new(now: Duration, node: NodeName, stage: Stage) -> Self {
        Self { node, stage, granted: now, turn: now, late: 0, last_seen: now, answered: false, inherited: false }
    }

    /// Whether its turn has come.
    pub(super) fn is_out(&self) -> bool {
        !matches!(self.stage, Stage::Waiting(_))
    }

    /// Whether its node has fetched it.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.stage, Stage::Claimed | Stage::Late)
    }

    /// When it was granted; none if an earlier leader granted it.
    pub(super) fn granted_here(&self) -> Option<Duration> {
        (!self.inherited).then_some(self.granted)
    }

    fn lapses(&self) -> Duration {
        self.last_seen
            + match self.stage {
                // A node asks again for what it waits for, and only renews what it uses.
                Stage::Waiting(_) | Stage::Late => DEADLINES.budget_place_lapses_after,
                Stage::Called(_) => CALLED_FOR,
                Stage::Claimed => DEADLINES.budget_permit_lease,
            }
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;

    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn indexes_match_records() {
        let (mut permits, mut random, mut ids) = (Permits::default(), Random::seeded(1), Vec::new());
        for step in 0..2_000 {
            let now = Duration::from_millis(step);
            let any = ids.get((random.fraction() * ids.len() as f64) as usize).copied();
            match (any, (random.fraction() * 12.0) as u64) {
                (Some(id), 0..2) => drop(permits.remove(id)),
                (Some(id), 2) => permits.refresh(now, id),
                (Some(id), 3) => permits.claim(id),
                (Some(id), 4) => permits.claimed_late(now, id),
                (Some(id), 5) => permits.put_back(id),
                (Some(_), 6) if step % 100 == 0 => permits.excuse(Duration::from_millis(7)),
                (Some(id), 7) => {
                    let node = permits.get(id).map(|permit| permit.node.clone());
                    let _ = node.and_then(|node| permits.mark_answered(&node, id));
                }
                (_, 8) => drop(permits.first_waiting(|_| true).and_then(|id| permits.call(now, id))),
                (_, 9) => {
                    let late = permits.first_late();
                    late.into_iter().for_each(|(_, id)| permits.grant_again(now, id));
                }
                _ => {
                    let id = PermitId::random(&mut random);
                    assert_eq!(permits.request(now, &node(&format!("n{}", step % 7)), id), Ok(()));
                    ids.push(id);
                }
            }
            let out = || permits.all.values().filter(|permit| permit.is_out());
            let open = || out().filter(|permit| !permit.answered);
            assert_eq!(permits.out(), Out { open: open().count() as u64, since: open().map(|permit| permit.granted).min() });
            for (node, held) in &permits.held {
                assert_eq!(*held, out().filter(|permit| permit.node == *node).count() as u64);
            }
            let lapses: BTreeSet<_> = permits.all.iter().map(|(id, permit)| (permit.lapses(), *id)).collect();
            assert_eq!(permits.lapses, lapses);
            assert_eq!(permits.held.values().sum::<u64>(), permits.out_count());
            let late: BTreeSet<_> = permits.all.iter().filter(|(_, permit)| permit.stage == Stage::Late).map(|(id, _)| *id).collect();
            assert_eq!(permits.late, late);
            assert_eq!(permits.waiting() + permits.out_count(), permits.all.len() as u64);
        }
    }

    #[test]
    fn silent_request_loses_its_place_and_a_repeated_one_keeps_it() {
        let (mut permits, mut random) = (Permits::default(), Random::seeded(1));
        let [first, second] = [PermitId::random(&mut random), PermitId::random(&mut random)];
        for (at, name, id) in [(0, "a", first), (0, "b", second), (10, "a", first)] {
            assert_eq!(permits.request(Duration::from_secs(at), &node(name), id), Ok(()));
        }
        assert_eq!(permits.lapsed(DEADLINES.budget_place_lapses_after), [second]);
        permits.remove(second);
        assert_eq!((permits.ahead_of(first), permits.waiting()), (Some(0), 1));
        assert_eq!(permits.lapsed(Duration::from_secs(25)), [first]);
    }

    #[test]
    fn permit_that_is_put_back_has_the_next_turn() {
        let (mut permits, mut random, now) = (Permits::default(), Random::seeded(1), Duration::from_secs(1));
        let ids = [(); 3].map(|()| PermitId::random(&mut random));
        for (name, id) in ["a", "b", "c"].into_iter().zip(ids) {
            assert_eq!(permits.request(now, &node(name), id), Ok(()));
        }
        let called = |permits: &mut Permits| {
            let first = permits.first_waiting(|_| true)?;
            permits.call(now, first).map(|_| first)
        };
        assert_eq!((called(&mut permits), called(&mut permits)), (Some(ids[0]), Some(ids[1])));
        permits.put_back(ids[0]);
        assert_eq!((permits.out_count(), permits.ahead_of(ids[0])), (1, Some(0)));
        assert_eq!(called(&mut permits), Some(ids[0]));
        assert_eq!(permits.get(ids[0]).map(|permit| permit.late), Some(1));
    }
}
