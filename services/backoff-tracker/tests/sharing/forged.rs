//! Forged and broken values on the bus: the harm is bounded and counted, and the fleet never gets stuck.

use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use bus::{KeyValue, Message, Messaging as _, SharedState as _};
use contract::know::{Found, KeyKind, REPORTS, ReportKey, SharedBucket, StoredKeyInView, StoredReport, encode, encode_as};
use contract::messages::backoff_tracker::{BackoffAnswer, Clearance, SeeFleet};
use contract::messages::registrar::{FleetDigest, FleetSeen, Place};
use contract::subject::Fleet;
use contract::{FailureClass, View};

use super::fleet::{Nodes, ids, not_found, pass, target};

const IMAGE: &str = "r.example/a:1";

pub(crate) async fn reports(fleet: &Nodes) -> Arc<dyn KeyValue> {
    fleet.bus.bucket(&bucket_spec(SharedBucket::reports(&Fleet::default()))).await.unwrap()
}

/// A report that the image is not there, and its key.
pub(crate) fn report(node: &str, image: &str) -> (String, StoredReport) {
    use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
    let view: View = target(image).view;
    let in_view = KeyInView::Reference { reference: image.to_owned(), scope: "anonymous".to_owned(), mirrored: false };
    let backoff_key = BackoffKey::new(view.clone(), in_view).id().0;
    let key = ReportKey { node: node.parse().unwrap(), class: Some(FailureClass::NotFound), backoff_key }.text();
    let stored = StoredReport {
        view,
        in_view: StoredKeyInView {
            kind: KeyKind::Reference,
            reference: image.to_owned(),
            scope: "anonymous".to_owned(),
            ..StoredKeyInView::default()
        },
        attempt: ids(99).1,
        trace: None,
        found: Found::Failed,
        message: "ErrImagePull: forged".to_owned(),
        step: 1,
        retry_after_ms: None,
        repository: String::new(),
        in_a_row: 0,
        failing_for_ms: 0,
        for_all_ago_ms: 0,
        succeeded_ago_ms: None,
        age_ms: 0,
        written_ms: None,
    };
    (key, stored)
}

pub(crate) async fn put(fleet: &Nodes, key: &str, value: Vec<u8>) {
    reports(fleet).await.put(key, value.into(), None).await.unwrap();
    pass(5).await;
}

#[actix::test]
async fn a_plain_report_is_received() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    assert_eq!(fleet.nodes[0].held(IMAGE).await.learned_by.map(|node| node.to_string()).as_deref(), Some("n9"));
}

#[actix::test]
async fn an_impossible_report_is_counted_and_binds_no_node() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    let hex = key.rsplit('.').next().unwrap().to_owned();
    let good = encode(&stored).unwrap();
    let other = encode(&StoredReport {
        in_view: StoredKeyInView { reference: "r.example/b:1".to_owned(), ..stored.in_view.clone() },
        ..stored.clone()
    });
    let unknown = encode(&StoredReport { found: Found::Unknown, ..stored.clone() });
    let forged: Vec<(String, Vec<u8>)> = vec![
        (format!("n9.brand_new_class.{hex}"), good.clone()),
        (format!("n9.denied.{hex}"), good.clone()),
        (format!("n9.not_found.{}", "0".repeat(32)), good.clone()),
        ("n9.not_found".to_owned(), good.clone()),
        (format!("_.not_found.{hex}"), good.clone()),
        (key.clone(), other.unwrap()),
        (key.clone(), unknown.unwrap()),
        (key.clone(), b"rubbish".to_vec()),
        (key.clone(), vec![0x91; 6_000]),
        (key.clone(), vec![0; 100_000]),
    ];
    let count = forged.len() as u64;
    for (key, value) in forged {
        put(&fleet, &key, value).await;
    }
    // A client publishes on a subject that only the server may use.
    let subject = format!("{}.{key}", Fleet::default().knowledge(REPORTS));
    fleet.bus.publish(Message::new(subject, good)).await.unwrap();
    pass(5).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    assert_eq!(fleet.nodes[0].counts().await.shared.reports_refused_total, count + 1);
}

#[actix::test]
async fn a_report_about_something_else_under_a_known_key_is_refused() {
    const OTHER: &str = "r.example/b:1";
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    let ((key, stored), (_, of_other)) = (report("n8", IMAGE), report("n8", OTHER));
    put(&fleet, &key, encode(&of_other).unwrap()).await;
    assert_eq!(fleet.nodes[0].counts().await.shared.reports_refused_total, 1);
    assert_eq!(fleet.nodes[0].check(OTHER).await, BackoffAnswer::Allowed);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    let counts = fleet.nodes[0].counts().await.shared;
    assert_eq!((counts.reports, counts.reports_refused_total), (2, 1));
}

