//! Keys, values, versions and bounds of stored values.

use super::encoding::decode_of;
use super::*;
use crate::FailureClass;
use crate::subject::Fleet;

#[test]
fn keys_are_read_as_they_are_written() {
    let node: NodeName = "n1.example".parse().unwrap();
    for class in [None, Some(FailureClass::RateLimited), Some(FailureClass::NotFound)] {
        let key = ReportKey { node: node.clone(), class, backoff_key: 7 };
        assert_eq!(ReportKey::read(&key.text()), Some(key));
    }
    let key = AttemptKey { kind: "probe".to_owned(), backoff_key: u128::MAX, which: 3 };
    assert_eq!(AttemptKey::read(&key.text()), Some(key));
    assert_eq!(pause_key(Some("localhost:5000")), "registry.localhost_3a5000");
    assert_eq!(member_key(&node), "n1_2eexample");
    assert_eq!(member_of(&member_key(&node)), Some(node));
}

#[test]
fn keys_of_others_are_not_read() {
    let hex = "0".repeat(32);
    for key in ["", "a", "a.b", &format!("a.not_found.{hex}.x"), "a.not_found.7", &format!("a_.not_found.{hex}"), &format!("_.x.{hex}")] {
        assert_eq!(ReportKey::read(key), None, "{key}");
    }
    for key in ["attempt.probe", &format!("budget.probe.{hex}.{hex}"), &format!("attempt.probe.{hex}.+{}", "0".repeat(31))] {
        assert_eq!(AttemptKey::read(key), None, "{key}");
    }
    for key in ["", "_", "_zz", "a.b"] {
        assert_eq!(member_of(key), None, "{key}");
    }
}

#[test]
fn oversized_value_is_neither_written_nor_read() {
    let pause = StoredPause { by: "x".repeat(MAX_STORED_BYTES), ..StoredPause::default() };
    assert!(matches!(encode(&pause), Err(KnowError::TooLarge { .. })));
    assert!(matches!(decode::<StoredPause>(&[0; MAX_STORED_BYTES + 1]), Err(KnowError::TooLarge { .. })));
    assert!(matches!(decode::<StoredReport>(b"\xff"), Err(KnowError::Malformed(_))));
}

#[test]
fn a_value_states_its_version_and_an_older_reader_gets_that_error() {
    let lease = StoredLease::of_node("n1".parse().unwrap());
    let (first, second) = (encode_as(1, &lease).unwrap(), encode_as(2, &lease).unwrap());
    assert_eq!(first, encode(&lease).unwrap(), "version 1 is what it always was");
    assert_eq!(decode::<StoredLease>(&second), Err(KnowError::Version(2)), "written by a later agent");
    for value in [&first, &second] {
        assert_eq!(decode_of::<StoredLease>(&[1, 2], value).as_ref(), Ok(&lease), "read by that agent");
    }
    assert_eq!(decode_of::<StoredLease>(&[2, 3], &first), Err(KnowError::Version(1)));
    for rubbish in [&b"rubbish"[..], b"", b"\0\0", b"\x02", b"\x02\x02\x80"] {
        assert_eq!(other_version(rubbish), None, "{rubbish:?}");
        assert!(matches!(decode::<StoredLease>(rubbish), Err(KnowError::Malformed(_))), "{rubbish:?}");
    }
    assert_eq!(other_version(&second), Some(2));
    assert_eq!(encode_as(128, &lease), Err(KnowError::Version(128)));
}

#[test]
fn later_lease_has_a_higher_epoch_even_after_a_lost_bucket() {
    let made_s = 1_790_000_000;
    let epochs = [
        lease_epoch(made_s, 1),
        lease_epoch(made_s, 2),
        // A day later, after more changes than any server takes, the bucket is lost and made again.
        lease_epoch(made_s, 86_400 * 1_000_000),
        lease_epoch(made_s + 86_400, 1),
    ];
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
    assert!(epochs.iter().all(|epoch| *epoch < 1 << 53), "{epochs:?}");
    assert_eq!(lease_epoch(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn every_bucket_is_bounded_and_the_fleet_key_is_not_republished() {
    let fleet = Fleet::default();
    let buckets = [SharedBucket::reports(&fleet), SharedBucket::leases(&fleet), SharedBucket::pauses(&fleet)];
    for (bucket, purpose) in buckets.iter().zip([REPORTS, LEASES, PAUSES]) {
        assert!(bucket.max_bytes > MAX_STORED_BYTES as u64 && bucket.markers_kept.is_some());
        assert_eq!((&bucket.name, bucket.republished_to.as_ref()), (&fleet.bucket(purpose), Some(&fleet.knowledge(purpose))));
    }
    let purposes = [REPORTS, LEASES, LEADERS, PAUSES, MEMBERS, POLICY, KEYS];
    assert_eq!(SharedBucket::all(&fleet).map(|bucket| bucket.name), purposes.map(|purpose| fleet.bucket(purpose)));
    let policy = SharedBucket::policy(&fleet);
    assert!(policy.max_bytes > 2 * MAX_STORED_BYTES as u64 && policy.markers_kept.is_none());
    assert_eq!(policy.republished_to, Some(fleet.knowledge(POLICY)));
    let members = SharedBucket::members(&fleet);
    assert!(members.max_bytes > MAX_STORED_BYTES as u64 && members.markers_kept.is_some() && !members.forgets_oldest);
    assert_eq!((members.republished_to, SharedBucket::keys(&fleet).republished_to), (None, None));
}
