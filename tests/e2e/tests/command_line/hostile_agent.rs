//! An agent's texts reach a terminal as printable text only.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{Message, Messaging as _};
use clock::Random;
use contract::know::encode;
use contract::messages::agent::{BusLoss, DescribeNode, NodeDescription};
use contract::messages::backoff_tracker::{BackoffEntry, BackoffList, EntryKind, KeyParts, ListBackoffs};
use contract::messages::event_recorder::{EventList, ListEvents};
use contract::messages::pull_coordinator::{
    ListPulls, ListStandingPulls, PullList, PullState, PullStatus, StandingPullList, StandingPullStatus,
};
use contract::messages::throttler::{BudgetList, BudgetState, KnownLimits, ListBudgets, RegistryLimit};
use contract::subject::Fleet;
use contract::{Command, EventReason, MessageId, NodeName, PullEvent, StandingPullId, TraceContext, View};
use e2e::{Workplace, until};
use futures::StreamExt as _;
use regex::Regex;
use serde_json::json;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// Control sequences that clear the screen, set its title (in C0 and in C1), erase, and reverse the rest of the line.
const BAD: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}y\u{9b}2Jz\u{7f}\u{202e}\r\nforged line";
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

fn events() -> EventList {
    let mut random = Random::seeded(3);
    let event = PullEvent {
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
    };
    EventList { events: vec![event], next_after: 1, more: false }
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
    BackoffList { entries: vec![entry, probed], share: bad(), ..BackoffList::default() }
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
        answer::<ListEvents>(&bus, events()).await;
        answer::<ListPulls>(&bus, pulls()).await;
        answer::<ListStandingPulls>(&bus, standing_pulls()).await;
        answer::<ListBackoffs>(&bus, backoffs()).await;
        answer::<ListBudgets>(&bus, budgets()).await;
        bus
    });
    let place = Workplace::new().with("NATS_URL", server.url());
    until("the agent answers", || (place.run(&["nodes"]).status == 0).then_some(()));
    let lists: [&[&str]; 4] = [&["nodes", "--show-labels"], &["pulls"], &["backoff", "list"], &["budget", "list"]];
    let others: [&[&str]; 4] = [&["status"], &["events"], &["cancel", "other"], &["pull", "a:1", "--all-nodes", "--wait", "2s"]];
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
    for (command, columns) in lists.into_iter().chain([&["status"][..]]).flat_map(|command| [(command, 20), (command, 80)]) {
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
    let row = place.run(&["nodes", "-o", "json"]).expect(0).object();
    assert_eq!(row["runtime"], BAD, "in JSON the text is whole");
}
