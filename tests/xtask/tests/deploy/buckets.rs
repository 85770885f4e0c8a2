//! The buckets that each login of the example may read and write.

use std::time::Duration;

use bus::{BusError, Messaging};
use bytes::Bytes;
use futures::StreamExt;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::{BUCKETS, Fleet, LIMIT, REFUSED_AFTER, bucket, is_refused, message, next};

#[tokio::test]
async fn a_node_writes_reports_in_its_own_name_alone_and_the_server_republishes_them() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    let reports = bucket(&n1, "reports").await.unwrap();
    let of_n2 = bucket(&n2, "reports").await.unwrap();
    let mut received = n2.subscribe("fleetpull.v1.know.>", None).await.unwrap();
    assert!(is_refused(reports.put("n2.not_found.ab", "x".into(), None)).await);
    reports.put("n1.not_found.ab", "x".into(), Some(Duration::from_secs(60))).await.unwrap();
    let change = next(&mut received).await;
    assert_eq!(change.subject, "fleetpull.v1.know.reports.n1.not_found.ab");
    assert_eq!(of_n2.get("n1.not_found.ab").await.unwrap().map(|entry| entry.value), Some(Bytes::from_static(b"x")));
    assert_eq!(of_n2.snapshot(None).await.unwrap().entries.len(), 1);
    assert!(of_n2.status().await.unwrap().sequence >= 1);

    let leases = bucket(&n1, "leases").await.unwrap();
    let revision = leases.create("registrar", "n1".into(), Some(Duration::from_secs(10))).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.know.leases.registrar");
    assert!(bucket(&n2, "leases").await.unwrap().create("registrar", "n2".into(), None).await.is_err(), "it is taken");
    leases.update("registrar", "n1".into(), revision, Some(Duration::from_secs(10))).await.unwrap();
}

#[tokio::test]
async fn the_key_of_the_fleet_is_for_agents_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    bucket(&n1, "keys").await.unwrap().create("fleet", "k".into(), None).await.unwrap();
    let read = bucket(&n2, "keys").await.unwrap().get("fleet").await.unwrap();
    assert_eq!(read.map(|entry| entry.value), Some(Bytes::from_static(b"k")));
    for stranger in ["operator", "viewer"] {
        let stranger = fleet.connect(stranger).await;
        let mut received = stranger.subscribe("$KV.fleetpull-keys.>", None).await.unwrap();
        assert!(
            is_refused(async {
                bucket(&stranger, "keys").await?.get("fleet").await.map_err(|error| BusError::Other { reason: error.to_string() })
            })
            .await
        );
        let direct = stranger.request(message("$JS.API.DIRECT.GET.KV_fleetpull-keys.$KV.fleetpull-keys.fleet"), REFUSED_AFTER).await;
        assert!(direct.is_err(), "{direct:?}");
        bucket(&n1, "keys").await.unwrap().put("fleet", "k".into(), None).await.unwrap();
        assert!(tokio::time::timeout(REFUSED_AFTER, received.next()).await.is_err(), "the key was received");
    }
}

#[tokio::test]
async fn a_node_records_itself_alone_as_a_member_and_operators_read_the_members() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let members = bucket(&n1, "members").await.unwrap();
    let revision = members.put("n1", "x".into(), Some(Duration::from_secs(60))).await.unwrap();
    let read = bucket(&operator, "members").await.unwrap();
    let keys = |entries: Vec<bus::AgedEntry>| entries.into_iter().map(|aged| aged.entry.key).collect::<Vec<_>>();
    assert_eq!(keys(read.snapshot(None).await.unwrap().entries), ["n1"]);
    for forged in ["n2", "n1.more"] {
        assert!(is_refused(members.put(forged, "x".into(), None)).await, "{forged}");
    }
    assert!(is_refused(read.put("n1", "x".into(), None)).await);
    let viewed = bucket(&viewer, "members").await.unwrap();
    assert_eq!(keys(viewed.snapshot(None).await.unwrap().entries), ["n1"]);
    assert!(is_refused(viewed.put("n1", "x".into(), None)).await);
    members.delete("n1", Some(revision)).await.unwrap();
    assert_eq!(keys(read.snapshot(None).await.unwrap().entries), Vec::<String>::new());
}

