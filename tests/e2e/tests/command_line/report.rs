//! The figures of `fleetpull report`, compared with the answers to callers and the counts of the registry.

use std::collections::BTreeMap;

use e2e::{Agent, Registry, Workplace, until};
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::small;
use super::three_agents::{Fleet, NODES};

/// The times of kubelet's attempts after a failure, in seconds, until after the end of this test.
const KUBELETS_STEPS: [u64; 9] = [0, 10, 30, 70, 150, 310, 610, 910, 1_210];

/// The row of this kind, and of this name if `key` is not empty.
fn row<'a>(rows: &'a [Value], kind: &str, key: &str, name: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["kind"] == kind && (key.is_empty() || row[key] == name));
    found.unwrap_or_else(|| panic!("no {kind} {name}: {rows:?}"))
}

fn milliseconds(time: &Value) -> u64 {
    let time = time::OffsetDateTime::parse(time.as_str().unwrap(), &time::format_description::well_known::Rfc3339).unwrap();
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap()
}

/// The number of attempts that kubelets would make, on each node from its first failure or refusal to its pull.
fn by_kubelets_rule(events: &[Value]) -> u64 {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    let mut pulled: BTreeMap<&str, u64> = BTreeMap::new();
    for event in events {
        let (data, node) = (&event["data"], event["data"]["node"].as_str().unwrap());
        let began = if data["first_at"].is_null() { &event["time"] } else { &data["first_at"] };
        match data["reason"].as_str().unwrap() {
            "Failed" | "BackOff" => {
                let earliest = first.entry(node).or_insert(u64::MAX);
                *earliest = milliseconds(began).min(*earliest);
            }
            "Pulled" => drop(pulled.insert(node, milliseconds(&event["time"]))),
            _ => {}
        }
    }
    let of_node = |(node, first): (&&str, &u64)| {
        let span = pulled[node] - first;
        KUBELETS_STEPS.iter().filter(|step| **step * 1_000 <= span).count() as u64
    };
    first.iter().map(of_node).sum()
}

#[test]
fn figures_equal_the_answers_to_callers_and_the_registrys_counts() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut pull = || {
        for row in fleet.rows_any(&["pull", &image, "--all-nodes"]) {
            let outcome = row["outcome"].as_str().unwrap().to_owned();
            *counts.entry(format!("{outcome} bytes")).or_default() += row["size_bytes"].as_u64().unwrap();
            *counts.entry(outcome).or_default() += 1;
        }
        counts.clone()
    };
    until("all nodes are held back", || (pull().get("backoff").copied() >= Some(6)).then_some(()));
    let failing = registry.counts().failing;
    registry.add_image("shop/web", "v9", &small());
    let counts = until("all have it", || Some(pull()).filter(|counts| counts.get("pulled") == Some(&3)));
    assert_eq!(registry.counts().failing, failing, "it is there: nothing fails any more");

    let report = || fleet.rows(&["report", "--since", "1h"], 0);
    let rows = until("the stream has all", || {
        let rows = report();
        (row(&rows, "pulls", "outcome", "pulled")["count"] == 3 && row(&rows, "waits", "cause", "backoff")["count"] == 3).then_some(rows)
    });
    for (outcome, kind) in [("failed", "failed"), ("backoff", "backoff"), ("pulled", "pulled")] {
        let expected = counts.get(outcome).copied().unwrap_or_default();
        assert_eq!(row(&rows, "pulls", "outcome", kind)["count"], expected, "{outcome}: {counts:?} {rows:?}");
    }
    let events = fleet.rows(&["events", "--since", "1h"], 0);
    let (spared, by_rule) = (row(&rows, "spared", "", ""), by_kubelets_rule(&events));
    assert_eq!((&spared["attempts_made"], &spared["attempts_by_kubelets_rule"]), (&failing.into(), &by_rule.into()), "{spared}");
    assert_eq!(spared["attempts_spared"], i64::try_from(by_rule).unwrap() - i64::try_from(failing).unwrap(), "{spared}");
    assert_eq!(spared["spans"], 3, "one a node");
    let whole = row(&rows, "report", "", "");
    assert_eq!((&whole["events"], &whole["losses"]), (&events.len().into(), &0.into()));
    assert_eq!(whole["pulled_bytes"], counts["pulled bytes"], "{whole}");
    let failed = row(&rows, "pulls", "outcome", "failed");
    assert_eq!(failed["by_class"]["not_found"], failed["count"], "{failed}");
    for (kind, name) in [("image", image.as_str()), ("registry", registry.host())] {
        let named = row(&rows, kind, "name", name);
        assert_eq!((&named["pulled"], &named["failed"]), (&3.into(), &failed["count"]), "{named}");
        assert_eq!(named["attempts_spared"], spared["attempts_spared"], "{named}");
    }
    let of_nodes = |field: &str| NODES.iter().map(|node| row(&rows, "node", "name", node)[field].as_i64().unwrap()).sum::<i64>();
    assert_eq!((of_nodes("pulled"), of_nodes("attempts_spared")), (3, spared["attempts_spared"].as_i64().unwrap()));
    assert_eq!(row(&rows, "observed", "", "")["wrongly"], 0, "a node that enforces is refused: {rows:?}");

    let of_one = fleet.rows(&["report", "--since", "1h", "--node", "n2", "--top", "1"], 0);
    assert_eq!(row(&of_one, "pulls", "outcome", "pulled")["count"], 1);
    let text = fleet.run(&["report"]).expect(0);
    assert!(text.stdout.contains(&format!("failing attempts: {failing}, ")) && text.stdout.contains(&image), "{text}");
    let before = fleet.run(&["report", "--since", "2h", "--until", "1h"]).expect(0);
    assert_eq!((before.stdout.as_str(), before.stderr.contains("no events in this time")), ("", true), "{before}");
}

