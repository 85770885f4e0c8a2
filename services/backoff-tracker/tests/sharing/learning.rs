//! One node's report is known to all; one node makes the attempt for all; all continue when one has succeeded.

use std::time::Duration;

use backoff_tracker::Share;
use clock::Clock;
use contract::messages::backoff_tracker::{
    AttemptFailure, BackoffAnswer, BeginAttempt, Clearance, LocalKey, RequestClearance, ResolveAttempt, SeeFleet,
};
use contract::messages::registrar::{FleetDigest, FleetSeen, Place};
use contract::{DEADLINES, FailureClass, PodRef, Stage};

use super::fleet::{Nodes, PATIENCE_MS, ask, ids, key, not_found, pass, refused};

const IMAGE: &str = "r.example/a:1";

#[actix::test]
async fn an_image_missing_for_one_node_is_confirmed_at_once_and_for_two_refuses_all() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    for other in &fleet.nodes[1..] {
        let held = other.held(IMAGE).await;
        assert_eq!(held.learned_by.as_ref().map(|node| node.as_str()), Some("n1"));
        assert_eq!(held.cause, "ErrImagePull: manifest unknown");
        assert!(held.learned_ms_ago < 100 && held.learned_trace.is_some() && held.next_attempt_ms == 0 && held.unconfirmed, "{held:?}");
        assert_eq!(other.check_before_pull(IMAGE).await, BackoffAnswer::Allowed);
        assert_eq!(other.check("r.example/b:1").await, BackoffAnswer::Allowed, "another image is not held");
    }
    let (clearance, attempt) = ids(20);
    let granted = fleet.nodes[1].clearance(clearance, attempt, IMAGE, 10_000).await;
    assert!(matches!(granted, Clearance::Granted { for_all: true, .. }), "one of them makes the next attempt: {granted:?}");
    assert!(fleet.clock.now().monotonic <= Duration::from_secs(1), "at once");
    let (clearance, attempt) = ids(21);
    let answer = fleet.nodes[2].clearance(clearance, attempt, IMAGE, 100).await;
    assert!(
        matches!(&answer, Clearance::Waiting { held: Some(held) } if held.unconfirmed),
        "the other waits for its result, and knows what for: {answer:?}"
    );
    fleet.nodes[1].ends(20, IMAGE, Some(not_found())).await;
    pass(5).await;
    let (clearance, attempt) = ids(21);
    for answer in [
        fleet.nodes[2].clearance(clearance, attempt, IMAGE, PATIENCE_MS).await,
        fleet.nodes[2].clearance(clearance, attempt, IMAGE, PATIENCE_MS).await,
    ] {
        assert!(matches!(&answer, Clearance::Refused(held) if !held.unconfirmed), "two nodes report it: {answer:?}");
    }
    assert!(matches!(fleet.nodes[2].check_before_pull(IMAGE).await, BackoffAnswer::Refused(_)));
    let own = fleet.nodes[1].held(IMAGE).await;
    assert_eq!(own.learned_by, None, "its own");
    assert_eq!(fleet.nodes[1].counts().await.held, 0, "kubelet's rule did not move: all go by the entry");
    for node in &fleet.nodes {
        assert_eq!(node.counts().await.shared.binding, 1, "each node counts what holds it back, whichever node found it out");
    }
}

