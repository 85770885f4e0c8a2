//! Nonsense on the bus: bounded harm, counted, never a stuck fleet.

use std::sync::Arc;
use std::time::Duration;

use bus::{BucketSpec, Bus as _, KeyValue, Message};
use contract::know::{AboutKind, Found, REPORTS, ReportKey, StoredAbout, StoredReport, encode};
use contract::messages::backoff_tracker::BackoffAnswer;
use contract::subject::Fleet;
use contract::{FailureClass, View};

use crate::fleet::{Nodes, ids, pass, target};

const IMAGE: &str = "r.example/a:1";

async fn reports(fleet: &Nodes) -> Arc<dyn KeyValue> {
    let name = Fleet::default().bucket(REPORTS);
    let republish_to = Some(Fleet::default().knowledge(REPORTS));
    let spec = BucketSpec { name, marker_ttl: Some(Duration::from_secs(60)), max_bytes: None, republish_to };
    fleet.bus.bucket(&spec).await.unwrap()
}

/// A report that the image is not there, and its key.
fn report(node: &str, image: &str) -> (String, StoredReport) {
    use backoff_tracker::core::knowledge::{About, Topic};
    let view: View = target(image).view;
    let about = About::Reference { reference: image.to_owned(), scope: "anonymous".to_owned(), mirrored: false };
    let topic = Topic::new(view.clone(), about).id().0;
    let key = ReportKey { node: node.parse().unwrap(), class: Some(FailureClass::NotFound), topic }.text();
    let stored = StoredReport {
        view,
        about: StoredAbout {
            kind: AboutKind::Reference,
            reference: image.to_owned(),
            scope: "anonymous".to_owned(),
            ..StoredAbout::default()
        },
        attempt: ids(99).1,
        trace: None,
        found: Found::Failed,
        message: "ErrImagePull: forged".to_owned(),
        step: 1,
        retry_after_ms: None,
        repository: String::new(),
        age_ms: 0,
    };
    (key, stored)
}

async fn put(fleet: &Nodes, key: &str, value: Vec<u8>) {
    reports(fleet).await.put(key, value.into(), None).await.unwrap();
    pass(5).await;
}

#[actix::test]
async fn a_plain_report_is_heard() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    assert_eq!(fleet.nodes[0].held(IMAGE).await.learned_by.map(|node| node.to_string()).as_deref(), Some("n9"));
}

#[actix::test]
async fn what_cannot_be_is_counted_and_binds_nobody() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    let hex = key.rsplit('.').next().unwrap().to_owned();
    let good = encode(&stored).unwrap();
    let other =
        encode(&StoredReport { about: StoredAbout { reference: "r.example/b:1".to_owned(), ..stored.about.clone() }, ..stored.clone() });
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
    // A client that publishes by itself what only the server may.
    let subject = format!("{}.{key}", Fleet::default().knowledge(REPORTS));
    fleet.bus.publish(Message::new(subject, good)).await.unwrap();
    pass(5).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Clear);
    assert_eq!(fleet.nodes[0].counts().await.shared.reports_refused_total, count + 1);
}

#[actix::test]
async fn times_that_cannot_be_are_clamped() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n9", IMAGE);
    let ten_years = 10 * 365 * 24 * 3_600 * 1_000;
    put(&fleet, &key, encode(&StoredReport { retry_after_ms: Some(ten_years), step: u32::MAX, ..stored.clone() }).unwrap()).await;
    let held = fleet.nodes[0].held(IMAGE).await;
    assert!(held.next_try_ms <= 4_000, "one node's word is believed briefly: {}", held.next_try_ms);
    pass(4_100).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Clear);
    let (key, stored) = report("n8", "r.example/b:1");
    put(&fleet, &key, encode(&StoredReport { age_ms: u64::MAX, ..stored }).unwrap()).await;
    assert_eq!(fleet.nodes[0].check("r.example/b:1").await, BackoffAnswer::Clear, "too old to matter");
    assert!(fleet.nodes[0].counts().await.shared.reports_clamped_total >= 2);
}

#[actix::test]
async fn a_word_under_this_nodes_own_name_is_not_believed() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n1", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Clear);
}

#[actix::test]
async fn a_flood_of_keys_is_bounded_and_what_is_real_is_still_heard() {
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
