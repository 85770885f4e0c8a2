//! `pull` on many nodes: when each node begins, what stops the remaining nodes, and what is printed.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::{Finished, Registry, Signal, Watch};
use memory_registry::MadeImage;
use serde_json::{Value, json};

use super::common::small;
use super::three_agents::{Fleet, NODES, outcomes};

/// Whether the row is of a pull that was not begun.
fn is_not_begun(row: &Value) -> bool {
    row["outcome"] == "not_begun"
}

#[test]
fn image_missing_on_one_node_is_not_requested_on_the_others() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_FLEET_SHARE", "off")]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let (missing, there) = (registry.image("shop/web:v9"), registry.image("shop/web:v1"));
    let rows = fleet.rows(&["pull", &missing, &there, "--all-nodes", "--parallelism", "1"], 3);
    assert_eq!(rows.len(), 6, "{rows:?}");
    let (of_missing, of_there): (Vec<Value>, Vec<Value>) = rows.into_iter().partition(|row| row["image"] == missing);
    assert!(outcomes(&of_there).values().all(|outcome| outcome == "pulled"), "another image goes on: {of_there:?}");
    let outcome_of = outcomes(&of_missing);
    assert_eq!(
        (outcome_of["n1"].as_str(), outcome_of["n2"].as_str()),
        ("failed ErrImagePull not_found", "not_begun  not_found"),
        "{outcome_of:?}"
    );
    assert_eq!(registry.counts().failing, 1, "one node has asked");
    let spared: Vec<&Value> = of_missing.iter().filter(|row| is_not_begun(row)).collect();
    assert_eq!(spared.len(), 2);
    let first = of_missing.iter().find(|row| row["node"] == "n1").unwrap();
    for row in spared {
        assert_eq!((&row["learned_by"], &row["learned_trace_id"]), (&json!("n1"), &first["trace_id"]), "{row}");
        assert!(row["learned_at"].is_string() && row["message"].as_str().unwrap().contains("404"), "{row}");
    }
    let text = fleet.run(&["pull", &registry.image("shop/web:v8"), "--all-nodes", "--parallelism", "34%"]).expect(1);
    assert!(text.stdout.contains("not_begun  n3  ") && text.stdout.contains("404"), "{text}");
    assert!(text.stderr.contains("1 was not begun."), "two of three began, as 34% is rounded up: {text}");
}

#[test]
fn the_others_begin_when_the_canary_has_it() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let (there, unreachable) = (registry.image("shop/web:v1"), format!("{}/shop/web:v1", super::common::NOBODY));
    let rows = fleet.rows(&["pull", &there, "--all-nodes", "--canary", "1"], 0);
    assert!(outcomes(&rows).values().all(|outcome| outcome == "pulled"), "{rows:?}");
    assert_eq!(rows[0]["node"], "n1", "the canary is the first by name, and its row is there before any other: {rows:?}");
    let rows = fleet.rows(&["pull", &unreachable, "--all-nodes", "--canary", "1"], 1);
    let is_not_begun_on: BTreeMap<&str, bool> = rows.iter().map(|row| (row["node"].as_str().unwrap(), is_not_begun(row))).collect();
    assert_eq!(is_not_begun_on, BTreeMap::from([("n1", false), ("n2", true), ("n3", true)]), "{rows:?}");
}

#[test]
fn a_share_of_the_nodes_can_be_enough() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let nodes = ["--node", "n1", "--node", "n2", "--node", "ghost"];
    let pull = |threshold: &str| fleet.run(&[&["pull", &image, "--success-threshold", threshold, "-q"], nodes.as_slice()].concat());
    let _ = pull("66%").expect(0);
    let _ = pull("67%").expect(3);
}

