//! The keys in a bucket: one holder, an end, removal of strangers' keys, and lost answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bus::memory::MemoryBus;
use bus::{BucketSpec, BucketStatus, BusError, Entry, KeyValue, KeyValueError, SharedState, Snapshot};
use bytes::Bytes;
use clock::Clock;
use contract::know::{StoredLease, decode, encode};
use lease::{Held, LeaseStore, Looked, Taken};

use crate::{KEY, TERM, bucket, store_in, store_of};

const OF: &str = "";

struct World {
    clock: Clock,
    bus: MemoryBus,
    bucket: Arc<dyn KeyValue>,
}

impl World {
    async fn new() -> Self {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let bus = MemoryBus::new(clock.clone());
        let bucket = bus.bucket(&bucket()).await.unwrap();
        Self { clock, bus, bucket }
    }

    fn store(&self, node: &str, instance: &str) -> LeaseStore {
        store_of(&self.bus, &self.clock, node, instance)
    }

    async fn stored(&self) -> Option<StoredLease> {
        Some(decode(&self.bucket.get(KEY).await.unwrap()?.value).unwrap())
    }
}

/// A bucket that notes how leases are written.
struct Writes {
    bucket: Arc<dyn KeyValue>,
    done: Mutex<Vec<&'static str>>,
}

/// Opens that bucket.
struct Noting(Arc<Writes>);

#[async_trait]
impl SharedState for Noting {
    async fn bucket(&self, _: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        Ok(Arc::clone(&self.0) as Arc<dyn KeyValue>)
    }
}

#[async_trait]
impl KeyValue for Writes {
    async fn get(&self, key: &str) -> Result<Option<Entry>, KeyValueError> {
        self.bucket.get(key).await
    }

    async fn put(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.bucket.put(key, value, ttl).await
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.done.lock().unwrap().push("create");
        self.bucket.create(key, value, ttl).await
    }

    async fn update(&self, key: &str, value: Bytes, revision: u64, ttl: Option<Duration>) -> Result<u64, KeyValueError> {
        self.done.lock().unwrap().push("update");
        self.bucket.update(key, value, revision, ttl).await
    }

    async fn delete(&self, key: &str, revision: Option<u64>) -> Result<(), KeyValueError> {
        self.bucket.delete(key, revision).await
    }

    async fn status(&self) -> Result<BucketStatus, KeyValueError> {
        self.bucket.status().await
    }

    async fn snapshot(&self, since: Option<&BucketStatus>) -> Result<Snapshot, KeyValueError> {
        self.bucket.snapshot(since).await
    }
}

async fn take(store: &LeaseStore) -> Option<Held> {
    match store.take(KEY, OF).await.unwrap() {
        Taken::Now(held) => Some(held),
        Taken::Not(_) => None,
    }
}

