//! Trackers that share over a real nats-server, each with a connection of its own, as agents have.
//!
//! Contracts: a failure that one node reports applies to the others at once; one node leads; a pause and a clear reach all nodes; a pause
//! outlives the server; if the server is killed, each node goes by kubelet's rule; reports that a wiped store has lost are published again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor as _, Addr, Handler};
use actors::Ask;
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, Share, SharedBus, TrackerParts};
use bus::nats::{NatsBus, NatsOptions};
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{
    AttemptFailure, BackoffAnswer, BackoffCounts, CheckBackoff, ClearBackoff, Clearance, CountBackoffs, ListBackoffs, LocalKey,
    PauseSharing, Refusal, ReportAttempt, RequestClearance, ResolveAttempt, SeeFleet, WithdrawClearance,
};
use contract::messages::registrar::{FleetSeen, Place};
use contract::subject::Fleet;
use contract::{AttemptId, ClearanceId, Command, Envelope, FailureClass, Meta, Stage, Target, TraceContext, View};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// The longest time for a message on a busy machine before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);
const IMAGE: &str = "r.example/a:1";

struct Node(Addr<BackoffTracker>);

/// Starts a server and nodes; none if there is no nats-server and tests may be skipped.
async fn start(count: usize) -> Option<(NatsServer, Vec<Node>)> {
    met(current_program())?;
    let server = NatsServer::start(NatsConfig::default());
    let mut nodes = Vec::new();
    for number in 1..=count {
        nodes.push(join(&server, &format!("n{number}")).await);
    }
    for (rank, node) in (0..).zip(&nodes) {
        let place = Place { alive: count as u64, alive_in_zone: count as u64, rank: Some(rank) };
        node.put(SeeFleet(FleetSeen { place, digest: None })).await;
    }
    Some((server, nodes))
}

async fn join(server: &NatsServer, name: &str) -> Node {
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
    bus.wait_connected(PATIENCE).await.unwrap();
    let panic_guard = actors::PanicGuard::of;
    let parts = TrackerParts {
        node: name.parse().unwrap(),
        policy: BackoffPolicy::default(),
        clock: Clock::host(),
        random: Random::from_system(),
        panic_guard: panic_guard("backoff-tracker"),
        share: Share::Enforce,
        shared: SharedBus { bus: Arc::new(bus), fleet: Fleet::default() },
        planted_bug: None,
    };
    let node = Node(BackoffTracker::sharing(parts).start());
    node.until(|counts| !counts.shared.alone).await;
    node
}

impl Node {
    async fn put<C: Command>(&self, body: C) -> C::Reply
    where
        BackoffTracker: Handler<Ask<C>>,
    {
        let envelope = Envelope { meta: Meta::root(&mut Random::from_system()), body };
        self.0.send(Ask(envelope)).await.expect("the tracker lives").expect("the tracker answers")
    }

    async fn check(&self, image: &str) -> BackoffAnswer {
        self.put(CheckBackoff { key: key(image), peek: true, target: Some(target(image)) }).await
    }

