//! `status` of 10,000 simulated nodes in one process: one screen, in bounded time and memory.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::print_stderr, reason = "figures for the log")]

use std::collections::BTreeMap;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{Message, Messaging as _};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::messages::backoff_tracker::{BackoffEntry, BackoffList, EntryKind, KeyParts, ListBackoffs};
use contract::messages::pull_coordinator::{ListPulls, PullList, PullState, PullStatus};
use contract::messages::throttler::{BudgetList, ListBudgets};
use contract::subject::Fleet;
use contract::{Command, FailureClass, View};
use e2e::{Watch, Workplace, until};
use futures::StreamExt as _;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NODES: usize = 10_000;
/// The number of missing tags, for which all nodes have entries.
const TAGS: usize = 300;
/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most memory of the command, in KiB.
const MEMORY_MOST_KIB: u64 = 100 * 1_024;
/// The most lines of one screen.
const LINES_MOST: usize = 40;

fn image(tag: usize) -> String {
    format!("registry.example/team/app:v{tag}")
}

fn description(number: usize) -> NodeDescription {
    NodeDescription {
        node: format!("n{number:05}.rack-{}.example", number % 40).parse().unwrap(),
        instance: "i".to_owned(),
        host: String::new(),
        started_ms: 0,
        version: "0.1.0".to_owned(),
        state: if number == 7 { "degraded: no JetStream" } else { "ok" }.to_owned(),
        since_ms: 60_000,
        runtime: "containerd 2.1.0".to_owned(),
        labels: BTreeMap::from([("zone".to_owned(), format!("z{}", number % 5))]),
        zone: format!("z{}", number % 5),
        pulling: 0,
        waiting: 2,
        standing: 0,
        backoff: TAGS as u64,
        oldest_unsent_ms: 0,
        share: "enforce".to_owned(),
        reads_versions: vec![1],
        policy_revision: 0,
        bus_loss: None,
        bus_unset: false,
    }
}

fn entry(tag: usize) -> BackoffEntry {
    BackoffEntry {
        key: format!("{tag:04x}{:028x}", 0),
        key_parts: KeyParts { image: image(tag), ..KeyParts::of(EntryKind::Image, "registry.example") },
        view: Some(View { scope: "default".to_owned(), registry: "registry.example".to_owned(), ..View::default() }),
        class: FailureClass::NotFound,
        binds: "everybody".to_owned(),
        reporters: vec!["n1".to_owned()],
        reporter_count: 1,
        step: 1,
        since_ms: 60_000,
        next_attempt_ms: 30_000,
        cause: "ErrImagePull: registry.example: 404 Not Found for manifest".to_owned(),
        ..BackoffEntry::default()
    }
}

/// The back-off lists with all fields, and with keys alone.
fn backoffs() -> [BackoffList; 2] {
    let entries: Vec<BackoffEntry> = (0..TAGS).map(entry).collect();
    let shared_keys = entries.iter().map(|entry| entry.key.clone()).collect();
    let list = |entries, shared_keys| BackoffList { entries, shared_keys, share: "enforce".to_owned(), ..BackoffList::default() };
    [list(entries, Vec::new()), list(Vec::new(), shared_keys)]
}

/// The list of pulls of each node: it waits for the first two tags.
fn pulls() -> PullList {
    let pull = |tag| PullStatus {
        image: image(tag),
        state: PullState::Waiting,
        since_ms: 45_000,
        callers: 1,
        pods: Vec::new(),
        done_bytes: 0,
        total_bytes: 0,
        layers: Vec::new(),
    };
    PullList { pulls: (0..2).map(pull).collect(), ..PullList::default() }
}

/// Answers the questions of one command, for any node, with the reply that `which` chooses.
async fn answer<C: Command>(bus: &NatsBus, replies: &[C::Reply], which: impl Fn(C) -> usize + Send + 'static) {
    let of_one = Fleet::default().command(&"n1".parse().unwrap(), C::SERVICE, C::VERB);
    let mut questions = bus.subscribe(&of_one.replace(".n1.", ".*."), None).await.unwrap();
    let replies: Vec<Vec<u8>> = replies.iter().map(|reply| rmp_serde::to_vec_named(reply).unwrap()).collect();
    let bus = bus.clone();
    tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            let reply = &replies[which(rmp_serde::from_slice(&question.payload).unwrap())];
            bus.publish(Message::new(question.reply_to.unwrap(), reply.clone())).await.unwrap();
        }
    });
}

/// Sends the descriptions of all nodes as answers to one question.
async fn describe(bus: &NatsBus) {
    let mut questions = bus.subscribe(&Fleet::default().command_to_all(DescribeNode::SERVICE, DescribeNode::VERB), None).await.unwrap();
    let bus = bus.clone();
    let answers: Vec<Vec<u8>> = (0..NODES).map(|number| rmp_serde::to_vec_named(&description(number)).unwrap()).collect();
    tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            let inbox = question.reply_to.unwrap();
            for answer in &answers {
                bus.publish(Message::new(inbox.clone(), answer.clone())).await.unwrap();
            }
        }
    });
}

/// The peak memory of a process, in KiB.
fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn ten_thousand_nodes_are_one_screen_in_bounded_memory() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _bus = runtime.block_on(async {
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(PATIENCE).await.unwrap();
        describe(&bus).await;
        answer::<ListBackoffs>(&bus, &backoffs(), |list| usize::from(list.shared_by_key)).await;
        answer::<ListBudgets>(&bus, &[BudgetList::default()], |_| 0).await;
        answer::<ListPulls>(&bus, &[pulls()], |_| 0).await;
        bus
    });
    let place = Workplace::new().with("NATS_URL", server.url());
    let clock = Watch::start();
    let shown = place.run(&["status"]).expect(0);
    eprintln!("status of {NODES} nodes that hold {TAGS} entries each: {:?}", clock.elapsed());
    assert_eq!(shown.stdout.lines().count(), LINES_MOST, "{shown}");
    assert!(shown.stdout.starts_with("registry.example/team/app:v0: not found for 60s, 404 (n1), "), "{shown}");
    for part in [" nodes wait for 1 image", "\nNODES    ", " ready, 1 degraded (", " more, fleetpull backoff list"] {
        assert!(shown.stdout.contains(part), "{part} in {shown}");
    }

    let watching = place.start(&["status", "--watch", "-o", "json"]);
    until("it is read twice", || (watching.stdout().lines().count() >= 2).then_some(()));
    let (peak, text) = (peak_kib(watching.id()), watching.stdout());
    eprintln!("memory of the command at its peak: {} MiB", peak / 1_024);
    assert!(peak < MEMORY_MOST_KIB, "{peak} KiB");
    let status: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // On a busy machine some answers come after the time limit.
    let total = status["nodes"]["total"].as_u64().unwrap();
    assert!(total > NODES as u64 / 2, "{total}");
    assert_eq!(status["images"][1]["waiting_nodes"].as_u64(), Some(total - status["nodes"]["unanswered"].as_u64().unwrap()), "all wait");
    assert_eq!(status["images"].as_array().unwrap().len(), TAGS);
}