#[test]
fn reported_refusals_equal_the_counts_of_observing_agents() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_FLEET_SHARE", "observe")]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    for node in ["n1", "n2"] {
        fleet.rows(&["pull", &image, "--node", node], 1);
    }
    until("the fleet holds it back", || {
        let events = fleet.rows(&["events", "--since", "1h", "--reason", "BackoffOpened"], 0);
        (!events.is_empty()).then_some(())
    });
    registry.add_image("shop/web", "v9", &small());
    fleet.rows(&["pull", &image, "--node", "n3"], 0);
    let rows = until("the stream has all", || {
        let rows = fleet.rows(&["report"], 0);
        (row(&rows, "pulls", "outcome", "pulled")["count"] == 1).then_some(rows)
    });
    let observed = row(&rows, "observed", "", "");
    let counted = fleet.rows(&["nodes", "n3", "--counters"], 0).remove(0)["counters"]["shared_observed_total"].clone();
    assert_eq!((&observed["wrongly"], &observed["entries_compared"]), (&counted, &1.into()), "{observed} {rows:?}");
}

#[test]
fn a_report_that_cannot_be_made_explains_what_to_do() {
    let place = Workplace::new();
    let misused = |arguments: &[&str], status: i32, expected: &str| {
        let finished = place.run(&[&["report"], arguments].concat()).expect(status);
        assert!(finished.stdout.is_empty() && finished.stderr.contains(expected), "{expected}: {finished}");
    };
    misused(&["--since", "yesterday", "--nats", "nats://127.0.0.1:1"], 2, "is no time: 30m, 2h, 7d");
    misused(&["--top", "0", "--nats", "nats://127.0.0.1:1"], 2, "1..=1000");
    misused(&["--nats", "nats://127.0.0.1:1"], 1, "127.0.0.1:1");
    // What these commands refuse is not what they advise.
    for command in [&["report"][..], &["policy", "get"]] {
        for (nats, status, expected) in [(&[] as &[&str], 2, "give --nats URL"), (&["--nats", "nats://127.0.0.1:1"], 1, "127.0.0.1:1")] {
            let finished = place.run(&[command, nats].concat()).expect(status);
            assert!(finished.stderr.contains(expected) && !finished.stderr.contains("--agent"), "{finished}");
        }
    }
    let agent = Agent::start(&place, "n1", &[]).ready();
    let asked = agent.asked(&["report"]).expect(2);
    assert!(asked.stderr.contains("give --nats URL"), "{asked}");
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    misused(&["--nats", &server.url()], 1, "`fleetpull nats-setup` makes it");
    misused(&["--nats", &server.url(), "--since", "1h", "--until", "2h"], 2, "is not before --until");
    let bare = NatsServer::start(NatsConfig::default().without_jetstream());
    misused(&["--nats", &bare.url()], 1, "JetStream");
}
