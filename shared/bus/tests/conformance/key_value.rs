//! State with compare-and-set and expiry.

use std::sync::Arc;
use std::time::Duration;

use bus::{BucketSpec, BucketStatus, BusError, BusRef, Entry, KeyValue, KeyValueError};
use bus::{MAX_PAYLOAD_BYTES, Message};
use bytes::Bytes;

use super::bench::{Bench, bucket, next, within};

const SECOND: Duration = Duration::from_secs(1);
/// How often a test checks whether a key has expired.
const LOOK_EVERY: Duration = Duration::from_millis(20);

async fn open(bus: &BusRef, spec: &BucketSpec) -> Arc<dyn KeyValue> {
    bus.bucket(spec).await.unwrap()
}

fn conflict<T>(key: &str) -> Result<T, KeyValueError> {
    Err(KeyValueError::Conflict { key: key.to_owned() })
}

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn read(state: &Arc<dyn KeyValue>, key: &str) -> Option<(Bytes, u64)> {
    state.get(key).await.unwrap().map(|entry| (entry.value, entry.revision))
}

/// Waits until a key that was stored at this revision has no value, and returns the revision of its marker, the newest of the bucket.
async fn until_no_value(state: &Arc<dyn KeyValue>, key: &str, stored: u64) -> u64 {
    within(async {
        loop {
            let newest = state.status().await.unwrap().sequence;
            if newest > stored && read(state, key).await.is_none() {
                return newest;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
    .await
}

pub(crate) async fn revisions_count_for_the_bucket(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    assert_eq!(state.put("a", value("1"), None).await, Ok(1));
    assert_eq!(state.put("b", value("2"), None).await, Ok(2));
    assert_eq!(state.put("a", value("3"), None).await, Ok(3));
    let entry = Entry { key: "a".to_owned(), value: value("3"), revision: 3 };
    assert_eq!(state.get("a").await, Ok(Some(entry)));
    assert_eq!(read(&state, "b").await, Some((value("2"), 2)));
    assert_eq!(state.get("never").await, Ok(None));
    let empty = open(bench.bus(), &bucket("other")).await;
    assert_eq!(empty.put("a", value(""), None).await, Ok(1));
    assert_eq!(read(&empty, "a").await, Some((value(""), 1)), "an empty value is a value");
}

pub(crate) async fn a_refused_change_takes_no_revision(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    state.put("a", value("1"), None).await.unwrap();
    assert_eq!(state.update("a", value("2"), 7, None).await, conflict("a"));
    assert_eq!(state.create("a", value("2"), None).await, conflict("a"));
    assert_eq!(state.put("b", value("3"), None).await, Ok(2));
}

pub(crate) async fn create_wants_no_value_and_takes_a_marker_for_none(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    assert_eq!(state.create("a", value("1"), None).await, Ok(1));
    assert_eq!(state.create("a", value("2"), None).await, conflict("a"));
    assert_eq!(state.delete("a", None).await, Ok(()));
    assert_eq!(state.get("a").await, Ok(None));
    assert_eq!(state.create("a", value("3"), None).await, Ok(3));
    assert_eq!(read(&state, "a").await, Some((value("3"), 3)));
}

pub(crate) async fn update_wants_the_newest_revision(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    assert_eq!(state.update("a", value("0"), 1, None).await, conflict("a"));
    assert_eq!(state.put("a", value("1"), None).await, Ok(1));
    assert_eq!(state.put("b", value("2"), None).await, Ok(2));
    assert_eq!(state.update("a", value("3"), 2, None).await, conflict("a"));
    assert_eq!(state.update("a", value("3"), 1, None).await, Ok(3));
    assert_eq!(state.update("a", value("4"), 1, None).await, conflict("a"));
    assert_eq!(read(&state, "a").await, Some((value("3"), 3)));
    assert_eq!(state.update("new", value("5"), 0, None).await, Ok(4), "0 is no revision yet");
}

pub(crate) async fn delete_wants_the_newest_revision_if_one_is_given(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    state.put("a", value("1"), None).await.unwrap();
    state.put("a", value("2"), None).await.unwrap();
    assert_eq!(state.delete("a", Some(1)).await, conflict("a"));
    assert_eq!(read(&state, "a").await, Some((value("2"), 2)));
    assert_eq!(state.delete("a", Some(2)).await, Ok(()));
    assert_eq!(state.get("a").await, Ok(None));
    assert_eq!(state.delete("never", None).await, Ok(()));
}

pub(crate) async fn invalid_keys_are_refused(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    for key in ["", "a.", ".a", "a..b", "sha256:00", "a b", "a*", "a.>", "ä"] {
        let bad = KeyValueError::BadKey { key: key.to_owned() };
        assert_eq!(state.get(key).await, Err(bad.clone()));
        assert_eq!(state.put(key, value("1"), None).await, Err(bad.clone()));
        assert_eq!(state.create(key, value("1"), None).await, Err(bad.clone()));
        assert_eq!(state.update(key, value("1"), 1, None).await, Err(bad.clone()));
        assert_eq!(state.delete(key, None).await, Err(bad.clone()));
    }
    assert_eq!(state.put("A-1/_=.z", value("1"), None).await, Ok(1));
    assert_eq!(read(&state, "A-1/_=.z").await, Some((value("1"), 1)));
}

pub(crate) async fn invalid_times_to_live_are_refused(bench: &Bench) {
    let expiring = open(bench.bus(), &bucket("expiring")).await;
    for ms in [0, 1, 999, 1_500] {
        let ttl = Duration::from_millis(ms);
        let bad = Err(KeyValueError::BadTtl { ttl });
        assert_eq!(expiring.put("a", value("1"), Some(ttl)).await, bad);
        assert_eq!(expiring.create("a", value("1"), Some(ttl)).await, bad);
        assert_eq!(expiring.update("a", value("1"), 0, Some(ttl)).await, bad);
    }
    let lasting = open(bench.bus(), &BucketSpec { marker_ttl: None, ..bucket("lasting") }).await;
    assert_eq!(lasting.put("a", value("1"), Some(SECOND)).await, Err(KeyValueError::BadTtl { ttl: SECOND }));
    assert_eq!(lasting.put("a", value("1"), None).await, Ok(1));
}

pub(crate) async fn invalid_buckets_are_refused(bench: &Bench) {
    for name in ["", "a.b", "a b", "a*", "a:b", "ä"] {
        let error = BusError::BadSubject { subject: name.to_owned() };
        assert_eq!(bench.bus().bucket(&bucket(name)).await.err(), Some(error));
    }
    let spec = BucketSpec { marker_ttl: Some(Duration::from_millis(1_500)), ..bucket("odd") };
    assert!(matches!(bench.bus().bucket(&spec).await.err(), Some(BusError::Other { .. })));
}

pub(crate) async fn a_value_of_one_mebibyte_passes_and_one_byte_more_does_not(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    let largest = Bytes::from(vec![1; MAX_PAYLOAD_BYTES]);
    assert_eq!(state.put("a", largest.clone(), None).await, Ok(1));
    assert_eq!(read(&state, "a").await.map(|(value, _)| value), Some(largest));
    let too_large = state.put("a", Bytes::from(vec![1; MAX_PAYLOAD_BYTES + 1]), None).await;
    assert!(matches!(too_large, Err(KeyValueError::Bus(BusError::TooLarge { .. }))), "{too_large:?}");
}

pub(crate) async fn a_full_bucket_refuses_values(bench: &Bench) {
    let spec = BucketSpec { max_bytes: Some(100_000), ..bucket("small") };
    let state = open(bench.bus(), &spec).await;
    let part = Bytes::from(vec![1; 40_000]);
    assert_eq!(state.put("a", part.clone(), None).await, Ok(1));
    assert_eq!(state.put("b", part.clone(), None).await, Ok(2));
    assert_eq!(state.put("c", part.clone(), None).await, Err(KeyValueError::Full { key: "c".to_owned() }));
    assert_eq!(read(&state, "c").await, None);
    assert_eq!(state.delete("a", None).await, Ok(()), "a full bucket can be cleared");
    assert!(state.put("c", part, None).await.is_ok());
}

pub(crate) async fn a_full_bucket_forgets_its_oldest_values_if_its_spec_asks_for_it(bench: &Bench) {
    let spec = BucketSpec { max_bytes: Some(100_000), forgets_oldest: true, ..bucket("forgetful") };
    let state = open(bench.bus(), &spec).await;
    let part = Bytes::from(vec![1; 40_000]);
    for (revision, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
        assert_eq!(state.put(key, part.clone(), None).await, Ok(revision));
    }
    assert_eq!(read(&state, "b").await, None, "a was stored again after it");
    assert_eq!(read(&state, "a").await, Some((part.clone(), 3)));
    assert_eq!(state.put("d", part.clone(), None).await, Ok(5));
    let kept: Vec<String> = state.snapshot(None).await.unwrap().entries.into_iter().map(|stored| stored.entry.key).collect();
    assert_eq!(kept, ["c", "d"]);
}

pub(crate) async fn two_handles_see_one_bucket(bench: &Bench) {
    let one = open(bench.bus(), &bucket("state")).await;
    one.put("a", value("1"), None).await.unwrap();
    let two = open(bench.other(), &bucket("state")).await;
    assert_eq!(read(&two, "a").await, Some((value("1"), 1)));
    assert_eq!(two.create("a", value("2"), None).await, conflict("a"));
    two.update("a", value("2"), 1, None).await.unwrap();
    assert_eq!(read(&one, "a").await, Some((value("2"), 2)));
}

pub(crate) async fn an_expired_key_has_no_value(bench: &Bench) {
    let state = open(bench.bus(), &bucket("leases")).await;
    assert_eq!(state.create("lease", value("me"), Some(SECOND)).await, Ok(1));
    assert_eq!(read(&state, "lease").await, Some((value("me"), 1)));
    assert_eq!(until_no_value(&state, "lease", 1).await, 2, "the marker of expiry takes a revision");
    assert_eq!(state.get("lease").await, Ok(None));
    assert_eq!(state.put("other", value("1"), None).await, Ok(3));
}

pub(crate) async fn a_lease_taken_over_a_marker_expires_again(bench: &Bench) {
    let state = open(bench.bus(), &bucket("leases")).await;
    state.create("lease", value("me"), Some(SECOND)).await.unwrap();
    assert_eq!(until_no_value(&state, "lease", 1).await, 2);
    assert_eq!(state.create("lease", value("you"), Some(SECOND)).await, Ok(3));
    assert_eq!(until_no_value(&state, "lease", 3).await, 4);
}

pub(crate) async fn a_renewed_lease_lives_on_and_expires_again(bench: &Bench) {
    let state = open(bench.bus(), &bucket("leases")).await;
    let long = Some(Duration::from_secs(600));
    let first = state.create("lease", value("me"), long).await.unwrap();
    let second = state.update("lease", value("me"), first, Some(SECOND)).await.unwrap();
    assert_eq!(until_no_value(&state, "lease", second).await, second + 1);
    assert_eq!(state.put("lease", value("me"), Some(SECOND)).await, Ok(second + 2));
    assert_eq!(until_no_value(&state, "lease", second + 2).await, second + 3);
}

pub(crate) async fn a_put_without_time_to_live_stays(bench: &Bench) {
    let state = open(bench.bus(), &bucket("leases")).await;
    state.put("kept", value("1"), Some(SECOND)).await.unwrap();
    state.put("kept", value("2"), None).await.unwrap();
    state.put("other", value("3"), Some(SECOND)).await.unwrap();
    until_no_value(&state, "other", 3).await;
    assert_eq!(read(&state, "kept").await, Some((value("2"), 2)));
}

pub(crate) async fn markers_of_deletion_go_without_a_trace(bench: &Bench) {
    let spec = BucketSpec { marker_ttl: Some(SECOND), ..bucket("brief") };
    let state = open(bench.bus(), &spec).await;
    state.put("a", value("1"), None).await.unwrap();
    state.delete("a", None).await.unwrap();
    // It outlives the marker by 1 s, so when it is gone, the marker is too.
    state.put("later", value("1"), Some(2 * SECOND)).await.unwrap();
    assert_eq!(until_no_value(&state, "later", 3).await, 4, "the end of a marker takes no revision");
    assert_eq!(state.update("a", value("2"), 0, None).await, Ok(5), "nothing is left of the key");
}

pub(crate) async fn a_lost_bucket_is_made_again_at_its_next_use(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    state.put("a", value("1"), None).await.unwrap();
    state.put("a", value("2"), None).await.unwrap();
    bench.lose_bucket("state").await;
    assert_eq!(state.get("a").await, Ok(None));
    assert_eq!(state.create("a", value("3"), Some(SECOND)).await, Ok(1), "revisions start over");
    bench.lose_bucket("state").await;
    assert_eq!(state.put("b", value("4"), Some(SECOND)).await, Ok(1));
    bench.lose_bucket("state").await;
    assert_eq!(state.delete("a", None).await, Ok(()));
    assert_eq!(state.put("b", value("4"), None).await, Ok(2));
}

pub(crate) async fn a_snapshot_holds_every_value_with_its_age(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    let empty = state.snapshot(None).await.unwrap();
    assert_eq!((empty.status.sequence, empty.entries.len()), (0, 0));
    // More than a page, including a marker.
    for number in 0..600 {
        state.put(&format!("a.{number}"), value("1"), None).await.unwrap();
    }
    state.put("b", value("2"), Some(600 * SECOND)).await.unwrap();
    state.put("a.0", value("3"), None).await.unwrap();
    state.delete("a.1", None).await.unwrap();
    tokio::time::sleep(SECOND).await;
    state.put("young", value("4"), None).await.unwrap();
    let snapshot = state.snapshot(None).await.unwrap();
    assert_eq!(snapshot.entries.len(), 601);
    let revisions: Vec<u64> = snapshot.entries.iter().map(|aged| aged.entry.revision).collect();
    assert!(revisions.is_sorted() && revisions.last() == Some(&604));
    let of = |key: &str| snapshot.entries.iter().find(|aged| aged.entry.key == key).map(|aged| (aged.entry.value.clone(), aged.age));
    assert_eq!(of("a.0").map(|(value, _)| value), Some(value("3")));
    assert_eq!(of("a.1"), None);
    assert!(of("b").is_some_and(|(_, age)| age >= SECOND && age < 60 * SECOND), "{:?}", of("b"));
    assert!(of("young").is_some_and(|(_, age)| age < SECOND), "{:?}", of("young"));
    let status = state.status().await.unwrap();
    assert_eq!((&status.created, status.sequence, status.made_at), (&snapshot.status.created, 604, snapshot.status.made_at));
    assert_eq!((snapshot.status.sequence, &snapshot.status.created), (604, &empty.status.created));
}

pub(crate) async fn a_snapshot_since_another_holds_what_was_stored_after_it(bench: &Bench) {
    let state = open(bench.bus(), &BucketSpec { marker_ttl: Some(SECOND), ..bucket("state") }).await;
    for key in ["a", "b", "c", "d"] {
        state.put(key, value("1"), None).await.unwrap();
    }
    let before = state.snapshot(None).await.unwrap();
    let none = state.snapshot(Some(&before.status)).await.unwrap();
    assert_eq!((none.status.sequence, none.entries.len()), (4, 0));
    state.put("b", value("2"), None).await.unwrap();
    state.delete("c", None).await.unwrap();
    let keys = async |since: &BucketStatus| -> Vec<String> {
        state.snapshot(Some(since)).await.unwrap().entries.into_iter().map(|stored| stored.entry.key).collect()
    };
    assert_eq!(keys(&before.status).await, ["b"]);
    assert_eq!(keys(&BucketStatus { sequence: 2, ..before.status.clone() }).await, ["d", "b"]);
    // It outlives the marker of the newest change by 1 s, so when it is gone, the marker is gone without a trace too.
    state.delete("c", None).await.unwrap();
    let timer = open(bench.bus(), &bucket("timer")).await;
    timer.put("later", value("1"), Some(2 * SECOND)).await.unwrap();
    until_no_value(&timer, "later", 1).await;
    assert_eq!(keys(&before.status).await, ["b"]);
    assert_eq!(keys(&BucketStatus::default()).await, ["a", "d", "b"], "of another bucket, all");
    bench.lose_bucket("state").await;
    state.put("a", value("1"), None).await.unwrap();
    assert_eq!(keys(&before.status).await, ["a"]);
}

pub(crate) async fn a_lost_bucket_is_another_one(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    state.put("a", value("1"), None).await.unwrap();
    let before = state.status().await.unwrap();
    assert_eq!(before.sequence, 1);
    bench.lose_bucket("state").await;
    let after = state.snapshot(None).await.unwrap();
    assert_ne!(after.status.created, before.created);
    assert_eq!((after.status.sequence, after.entries.len()), (0, 0));
}

pub(crate) async fn the_age_of_a_bucket_is_measured_by_its_server(bench: &Bench) {
    let state = open(bench.bus(), &bucket("state")).await;
    let young = state.status().await.unwrap();
    assert!(young.made_at > 365 * 24 * 3_600 * SECOND, "since 1970: {young:?}");
    tokio::time::sleep(2 * SECOND).await;
    let old = open(bench.other(), &bucket("state")).await.status().await.unwrap();
    assert_eq!(old.made_at, young.made_at, "for every caller");
    let grown = old.age.saturating_sub(young.age);
    assert!(grown >= SECOND && old.age >= 2 * SECOND - SECOND / 10 && old.age < 60 * SECOND, "{young:?} {old:?}");
    bench.lose_bucket("state").await;
    let again = state.snapshot(None).await.unwrap().status;
    assert!(again.age < SECOND && again.made_at > old.made_at, "{old:?} {again:?}");
}

fn republishing(name: &str) -> BucketSpec {
    BucketSpec { republish_to: Some(format!("changes.{name}")), ..bucket(name) }
}

/// Stream, subject, sequence and previous sequence of a republished change, and whether it has the server's time.
fn place(message: &Message) -> (&str, &str, &str, &str, bool) {
    let header = |name: &str| message.headers.get(name).unwrap_or("none");
    let time = header("Nats-Time-Stamp");
    let timed = time.starts_with("20") && time.contains('T') && time.ends_with('Z');
    (header("Nats-Stream"), header("Nats-Subject"), header("Nats-Sequence"), header("Nats-Last-Sequence"), timed)
}

pub(crate) async fn changes_are_republished_with_their_place(bench: &Bench) {
    let mut changes = bench.other_receives("changes.>").await;
    let state = open(bench.bus(), &republishing("loud")).await;
    state.put("a.b", value("1"), None).await.unwrap();
    state.put("c", value("2"), None).await.unwrap();
    assert_eq!(state.create("c", value("3"), None).await, conflict("c"));
    state.put("a.b", value("4"), None).await.unwrap();
    state.delete("c", None).await.unwrap();
    for (subject, payload, stored) in [
        ("changes.loud.a.b", "1", ("KV_loud", "$KV.loud.a.b", "1", "0", true)),
        ("changes.loud.c", "2", ("KV_loud", "$KV.loud.c", "2", "0", true)),
        ("changes.loud.a.b", "4", ("KV_loud", "$KV.loud.a.b", "3", "1", true)),
        ("changes.loud.c", "", ("KV_loud", "$KV.loud.c", "4", "2", true)),
    ] {
        let message = next(&mut changes).await;
        assert_eq!((message.subject.as_str(), &message.payload), (subject, &value(payload)));
        assert_eq!(place(&message), stored);
        assert_eq!(message.headers.get("KV-Operation"), payload.is_empty().then_some("PURGE"));
    }
}

pub(crate) async fn an_expiry_is_republished(bench: &Bench) {
    let mut changes = bench.other_receives("changes.>").await;
    let state = open(bench.bus(), &republishing("loud")).await;
    state.put("lease", value("me"), Some(SECOND)).await.unwrap();
    assert_eq!(place(&next(&mut changes).await).2, "1");
    let message = next(&mut changes).await;
    assert_eq!(place(&message), ("KV_loud", "$KV.loud.lease", "2", "1", true));
    assert_eq!(message.headers.get("Nats-Marker-Reason"), Some("MaxAge"));
    assert_eq!(message.payload, value(""));
}

pub(crate) async fn a_bucket_learns_to_expire_and_republish(bench: &Bench) {
    let plain = BucketSpec { marker_ttl: None, ..bucket("loud") };
    let first = open(bench.bus(), &plain).await;
    first.put("kept", value("1"), None).await.unwrap();
    let state = open(bench.other(), &republishing("loud")).await;
    let mut changes = bench.other_receives("changes.>").await;
    state.put("lease", value("me"), Some(SECOND)).await.unwrap();
    assert_eq!(place(&next(&mut changes).await).2, "2");
    assert_eq!(place(&next(&mut changes).await).2, "3");
    let again = open(bench.bus(), &plain).await;
    assert_eq!(read(&again, "kept").await, Some((value("1"), 1)));
    again.put("kept", value("2"), None).await.unwrap();
    assert_eq!(place(&next(&mut changes).await).2, "4", "a spec that asks for less removes nothing");
}