#[test]
fn a_dry_run_lists_nodes_that_have_it_and_how_much_the_others_would_fetch() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    // The layers of `shop/base` are the first two layers of `shop/web`.
    registry.add_image("shop/base", "v1", &MadeImage::of_layers([40_000, 20_000]));
    let whole = registry.add_image("shop/web", "v1", &small());
    let (base, image) = (registry.image("shop/base:v1"), registry.image("shop/web:v1"));
    let _ = fleet.run(&["pull", &base, "--node", "n1", "-q"]).expect(0);
    let _ = fleet.run(&["pull", &image, "--node", "n2", "-q"]).expect(0);
    registry.reset_counts();
    let rows = fleet.rows(&["pull", &image, "--all-nodes", "--dry-run"], 0);
    assert_eq!(registry.counts().requests, 1, "one node has asked for the manifest: {:?}", registry.requests());
    let present: BTreeMap<&str, &Value> = rows.iter().map(|row| (row["node"].as_str().unwrap(), &row["present"])).collect();
    assert_eq!(present, BTreeMap::from([("n1", &json!(false)), ("n2", &json!(true)), ("n3", &json!(false))]), "{rows:?}");
    let bytes = |node: &str| rows.iter().find(|row| row["node"] == node).unwrap()["bytes_to_fetch"].as_u64().unwrap();
    let all = whole.manifests[0].size();
    let shared: u64 = whole.manifests[0].layers[..2].iter().map(|layer| layer.size).sum();
    assert_eq!((bytes("n1"), bytes("n2"), bytes("n3")), (all - shared, 0, all), "{rows:?}");
    let text = fleet.run(&["pull", &image, "--all-nodes", "--dry-run"]).expect(0);
    assert!(text.stdout.starts_with("NODE  IMAGE") && text.stderr.contains("1 of 3 are there"), "{text}");
    assert!(text.stdout.contains(" KiB ") && text.stdout.contains("\nto fetch in all: "), "{text}");
    let ghost = fleet.rows(&["pull", &image, "--node", "ghost", "--dry-run"], 1).remove(0);
    assert_eq!((&ghost["present"], ghost["error"].as_str().map(str::is_empty)), (&Value::Null, Some(false)), "{ghost}");
    // A pull then fetches the printed number of bytes.
    registry.reset_counts();
    let _ = fleet.run(&["pull", &image, "--node", "n1", "-q"]).expect(0);
    assert_eq!(registry.blob_bytes_served().values().sum::<u64>(), all - shared);
}

#[test]
fn dry_run_asks_no_registry_that_is_in_back_off() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let rows = fleet.rows(&["pull", &image, "--all-nodes", "--dry-run"], 0);
    for row in &rows {
        assert_eq!(row["bytes_to_fetch"], Value::Null, "{row}");
        assert!(row["bytes_unknown"].as_str().unwrap().contains("404"), "the registry's own answer: {row}");
    }
    assert_eq!(registry.counts().requests, 1, "one has asked for all");
    let _ = fleet.run(&["pull", &image, "--all-nodes", "-q"]);
    registry.reset_counts();
    let rows = fleet.rows(&["pull", &image, "--all-nodes", "--dry-run"], 0);
    for row in &rows {
        assert!(row["bytes_unknown"].as_str().unwrap().starts_with("no node may ask its registry now"), "{row}");
    }
    assert_eq!(registry.counts().requests, 0);
    let text = fleet.run(&["pull", &image, "--all-nodes", "--dry-run"]).expect(0);
    assert!(text.stdout.contains("to fetch in all: 0 B; unknown for 3 of 3"), "{text}");
    assert!(text.stderr.contains("is not known: no node may ask its registry now, because of ErrImagePull: "), "{text}");
}

#[test]
fn a_moved_tag_is_warned_of() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let old = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = fleet.run(&["pull", &image, "--node", "n1", "-q"]).expect(0);
    let new = registry.add_image("shop/web", "v1", &MadeImage::of_layers([5_000]).seeded(7));
    let text = fleet.run(&["pull", &image, "--all-nodes"]).expect(0);
    assert!(text.stdout.contains(&old.digest) && text.stdout.contains(&new.digest), "the digest has its column: {text}");
    let warning = format!("{image} is not the same everywhere: {} on n2, n3; {} on n1", new.digest, old.digest);
    assert!(text.stderr.contains(&warning), "{text}");
    let explained = fleet.run(&["explain", &image]).expect(0);
    assert!(explained.stdout.contains(&warning), "{explained}");
    let same = fleet.run(&["pull", &image, "--all-nodes", "--policy", "Always"]).expect(0);
    assert!(!same.stderr.contains("not the same"), "{same}");
}