#[actix::test]
async fn one_node_leads_and_the_others_wait_for_its_report() {
    tokio::time::pause();
    let fleet = Nodes::start(5).await;
    let mut granted = Vec::new();
    let mut waiting = Vec::new();
    for (number, node) in fleet.nodes.iter().enumerate() {
        let (clearance, attempt) = ids(number as u64);
        match node.clearance(clearance, attempt, IMAGE, 300).await {
            Clearance::Granted { for_all, answer_within_ms, .. } => {
                assert!(for_all && answer_within_ms.is_some_and(|within| within <= 15_000));
                granted.push(number);
            }
            Clearance::Waiting { held: None } => waiting.push(number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((granted.len(), waiting.len()), (1, 4));
    let asked: Vec<_> = waiting
        .iter()
        .map(|number| {
            let (clearance, attempt) = ids(*number as u64);
            fleet.nodes[*number].clearance(clearance, attempt, IMAGE, 10_000)
        })
        .collect();
    let begun = fleet.clock.now().monotonic;
    let lead = granted[0];
    let (answers, ()) = futures::future::join(futures::future::join_all(asked), fleet.nodes[lead].ends(lead as u64, IMAGE, None)).await;
    assert!(answers.iter().all(|clearance| matches!(clearance, Clearance::Granted { .. })), "{answers:?}");
    assert!(fleet.clock.now().monotonic - begun < Duration::from_secs(1), "at once, in their turn");
}

#[actix::test]
async fn one_node_probes_when_the_attempt_is_due_and_a_success_lets_all_continue() {
    tokio::time::pause();
    let fleet = Nodes::start(4).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    let asked: Vec<_> = fleet.nodes[1..]
        .iter()
        .zip(10..)
        .map(|(node, number)| {
            let (clearance, attempt) = ids(number);
            node.stand(clearance, attempt, IMAGE, 12_000)
        })
        .collect();
    let answers = futures::future::join_all(asked).await;
    let probing: Vec<usize> = (0..answers.len()).filter(|at| matches!(answers[*at], Clearance::Granted { for_all: true, .. })).collect();
    assert_eq!(probing.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|clearance| matches!(clearance, Clearance::Granted { .. } | Clearance::Waiting { .. })));
    let asked: Vec<_> = (0..answers.len())
        .filter(|at| !probing.contains(at))
        .map(|at| {
            let (clearance, attempt) = ids(10 + at as u64);
            fleet.nodes[at + 1].stand(clearance, attempt, IMAGE, 5_000)
        })
        .collect();
    let prober = probing[0];
    let success = fleet.nodes[prober + 1].ends(10 + prober as u64, IMAGE, None);
    let (answers, ()) = futures::future::join(futures::future::join_all(asked), success).await;
    assert!(answers.iter().all(|clearance| matches!(clearance, Clearance::Granted { .. })), "{answers:?}");
    assert_eq!(fleet.nodes[0].check(IMAGE).await, BackoffAnswer::Allowed);
}

#[actix::test]
async fn unreachable_registry_refuses_only_that_node() {
    tokio::time::pause();
    let fleet = Nodes::start(10).await;
    fleet.nodes[0].fails(1, IMAGE, refused()).await;
    pass(5).await;
    assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed);
    let own = fleet.nodes[0].held(IMAGE).await;
    assert!(own.next_attempt_ms > 9_000, "kubelet's rule: {own:?}");
}

#[actix::test]
async fn observing_node_counts_refusals_and_allows_pulls() {
    tokio::time::pause();
    let mut fleet = Nodes::start(2).await;
    let observer = fleet.join("observer", Share::Observe);
    fleet.nodes.push(observer);
    fleet.see(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let observer = &fleet.nodes[2];
    assert_eq!(observer.check_before_pull(IMAGE).await, BackoffAnswer::Allowed);
    assert_eq!(observer.counts().await.shared.observed_total, 0, "one node alone would have refused no pull");
    fleet.nodes[1].fails_when_let(3, IMAGE, not_found()).await;
    pass(5).await;
    assert_eq!(observer.check_before_pull(IMAGE).await, BackoffAnswer::Allowed);
    observer.fails(2, IMAGE, not_found()).await;
    let counts = observer.counts().await;
    assert_eq!((counts.shared.observed_total, counts.shared.reports_sent_total, counts.held), (1, 1, 1));
    assert!(observer.held(IMAGE).await.next_attempt_ms > 9_000, "kubelet's rule");
}

#[actix::test]
async fn without_a_bus_a_node_uses_kubelets_rule() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    bus::Messaging::drain(&fleet.nodes[0].connection).await;
    let (clearance, attempt) = ids(1);
    let mut granted = 0;
    for _ in 0..3 {
        let clearance = fleet.nodes[0].clearance(clearance, attempt, IMAGE, PATIENCE_MS).await;
        granted += u64::from(matches!(clearance, Clearance::Granted { .. }));
    }
    assert!(granted >= 1);
    fleet.nodes[0].ends(1, IMAGE, Some(not_found())).await;
    assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed, "no other node received it");
}

