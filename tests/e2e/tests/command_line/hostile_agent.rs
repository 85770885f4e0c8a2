//! An agent's texts reach a terminal as printable text only.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{EventLog as _, Message, Messaging as _, StreamSpec};
use clock::Random;
use contract::know::encode;
use contract::messages::agent::{BusLoss, DescribeNode, NodeDescription, NodeSetup, ReadSetup};
use contract::messages::backoff_tracker::{BackoffEntry, BackoffList, EntryKind, KeyParts, ListBackoffs};
use contract::messages::event_recorder::{EventList, ListEvents};
use contract::messages::pull_coordinator::{
    BlobSize, EndpointLogins, ExplainImage, Explanation, ImageList, ImageSizeEstimate, ListImages, ListPulls, ListStandingPulls,
    ListedImage, PullList, PullState, PullStatus, StandingPullList, StandingPullStatus,
};
use contract::messages::throttler::{BudgetList, BudgetState, KnownLimits, ListBudgets, RegistryLimit};
use contract::subject::Fleet;
use contract::{Command, EventReason, FailureClass, MessageId, NodeName, PullEvent, StandingPullId, TraceContext, View, cloud_event};
use e2e::{Workplace, until};
use futures::StreamExt as _;
use regex::Regex;
use serde_json::json;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// Control sequences that clear the screen, set its title (in C0 and in C1), erase, and reverse the rest of the line.
const BAD: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}y\u{9b}2Jz\u{7f}\u{202e}\r\nforged line";
/// The key of an entry, of which its row of the status and `backoff explain` take the beginning.
const KEY: &str = "7f3a7f3a7f3a7f3a7f3a7f3a7f3a7f3a";
/// The length of an image name that is longer than allowed, in characters.
const IMAGE_LENGTH: usize = 4_000;
/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn description() -> NodeDescription {
    NodeDescription {
        node: "n1".parse().unwrap(),
        instance: BAD.to_owned(),
        host: BAD.to_owned(),
        started_ms: 0,
        version: BAD.to_owned(),
        state: format!("degraded: {BAD}"),
        since_ms: u64::MAX,
        runtime: BAD.to_owned(),
        labels: BTreeMap::from([(BAD.to_owned(), BAD.to_owned())]),
        zone: BAD.to_owned(),
        pulling: u64::MAX,
        waiting: u64::MAX,
        standing: u64::MAX,
        backoff: u64::MAX,
        oldest_unsent_ms: u64::MAX,
        share: BAD.to_owned(),
        reads_versions: vec![1],
        policy_revision: 1,
        bus_loss: Some(BusLoss { since_ms: 1, reason: BAD.to_owned() }),
        bus_unset: false,
    }
}

fn event() -> PullEvent {
    let mut random = Random::seeded(3);
    PullEvent {
        image: BAD.to_owned(),
        registry: Some(BAD.to_owned()),
        ..PullEvent::new(
            MessageId::random(&mut random),
            1_700_000_000_000,
            "n1".parse().unwrap(),
            EventReason::Failed,
            BAD.to_owned(),
            TraceContext::root(&mut random),
        )
    }
}

/// Stores the event where `report` reads it.
async fn store_event(bus: &NatsBus) {
    let fleet = Fleet::default();
    let spec = StreamSpec {
        name: fleet.event_stream(),
        subjects: fleet.stored_events(),
        max_age: None,
        max_bytes: None,
        duplicate_window: Duration::from_secs(2),
        transform: None,
    };
    bus.stream(&spec).await.unwrap();
    let subject = fleet.event(EventReason::Failed, None, &"n1".parse().unwrap());
    bus.append(Message::new(subject, cloud_event::to_json(&event()).unwrap()), "1").await.unwrap();
}

