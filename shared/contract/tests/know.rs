//! Stored values of version 1 stay readable: the bytes under `golden/v1` never change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use contract::know::{
    Found, KeyKind, MAX_KEYS_CLEARED, StoredClear, StoredKeyInView, StoredLease, StoredMember, StoredPause, StoredReport, decode, encode,
};
use contract::{AttemptId, TraceContext, View};

fn report() -> StoredReport {
    StoredReport {
        view: View {
            scope: "default".to_owned(),
            registry: "registry.example".to_owned(),
            route: "direct".to_owned(),
            boot: String::new(),
        },
        in_view: StoredKeyInView {
            kind: KeyKind::Reference,
            reference: "registry.example/a:1".to_owned(),
            scope: "anonymous".to_owned(),
            ..StoredKeyInView::default()
        },
        attempt: AttemptId::try_from("000102030405060708090a0b0c0d0e0f".to_owned()).unwrap(),
        trace: TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        found: Found::Failed,
        message: "ErrImagePull: manifest unknown".to_owned(),
        step: 2,
        retry_after_ms: Some(20_000),
        repository: "registry.example/a".to_owned(),
        in_a_row: 0,
        failing_for_ms: 0,
        for_all_ago_ms: 0,
        succeeded_ago_ms: None,
        age_ms: 1_500,
        written_ms: None,
    }
}

#[test]
fn a_report_of_version_1_is_read() {
    assert_eq!(decode::<StoredReport>(include_bytes!("golden/v1/report.msgpack")), Ok(report()));
    assert_eq!(decode::<StoredReport>(&encode(&report()).unwrap()), Ok(report()));
}

#[test]
fn leases_pauses_and_clears_of_version_1_are_read() {
    let lease = StoredLease::of_node("n1.example".parse().unwrap());
    assert_eq!(decode::<StoredLease>(include_bytes!("golden/v1/lease.msgpack")), Ok(lease));
    let (registry, by) = (Some("registry.example".to_owned()), "ops@desk".to_owned());
    let pause = StoredPause { registry, for_ms: 1_800_000, by: by.clone() };
    assert_eq!(decode::<StoredPause>(include_bytes!("golden/v1/pause.msgpack")), Ok(pause));
    let backoff_keys = vec!["316e2d029ab1c464307b9b74a4007f6a".to_owned()];
    let clear = StoredClear { image: Some("registry.example/a:1".to_owned()), backoff_keys, by, age_ms: 0, written_ms: None };
    assert_eq!(decode::<StoredClear>(include_bytes!("golden/v1/clear.msgpack")), Ok(clear));
}

/// A clear that is too large is not shared at all.
#[test]
fn the_fullest_clear_is_stored() {
    // A host of 253 bytes and a port, a path of 255, a tag of 128, and a SHA-512 digest.
    let image = Some("i".repeat(253 + ":65535/".len() + 255 + ":".len() + 128 + "@sha512:".len() + 128));
    let backoff_keys = vec!["f".repeat(32); MAX_KEYS_CLEARED];
    let clear = StoredClear { image, backoff_keys, by: "b".repeat(1_024), age_ms: u64::MAX, written_ms: Some(u64::MAX) };
    assert_eq!(decode::<StoredClear>(&encode(&clear).unwrap()), Ok(clear));
}

#[test]
fn a_members_record_of_version_1_is_read() {
    let labels = BTreeMap::from([("disk", "ssd"), ("zone", "a")].map(|(key, value)| (key.to_owned(), value.to_owned())));
    let member = StoredMember { instance: "5f3a".to_owned(), labels: Some(labels), gone_after_ms: 3_600_000 };
    let golden = include_bytes!("golden/v1/member.msgpack");
    assert_eq!((decode::<StoredMember>(golden).as_ref(), encode(&member).unwrap().as_slice()), (Ok(&member), &golden[..]));
}

#[test]
fn values_of_a_newer_version_are_read_as_unknown() {
    let newer = decode::<StoredReport>(include_bytes!("golden/v1/report-of-a-newer-version.msgpack")).unwrap();
    assert_eq!((newer.in_view.kind, newer.found), (KeyKind::Unknown, Found::Unknown));
    assert_eq!((newer.view, newer.attempt), (report().view, report().attempt));
}
