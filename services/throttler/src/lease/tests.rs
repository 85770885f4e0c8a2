//! Which throttler takes the lease of a budget, and what the next leader has to learn.

use std::sync::Arc;

use bus::memory::MemoryBus;
use contract::know::{StoredLease, encode};

use super::*;

const WALL: Duration = Duration::from_secs(1_700_000_000);

/// A node's leases. `process` identifies one of several processes with the same node name.
fn of(bus: &MemoryBus, clock: &Clock, name: &str, process: &str) -> Leases {
    let fleet = Fleet::named("test").expect("a fleet");
    let bus: BusRef = Arc::new(bus.connect());
    Leases::new(bus, &fleet, name.parse().expect("a name"), process.to_owned(), clock.clone())
}

fn term(input: Input) -> Option<Term> {
    match input {
        Input::Elected { term, .. } => Some(term),
        _ => None,
    }
}

async fn keep(leases: &Leases, epoch: u64) -> Input {
    leases.keep("owner".to_owned(), epoch).await
}

async fn lead(leases: &Leases) -> Option<Term> {
    term(leases.campaign("owner".to_owned(), false, true).await)
}

async fn later(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn node_that_may_not_lead_yet_learns_the_leader() {
    let clock = Clock::simulated(WALL);
    let bus = MemoryBus::new(clock.clone());
    let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
    let answer = a.campaign("owner".to_owned(), false, false).await;
    assert!(matches!(answer, Input::LeaseUnknown { .. }), "{answer:?}");
    let leads = lead(&b).await.expect("no node leads");
    let answer = a.campaign("owner".to_owned(), false, false).await;
    assert!(matches!(answer, Input::Lead { leader: Some((_, epoch)), .. } if epoch == leads.epoch), "{answer:?}");
}

fn lose(bus: &MemoryBus) {
    bus.lose_bucket(&SharedBucket::leaders(&Fleet::named("test").expect("a fleet")).name);
}

#[tokio::test(start_paused = true)]
async fn lease_with_a_lost_answer_is_taken_again_only_by_its_process() {
    let clock = Clock::simulated(WALL);
    let bus = MemoryBus::new(clock.clone());
    let (a, b, double) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"), of(&bus, &clock, "a", "3"));
    let lost = lead(&a).await.expect("no node leads");
    assert!(lost.first);
    assert_eq!(lead(&b).await, None, "another node holds it");
    let answer = double.campaign("owner".to_owned(), false, true).await;
    assert!(matches!(answer, Input::LeaseUnknown { .. }), "another process holds it, which cannot be asked: {answer:?}");
    let again = lead(&a).await.expect("its own");
    assert!(again.epoch > lost.epoch && !again.first);
    assert_eq!(term(a.campaign("owner".to_owned(), true, true).await), None, "it leads already");
    later(4).await;
    let next = lead(&double).await.expect("the lease has run out");
    assert!(next.epoch > again.epoch && !next.first);
}

#[tokio::test(start_paused = true)]
async fn a_second_process_of_one_name_cannot_keep_a_lease_of_the_first() {
    let clock = Clock::simulated(WALL);
    let bus = MemoryBus::new(clock.clone());
    let (a, double) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "a", "2"));
    let Term { epoch, .. } = lead(&a).await.expect("no node leads");
    assert!(matches!(keep(&a, epoch).await, Input::LeaseKept { .. }));
    assert_eq!(keep(&double, epoch).await, Input::LeaseLost { owner: "owner".to_owned(), epoch });
    assert!(matches!(keep(&a, epoch).await, Input::LeaseKept { .. }), "it is still its own");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_and_does_not_end_is_deleted_after_two_terms() {
    // Whether the lease is readable, whether it is renewed each second, and whether the node leads after 7 s.
    for (readable, renewed, leads) in [(true, false, true), (false, false, true), (true, true, false), (false, true, false)] {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, liar) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "liar", "2"));
        let of_stranger = StoredLease { of: "owner".to_owned(), ..StoredLease::of_node("liar".parse().expect("a name")) };
        let value = if readable { encode(&of_stranger).expect("it fits").into() } else { bytes::Bytes::from_static(b"rubbish") };
        let (bucket, key) = (liar.store.bucket().await.expect("a bucket"), Keys::of("owner").lead);
        bucket.put(&key, value.clone(), None).await.expect("it is stored");
        for second in 0..7 {
            assert_eq!(lead(&a).await, None, "after {second} s");
            if renewed || second == 0 {
                bucket.put(&key, value.clone(), None).await.expect("it is stored");
            }
            later(1).await;
        }
        assert_eq!(lead(&a).await.is_some(), leads, "readable {readable}, renewed {renewed}");
    }
}