#[actix::test]
async fn impossible_times_are_clamped() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    let ten_years = 10 * 365 * 24 * 3_600 * 1_000;
    put(&fleet, &key, encode(&StoredReport { retry_after_ms: Some(ten_years), step: u32::MAX, ..stored.clone() }).unwrap()).await;
    let held = fleet.nodes[0].held(IMAGE).await;
    assert!(held.unconfirmed && held.next_attempt_ms == 0, "the report of one node refuses nothing: {held:?}");
    pass(31_000).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    let (key, stored) = report("n8", "r.example/b:1");
    put(&fleet, &key, encode(&StoredReport { age_ms: u64::MAX, ..stored }).unwrap()).await;
    assert_eq!(fleet.nodes[0].check("r.example/b:1").await, BackoffAnswer::Allowed, "too old to matter");
    for (number, written_ms) in [(1, 0), (2, u64::MAX)] {
        let image = format!("r.example/c:{number}");
        let (key, stored) = report("n7", &image);
        put(&fleet, &key, encode(&StoredReport { written_ms: Some(written_ms), ..stored }).unwrap()).await;
        let held = matches!(fleet.nodes[0].check(&image).await, BackoffAnswer::Refused(held) if held.next_attempt_ms == 0);
        assert_eq!(held, written_ms > 0, "written in 1970 it is old, written in the future it is new");
    }
    for (number, failing_for_ms, succeeded_ago_ms) in [(1, u64::MAX, None), (2, 0, Some(u64::MAX)), (3, u64::MAX, Some(u64::MAX))] {
        let image = format!("r.example/d:{number}");
        let (key, stored) = report("n6", &image);
        put(&fleet, &key, encode(&StoredReport { failing_for_ms, for_all_ago_ms: failing_for_ms, succeeded_ago_ms, ..stored }).unwrap())
            .await;
        if let BackoffAnswer::Refused(held) = fleet.nodes[0].check(&image).await {
            assert!(held.unconfirmed && held.next_attempt_ms == 0, "{failing_for_ms} {succeeded_ago_ms:?}: {held:?}");
        }
        pass(31_000).await;
        assert_eq!(fleet.nodes[0].check(&image).await, BackoffAnswer::Allowed, "{failing_for_ms} {succeeded_ago_ms:?}");
    }
    let counts = fleet.nodes[0].counts().await.shared;
    assert!(counts.reports_clamped_total >= 2 && counts.reports_refused_total == 0, "{counts:?}");
}

#[actix::test]
async fn a_forged_report_under_this_nodes_own_name_is_ignored() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n1", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
}

#[actix::test]
async fn a_flood_of_keys_is_bounded_and_real_reports_are_still_received() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let bucket = reports(&fleet).await;
    for number in 0..5_000 {
        let (key, stored) = report("liar", &format!("r.example/x:{number}"));
        bucket.put(&key, encode(&stored).unwrap().into(), None).await.unwrap();
        if number % 500 == 0 {
            pass(1).await;
        }
    }
    let (key, stored) = report("n9", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    fleet.nodes[0].held(IMAGE).await;
    let counts = fleet.nodes[0].counts().await.shared;
    assert!(counts.reports <= 513 && counts.reports_evicted_total >= 4_000, "{counts:?}");
}

/// Bytes with a negative number in a field that cannot be negative.
fn with_negative(good: &[u8], field: &str) -> Vec<u8> {
    let name = field.as_bytes();
    let at = good.windows(name.len()).position(|window| window == name).expect("the field is there") + name.len();
    let mut bytes = good[..at].to_vec();
    // The original value is one byte long.
    bytes.push(0xff);
    bytes.extend(&good[at + 1..]);
    bytes
}

#[actix::test]
async fn negative_delays_are_refused_and_counted() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    let good = encode(&StoredReport { age_ms: 1, retry_after_ms: Some(1), step: 1, ..stored }).unwrap();
    for field in ["age_ms", "retry_after_ms", "step"] {
        put(&fleet, &key, with_negative(&good, field)).await;
    }
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    assert_eq!(fleet.nodes[0].counts().await.shared.reports_refused_total, 3);
}

#[actix::test]
async fn reports_on_another_registry_refuse_no_pull_here() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (_, stored) = report("n9", IMAGE);
    let elsewhere = View { registry: "other.example".to_owned(), ..stored.view.clone() };
    for image in [IMAGE, "other.example/a:1"] {
        use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
        let backoff_key = BackoffKey::new(
            elsewhere.clone(),
            KeyInView::Reference { reference: image.to_owned(), scope: "anonymous".to_owned(), mirrored: false },
        );
        let key = ReportKey { node: "n9".parse().unwrap(), class: Some(FailureClass::NotFound), backoff_key: backoff_key.id().0 }.text();
        let in_view = StoredKeyInView { reference: image.to_owned(), ..stored.in_view.clone() };
        put(&fleet, &key, encode(&StoredReport { view: elsewhere.clone(), in_view, ..stored.clone() }).unwrap()).await;
    }
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    // The key belongs to one registry's back-off key, and the report to another's.
    let (key, _) = report("n9", IMAGE);
    put(&fleet, &key, encode(&StoredReport { view: elsewhere, ..stored }).unwrap()).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    assert!(fleet.nodes[0].counts().await.shared.reports_refused_total >= 1);
}