fn explanation() -> Explanation {
    let bad = || BAD.to_owned();
    Explanation {
        policy: bad(),
        present: Some(false),
        inspect_error: Some(bad()),
        next_attempt_ms: Some(5_000),
        cause: Some(bad()),
        class: Some(FailureClass::NotFound),
        learned_by: Some(bad()),
        learned_ms_ago: Some(u64::MAX),
        learned_trace_id: Some(bad()),
        view: Some(View { scope: bad(), registry: bad(), route: bad(), boot: bad() }),
        binds: Some(bad()),
        probed_by: Some(bad()),
        platform: Some(bad()),
        digest: Some(bad()),
        size_estimate: Some(ImageSizeEstimate { digest: Some(bad()), blobs: vec![BlobSize { digest: bad(), bytes: u64::MAX }] }),
        estimate_error: Some(bad()),
        logins: vec![EndpointLogins { endpoint: bad(), logins: vec![bad()], none_because: Some(bad()) }],
        unenforced_because: Some(bad()),
        verdict: bad(),
        ..Explanation::default()
    }
}

fn images() -> ImageList {
    let bad = || Some(BAD.to_owned());
    let image = ListedImage { image: bad(), digest: bad(), platform: bad(), size_bytes: Some(u64::MAX), pulled_ms_ago: Some(u64::MAX) };
    ImageList { images: vec![image], left_out: 1, ..ImageList::default() }
}

fn setup() -> NodeSetup {
    NodeSetup { socket: BAD.to_owned(), settings: BTreeMap::from([(BAD.to_owned(), BAD.to_owned())]) }
}

fn pulls() -> PullList {
    let pull = PullStatus {
        image: BAD.to_owned(),
        state: PullState::Pulling,
        since_ms: 1_000,
        callers: 1,
        pods: Vec::new(),
        done_bytes: 1,
        total_bytes: 2,
        layers: Vec::new(),
    };
    let long = PullStatus { image: format!("registry.example/{}:v1", "a".repeat(IMAGE_LENGTH)), ..pull.clone() };
    PullList { pulls: vec![pull, long], ..PullList::default() }
}

fn standing_pulls() -> StandingPullList {
    let standing_pull = StandingPullId::random(&mut Random::seeded(4));
    let status: StandingPullStatus =
        serde_json::from_value(json!({ "standing_pull": standing_pull, "image": BAD, "state": "held", "cause": BAD })).unwrap();
    StandingPullList { standing_pulls: vec![status], ..StandingPullList::default() }
}

fn backoffs() -> BackoffList {
    let bad = || BAD.to_owned();
    let key_parts = KeyParts { endpoint: bad(), zone: bad(), platform: bad(), ..KeyParts::of(EntryKind::Platform, BAD) };
    let view = View { scope: bad(), registry: bad(), route: bad(), boot: bad() };
    let entry = BackoffEntry { key: bad(), key_parts, cause: bad(), binds: bad(), reporters: vec![bad()], ..BackoffEntry::default() };
    let probed = BackoffEntry { probed_by: Some(bad()), view: Some(view), ..entry.clone() };
    let named = BackoffEntry { key: KEY.to_owned(), ..probed.clone() };
    BackoffList { entries: vec![entry, probed, named], share: bad(), ..BackoffList::default() }
}

fn budgets() -> BudgetList {
    let limit = RegistryLimit { source: Some(BAD.to_owned()), reset_ms: Some(u64::MAX), ..RegistryLimit::default() };
    let known = KnownLimits { limits: vec![limit], ..KnownLimits::default() };
    let owner = format!("s|{BAD}|{BAD}|{BAD}|{BAD}|{BAD}");
    let state = BudgetState { owner, rate_cause: BAD.to_owned(), per_second: 1.0, known, ..BudgetState::default() };
    BudgetList { budgets: vec![state], ..BudgetList::default() }
}

/// Gives the same answer to every question of one command, for one node or for all.
async fn answer<C: Command>(bus: &NatsBus, reply: C::Reply) {
    let (fleet, node) = (Fleet::default(), "n1".parse::<NodeName>().unwrap());
    let payload = encode(&reply).unwrap();
    for subject in [fleet.command(&node, C::SERVICE, C::VERB), fleet.command_to_all(C::SERVICE, C::VERB)] {
        let mut questions = bus.subscribe(&subject, None).await.unwrap();
        let (bus, payload) = (bus.clone(), payload.clone());
        tokio::spawn(async move {
            while let Some(question) = questions.next().await {
                if let Some(inbox) = question.reply_to {
                    bus.publish(Message::new(inbox, payload.clone())).await.unwrap();
                }
            }
        });
    }
}