async fn later(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn one_process_holds_a_lease_until_its_term_is_over_or_it_is_given_back() {
    let world = World::new().await;
    let (a, b) = (world.store("a", "1"), world.store("b", "2"));
    let first = take(&a).await.unwrap();
    let theirs = Looked::Theirs { holder: "a".parse().unwrap(), epoch: first.epoch };
    assert_eq!(b.take(KEY, OF).await.unwrap(), Taken::Not(theirs.clone()));
    later(9).await;
    let renewed = a.renew(KEY, OF, first.epoch).await.unwrap().unwrap();
    assert_eq!((renewed.epoch, renewed.asked - first.asked), (first.epoch, Duration::from_secs(9)));
    later(9).await;
    assert_eq!(b.look(KEY, OF).await.unwrap(), theirs);
    later(1).await;
    assert_eq!(b.look(KEY, OF).await.unwrap(), Looked::Free, "ten seconds after the renewal");
    assert_eq!(a.renew(KEY, OF, first.epoch).await.unwrap(), None, "what has ended is not renewed");
    // Created over the marker of an expired key, and then of a deleted one.
    let second = take(&b).await.unwrap();
    assert!(second.epoch > first.epoch);
    assert_eq!(b.give_up(KEY, Some(first.epoch)), None, "of another term");
    let owned = b.give_up(KEY, Some(second.epoch)).unwrap();
    assert_eq!(b.give_up(KEY, None), None, "it was given up");
    b.delete(&owned).await.unwrap();
    assert!(take(&a).await.unwrap().epoch > second.epoch);
    assert!(b.delete(&owned).await.is_err(), "another holder's lease stays");
    assert_eq!(world.stored().await.unwrap().holder, "a".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_seen_released_is_taken_by_one_write_and_a_wrong_revision_costs_a_second() {
    let world = World::new().await;
    let a = world.store("a", "1");
    let writes = Arc::new(Writes { bucket: Arc::clone(&world.bucket), done: Mutex::default() });
    let b = store_in(Arc::new(Noting(Arc::clone(&writes))), &world.clock, "b", "2");
    let mut released_at = 0;
    // What `b` knows of the release.
    for known in ["the revision", "an older revision", "nothing"] {
        let held = take(&a).await.unwrap();
        a.delete(&a.give_up(KEY, Some(held.epoch)).unwrap()).await.unwrap();
        let before = released_at;
        released_at = held.revision + 1;
        match known {
            "the revision" => b.saw_released(KEY, released_at),
            "an older revision" => b.saw_released(KEY, before),
            _ => {
                b.saw_released(KEY, released_at);
                b.saw_taken(KEY);
            }
        }
        writes.done.lock().unwrap().clear();
        let taken = b.create(KEY, OF, 0).await.unwrap().unwrap();
        let expected: &[&str] = match known {
            "the revision" => &["update"],
            "an older revision" => &["update", "create"],
            _ => &["create"],
        };
        assert_eq!(*writes.done.lock().unwrap(), expected, "{known}");
        b.delete(&b.give_up(KEY, Some(taken.epoch)).unwrap()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_revision_of_a_lost_bucket_takes_no_lease_of_the_next_bucket() {
    let world = World::new().await;
    let (a, b, c) = (world.store("a", "1"), world.store("b", "2"), world.store("c", "3"));
    let held = take(&a).await.unwrap();
    a.delete(&a.give_up(KEY, None).unwrap()).await.unwrap();
    b.saw_released(KEY, held.revision + 1);
    world.bus.lose_bucket("leases");
    let theirs = take(&c).await.unwrap();
    let renewed = c.renew(KEY, OF, theirs.epoch).await.unwrap().unwrap();
    assert_eq!(renewed.revision, held.revision + 1, "as in the lost bucket");
    b.forget_released();
    assert_eq!(b.create(KEY, OF, 0).await.unwrap(), None);
    assert_eq!(world.stored().await.unwrap().holder, "c".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_costs_no_process_its_lease() {
    let world = World::new().await;
    // The requests of `unanswered` stand for requests of `a` without an answer.
    let (a, unanswered) = (world.store("a", "1"), world.store("a", "1"));
    let held = take(&a).await.unwrap();
    assert!(unanswered.renew(KEY, OF, held.epoch).await.unwrap().is_some());
    let renewed = a.renew(KEY, OF, held.epoch).await.unwrap().unwrap();
    assert!(renewed.epoch == held.epoch && renewed.revision > held.revision + 1);
    // It is unknown what was done after a taking without an answer, so it is another epoch.
    let (b, unanswered) = (world.store("b", "2"), world.store("b", "2"));
    later(10).await;
    let lost = take(&unanswered).await.unwrap();
    let Taken::Not(Looked::Mine { revision }) = b.take(KEY, OF).await.unwrap() else { panic!("it is its own") };
    assert_eq!(revision, lost.revision);
    let regained = b.regain(KEY, OF, revision, 0).await.unwrap().unwrap();
    assert!(regained.epoch > lost.epoch);
    assert_eq!(b.renew(KEY, OF, lost.epoch).await.unwrap(), None, "that term is over");
    assert_eq!(b.regain(KEY, OF, revision, 0).await.unwrap(), None, "it stands at another revision");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_given_up_as_unanswered_by_the_process_that_took_it_if_it_has_no_answer() {
    let world = World::new().await;
    let (a, b) = (world.store("a", "1"), world.store("b", "2"));
    assert_eq!(a.unanswered(KEY, OF).await.unwrap(), None, "it is free");
    // The request of another store of the process stands for a request of `a` without an answer.
    take(&world.store("a", "1")).await.unwrap();
    assert_eq!(b.unanswered(KEY, OF).await.unwrap(), None, "another process holds it");
    let owned = a.unanswered(KEY, OF).await.unwrap().unwrap();
    a.delete(&owned).await.unwrap();
    assert!(take(&b).await.is_some());
    assert_eq!(b.unanswered(KEY, OF).await.unwrap(), None, "its answer came");
}

#[tokio::test(start_paused = true)]
async fn another_process_of_the_nodes_name_is_another_holder() {
    let world = World::new().await;
    let (a, double) = (world.store("a", "1"), world.store("a", "2"));
    let held = take(&a).await.unwrap();
    let theirs = Looked::Theirs { holder: "a".parse().unwrap(), epoch: held.epoch };
    assert_eq!(double.take(KEY, OF).await.unwrap(), Taken::Not(theirs));
    assert_eq!(double.renew(KEY, OF, held.epoch).await.unwrap(), None);
    assert_eq!(a.look(KEY, OF).await.unwrap(), Looked::Mine { revision: held.revision });
}

#[tokio::test(start_paused = true)]
async fn a_key_that_stays_for_two_terms_is_taken_and_one_that_is_renewed_is_not() {
    let of = |node: &str, of: &str| StoredLease { of: of.to_owned(), ..StoredLease::of_node(node.parse().unwrap()) };
    let values: [(&str, Bytes); 4] = [
        ("rubbish", "rubbish".into()),
        ("another's name", encode(&of("n9", "")).unwrap().into()),
        ("its own name", encode(&StoredLease { instance: "1".to_owned(), ..of("a", "") }).unwrap().into()),
        ("another lease's", encode(&of("n9", "another owner")).unwrap().into()),
    ];
    for (what, value) in values {
        // Whether the key in the way expires by itself, whether it is written anew, and after how many terms the lease is taken.
        for (expires, renewed, taken) in [(false, false, Some(2)), (false, true, None), (true, false, Some(1))] {
            let world = World::new().await;
            let a = world.store("a", "1");
            world.bucket.put(KEY, value.clone(), expires.then_some(TERM)).await.unwrap();
            let mut taken_after = None;
            for terms in 0..4 {
                if taken_after.is_none() && take(&a).await.is_some() {
                    taken_after = Some(terms);
                }
                if renewed {
                    world.bucket.put(KEY, value.clone(), None).await.unwrap();
                }
                tokio::time::sleep(TERM).await;
            }
            assert_eq!(taken_after, taken, "{what}, expires {expires}, renewed {renewed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn epochs_rise_when_the_bucket_is_lost_and_its_age_is_known() {
    let world = World::new().await;
    let (a, b) = (world.store("a", "1"), world.store("b", "2"));
    let made_s = async || world.bus.bucket(&bucket()).await.unwrap().status().await.unwrap().made_at.as_secs();
    let mut epochs = Vec::new();
    for _ in 0..100 {
        let held = a.create(KEY, OF, made_s().await).await.unwrap().unwrap();
        epochs.push(held.epoch);
        a.delete(&a.give_up(KEY, None).unwrap()).await.unwrap();
    }
    later(1).await;
    world.bus.lose_bucket("leases");
    epochs.push(b.create(KEY, OF, made_s().await).await.unwrap().unwrap().epoch);
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
    // A renewal keeps the epoch, although it no longer states when the bucket was made.
    let last = epochs[100];
    assert_eq!(b.renew(KEY, OF, last).await.unwrap().unwrap().epoch, last);
    assert_eq!(world.stored().await.unwrap().epoch, last);
    let theirs = Looked::Theirs { holder: "b".parse().unwrap(), epoch: last };
    assert_eq!(a.look(KEY, OF).await.unwrap(), theirs);
}