#[actix::test]
async fn a_request_for_clearance_that_is_not_repeated_lapses() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (clearance, attempt) = ids(1);
    assert!(matches!(fleet.nodes[0].clearance(clearance, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { .. }));
    pass(DEADLINES.clearance_lapses_after.as_millis() as u64 + 100).await;
    let counts = fleet.nodes[0].counts().await.shared;
    assert_eq!((counts.lapsed_total, counts.requests), (1, 0));
    let (other, attempt) = ids(2);
    assert!(matches!(fleet.nodes[1].clearance(other, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { .. }));
}

#[actix::test]
async fn a_node_that_joins_late_knows_earlier_reports() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(1_000).await;
    let late = fleet.join("late", Share::Enforce);
    let held = late.held(IMAGE).await;
    assert_eq!(held.learned_by.map(|node| node.to_string()).as_deref(), Some("n1"));
    assert!((1_000..1_100).contains(&held.learned_ms_ago), "{}", held.learned_ms_ago);
}

#[actix::test]
async fn a_wiped_bucket_is_filled_again_by_the_reporters() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(500).await;
    fleet.bus.lose_bucket("fleetpull-reports");
    // A node publishes a report: its sequence number is that of a new bucket.
    fleet.nodes[1].fails(2, "r.example/b:1", not_found()).await;
    pass(3_000).await;
    let late = fleet.join("late", Share::Enforce);
    let held = late.held(IMAGE).await;
    assert_eq!(held.learned_by.map(|node| node.to_string()).as_deref(), Some("n1"));
    assert!(held.learned_ms_ago >= 3_400, "{}", held.learned_ms_ago);
}

#[actix::test]
async fn an_attempt_that_hangs_while_others_are_answered_is_restarted() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let (clearance, attempt) = ids(1);
    let hanging = &fleet.nodes[0];
    assert!(matches!(hanging.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { for_all: true, .. }));
    hanging.put(BeginAttempt { clearance, attempt }).await;
    let watched = hanging.clearance(clearance, attempt, IMAGE, 14_000);
    let answered = async {
        pass(3_000).await;
        fleet.nodes[1].fails(2, "r.example/b:1", not_found()).await;
    };
    let (answer, ()) = futures::future::join(watched, answered).await;
    assert_eq!(answer, Clearance::Abandoned, "\"not found\" is an answer");
    assert_eq!(hanging.clearance(clearance, attempt, IMAGE, 0).await, Clearance::Abandoned, "and so as often as it is asked");
    let (_, anew) = ids(3);
    assert!(matches!(hanging.clearance(clearance, anew, IMAGE, PATIENCE_MS).await, Clearance::Granted { .. }));
    assert_eq!(hanging.counts().await.shared.abandoned_total, 1);
}