#[test]
fn a_node_that_is_known_and_silent_has_a_row() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    // Find the registrar, which knows all nodes, so that another node can be stopped.
    let registrar = e2e::until("an agent knows all three", || {
        NODES.into_iter().find(|node| fleet.rows(&["nodes", node, "--counters"], 0)[0]["counters"]["presence_known"] == 3)
    });
    let quiet = NODES.into_iter().find(|node| *node != registrar).unwrap();
    fleet.agents[quiet].signal(Signal::Stop);
    let silent = e2e::until("its silence is reported", || {
        let rows = fleet.rows(&["nodes"], 0);
        rows.into_iter().find(|row| row["node"] == quiet && row["state"] == "silent")
    });
    assert!(silent["since_ms"].is_u64(), "{silent}");
    let rows = fleet.rows(&["pull", &image, "--all-nodes"], 3);
    let outcome_of = outcomes(&rows);
    assert_eq!((outcome_of[registrar].as_str(), outcome_of[quiet].as_str()), ("pulled", "failed  unknown"), "{outcome_of:?}");
    for command in [&["nodes"][..], &["pulls"]] {
        let table = fleet.run(command).expect(0);
        assert!(table.stdout.lines().any(|line| line.split_whitespace().any(|cell| cell == quiet) && line.contains("silent")), "{table}");
    }
    for command in [&["pulls"][..], &["backoff", "list"], &["budget", "list"]] {
        let rows = fleet.rows(command, 0);
        assert!(rows.iter().any(|row| row["node"] == quiet && row["state"] == "silent" && row["since_ms"].is_u64()), "{rows:?}");
        let text = fleet.run(command).expect(0);
        assert!(text.stderr.contains(&format!("{quiet} has been silent for ")) || text.stdout.contains(quiet), "{text}");
    }
    // The silent node gets its standing pull as soon as it answers, whatever the state of the other nodes is then.
    let arguments = ["pull", &image, "--all-nodes", "--wait", "50s", "-o", "json"];
    let waiting = fleet.place.start(&arguments);
    e2e::until("the command waits for it alone", || waiting.stderr().contains(&format!("1 node is silent ({quiet})")).then_some(()));
    fleet.agents[quiet].signal(Signal::Continue);
    let rows = Finished::of(&arguments, waiting).expect(0).objects();
    assert_eq!(outcomes(&rows)[quiet], "pulled", "{rows:?}");
}

#[test]
fn a_port_that_refuses_is_reported_at_once() {
    let place = e2e::Workplace::new();
    let url = format!("nats://{}", super::common::NOBODY);
    let commands = [
        &["status"][..],
        &["explain", "a:1"],
        &["nodes"],
        &["pulls"],
        &["pull", "a:1", "--all-nodes"],
        &["backoff", "list"],
        &["budget", "list"],
        &["cancel", "a:1"],
    ];
    for command in commands {
        let watch = Watch::start();
        let done = place.run(&[command, &["--nats", &url]].concat()).expect(1);
        // `explain` prints the error among its facts.
        let error = if command[0] == "explain" { &done.stdout } else { &done.stderr };
        assert!(error.contains("refused") && error.contains("--agent unix://"), "{done}");
        // The limit for a silent server would be 5 s.
        assert!(watch.elapsed() < Duration::from_secs(4), "{done}: {:?}", watch.elapsed());
    }
}

#[test]
fn an_agents_socket_speaks_for_its_own_node() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let url = fleet.socket("n1");
    for command in
        [&["pull", "a:1", "--node", "n2"][..], &["nodes", "n2"], &["pulls", "--node", "n2"], &["backoff", "list", "--node", "n2"]]
    {
        let done = fleet.run(&[command, &["--agent", &url]].concat()).expect(2);
        let expected = format!("the agent behind {url} is n1 and answers for that node alone: to ask n2, give --nats URL");
        assert!(done.stdout.is_empty() && done.stderr.contains(&expected), "{done}");
    }
    assert_eq!(fleet.rows(&["pulls", "--node", "n1", "--agent", &url], 0).len(), 0);
}
