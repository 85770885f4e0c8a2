//! The follower on a memory bus.

use bus::SharedState as _;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::know::encode;
use contract::policy::Caps;
use support::counted_log::CountedLog;
use tracing::Level;

use super::*;

const WALL: Duration = Duration::from_secs(1_700_000_000);

fn capped(pulls_per_second: f64) -> FleetPolicy {
    FleetPolicy { budget: Caps { pulls_per_second: Some(pulls_per_second), ..Caps::NONE }, ..FleetPolicy::default() }
}

fn stored(pulls_per_second: f64) -> Vec<u8> {
    encode(&StoredPolicy { policy: capped(pulls_per_second), by: "ann@desk".to_owned() }).expect("it fits")
}

fn hub() -> MemoryBus {
    MemoryBus::new(Clock::simulated(WALL))
}

fn spec() -> bus::BucketSpec {
    bucket_spec(SharedBucket::policy(&Fleet::default()))
}

fn follower(hub: &MemoryBus) -> PolicyFollower {
    PolicyFollower::new(Arc::new(hub.connect()), Fleet::default(), Random::seeded(1))
}

/// The cap and revision of the next policy within `seconds`.
async fn next(follower: &mut PolicyFollower, seconds: u64) -> Option<(Option<f64>, u64)> {
    let next = timeout(Duration::from_secs(seconds), follower.next()).await.ok()??;
    Some((next.policy.budget.pulls_per_second, next.revision))
}

#[tokio::test(start_paused = true)]
async fn policy_is_read_at_the_start_and_changes_are_received() {
    let hub = hub();
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    let mut early = follower(&hub);
    assert_eq!(early.first().await, Some(Followed { policy: FleetPolicy::default(), revision: 0 }), "there is none");
    bucket.put(POLICY_KEY, stored(5.0).into(), None).await.expect("it is stored");
    assert_eq!(next(&mut early, 1).await, Some((Some(5.0), 1)));
    let mut late = follower(&hub);
    assert_eq!(late.first().await, Some(Followed { policy: capped(5.0), revision: 1 }));
    bucket.put(POLICY_KEY, stored(7.0).into(), None).await.expect("it is stored");
    for follower in [&mut early, &mut late] {
        assert_eq!(next(follower, 1).await, Some((Some(7.0), 2)));
        assert_eq!(next(follower, 600).await, None, "it is news once");
    }
    bucket.delete(POLICY_KEY, None).await.expect("it is deleted");
    assert_eq!(next(&mut early, 1).await, Some((None, 0)), "there is none any more");
}

#[tokio::test(start_paused = true)]
async fn policy_that_is_deleted_before_the_next_read_is_not_taken_for_a_lost_one() {
    let hub = hub();
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    let mut follower = follower(&hub);
    assert!(follower.first().await.is_some(), "there is none");
    assert_eq!(next(&mut follower, 91).await, None, "there is still none");
    for rate in [5.0, 6.0] {
        bucket.put(POLICY_KEY, stored(rate).into(), None).await.expect("it is stored");
        assert_eq!(next(&mut follower, 1).await.map(|(cap, _)| cap), Some(Some(rate)));
        bucket.delete(POLICY_KEY, None).await.expect("it is deleted");
        assert_eq!(next(&mut follower, 1).await, Some((None, 0)), "there is none any more");
    }
    bucket.put(POLICY_KEY, stored(7.0).into(), None).await.expect("it is stored");
    assert_eq!(next(&mut follower, 1).await.map(|(cap, _)| cap), Some(Some(7.0)));
    hub.lose_bucket(&spec().name);
    assert_eq!(next(&mut follower, 600).await, None, "the bucket is lost, so what was known goes on");
    assert_eq!(follower.known.followed(), 5);
}