#[tokio::test]
async fn operators_alone_write_the_fleet_policy_and_the_server_republishes_it() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let mut received = n1.subscribe("fleetpull.v1.know.policy.>", None).await.unwrap();
    let written = bucket(&operator, "policy").await.unwrap();
    let revision = written.create("fleet", "1".into(), None).await.unwrap();
    assert_eq!(next(&mut received).await.payload, "1");
    assert!(written.create("fleet", "2".into(), None).await.is_err(), "it is there");
    written.update("fleet", "2".into(), revision, None).await.unwrap();
    assert_eq!(next(&mut received).await.payload, "2");
    let of_node = bucket(&n1, "policy").await.unwrap();
    assert_eq!(of_node.get("fleet").await.unwrap().map(|entry| entry.value), Some(Bytes::from_static(b"2")));
    assert!(of_node.status().await.unwrap().sequence >= 2);
    let of_viewer = bucket(&viewer, "policy").await.unwrap();
    for reader in [&written, &of_viewer] {
        assert_eq!(reader.snapshot(None).await.unwrap().entries.len(), 1);
    }
    for refused in [of_node, of_viewer] {
        assert!(is_refused(refused.put("fleet", "3".into(), None)).await);
    }
    assert!(is_refused(written.put("other", "3".into(), None)).await);
}

#[tokio::test]
async fn a_node_changes_no_bucket_and_speaks_for_nobody_else() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    bucket(&n2, "reports").await.unwrap().put("n2.not_found.ab", "x".into(), None).await.unwrap();
    bucket(&n2, "keys").await.unwrap().create("fleet", "k".into(), None).await.unwrap();
    let before = fleet.buckets().await;
    let mut forbidden = Vec::new();
    for purpose in BUCKETS {
        let stream = format!("KV_fleetpull-{purpose}");
        let calls = ["CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE"];
        forbidden.extend(calls.map(|call| format!("$JS.API.STREAM.{call}.{stream}")));
        forbidden.extend(["CREATE", "DURABLE.CREATE"].map(|call| format!("$JS.API.CONSUMER.{call}.{stream}.spy")));
    }
    for subject in [
        "$JS.API.STREAM.CREATE.other",
        "$JS.API.STREAM.LIST",
        "$JS.API.ACCOUNT.PURGE.FLEET",
        "$JS.API.META.LEADER.STEPDOWN",
        "$SYS.REQ.SERVER.PING",
        "$KV.fleetpull-reports.n2.not_found.ab",
        "$KV.fleetpull-members.n2",
        "$KV.fleetpull-keys.other",
        "$KV.fleetpull-policy.fleet",
        "fleetpull.v1.know.reports.n2.not_found.ab",
        "fleetpull.v1.know.leases.registrar",
        "fleetpull.v1.evt.Failed.ghcr_2eio.n2",
        "fleetpull.v1.digest.n2",
        "fleetpull.v1.cmd.n2.pull-coordinator.ensure",
        "fleetpull.v1.cmd._all.agent.describe",
        "fleetpull.v1.cmd.n2.throttler.grant-budget.n2",
    ] {
        forbidden.push(subject.to_owned());
    }
    for subject in forbidden {
        let answer = n1.request(message(&subject), LIMIT).await;
        assert_eq!(answer.err(), Some(BusError::Forbidden { subject }));
    }
    // If keys can expire, nats-server lets a writer empty a bucket by this header; the fleet's key does not expire.
    let rollup = message("$KV.fleetpull-keys.fleet").with_headers([("Nats-Rollup", "all")].into_iter().collect());
    let refused = n1.request(rollup, LIMIT).await.unwrap();
    assert!(String::from_utf8_lossy(&refused.payload).contains("rollup not permitted"), "{refused:?}");
    assert_eq!(fleet.buckets().await, before, "no bucket is another one, and none has more or less in it");
}

#[tokio::test]
async fn the_login_that_makes_buckets_deletes_none_and_reads_nothing() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let setup = fleet.connect("setup").await;
    for purpose in BUCKETS {
        let calls = ["STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE"];
        for subject in calls.map(|call| format!("$JS.API.{call}.KV_fleetpull-{purpose}")) {
            let answer = setup.request(message(&subject), LIMIT).await;
            assert_eq!(answer.err(), Some(BusError::Forbidden { subject }));
        }
    }
    for subject in ["$JS.API.STREAM.CREATE.other", "$KV.fleetpull-keys.fleet", "fleetpull.v1.cmd.n1.pull-coordinator.ensure"] {
        let answer = setup.request(message(subject), LIMIT).await;
        assert_eq!(answer.err(), Some(BusError::Forbidden { subject: subject.to_owned() }));
    }
}
