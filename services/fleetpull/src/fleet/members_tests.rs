use std::sync::Arc;

use actix::{Actor, Context, Handler, MessageResult};
use actors::Ask;
use bus::memory::MemoryBus;
use bus::{Entry, SharedState as _};
use clap::Parser as _;
use clock::Clock;
use contract::know::encode;
use contract::messages::agent::DescribeNode;
use contract::subject::Fleet;
use contract::{CallError, Command as _};
use futures::StreamExt as _;

use super::*;
use crate::cli::{Cli, Command};

fn aged(key: &str, value: &[u8]) -> AgedEntry {
    let entry = Entry { key: key.to_owned(), value: value.to_vec().into(), revision: 1 };
    AgedEntry { entry, age: Duration::from_secs(7) }
}

/// A system whose time passes only while all of its tasks wait.
fn paused_system() -> actix::SystemRunner {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    actix::System::with_tokio_rt(runtime)
}

#[test]
fn unreadable_member_record_still_names_its_node() {
    let labels = Some(BTreeMap::from([("zone".to_owned(), "a".to_owned())]));
    let record = StoredMember { instance: "i".to_owned(), labels: labels.clone(), gone_after_ms: 60_000 };
    let known = member(&aged("n1_2eexample", &encode(&record).unwrap())).unwrap();
    let node = "n1.example".parse().unwrap();
    assert_eq!(known, Silent { node, ago: Duration::from_secs(7), labels, known_for: Duration::from_secs(60) });
    for value in [&b""[..], b"nonsense", b"\x02\x80"] {
        assert_eq!(member(&aged("n2", value)).unwrap().labels, None, "{value:?}");
    }
    assert_eq!(member(&aged("n2.more", b"")), None);
}

#[test]
fn node_that_does_not_answer_costs_no_other_request_if_the_reason_is_not_needed() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
        let subject = Fleet::default().command_to_leader(ListNodes::SERVICE, ListNodes::VERB);
        let _silent_registrar = client.messaging().subscribe(&subject, None).await.unwrap();
        let nodes: [NodeName; 1] = ["ghost".parse().unwrap()];
        let (asked, soon) = (DescribeNode {}, REGISTRAR_WITHIN / 2);
        let replies = tokio::time::timeout(soon, client.replies_of(&nodes, &asked)).await;
        assert!(replies.is_ok_and(|replies| replies.is_empty()));
        assert!(tokio::time::timeout(soon, client.ask_each(&nodes, &asked)).await.is_err(), "the registrar is asked for the reason");
    });
}

/// An agent of an older version, which only describes itself.
struct Old;

impl Actor for Old {
    type Context = Context<Self>;
}

impl Handler<Ask<DescribeNode>> for Old {
    type Result = MessageResult<Ask<DescribeNode>>;

    fn handle(&mut self, _: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        let description = serde_json::from_value(serde_json::json!({
            "node": "n1", "instance": "i", "started_ms": 0, "version": "0.0.9", "state": "ok", "since_ms": 0, "runtime": "r",
            "labels": {}, "zone": "", "pulling": 0, "waiting": 0, "backoff": 0, "share": "enforce",
        }));
        MessageResult(Ok(description.unwrap()))
    }
}

#[test]
fn agent_that_is_too_old_for_a_command_is_not_called_silent() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
        let nodes: [NodeName; 1] = ["n1".parse().unwrap()];
        let serving = actors::serve::<DescribeNode>(&client.wiring(&nodes[0]), Old.start().recipient()).await.unwrap();
        let why = client.ask_each(&nodes, &ListNodes {}).await.remove(0).1.unwrap_err();
        assert!(why.starts_with("its agent has version 0.0.9 and does not know this command of version "), "{why}");
        serving.end().await;
        let why = client.ask_each(&nodes, &ListNodes {}).await.remove(0).1.unwrap_err();
        assert!(why.starts_with("no agent of that name in the fleet"), "an agent that has ended since may know it: {why}");
    });
}

#[test]
fn refusal_that_another_node_wrote_is_one_line() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
        let refused = CallError::Refused { reason: "no\nfleetpull: forged\u{1b}[2J".to_owned() };
        let why = client.explain_silence(&"n1".parse().unwrap(), &refused).await;
        assert!(why.contains("no fleetpull: forged [2J"), "{why}");
    });
}

/// An agent that answers those that ask all nodes.
struct Described(NodeDescription);

impl Actor for Described {
    type Context = Context<Self>;
}

impl Handler<Ask<DescribeNode>> for Described {
    type Result = MessageResult<Ask<DescribeNode>>;

    fn handle(&mut self, _: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.0.clone()))
    }
}

