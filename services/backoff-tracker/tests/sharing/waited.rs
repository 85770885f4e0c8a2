//! Reports that waited in a silent connection, and reports that are published again: neither counts as new.

use backoff_tracker::Share;
use contract::know::{ReportKey, StoredClear, StoredReport, decode, encode};
use contract::messages::backoff_tracker::{BackoffAnswer, SeeFleet};
use contract::messages::registrar::{FleetDigest, FleetSeen, Place};

use super::fleet::{Nodes, not_found, pass};
use super::forged::{put, report, reports};

const IMAGE: &str = "r.example/a:1";

/// The server's value of a key.
async fn stored(fleet: &Nodes, key: &str) -> StoredReport {
    let entry = reports(fleet).await.get(key).await.unwrap().expect("it is there");
    decode(&entry.value).unwrap()
}

fn milliseconds(fleet: &Nodes) -> u64 {
    u64::try_from(fleet.clock.now().wall.as_millis()).unwrap()
}

#[actix::test]
async fn a_report_contains_the_servers_time_once_it_is_known() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    fleet.nodes[1].fails(1, "r.example/b:1", not_found()).await;
    pass(5_000).await;
    let now = milliseconds(&fleet);
    fleet.nodes[0].fails(2, IMAGE, not_found()).await;
    pass(5).await;
    let stored = stored(&fleet, &report("n1", IMAGE).0).await;
    assert!(stored.written_ms.is_some_and(|ms| ms >= now && ms <= now + 5), "{stored:?} {now}");
}

/// The connection between the writer and its server delivered nothing for 20 s.
#[actix::test]
async fn a_report_that_waited_has_its_true_age_for_each_reader() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    let waited = |milliseconds: u64, ms: u64| Some(milliseconds - ms);
    let (key, stored) = report("n8", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    let (key, stored) = report("n9", IMAGE);
    let written_ms = waited(milliseconds(&fleet), 20_000);
    put(&fleet, &key, encode(&StoredReport { age_ms: 1_000, written_ms, step: 3, ..stored }).unwrap()).await;
    // The report of n8, which has no server time, is the newer one.
    let held = fleet.nodes[0].held(IMAGE).await;
    assert_eq!(held.learned_by.map(|node| node.to_string()).as_deref(), Some("n8"));
    let (key, stored) = report("n9", "r.example/b:1");
    let written_ms = waited(milliseconds(&fleet), 3_000);
    put(&fleet, &key, encode(&StoredReport { written_ms, ..stored }).unwrap()).await;
    let held = fleet.nodes[0].held("r.example/b:1").await;
    assert!((3_000..3_100).contains(&held.learned_ms_ago) && held.next_attempt_ms <= 1_000, "{held:?}");
    let late = fleet.join("late", Share::Enforce);
    assert!((3_000..3_100).contains(&late.held("r.example/b:1").await.learned_ms_ago), "read by one that has just begun");
}

/// Like the test of reports without a server time; here no node is refused at all.
#[actix::test]
async fn replayed_report_with_its_time_of_writing_delays_no_node() {
    tokio::time::pause();
    let fleet = Nodes::start(4).await;
    fleet.nodes[1].fails(7, "r.example/other:1", not_found()).await;
    pass(5).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let bucket = reports(&fleet).await;
    let (key, _) = report("n1", IMAGE);
    let kept = bucket.get(&key).await.unwrap().expect("its report is stored").value;
    pass(20_000).await;
    fleet.nodes[0].ends_well(2, IMAGE).await;
    pass(5).await;
    for _ in 0..5 {
        bucket.put(&key, kept.clone(), None).await.unwrap();
        pass(5).await;
        assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed);
        pass(1_000).await;
    }
}

/// The server has an older report of a node than its last, because that was lost: the node itself knows better.
#[actix::test]
async fn a_node_reads_its_own_reports_from_a_snapshot_only_at_its_start() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (key, stored) = report("n1", IMAGE);
    put(&fleet, &key, encode(&stored).unwrap()).await;
    let digest = FleetDigest { reports_sequence: 7, ..FleetDigest::default() };
    let place = Place { alive: 2, alive_in_zone: 2, rank: Some(0) };
    fleet.nodes[0].put(SeeFleet(FleetSeen { place, digest: Some(digest) })).await;
    pass(3_000).await;
    assert_eq!(fleet.nodes[0].counts().await.shared.snapshots_total, 2);
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
    let anew = fleet.join("n1", Share::Enforce);
    assert_eq!(anew.held(IMAGE).await.learned_by, None, "its own, of before its restart");
}

/// A clear that waited ends what failed before it, and not what failed while it waited.
#[actix::test]
async fn delayed_clear_keeps_newer_failures() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(1_000).await;
    let cleared = milliseconds(&fleet);
    pass(1_000).await;
    fleet.nodes[1].fails(2, "r.example/b:1", not_found()).await;
    pass(500).await;
    for (image, number) in [(IMAGE, 1), ("r.example/b:1", 2)] {
        let clear = StoredClear { image: Some(image.to_owned()), written_ms: Some(cleared), ..StoredClear::default() };
        let key = ReportKey { node: "n9".parse().unwrap(), class: None, backoff_key: number }.text();
        put(&fleet, &key, encode(&clear).unwrap()).await;
    }
    assert_eq!(fleet.nodes[2].check(IMAGE).await, BackoffAnswer::Allowed);
    fleet.nodes[2].held("r.example/b:1").await;
}