/// An attacker has kept a node's report that the tag was missing, and replays it when the tag is there.
#[actix::test]
async fn a_replayed_report_of_another_node_delays_a_healthy_fleet_for_seconds_and_is_refuted() {
    tokio::time::pause();
    let fleet = Nodes::start(4).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let bucket = reports(&fleet).await;
    let (key, _) = report("n1", IMAGE);
    let kept = bucket.get(&key).await.unwrap().expect("its report is stored").value;
    pass(20_000).await;
    fleet.nodes[0].ends_well(2, IMAGE).await;
    pass(5).await;
    assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed);
    for round in 0..20 {
        bucket.put(&key, kept.clone(), None).await.unwrap();
        pass(5).await;
        if let BackoffAnswer::Refused(held) = fleet.nodes[1].check(IMAGE).await {
            assert!(held.next_attempt_ms <= 4_000, "round {round}: {held:?}");
        }
        pass(4_100).await;
        assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed, "round {round}");
        // A node that makes an attempt meanwhile shows that the report is wrong.
        fleet.nodes[1 + round % 3].ends_well(100 + round as u64, IMAGE).await;
        pass(5).await;
    }
    let counts = fleet.nodes[1].counts().await.shared;
    assert!(counts.reports_stale_total > 0, "{counts:?}");
}

/// On the memory bus, from many names: far more than a replica holds.
#[actix::test]
async fn a_hundred_thousand_keys_take_no_more_room_than_the_bound_and_are_counted() {
    tokio::time::pause();
    let fleet = Nodes::start(1).await;
    let bucket = reports(&fleet).await;
    let (_, stored) = report("liar", IMAGE);
    for number in 0..100_000_u32 {
        let image = format!("r.example/x:{}", number / 250);
        let (key, _) = report(&format!("liar-{}", number % 250), &image);
        let in_view = StoredKeyInView { reference: image, ..stored.in_view.clone() };
        bucket.put(&key, encode(&StoredReport { in_view, ..stored.clone() }).unwrap().into(), None).await.unwrap();
        if number % 1_000 == 0 {
            pass(1).await;
        }
    }
    pass(100).await;
    let counts = fleet.nodes[0].counts().await.shared;
    assert!(counts.reports <= 32_768, "{counts:?}");
    assert_eq!(counts.reports_received_total, counts.reports + counts.reports_evicted_total, "{counts:?}");
    assert!(counts.reports_received_total + counts.reports_refused_total > 32_768, "{counts:?}");
    fleet.nodes[0].fails(1, "r.example/mine:1", not_found()).await;
    fleet.nodes[0].held("r.example/mine:1").await;
    assert_eq!(fleet.nodes[0].check("r.example/nobodys:1").await, BackoffAnswer::Allowed);
}

#[actix::test]
async fn a_report_of_another_version_is_counted_and_binds_no_node_and_own_reports_are_readable_by_all() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    put(&fleet, &key, encode_as(2, &stored).unwrap()).await;
    let counts = fleet.nodes[0].counts().await.shared;
    assert_eq!((counts.other_version_total, counts.reports_refused_total, counts.reports), (1, 1, 0));
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    for (number, version) in [None, Some(1), Some(7)].into_iter().enumerate() {
        let place = Place { alive: 2, alive_in_zone: 2, rank: Some(0) };
        let digest = FleetDigest { version, ..FleetDigest::default() };
        fleet.nodes[0].put(SeeFleet(FleetSeen { place, digest: Some(digest) })).await;
        let image = format!("r.example/a:{}", number + 10);
        fleet.nodes[0].fails(number as u64 + 1, &image, not_found()).await;
        // Its lease is released a moment after its report.
        pass(50).await;
        assert!(matches!(fleet.nodes[1].check(&image).await, BackoffAnswer::Refused(_)), "{version:?}");
    }
}

/// A node that holds leases without using them delays others no longer than a lease lasts.
#[actix::test]
async fn foreign_lead_lease_expires() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (clearance, attempt) = ids(1);
    assert!(matches!(fleet.nodes[0].clearance(clearance, attempt, IMAGE, 1_000).await, Clearance::Granted { for_all: true, .. }));
    let leases = fleet.bus.bucket(&bucket_spec(SharedBucket::leases(&Fleet::default()))).await.unwrap();
    // A second holder: the first one's lease is deleted and created again under another name.
    let held = leases.snapshot(None).await.unwrap().entries;
    assert!(!held.is_empty());
    for held in held {
        leases.delete(&held.entry.key, None).await.unwrap();
        leases.create(&held.entry.key, b"stranger".to_vec().into(), Some(Duration::from_secs(15))).await.unwrap();
    }
    pass(5).await;
    let (other, next) = ids(2);
    for _ in 0..60 {
        if matches!(fleet.nodes[1].clearance(other, next, IMAGE, 1_000).await, Clearance::Granted { .. }) {
            fleet.nodes[1].ends(2, IMAGE, None).await;
            // The first one's own result is late and does no harm.
            return fleet.nodes[0].ends(1, IMAGE, None).await;
        }
    }
    panic!("no other node leads within a minute");
}