#[tokio::test(start_paused = true)]
async fn invalid_policy_is_ignored_and_the_previous_one_kept() {
    let hub = hub();
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    let mut follower = follower(&hub);
    bucket.put(POLICY_KEY, stored(5.0).into(), None).await.expect("it is stored");
    assert!(follower.first().await.is_some());
    let of_later_version = contract::know::encode_as(2, &StoredPolicy::default()).expect("it fits");
    for value in [stored(0.0), stored(f64::NAN), stored(1e9), b"rubbish".to_vec(), of_later_version] {
        bucket.put(POLICY_KEY, value.into(), None).await.expect("it is stored");
        assert_eq!(next(&mut follower, 200).await, None);
        assert_eq!(follower.known.followed(), 1);
    }
    bucket.put(POLICY_KEY, stored(9.0).into(), None).await.expect("it is stored");
    assert_eq!(next(&mut follower, 1).await, Some((Some(9.0), 7)));
}

#[tokio::test(start_paused = true)]
async fn bucket_is_not_read_while_the_bus_is_away_and_soon_after_its_return() {
    let hub = hub();
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    let mut follower = follower(&hub);
    assert!(follower.first().await.is_some(), "there is none");
    follower.news = Some(futures::stream::pending().boxed());
    let (reports, health) = tokio::sync::mpsc::unbounded_channel();
    follower.health = futures::stream::unfold(health, |mut health| async move { Some((health.recv().await?, health)) }).boxed();
    reports.send(BusHealth::Disconnected { reason: "gone".to_owned() }).expect("it follows");
    bucket.put(POLICY_KEY, stored(5.0).into(), None).await.expect("it is stored");
    assert_eq!(next(&mut follower, 600).await, None, "the bus is away");
    reports.send(BusHealth::Degraded { reason: "starting".to_owned(), transient: true }).expect("it follows");
    assert_eq!(next(&mut follower, 11).await, Some((Some(5.0), 1)));
}

#[tokio::test(start_paused = true)]
async fn missed_change_is_found_and_a_lost_bucket_keeps_the_policy() {
    let hub = hub();
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    let mut follower = follower(&hub);
    for value in [stored(5.0), stored(6.0)] {
        bucket.put(POLICY_KEY, value.into(), None).await.expect("it is stored");
    }
    assert!(follower.first().await.is_some());
    bucket.put(POLICY_KEY, stored(7.0).into(), None).await.expect("it is stored");
    // Simulates a lost message.
    follower.news = Some(futures::stream::pending().boxed());
    assert_eq!(next(&mut follower, 91).await, Some((Some(7.0), 3)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    hub.lose_bucket(&spec().name);
    assert_eq!(next(&mut follower, 600).await, None, "what was known goes on");
    assert_eq!(follower.known.followed(), 3);
    follower.news = None;
    let bucket = hub.bucket(&spec()).await.expect("a bucket");
    for rate in [8.0, 9.0, 10.0] {
        bucket.put(POLICY_KEY, stored(rate).into(), None).await.expect("it is stored");
    }
    assert_eq!(next(&mut follower, 91).await, Some((Some(10.0), 3)), "revisions begin anew there");
}

#[test]
fn a_quiet_follower_logs_nothing_about_the_policy_and_another_logs_each_change_once() {
    for (is_quiet, expected) in [(false, 5), (true, 0)] {
        let log = CountedLog::down_to(Level::TRACE);
        tracing::subscriber::with_default(log.clone(), || {
            let mut known = Known { created: "then".to_owned(), is_quiet, ..Known::default() };
            assert!(known.found(1, &stored(5.0)).is_some());
            assert!(known.found(1, &stored(5.0)).is_none(), "it was read before");
            assert!(known.found(2, b"rubbish").is_none());
            assert!(known.found_none("now").is_none(), "the bucket is lost");
            assert!(known.found_none("then").is_some(), "it was deleted");
            assert!(known.found(4, &stored(6.0)).is_some());
        });
        assert_eq!(log.lines(), expected, "quiet: {is_quiet}");
    }
}