#[test]
fn duplicate_agent_is_listed_and_no_command_asks_its_name_twice() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
        let lost = serde_json::json!({ "since_ms": 5_000, "reason": "a duplicate agent holds the name n1" });
        let mut serving = Vec::new();
        for (node, instance, bus_loss) in [("n1", "b", serde_json::Value::Null), ("n2", "c", serde_json::Value::Null), ("n1", "a", lost)] {
            let description = serde_json::from_value(serde_json::json!({
                "node": node, "instance": instance, "started_ms": 0, "version": "0.1.0", "state": "ok", "since_ms": 0, "runtime": "r",
                "labels": {}, "zone": "", "pulling": 0, "waiting": 0, "backoff": 0, "share": "enforce", "bus_loss": bus_loss,
            }));
            let agent = Described(description.unwrap()).start();
            serving
                .push(actors::serve_everywhere::<DescribeNode>(&client.wiring(&node.parse().unwrap()), agent.recipient()).await.unwrap());
        }
        let instances = |nodes: &[NodeDescription]| nodes.iter().map(|node| node.instance.clone()).collect::<Vec<_>>();
        let Members { answering, duplicates, silent, .. } = client.members(None).await.unwrap();
        assert_eq!((instances(&answering), instances(&duplicates), silent.len()), (vec!["b".into(), "c".into()], vec!["a".into()], 0));
        let named: Vec<String> = client.named_or_answering(&[], None).await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(named, ["n1", "n2"]);
    });
}

#[test]
fn nodes_that_fall_silent_together_are_asked_about_once() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
        let subject = Fleet::default().command_to_leader(ListNodes::SERVICE, ListNodes::VERB);
        let mut registrar = client.messaging().subscribe(&subject, None).await.unwrap();
        let (node, silent): (NodeName, _) = ("ghost".parse().unwrap(), CallError::NoResponders { subject: String::new() });
        futures::future::join_all((0..100).map(|_| client.explain_silence(&node, &silent))).await;
        tokio::time::sleep(CONTACTS_USED_FOR).await;
        client.explain_silence(&node, &silent).await;
        let mut asked = 0;
        while let Ok(Some(_)) = tokio::time::timeout(REGISTRAR_WITHIN, registrar.next()).await {
            asked += 1;
        }
        assert_eq!(asked, 2, "once for 100 nodes, and again when the answer is old");
    });
}

#[test]
fn nodes_that_are_all_silent_are_named_and_chosen_by_the_labels_of_their_records() {
    paused_system().block_on(async {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let client = FleetClient::new(Arc::new(hub.connect()), Fleet::default(), clock);
        let nobody = client.members(None).await.err().unwrap().to_string();
        assert!(nobody.contains("no agent answers"), "{nobody}");
        let members = hub.bucket(&bucket_spec(SharedBucket::members(&Fleet::default()))).await.unwrap();
        for (node, zone) in [("n1", Some("a")), ("n2", Some("b")), ("n3", None)] {
            let labels = zone.map(|zone| BTreeMap::from([("zone".to_owned(), zone.to_owned())]));
            let record = StoredMember { labels, ..StoredMember::default() };
            members.put(node, encode(&record).unwrap().into(), None).await.unwrap();
        }
        let zone_c = "no node has the labels zone=c: 0 answered, 3 are silent";
        for (selector, expected) in
            [(None, Ok(vec!["n1", "n2", "n3"])), (Some("zone=a"), Ok(vec!["n1", "n3"])), (Some("zone=c"), Err(zone_c))]
        {
            let selector: Option<Selector> = selector.map(|text| text.parse().unwrap());
            let found = client.members(selector.as_ref()).await.map_err(|error| error.to_string());
            let named = found.map(|members| members.silent.into_iter().map(|silent| silent.node.to_string()).collect::<Vec<_>>());
            match (named, expected) {
                (Ok(named), Ok(expected)) => assert_eq!(named, expected, "{selector:?}"),
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                other => panic!("{selector:?}: {other:?}"),
            }
        }
        let line = ["fleetpull", "pulls", "-l", "zone=a"];
        let Command::Pulls(args) = Cli::try_parse_from(line).unwrap().command else { panic!("another command") };
        let silent: Vec<String> = client.silent_of(&args.asked, &[]).await.iter().map(|silent| silent.node.to_string()).collect();
        assert_eq!(silent, ["n1", "n3"], "a list names the same nodes: the labels of n3 are unknown");
        tokio::time::sleep(Duration::from_secs(42)).await;
        let nodes: [NodeName; 2] = ["n1", "ghost"].map(|name| name.parse().unwrap());
        let why: Vec<String> = client.ask_each(&nodes, &ListNodes {}).await.into_iter().filter_map(|(_, answer)| answer.err()).collect();
        assert!(why[0].starts_with("known to the fleet, but its agent does not answer; last seen "), "{why:?}");
        assert!(why[1].starts_with("no agent of that name in the fleet"), "{why:?}");
        hub.set_delay(RECORDS_WITHIN);
        tokio::time::sleep(CONTACTS_USED_FOR).await;
        let explained = tokio::time::timeout(EXPLAINED_WITHIN * 2, client.ask_each(&nodes[1..], &ListNodes {})).await;
        assert!(explained.is_ok(), "a message about an unknown node does not wait for records that cannot be read");
    });
}