#[actix::test]
async fn pull_waiting_for_its_permit_publishes_no_report_of_the_registry() {
    tokio::time::pause();
    let fleet = Nodes::start(30).await;
    let lead = &fleet.nodes[0];
    let (clearance, attempt) = ids(1);
    assert!(matches!(lead.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { for_all: true, .. }));
    lead.ends(1, IMAGE, None).await;
    pass(5).await;
    for (node, number) in fleet.nodes.iter().zip(100..) {
        let (clearance, attempt) = ids(number);
        assert!(matches!(node.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { for_all: false, .. }));
    }
    pass(5_000).await;
    assert_eq!(lead.counts().await.shared.entries, 0, "they are in their queues");
    for (node, number) in fleet.nodes.iter().zip(100..) {
        let (clearance, attempt) = ids(number);
        node.put(BeginAttempt { clearance, attempt }).await;
    }
    pass(3_000).await;
    assert_eq!(lead.counts().await.shared.entries, 1, "now the registry does not answer");
    let (clearance, attempt) = ids(100);
    fleet.nodes[0].put(ResolveAttempt { clearance, attempt, failure: None, stage: Stage::Manifest }).await;
    pass(5).await;
    assert_eq!(lead.counts().await.shared.entries, 0);
}

#[actix::test]
async fn leader_waiting_for_its_permit_publishes_no_report_of_the_registry() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    let lead = &fleet.nodes[0];
    let (clearance, attempt) = ids(1);
    assert!(matches!(lead.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await, Clearance::Granted { for_all: true, .. }));
    pass(5_000).await;
    assert_eq!(fleet.nodes[1].counts().await.shared.entries, 0, "it is in its queue");
    lead.put(BeginAttempt { clearance, attempt }).await;
    pass(1_900).await;
    assert_eq!(fleet.nodes[1].counts().await.shared.entries, 0);
    pass(200).await;
    assert_eq!(fleet.nodes[1].counts().await.shared.entries, 1, "now the registry does not answer");
}

#[actix::test]
async fn a_digest_that_is_ahead_is_followed_by_a_snapshot() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let digest = FleetDigest { reports_sequence: 7, ..FleetDigest::default() };
    let place = Place { alive: 2, alive_in_zone: 2, rank: Some(1) };
    fleet.nodes[1].put(SeeFleet(FleetSeen { place, digest: Some(digest) })).await;
    pass(3_000).await;
    let counts = fleet.nodes[1].counts().await.shared;
    assert_eq!((counts.gaps_total, counts.snapshots_total), (1, 2));
}

#[actix::test]
async fn a_node_that_starts_later_knows_earlier_failures_and_their_times() {
    tokio::time::pause();
    let fleet = Nodes::start(4).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    for (node, number) in [(1, 2), (2, 3)] {
        pass(30_000).await;
        fleet.nodes[node].fails(number, IMAGE, not_found()).await;
    }
    pass(5_000).await;
    let known = fleet.nodes[0].held(IMAGE).await;
    let late = fleet.join_with("late", Share::Enforce, &Clock::simulated(Duration::from_secs(1_700_000_000)));
    let read = late.held(IMAGE).await;
    assert_eq!((read.next_attempt_ms, read.learned_ms_ago), (known.next_attempt_ms, known.learned_ms_ago));
}

#[actix::test]
async fn own_rule_delays_a_flight_only_while_it_delays_all_callers() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    let node = &fleet.nodes[0];
    let own =
        AttemptFailure { class: FailureClass::NodeLocal, cause: "ErrImagePull: no space left".to_owned(), ..AttemptFailure::default() };
    node.fails(1, IMAGE, own).await;
    let (clearance, attempt) = ids(2);
    let clearance = |other_keys| node.put(RequestClearance { other_keys, ..ask(clearance, attempt, IMAGE, 500, true) });
    let another = LocalKey { pod: Some(PodRef { name: "another".to_owned(), ..PodRef::default() }), ..key(IMAGE) };
    for (other_keys, held) in [(vec![], true), (vec![key(IMAGE)], true), (vec![another.clone()], false)] {
        let answer = clearance(other_keys.clone()).await;
        assert_eq!(matches!(answer, Clearance::Waiting { held: Some(_) }), held, "{other_keys:?}: {answer:?}");
        assert_eq!(matches!(answer, Clearance::Granted { .. }), !held, "{other_keys:?}: {answer:?}");
    }
}
