//! A node's requests. An event concerns few of a thousand: indexes find these without a scan of all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backoff_key::BackoffKeyId;
use super::lease::RequestId;
use super::node::Knowledge;
use super::request::Request;
use crate::core::remove_from_index;

/// With debug assertions, the indexes are compared with the requests after each step if there are at most this many requests.
const COMPARED_MOST: usize = 64;

/// Whether a request stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Ends,
}

/// All requests of a node, found by id, by the time to look at them again, by back-off key, and by the key of the lease that they wait for.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Boxed, because a map allocates room for eleven values where it has one. None: the request is lent out.
    all: BTreeMap<RequestId, Option<Box<Request>>>,
    wakes: BTreeSet<(Duration, RequestId)>,
    /// Includes requests that are lent out, because a request's back-off keys never change.
    of_backoff_key: BTreeMap<BackoffKeyId, BTreeSet<RequestId>>,
    /// The requests that wait for a lease about a key, the longest waiting first. Those that are lent out keep their place.
    queues: BTreeMap<BackoffKeyId, BTreeSet<RequestId>>,
    /// Requests that have become the first of a queue since they were last taken.
    now_first: BTreeSet<RequestId>,
    /// How many were lent out.
    #[cfg(test)]
    pub(super) looked_at: usize,
}

impl Requests {
    /// How many there are, those that are lent out included.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Request> {
        self.all.get(&id)?.as_deref()
    }

    /// All that are not lent out.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &Request)> {
        self.all.iter().filter_map(|(id, request)| Some((*id, request.as_deref()?)))
    }

    pub(super) fn ids(&self) -> Vec<RequestId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Adds a request. One that is there already stays as it is.
    pub(super) fn add(&mut self, id: RequestId, request: Request) {
        if self.all.contains_key(&id) {
            return;
        }
        for backoff_key in &request.target_keys.ids {
            self.of_backoff_key.entry(*backoff_key).or_default().insert(id);
        }
        self.wakes.extend(request.wake.map(|wake| (wake, id)));
        self.queue(id, None, request.awaits);
        self.all.insert(id, Some(Box::new(request)));
    }

    /// Changes a request, if it is there, in all but its keys and the lease that it waits for.
    pub(super) fn change<T>(&mut self, id: RequestId, change: impl FnOnce(&mut Request) -> T) -> Option<T> {
        let request = self.all.get_mut(&id)?.as_deref_mut()?;
        let before = request.wake;
        let result = change(request);
        if request.wake != before {
            before.map(|wake| self.wakes.remove(&(wake, id)));
            self.wakes.extend(request.wake.map(|wake| (wake, id)));
        }
        Some(result)
    }

    fn lend(&mut self, id: RequestId) -> Option<Box<Request>> {
        let request = self.all.get_mut(&id)?.take()?;
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        if let Some(wake) = request.wake {
            self.wakes.remove(&(wake, id));
        }
        Some(request)
    }

    /// Takes a request back; `awaited` is the key of the lease that it waited for when it was lent out.
    fn give_back(&mut self, id: RequestId, request: Box<Request>, awaited: Option<BackoffKeyId>) {
        if let Some(lent @ None) = self.all.get_mut(&id) {
            self.wakes.extend(request.wake.map(|wake| (wake, id)));
            let awaits = request.awaits;
            *lent = Some(request);
            self.queue(id, awaited, awaits);
        }
    }

    /// The request waits for a lease about this back-off key from now on, and for no other.
    fn queue(&mut self, id: RequestId, awaited: Option<BackoffKeyId>, awaits: Option<BackoffKeyId>) {
        if awaited == awaits {
            return;
        }
        if let Some(backoff_key) = awaited {
            self.leave_queue(id, backoff_key);
        }
        if let Some(backoff_key) = awaits {
            self.queues.entry(backoff_key).or_default().insert(id);
        }
    }

    fn leave_queue(&mut self, id: RequestId, backoff_key: BackoffKeyId) {
        self.now_first.remove(&id);
        let Some(queue) = self.queues.get_mut(&backoff_key) else { return };
        let was_first = queue.first() == Some(&id);
        queue.remove(&id);
        match queue.first() {
            Some(next) if was_first => drop(self.now_first.insert(*next)),
            Some(_) => {}
            None => drop(self.queues.remove(&backoff_key)),
        }
    }

    pub(super) fn remove(&mut self, id: RequestId) {
        if let Some(request) = self.lend(id) {
            self.forget(id, &request, request.awaits);
        }
    }

    fn forget(&mut self, id: RequestId, request: &Request, awaited: Option<BackoffKeyId>) {
        self.all.remove(&id);
        self.queue(id, awaited, None);
        for backoff_key in &request.target_keys.ids {
            remove_from_index(&mut self.of_backoff_key, backoff_key, &id);
        }
    }

    /// The requests that a back-off key concerns.
    pub(super) fn touching(&self, backoff_key: BackoffKeyId) -> Vec<RequestId> {
        self.of_backoff_key.get(&backoff_key).into_iter().flatten().copied().filter(|id| self.contains(*id)).collect()
    }

    pub(super) fn due(&self, now: Duration) -> impl Iterator<Item = RequestId> {
        self.wakes.iter().take_while(move |(wake, _)| *wake <= now).map(|(_, id)| *id)
    }

    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.wakes.first().map(|(wake, _)| *wake)
    }

    /// The first request that waits for a lease about this key. A change of the lease concerns no other request.
    pub(super) fn first_in_queue(&self, backoff_key: BackoffKeyId) -> Option<RequestId> {
        self.queues.get(&backoff_key)?.first().copied()
    }

    /// Whether another waits longer for a lease about this back-off key.
    pub(super) fn is_behind(&self, id: RequestId, backoff_key: BackoffKeyId) -> bool {
        self.first_in_queue(backoff_key).is_some_and(|first| first < id)
    }

    /// Takes a request that has become the first of its queue. Each is returned once.
    pub(super) fn take_now_first(&mut self) -> Option<RequestId> {
        self.now_first.pop_first()
    }

    /// Asserts that the indexes contain each request and nothing else. Simulated fleets do this after each step, so nothing is allocated.
    pub(super) fn assert_invariants(&self) {
        if self.len() > COMPARED_MOST {
            return;
        }
        let (mut wakes, mut keys, mut waiting) = (0, 0, 0);
        for (id, request) in self.iter() {
            if let Some(wake) = request.wake {
                wakes += 1;
                debug_assert!(self.wakes.contains(&(wake, id)), "{id:?} is found when it is to be looked at");
            }
            for backoff_key in &request.target_keys.ids {
                keys += 1;
                let found = self.of_backoff_key.get(backoff_key).is_some_and(|requests| requests.contains(&id));
                debug_assert!(found, "{id:?} is found by its back-off key {backoff_key:?}");
            }
            if let Some(backoff_key) = request.awaits {
                waiting += 1;
                debug_assert!(
                    self.queues.get(&backoff_key).is_some_and(|queue| queue.contains(&id)),
                    "{id:?} is in the queue of the lease that it waits for"
                );
            }
        }
        let sum = |sets: &BTreeMap<BackoffKeyId, BTreeSet<RequestId>>| sets.values().map(BTreeSet::len).sum::<usize>();
        debug_assert_eq!(self.wakes.len(), wakes, "nothing else is to be looked at");
        debug_assert_eq!(sum(&self.of_backoff_key), keys, "nothing else is found by back-off keys");
        debug_assert!(self.of_backoff_key.values().all(|requests| !requests.is_empty()), "no back-off key is left without a request");
        debug_assert_eq!(sum(&self.queues), waiting, "nothing else is in a queue");
        debug_assert!(self.queues.values().all(|queue| !queue.is_empty()), "no queue is left empty");
        debug_assert_eq!(self.iter().count(), self.len(), "none is lent out between steps");
    }
}