    /// Waits until an image is refused, and returns the refusal.
    async fn held(&self, image: &str) -> Refusal {
        let waiting = async {
            loop {
                if let BackoffAnswer::Refused(held) = self.check(image).await {
                    return held;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the image is held in time")
    }

    /// Waits until an image is allowed.
    async fn free(&self, image: &str) {
        let waiting = async {
            while self.check(image).await != BackoffAnswer::Allowed {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the image is free in time");
    }

    async fn until(&self, holds: impl Fn(&BackoffCounts) -> bool) {
        let waiting = async {
            while !holds(&self.put(CountBackoffs {}).await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it comes to that in time");
    }

    async fn clearance(&self, (clearance, attempt): (ClearanceId, AttemptId), image: &str, patience_ms: u64) -> Clearance {
        self.put(RequestClearance {
            clearance,
            attempt,
            attempt_span: Some(TraceContext::root(&mut Random::from_system())),
            key: key(image),
            other_keys: Vec::new(),
            target: target(image),
            standing: false,
            patience_ms,
        })
        .await
    }

    async fn ends(&self, (clearance, attempt): (ClearanceId, AttemptId), image: &str, failure: Option<AttemptFailure>) {
        self.put(ResolveAttempt { clearance, attempt, failure: failure.clone(), stage: Stage::Manifest }).await;
        self.put(ReportAttempt { key: key(image), attempt, attempt_span: None, failure, target: None }).await;
        self.put(WithdrawClearance { clearance }).await;
    }

    async fn fails(&self, image: &str) {
        let flight = flight();
        assert!(matches!(self.clearance(flight, image, 10_000).await, Clearance::Granted { .. }));
        self.ends(flight, image, Some(not_found())).await;
    }
}

fn flight() -> (ClearanceId, AttemptId) {
    let mut random = Random::from_system();
    (ClearanceId::random(&mut random), AttemptId::random(&mut random))
}

fn key(image: &str) -> LocalKey {
    LocalKey { pod: None, image: image.to_owned() }
}

fn target(image: &str) -> Target {
    Target {
        view: View { scope: "default".to_owned(), registry: "r.example".to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: "r.example:443".to_owned(),
        zone: "z".to_owned(),
        repository: "r.example/a".to_owned(),
        reference: image.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous@default".to_owned(),
        ..Target::default()
    }
}

fn not_found() -> AttemptFailure {
    let cause = "ErrImagePull: manifest unknown".to_owned();
    AttemptFailure { class: FailureClass::NotFound, cause, authoritative: true, ..AttemptFailure::default() }
}

#[actix::test]
async fn failure_of_one_node_refuses_others() {
    let Some((server, nodes)) = start(3).await else { return };
    nodes[0].fails(IMAGE).await;
    for other in &nodes[1..] {
        let held = other.held(IMAGE).await;
        assert_eq!(held.learned_by.map(|node| node.to_string()).as_deref(), Some("n1"));
        assert!(held.learned_trace.is_some());
    }
    let late = join(&server, "late").await;
    let held = late.held(IMAGE).await;
    assert_eq!(held.learned_by.map(|node| node.to_string()).as_deref(), Some("n1"), "a node that joins later reads the earlier reports");
}

#[actix::test]
async fn success_of_the_leader_releases_the_others() {
    let Some((_server, nodes)) = start(5).await else { return };
    let flights: Vec<_> = nodes.iter().map(|_| flight()).collect();
    let asked = nodes.iter().zip(&flights).map(|(node, flight)| node.clearance(*flight, IMAGE, 1_000));
    let answers = futures::future::join_all(asked).await;
    let granted: Vec<usize> = (0..answers.len()).filter(|at| matches!(answers[*at], Clearance::Granted { .. })).collect();
    assert_eq!(granted.len(), 1, "{answers:?}");
    let lead = granted[0];
    nodes[lead].ends(flights[lead], IMAGE, None).await;
    for (number, node) in nodes.iter().enumerate().filter(|(number, _)| *number != lead) {
        let clearance = node.clearance(flights[number], IMAGE, 10_000).await;
        assert!(matches!(clearance, Clearance::Granted { for_all: false, .. }), "{clearance:?}");
    }
}

#[actix::test]
async fn pauses_and_clears_reach_every_node() {
    let Some((_server, nodes)) = start(3).await else { return };
    nodes[0].fails(IMAGE).await;
    nodes[1].held(IMAGE).await;
    nodes[2].put(PauseSharing { registry: None, for_ms: 600_000, by: "ops@desk".to_owned() }).await;
    nodes[1].free(IMAGE).await;
    nodes[1].put(PauseSharing { registry: None, for_ms: 0, by: "ops@desk".to_owned() }).await;
    nodes[0].until(|counts| counts.shared.pauses == 0).await;
    nodes[0].until(|counts| counts.shared.entries == 1).await;
    let cleared = nodes[2].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    assert_eq!(cleared.cleared, ["image r.example/a:1"]);
    for node in &nodes {
        node.until(|counts| counts.shared.entries == 0).await;
    }
}

/// A pause in force when the server dies is still in force afterwards, for nodes that knew it and for a new node. The entries that it
/// suspends stay known, and refuse again after it.
#[actix::test]
async fn a_pause_outlives_the_server_and_holds_for_nodes_that_join_later() {
    let Some((mut server, nodes)) = start(3).await else { return };
    nodes[0].fails(IMAGE).await;
    nodes[1].held(IMAGE).await;
    nodes[2].put(PauseSharing { registry: None, for_ms: 600_000, by: "ops@desk".to_owned() }).await;
    for node in &nodes {
        node.until(|counts| counts.shared.pauses == 1).await;
    }
    server.kill();
    for node in &nodes {
        node.until(|counts| counts.shared.alone).await;
    }
    server.restart();
    let late = join(&server, "late").await;
    late.until(|counts| counts.shared.pauses == 1 && counts.shared.entries == 1).await;
    assert_eq!(late.check(IMAGE).await, BackoffAnswer::Allowed, "the pause holds for a node that joins later too");
    for node in &nodes {
        node.until(|counts| !counts.shared.alone && counts.shared.snapshots_total >= 2).await;
        let list = node.put(ListBackoffs::default()).await;
        let pauses: Vec<_> = list.pauses.iter().map(|pause| (pause.by.as_str(), pause.left_ms > 500_000)).collect();
        assert_eq!(pauses, [("ops@desk", true)], "it ends when it would have ended");
    }
    assert_eq!(nodes[1].check(IMAGE).await, BackoffAnswer::Allowed);
    nodes[1].put(PauseSharing { registry: None, for_ms: 0, by: "ops@desk".to_owned() }).await;
    for node in nodes[1..].iter().chain([&late]) {
        node.until(|counts| counts.shared.pauses == 0).await;
        assert_eq!(node.held(IMAGE).await.learned_by.map(|node| node.to_string()).as_deref(), Some("n1"));
    }
}

#[actix::test]
async fn dead_server_leaves_kubelets_rule_and_lost_reports_are_published_again() {
    let Some((mut server, nodes)) = start(3).await else { return };
    nodes[0].fails(IMAGE).await;
    nodes[1].held(IMAGE).await;
    nodes[0].until(|counts| counts.shared.reports_sent_total >= 2).await;
    server.kill();
    for node in &nodes {
        node.until(|counts| counts.shared.alone).await;
    }
    let flight = flight();
    assert!(matches!(nodes[1].clearance(flight, "r.example/b:1", 1_000).await, Clearance::Granted { for_all: false, .. }), "on its own");
    nodes[1].ends(flight, "r.example/b:1", Some(not_found())).await;
    nodes[1].held("r.example/b:1").await;
    server.wipe_store();
    server.restart();
    for node in &nodes {
        node.until(|counts| !counts.shared.alone && counts.shared.snapshots_total >= 2).await;
    }
    nodes[2].held("r.example/b:1").await;
    let late = join(&server, "late").await;
    late.until(|counts| counts.shared.entries >= 1).await;
}

#[actix::test]
async fn a_clear_without_a_server_is_published_when_it_is_back_and_ends_nothing_newer() {
    let Some((mut server, nodes)) = start(3).await else { return };
    let (other, newer) = ("r.example/b:1", "r.example/c:1");
    for image in [IMAGE, other, newer] {
        nodes[0].fails(image).await;
        nodes[1].held(image).await;
    }
    server.kill();
    for node in &nodes {
        node.until(|counts| counts.shared.alone).await;
    }
    for what in [IMAGE, newer] {
        let cleared = nodes[1].put(ClearBackoff { what: what.to_owned(), by: "ops@desk".to_owned() }).await;
        let notice =
            "the other nodes: the bus cannot be reached, so the clear applies to this node only; it is published when the bus is back";
        assert!(cleared.still_binding.contains(&notice.to_owned()), "{:?}", cleared.still_binding);
    }
    // Other nodes know the time of the clear only up to the message's time under way: a failure that is newer by less than that may be
    // cleared too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    // The nodes that have not received the clear still refuse by the entries that they had when the server died.
    nodes[1].fails(newer).await;
    server.restart();
    for node in &nodes {
        node.until(|counts| !counts.shared.alone).await;
        node.free(IMAGE).await;
    }
    for node in &nodes {
        node.held(other).await;
        node.held(newer).await;
    }
}
