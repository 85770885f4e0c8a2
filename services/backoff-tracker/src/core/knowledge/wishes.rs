//! The images that a node wants. Of a thousand each event concerns few: those are found without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::entry::PROBE_DEADLINE;
use super::lease::WishId;
use super::topic::TopicId;
use super::wish::{State, Wish};

/// Indexes of no more wishes than this are compared with them after each step, where assertions are on.
const COMPARED_MOST: usize = 64;

/// All wishes of a node.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Boxed, as each is taken out to be looked at and put back: a map has room for eleven where it has one.
    all: BTreeMap<WishId, Box<Wish>>,
    /// When to look at each again.
    wakes: BTreeSet<(Duration, WishId)>,
    /// Whom what is said of a topic touches, those included that are looked at now.
    touched: BTreeMap<TopicId, BTreeSet<WishId>>,
    /// Who waits for a lease about a topic, the longest first. The first will have it next: only when it goes is the next one looked at.
    queues: BTreeMap<TopicId, BTreeSet<WishId>>,
    /// The topic of each one's queue.
    queued: BTreeMap<WishId, TopicId>,
    /// Those that have come first since, and are to be looked at.
    come_first: BTreeSet<WishId>,
    /// How many were looked at.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl Wishes {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, id: WishId) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: WishId) -> Option<&Wish> {
        self.all.get(&id).map(Box::as_ref)
    }

    /// Changes a wish, if it is there, but for what it waits for.
    pub(super) fn change<T>(&mut self, id: WishId, change: impl FnOnce(&mut Wish) -> T) -> Option<T> {
        let wish = self.all.get_mut(&id)?;
        let before = wish.wake;
        let result = change(wish);
        if wish.wake != before {
            before.map(|wake| self.wakes.remove(&(wake, id)));
            self.wakes.extend(wish.wake.map(|wake| (wake, id)));
        }
        Some(result)
    }

    /// Changes all of them but when to look at them again.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Wish> {
        self.all.values_mut().map(Box::as_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WishId, &Wish)> {
        self.all.iter().map(|(id, wish)| (*id, wish.as_ref()))
    }

    /// One more.
    pub(super) fn insert(&mut self, id: WishId, wish: Box<Wish>) {
        for topic in &wish.aim.ids {
            self.touched.entry(*topic).or_default().insert(id);
        }
        self.put(id, wish);
    }

    /// Takes a wish out to look at it: it is [`put`](Self::put) back, or [given up](Self::give_up).
    pub(super) fn take(&mut self, id: WishId) -> Option<Box<Wish>> {
        let wish = self.all.remove(&id)?;
        if let Some(wake) = wish.wake {
            self.wakes.remove(&(wake, id));
        }
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        Some(wish)
    }

    pub(super) fn put(&mut self, id: WishId, wish: Box<Wish>) {
        self.wakes.extend(wish.wake.map(|wake| (wake, id)));
        self.queue(id, wish.awaits);
        self.all.insert(id, wish);
    }

    /// When to look at one again that waits for a lease, which may be had then: only the first will have it, and when that one goes, the
    /// next is looked at. Now and then each is.
    pub(super) fn wake_of(&self, now: Duration, id: WishId, wish: &Wish, wake: Duration) -> Duration {
        if wish.awaits.is_some_and(|topic| self.is_behind(id, topic)) { wake.max(now + PROBE_DEADLINE) } else { wake }
    }

    /// Whether others wait longer for a lease about this topic.
    pub(super) fn is_behind(&self, id: WishId, topic: TopicId) -> bool {
        self.queues.get(&topic).and_then(BTreeSet::first).is_some_and(|first| *first < id)
    }

    /// Who has come first since this was asked last.
    pub(super) fn take_come_first(&mut self) -> Option<WishId> {
        self.come_first.pop_first()
    }

    /// Waits for a lease about this topic from now on, and for no other.
    fn queue(&mut self, id: WishId, awaits: Option<TopicId>) {
        let before = self.queued.get(&id).copied();
        if before == awaits {
            return;
        }
        if let Some(topic) = before {
            self.queued.remove(&id);
            let Some(queue) = self.queues.get_mut(&topic) else { return };
            let was_first = queue.first() == Some(&id);
            queue.remove(&id);
            match queue.first() {
                Some(next) if was_first => drop(self.come_first.insert(*next)),
                Some(_) => {}
                None => drop(self.queues.remove(&topic)),
            }
        }
        if let Some(topic) = awaits {
            self.queued.insert(id, topic);
            self.queues.entry(topic).or_default().insert(id);
        }
    }

    /// One that was taken out is wanted no more.
    pub(super) fn give_up(&mut self, id: WishId, wish: &Wish) {
        self.queue(id, None);
        for topic in &wish.aim.ids {
            if let Some(touched) = self.touched.get_mut(topic) {
                touched.remove(&id);
                if touched.is_empty() {
                    self.touched.remove(topic);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, id: WishId) {
        if let Some(wish) = self.take(id) {
            self.give_up(id, &wish);
        }
    }

    /// Who is to have a lease about this topic next: what happens to the lease concerns it alone.
    pub(super) fn first_of_lease(&self, topic: TopicId) -> Vec<WishId> {
        self.queues.get(&topic).and_then(BTreeSet::first).copied().into_iter().collect()
    }

    /// Those that a failure of this topic touches.
    pub(super) fn touching(&self, topic: TopicId) -> Vec<WishId> {
        let touched = self.touched.get(&topic).into_iter().flatten().copied();
        touched.filter(|id| self.contains(*id)).collect()
    }

    /// Those that a success touches: what is under way or has its clearance it does not hold, and of those that wait for one lease the
    /// first goes first.
    pub(super) fn waiting_for(&self, topic: TopicId) -> Vec<WishId> {
        let mut leases = BTreeSet::new();
        let mut is_touched = |id: &WishId| {
            let wish = self.get(*id).filter(|wish| !matches!(wish.state, State::Going(_)));
            wish.is_some_and(|wish| wish.awaits.is_none_or(|lease| leases.insert(lease)))
        };
        self.touched.get(&topic).into_iter().flatten().copied().filter(|id| is_touched(id)).collect()
    }

    /// Those to be looked at again by now.
    pub(super) fn due(&self, now: Duration) -> impl Iterator<Item = WishId> {
        self.wakes.iter().take_while(move |(wake, _)| *wake <= now).map(|(_, id)| *id)
    }

    /// When to look at one again next.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.wakes.first().map(|(wake, _)| *wake)
    }

    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.wakes.len() <= self.all.len(), "each is looked at again at one time");
        if self.all.len() > COMPARED_MOST {
            return;
        }
        let wakes: BTreeSet<(Duration, WishId)> = self.all.iter().filter_map(|(id, wish)| Some((wish.wake?, *id))).collect();
        debug_assert_eq!(self.wakes, wakes, "whom to look at again is found by time");
        let touched = |id: &WishId| self.all.get(id).is_some_and(|wish| wish.aim.ids.iter().all(|topic| self.touched[topic].contains(id)));
        debug_assert!(self.all.keys().all(touched), "wishes are found by topic");
        let queued: BTreeMap<WishId, TopicId> = self.all.iter().filter_map(|(id, wish)| Some((*id, wish.awaits?))).collect();
        debug_assert_eq!(self.queued, queued, "who waits for a lease is in its queue");
        debug_assert_eq!(self.queues.values().map(BTreeSet::len).sum::<usize>(), queued.len(), "and in no other");
        debug_assert!(self.come_first.is_empty(), "who has come first was looked at");
        debug_assert!(self.touched.values().flatten().all(|id| self.contains(*id)), "what is wanted no more is not found");
    }
}