impl Knowledge {
    /// Lends a request out, so that it can be changed together with everything else. Lookups do not find it meanwhile.
    pub(super) fn with_request(&mut self, id: RequestId, act: impl FnOnce(&mut Self, &mut Request) -> Fate) {
        let Some(mut request) = self.requests.lend(id) else { return };
        let awaited = request.awaits;
        match act(self, &mut request) {
            Fate::Stays => self.requests.give_back(id, request, awaited),
            Fate::Ends => self.requests.forget(id, &request, awaited),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use contract::messages::backoff_tracker::LocalKey;
    use contract::{Target, View};
    use proptest::prelude::*;

    use super::*;
    use crate::core::BackoffPolicy;
    use crate::core::knowledge::target::TargetKeys;

    /// Ids, images and times are few, so that they collide.
    const IDS: u64 = 6;
    const IMAGES: usize = 3;
    const TIMES: u64 = 5;

    #[derive(Clone, Debug)]
    enum Act {
        Add(u64, usize, Option<u64>),
        Change(u64, Option<u64>),
        /// A look at a request: when to look again, whether it waits for a lease about its registry then, and whether it ends.
        With(u64, Option<u64>, bool, bool),
        Remove(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        let (id, wake) = (0..IDS, proptest::option::of(0..TIMES));
        prop_oneof![
            3 => (id.clone(), 0..IMAGES, wake.clone()).prop_map(|(id, image, wake)| Act::Add(id, image, wake)),
            2 => (id.clone(), wake.clone()).prop_map(|(id, wake)| Act::Change(id, wake)),
            3 => (id.clone(), wake, any::<bool>(), any::<bool>()).prop_map(|(id, wake, waits, over)| Act::With(id, wake, waits, over)),
            1 => id.prop_map(Act::Remove),
        ]
    }

    /// Two images of one registry share most of their back-off keys.
    fn target_keys(image: usize) -> TargetKeys {
        let view = View { registry: format!("r{}", image / 2), ..View::default() };
        TargetKeys::new(Target { view, reference: format!("r/a:{image}"), repository: "a".to_owned(), ..Target::default() })
    }

    fn seconds(wake: Option<u64>) -> Option<Duration> {
        wake.map(Duration::from_secs)
    }

    /// A request as the model keeps it, without indexes: its image, when to look at it again, and whether it waits for a lease.
    type Known = (usize, Option<u64>, bool);
    type Model = BTreeMap<u64, Known>;

    /// The request that waits the longest for a lease about this back-off key.
    fn first(model: &Model, backoff_key: BackoffKeyId) -> Option<RequestId> {
        model.iter().find(|(_, (image, _, waits))| *waits && target_keys(*image).endpoint == backoff_key).map(|(id, _)| RequestId(*id))
    }

    fn compare(requests: &Requests, model: &Model) {
        let ids = |found: &dyn Fn(usize, Option<u64>) -> bool| -> Vec<RequestId> {
            model.iter().filter(|(_, (image, wake, _))| found(*image, *wake)).map(|(id, _)| RequestId(*id)).collect()
        };
        assert_eq!((requests.len(), requests.ids()), (model.len(), ids(&|_, _| true)));
        assert_eq!(requests.next_wake(), model.values().filter_map(|(_, wake, _)| seconds(*wake)).min());
        for now in 0..TIMES {
            let due: BTreeSet<RequestId> = requests.due(Duration::from_secs(now)).collect();
            assert_eq!(due.into_iter().collect::<Vec<_>>(), ids(&|_, wake| wake.is_some_and(|wake| wake <= now)), "due at {now}");
        }
        for backoff_key in (0..IMAGES).flat_map(|image| target_keys(image).ids) {
            assert_eq!(requests.touching(backoff_key), ids(&|image, _| target_keys(image).touches(backoff_key)), "{backoff_key:?}");
            assert_eq!(requests.first_in_queue(backoff_key), first(model, backoff_key), "{backoff_key:?}");
        }
        requests.assert_invariants();
    }

    fn apply(knowledge: &mut Knowledge, model: &mut Model, act: &Act) {
        match act.clone() {
            Act::Add(id, image, wake) => {
                let mut request = Request::new(LocalKey { pod: None, image: "a:1".to_owned() }, target_keys(image));
                request.wake = seconds(wake);
                knowledge.requests.add(RequestId(id), request);
                model.entry(id).or_insert((image, wake, false));
            }
            Act::Change(id, wake) => {
                let changed = knowledge.requests.change(RequestId(id), |request| request.wake = seconds(wake));
                assert_eq!(changed, model.get_mut(&id).map(|known| known.1 = wake));
            }
            Act::With(id, wake, waits, over) => {
                let mut is_lent = false;
                knowledge.with_request(RequestId(id), |knowledge, request| {
                    is_lent = true;
                    request.wake = seconds(wake);
                    request.awaits = waits.then_some(request.target_keys.endpoint);
                    let requests = &mut knowledge.requests;
                    let found = request
                        .target_keys
                        .ids
                        .iter()
                        .flat_map(|backoff_key| requests.touching(*backoff_key))
                        .chain(requests.due(Duration::MAX));
                    assert!(found.chain(requests.ids()).all(|found| found != RequestId(id)), "what is lent out is not found");
                    assert_eq!(requests.change(RequestId(id), |_| ()), None);
                    if over { Fate::Ends } else { Fate::Stays }
                });
                assert_eq!(is_lent, model.contains_key(&id));
                if over {
                    model.remove(&id);
                } else if let Some(known) = model.get_mut(&id) {
                    (known.1, known.2) = (wake, waits);
                }
            }
            Act::Remove(id) => {
                knowledge.requests.remove(RequestId(id));
                model.remove(&id);
            }
        }
    }

    proptest! {
        #[test]
        fn indexes_agree_with_full_scan(acts in proptest::collection::vec(act(), 0..60)) {
            let mut knowledge = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
            let mut model = Model::new();
            for act in &acts {
                let backoff_keys = || (0..IMAGES).map(|image| target_keys(image).endpoint);
                let before: Vec<_> = backoff_keys().filter_map(|backoff_key| first(&model, backoff_key)).collect();
                apply(&mut knowledge, &mut model, act);
                compare(&knowledge.requests, &model);
                let after = backoff_keys().filter_map(|backoff_key| first(&model, backoff_key));
                let came_first: BTreeSet<RequestId> = after.filter(|id| !before.contains(id)).collect();
                let taken: BTreeSet<RequestId> = std::iter::from_fn(|| knowledge.requests.take_now_first()).collect();
                prop_assert!(taken.is_subset(&came_first), "{taken:?} of {came_first:?}");
                let acted = match act { Act::Add(id, ..) | Act::Change(id, _) | Act::With(id, ..) | Act::Remove(id) => RequestId(*id) };
                // A request that has just begun to wait was looked at already.
                prop_assert!(came_first.iter().all(|id| *id == acted || taken.contains(id)), "{taken:?} of {came_first:?}");
            }
        }
    }
}