#[tokio::test(start_paused = true)]
async fn forged_lease_with_the_highest_epoch_ends_as_any_other() {
    let clock = Clock::simulated(WALL);
    let bus = MemoryBus::new(clock.clone());
    let (a, liar) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "liar", "2"));
    let forged = StoredLease { of: "owner".to_owned(), epoch: u64::MAX, ..StoredLease::of_node("liar".parse().expect("a name")) };
    let (bucket, value) = (liar.store.bucket().await.expect("a bucket"), encode(&forged).expect("it fits").into());
    bucket.put(&Keys::of("owner").lead, value, Some(DEADLINES.leader_lease)).await.expect("it is stored");
    let answer = a.campaign("owner".to_owned(), false, true).await;
    assert!(matches!(answer, Input::Lead { leader: Some((_, u64::MAX)), .. }), "{answer:?}");
    later(4).await;
    let next = lead(&a).await.expect("the lease has run out");
    assert!(matches!(keep(&a, next.epoch).await, Input::LeaseKept { .. }));
}

#[tokio::test(start_paused = true)]
async fn lost_bucket_delays_the_next_leader_by_one_lease_and_it_learns() {
    // After how many seconds the node asks, whether it leads, and whether it has nothing to learn.
    for (waited, leads, first) in [(0, false, false), (2, false, false), (3, true, false), (5, true, false), (6, true, true)] {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let a = of(&bus, &clock, "a", "1");
        assert!(a.found().await.is_some());
        lose(&bus);
        // Another node makes the bucket again.
        let b = of(&bus, &clock, "b", "2");
        b.found().await;
        later(waited).await;
        let term = lead(&a).await;
        assert_eq!(term.map(|term| term.first), leads.then_some(first), "after {waited} s");
    }
}

#[tokio::test(start_paused = true)]
async fn new_node_after_a_lost_bucket_learns_if_another_node_knew_that_bucket() {
    // Whether a node that has known the earlier bucket looks first; after how many seconds a new node asks; whether it has nothing to
    // learn.
    for (known, waited, first) in [(true, 0, false), (true, 5, false), (true, 7, true), (false, 0, true), (false, 5, true)] {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
        assert!(a.found().await.is_some());
        lose(&bus);
        if known {
            assert_eq!(lead(&a).await, None);
        }
        later(waited).await;
        assert_eq!(lead(&b).await.map(|term| term.first), Some(first), "known {known}, after {waited} s");
    }
}

#[tokio::test(start_paused = true)]
async fn epochs_rise_although_revisions_restart() {
    let clock = Clock::simulated(WALL);
    let bus = MemoryBus::new(clock.clone());
    let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
    let held = lead(&a).await.expect("no node leads");
    for _ in 0..100 {
        later(1).await;
        assert!(matches!(keep(&a, held.epoch).await, Input::LeaseKept { .. }));
    }
    lose(&bus);
    b.found().await;
    later(3).await;
    let next = lead(&b).await.expect("no node leads");
    assert!(next.epoch > held.epoch, "{} after {}", next.epoch, held.epoch);
    let Input::Lead { leader: Some(leader), .. } = a.campaign("owner".to_owned(), false, true).await else {
        panic!("a does not learn that b leads");
    };
    assert_eq!(leader, ("b".parse().expect("a name"), next.epoch));
}

#[tokio::test(start_paused = true)]
async fn slow_bucket_is_led_and_its_late_renewals_count() {
    // How long the bucket takes to answer, in milliseconds, and how often a node campaigns until it leads. The third bucket is so slow that
    // three answers are missed before the node waits long enough.
    for (delay, campaigns) in [(10, 1), (800, 1), (1_200, 3)] {
        let clock = Clock::simulated(WALL);
        let bus = MemoryBus::new(clock.clone());
        let (a, b) = (of(&bus, &clock, "a", "1"), of(&bus, &clock, "b", "2"));
        // The bucket has existed for a while.
        assert!(b.found().await.is_some());
        later(10).await;
        bus.set_delay(Duration::from_millis(delay));
        let mut leads = None;
        for campaign in 1..=campaigns {
            leads = lead(&a).await;
            assert_eq!(leads.is_some(), campaign == campaigns, "{delay} ms, campaign {campaign}");
        }
        let Term { epoch, until, .. } = leads.expect("it leads");
        assert!(clock.now().monotonic < until, "{delay} ms: the lease is still good when it is won");
        for _ in 0..3 {
            let kept = keep(&a, epoch).await;
            let still = clock.now().monotonic;
            assert!(matches!(kept, Input::LeaseKept { until, .. } if still < until), "{delay} ms: {kept:?}");
        }
    }
}