#[test]
fn control_characters_in_a_nodes_answers_are_not_printed() {
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _bus = runtime.block_on(async {
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(PATIENCE).await.unwrap();
        answer::<DescribeNode>(&bus, description()).await;
        answer::<ReadSetup>(&bus, setup()).await;
        answer::<ExplainImage>(&bus, explanation()).await;
        answer::<ListImages>(&bus, images()).await;
        answer::<ListEvents>(&bus, EventList { events: vec![event()], next_after: 1, more: false }).await;
        store_event(&bus).await;
        answer::<ListPulls>(&bus, pulls()).await;
        answer::<ListStandingPulls>(&bus, standing_pulls()).await;
        answer::<ListBackoffs>(&bus, backoffs()).await;
        answer::<ListBudgets>(&bus, budgets()).await;
        bus
    });
    let place = Workplace::new().with("NATS_URL", server.url());
    until("the agent answers", || (place.run(&["nodes"]).status == 0).then_some(()));
    let lists: [&[&str]; 6] =
        [&["nodes", "--show-labels"], &["nodes", "n1"], &["pulls"], &["images", "--all-nodes"], &["backoff", "list"], &["budget", "list"]];
    let others: [&[&str]; 8] = [
        &["status"],
        &["events"],
        &["explain", "busybox"],
        &["explain", &KEY[..4]],
        &["backoff", "explain", &KEY[..8]],
        &["report", "--since", "2000-01-01T00:00:00Z"],
        &["cancel", "other"],
        &["pull", "a:1", "--all-nodes", "--wait", "2s"],
    ];
    let formats = |is_list: bool| if is_list { &["text", "json", "wide", "name"][..] } else { &["text", "json"] };
    for (command, formats) in lists.map(|list| (list, formats(true))).into_iter().chain(others.map(|other| (other, formats(false)))) {
        for format in formats {
            let written = place.run(&[command, &["-o", *format]].concat());
            let acts = |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
            assert!(!written.output().contains(acts), "{written:?}", written = written.output());
            let forged = written.output().lines().any(|line| line.starts_with("forged"));
            assert!(!forged, "a line break of a node's begins a line: {written}");
            assert!(!written.stderr.contains("panicked"), "{written}");
            if *format == "json" {
                let _ = written.objects();
            }
        }
    }
    let colour = Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
    for (command, columns) in
        lists.into_iter().chain([&["status"][..], &["explain", "busybox"]]).flat_map(|command| [(command, 20), (command, 80)])
    {
        let mut terminal = place.on_a_terminal(command, (60, columns));
        assert_eq!(terminal.wait(), place.run(command).status, "{command:?}");
        let written = terminal.written();
        let text = colour.replace_all(&written, "");
        let acts = |character: char| (character.is_control() && !matches!(character, '\r' | '\n')) || character == '\u{202e}';
        assert!(!text.contains(acts), "{command:?} in {columns} columns: {text:?}");
        // A word may be wider than 20 columns.
        assert!(columns < 80 || terminal.broken_rows().is_empty(), "{command:?}: {:#?}", terminal.broken_rows());
        assert!(!terminal.rows().iter().any(|row| row.starts_with("forged")), "{:#?}", terminal.rows());
    }
    // The commands found what they were asked for.
    for command in [&["explain", &KEY[..4]][..], &["backoff", "explain", &KEY[..8]]] {
        let found = place.run(command);
        assert!(found.stdout.contains(&format!("(key {KEY})")), "{found}");
    }
    let report = place.run(&["report", "--since", "2000-01-01T00:00:00Z"]).expect(0);
    assert!(report.stdout.starts_with("1 events from "), "{report}");
    let row = place.run(&["nodes", "-o", "json"]).expect(0).object();
    assert_eq!(row["runtime"], BAD, "in JSON the text is whole");
}
