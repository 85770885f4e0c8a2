//! `backoff` and `budget`: the fleet's entries and budgets, explained and overruled.

use std::collections::BTreeMap;

use e2e::{Finished, Registry, until};
use memory_registry::Fault;
use serde_json::{Value, json};

use super::common::{check_row, small};
use super::three_agents::Fleet;

/// The entries of a list, shared ones and local ones.
fn entries(fleet: &Fleet) -> Vec<Value> {
    fleet.rows(&["backoff", "list"], 0).into_iter().filter(|row| row["kind"] == "entry").collect()
}

/// Waits until all three nodes have the one shared entry, and returns it.
fn shared_by_three(fleet: &Fleet) -> Value {
    until("three nodes hold the shared entry", || {
        entries(fleet).into_iter().find(|entry| entry["shared"] == true && entry["node_count"] == 3)
    })
}

#[test]
fn failure_of_one_node_is_listed_and_explained_by_all() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let nothing = fleet.run(&["backoff", "list"]).expect(0);
    assert!(nothing.stdout.is_empty() && nothing.stderr.contains("nothing is held back"), "{nothing}");
    let first = fleet.rows(&["pull", &image, "--node", "n1"], 1).remove(0);
    let entry = shared_by_three(&fleet);
    assert_eq!((&entry["class"], &entry["reporters"]), (&json!("not_found"), &json!(["n1"])), "{entry}");
    assert_eq!(entry["trace_id"], first["trace_id"], "the attempt that failed");
    assert!(entry["view"]["registry"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");

    let table = fleet.run(&["backoff", "list"]).expect(0);
    assert!(table.stdout.starts_with("REGISTRY ") && table.stdout.contains("  404 "), "{table}");
    let key = entry["key"].as_str().unwrap();
    for what in [image.as_str(), key, &key[..8]] {
        for command in [&["backoff", "explain", what][..], &["explain", &image]] {
            let explained = fleet.run(command).expect(0);
            for part in
                ["since:", "found by:", "error:", "binds:", "next attempt:", "view:", "n1", "404", first["trace_id"].as_str().unwrap()]
            {
                assert!(explained.stdout.contains(part), "{part} in {explained}");
            }
            assert!(explained.stdout.lines().count() <= 24, "one screen: {explained}");
        }
    }
    let of = |registry: &str| fleet.rows(&["backoff", "list", "--registry", registry, "--limit", "1"], 0);
    let rows: Vec<Value> = of(registry.host()).into_iter().filter(|row| row["kind"] == "entry").collect();
    assert!(rows.len() == 1 && rows[0]["shared"] == true, "shared entries come first: {rows:?}");
    assert!(of("registry.example").iter().all(|row| row["kind"] != "entry"));
    let other = fleet.run(&["backoff", "explain", "shop/other:v1"]).expect(1);
    assert!(other.stdout.is_empty() && other.stderr.contains("no back-off entry for "), "{other}");
}

/// A failure that one node alone reports delays the other nodes; once two nodes report it, they are refused.
#[test]
fn failure_of_two_nodes_refuses_the_third() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let _ = fleet.rows(&["pull", &image, "--node", "n1"], 1);
    let _ = shared_by_three(&fleet);
    let second = fleet.rows(&["pull", &image, "--node", "n2"], 1).remove(0);
    assert_eq!(check_row(&second), "failed ErrImagePull not_found", "it waited, and tried");
    until("n3 knows that two nodes report it", || entries(&fleet).into_iter().find(|entry| entry["reporter_count"] == 2));
    let held = fleet.rows(&["nodes"], 0).into_iter().find(|row| row["node"] == "n3").unwrap();
    assert!(held["backoff"].as_u64() > Some(0), "n3 is held back, though it has not failed itself: {held}");
    let refused = fleet.rows(&["pull", &image, "--node", "n3"], 4).remove(0);
    assert_eq!(check_row(&refused), "backoff ImagePullBackOff not_found");
    assert_eq!((&refused["learned_by"], &refused["learned_trace_id"]), (&json!("n2"), &second["trace_id"]), "{refused}");
    assert!(refused["learned_at"].is_string() && refused["next_attempt_ms"].is_u64(), "{refused}");
    let text = fleet.run(&["pull", &image, "--node", "n3"]).expect(4);
    assert!(text.stdout.contains("  n3 waits: n2 got 404 at "), "{text}");
    assert_eq!(registry.counts().failing, 2, "no node has asked again");
}

#[test]
fn the_prober_is_named_while_it_probes() {
    // A caller that waits for another node's attempt is refused soon.
    let Some(fleet) = Fleet::start(&[("FLEETPULL_THROTTLE_MAX_WAIT", "1s")]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let first = fleet.rows(&["pull", &image, "--node", "n1"], 1).remove(0);
    let _ = shared_by_three(&fleet);
    let before = fleet.run(&["explain", &image]).expect(0);
    assert!(before.stdout.contains(", by one node for all: the first that then needs it"), "no node is chosen yet: {before}");

    // The next attempt hangs, and n2 alone makes it: it has 10 s to get an answer.
    registry.faults().add(Fault::new("/manifests/", memory_registry::FaultAction::Hang));
    let standing_pull = fleet.place.start(&["pull", &image, "--node", "n2", "--wait", "1m", "-q"]);
    until("n1 and n3 know that n2 is the prober", || {
        let lists = ["n1", "n3"].map(|node| fleet.rows(&["backoff", "list", "--node", node], 0));
        lists.iter().all(|rows| rows.iter().any(|row| row["shared"] == true && row["probed_by"] == "n2")).then_some(())
    });
    let text = fleet.place.start(&["pull", &image, "--node", "n3"]);
    let refused = fleet.rows(&["pull", &image, "--node", "n3"], 4).remove(0);
    assert_eq!((&refused["next_by"], &refused["learned_by"]), (&json!("n2"), &json!("n1")), "{refused}");
    assert_eq!(refused["learned_trace_id"], first["trace_id"], "{refused}");
    let text = Finished::of(&["pull"], text).expect(4);
    assert!(text.stdout.contains("n3 waits: n1 got 404 at ") && text.stdout.trim_end().ends_with("), next attempt now by n2"), "{text}");
    let explained = fleet.run(&["explain", &image]).expect(0);
    assert!(explained.stdout.contains("next attempt: now by n2, for all"), "{explained}");
    registry.faults().clear();
    drop(standing_pull);
}

#[test]
fn cleared_image_is_pulled_again() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let _ = fleet.run(&["pull", &image, "--node", "n1"]).expect(1);
    let _ = shared_by_three(&fleet);
    let none = fleet.run(&["backoff", "clear", "shop/other:v1"]).expect(1);
    assert!(none.stdout.is_empty() && none.stderr.contains("  shop/web:v1  404  "), "it lists what is held back: {none}");
    registry.add_image("shop/web", "v1", &small());
    let _ = fleet.run(&["pull", &image, "--node", "n1"]).expect(4);
    let cleared = fleet.run(&["backoff", "clear", &image]).expect(0);
    assert!(cleared.stdout.starts_with("cleared  ") && cleared.stdout.contains("on 3 nodes"), "{cleared}");
    let cleared_event =
        until("an event names the user that cleared it", || fleet.rows(&["events", "--reason", "BackoffCleared"], 0).into_iter().next());
    assert!(cleared_event["data"]["message"].as_str().unwrap().contains('@'), "{cleared_event}");
    let rows = fleet.rows(&["pull", &image, "--all-nodes"], 0);
    assert!(rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
    assert!(fleet.run(&["backoff", "clear", &image]).expect(1).stderr.contains("there are no back-off entries on the nodes that answered"));
}

/// After a clear the next attempt begins within seconds, or the command fails and names what still blocks it.
#[test]
fn a_clear_of_a_registrys_answer_succeeds_or_names_what_still_blocks() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let check_clear = |answer: Fault, path: &str, blocked: bool| {
        let registry = Registry::new();
        registry.add_image(path, "v1", &small());
        registry.faults().add(answer);
        let image = registry.image(&format!("{path}:v1"));
        let _ = fleet.run(&["pull", &image, "--node", "n1"]);
        until("all nodes are held", || {
            let entries = fleet.rows_any(&["backoff", "explain", &image]);
            entries.iter().any(|entry| entry["shared"] == true && entry["node_count"] == 3).then_some(())
        });
        let explained = fleet.rows(&["explain", &image], 0);
        for row in &explained {
            // The back-off and the budget are waited for one after the other.
            let left = row["pull"]["next_attempt_ms"].as_u64().max(row["pull"]["budget_wait_ms"].as_u64());
            let entries = row["backoff"].as_array().unwrap();
            let is_listed = |left: u64| {
                entries.iter().filter_map(|entry| entry["next_attempt_ms"].as_u64()).any(|next_attempt| next_attempt.abs_diff(left) < 2_000)
            };
            assert!(left.is_none_or(is_listed), "one source: {row}");
        }
        registry.faults().clear();
        let cleared = fleet.run(&["backoff", "clear", &image]).expect(i32::from(blocked));
        assert!(cleared.stdout.starts_with("cleared  ") && !cleared.stdout.contains("not cleared"), "{cleared}");
        assert_eq!(cleared.stdout.contains("still blocked  "), blocked, "{cleared}");
        if blocked {
            assert!(cleared.stdout.contains("0 of 100 left"), "{cleared}");
            let listed = fleet.run(&["backoff", "list", "--registry", registry.host()]).expect(0);
            assert!(listed.stdout.contains("held by the budget of ") && listed.stdout.contains("0 of 100 left"), "{listed}");
            let explained = fleet.run(&["explain", &image, "--node", "n2"]).expect(0);
            assert!(explained.stdout.contains("it would wait for its registry's budget"), "{explained}");
            registry.reset_counts();
            let dry = fleet.rows(&["pull", &image, "--all-nodes", "--dry-run"], 0);
            assert!(dry.iter().all(|row| row["budget_wait_ms"].is_u64() && row["bytes_to_fetch"].is_null()), "{dry:?}");
            assert_eq!(registry.counts().requests, 0, "a look leaves the registry alone");
        } else {
            let rows = fleet.rows(&["pull", &image, "--all-nodes"], 0);
            assert!(rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
        }
    };
    let later = [("retry-after", "300")];
    check_clear(Fault::answer("/manifests/", 503, &later, r#"{"errors":[{"code":"UNAVAILABLE","message":"down"}]}"#), "shop/web", false);
    let slow_down = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
    check_clear(Fault::answer("/manifests/", 429, &later, slow_down), "shop/job", false);
    // A clear does not change the registry's own count of pulls.
    let used_up = [("retry-after", "300"), ("ratelimit-limit", "100;w=300"), ("ratelimit-remaining", "0;w=300")];
    check_clear(Fault::answer("/manifests/", 429, &used_up, slow_down), "shop/db", true);
}

#[test]
fn a_pause_lets_every_node_ask_by_itself() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let _ = fleet.run(&["pull", &image, "--node", "n1"]).expect(1);
    let _ = shared_by_three(&fleet);
    let paused = fleet.rows(&["backoff", "pause", "--registry", registry.host(), "--for", "10m"], 0).remove(0);
    assert_eq!((&paused["kind"], &paused["registry"]), (&json!("pause"), &json!(registry.host())), "{paused}");
    let left_ms = paused["left_ms"].as_u64().expect("a pause ends");
    assert!(left_ms <= 600_000 && paused["by"].as_str().unwrap().contains('@'), "{paused}");
    // The environment of the command names no user.
    let by = paused["by"].as_str().unwrap();
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    assert_eq!(by.starts_with("root@"), is_root, "{by}");
    assert!(!by.starts_with("somebody"), "{by}");
    until("n3 asks by itself", || {
        let row = fleet.rows_any(&["pull", &image, "--node", "n3"]).remove(0);
        (check_row(&row) == "failed ErrImagePull not_found").then_some(())
    });
    let listed = fleet.run(&["backoff", "list"]).expect(0);
    assert!(listed.stdout.contains(&format!("paused: sharing of {}", registry.host())), "{listed}");
    let wrong = fleet.run(&["backoff", "resume"]).expect(1);
    assert!(wrong.stderr.contains("sharing of all registries is not paused"), "{wrong}");
    let resumed = fleet.run(&["backoff", "resume", "--registry", registry.host()]).expect(0);
    assert!(resumed.stdout.starts_with("resumed  "), "{resumed}");
    until("no pause is in force any more", || {
        let list = fleet.rows(&["backoff", "list"], 0);
        list.iter().all(|row| row["kind"] != "pause").then_some(())
    });
}

#[test]
fn unconfirmed_failure_is_attempted_by_the_next_node_and_explained_as_such() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let (first, image) = (registry.image("shop/web:v8"), registry.image("shop/web:v9"));
    for command in [&["explain", &first, "--node", "n2"][..], &["pull", &image, "--node", "n2", "--dry-run"]] {
        let failed = fleet.rows(&["pull", command[1], "--node", "n1"], 1);
        assert_eq!(failed[0]["class"], "not_found", "{failed:?}");
        let explained = fleet.run(command);
        assert!(
            explained.stdout.contains("it would be attempted here") && explained.stdout.contains("one node alone reports the failure"),
            "{explained}"
        );
        assert!(!explained.stdout.contains("would be refused"), "{explained}");
    }
    let pulled = fleet.rows(&["pull", &image, "--node", "n2"], 1);
    assert_eq!(pulled[0]["outcome"], "failed", "it asked for itself: {pulled:?}");
    // Now two nodes have reported the failure.
    let refused = fleet.run(&["explain", &image, "--node", "n3"]);
    assert!(refused.stdout.contains("it would be refused with ImagePullBackOff"), "{refused}");
}

#[test]
fn budgets_are_listed_once_with_their_leader() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let quota = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "70;w=21600")];
    let headers = quota.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    registry.faults().add(Fault::new("/manifests/", memory_registry::FaultAction::Headers(headers)));
    let image = registry.image("shop/web:v1");
    let _ = fleet.run(&["pull", &image, "--all-nodes", "-q"]).expect(0);
    let budgets = fleet.rows(&["budget", "list"], 0);
    let owners: BTreeMap<&str, &Value> = budgets.iter().map(|budget| (budget["owner"].as_str().unwrap(), budget)).collect();
    assert_eq!(owners.len(), budgets.len(), "each once: {budgets:?}");
    assert!(!budgets.is_empty() && budgets.iter().any(|budget| budget["leader"].is_string()), "{budgets:?}");
    let led: u64 = super::three_agents::NODES
        .iter()
        .map(|node| fleet.rows(&["nodes", node, "--counters"], 0)[0]["counters"]["budgets_led"].as_u64().unwrap())
        .sum();
    assert_eq!(led, budgets.len() as u64, "each has one leader");
    let table = fleet.run(&["budget", "list", "-o", "wide"]).expect(0);
    assert!(table.stdout.starts_with("REGISTRY") && table.stdout.contains("LEADER"), "{table}");
    let of_registry = format!("\n{}  none ", registry.host());
    assert!(table.stdout.contains(&of_registry) && table.stdout.contains("  default  "), "{table}");
    assert!(!table.stdout.contains('|'), "its parts are described in words: {table}");
}

#[test]
fn used_up_quota_without_an_entry_is_explained_and_forgotten_by_its_id() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let quota = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "0;w=21600")];
    let headers = quota.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    registry.faults().add(Fault::new("/manifests/", memory_registry::FaultAction::Headers(headers)));
    let _ = fleet.run(&["pull", &registry.image("shop/web:v1"), "--node", "n1", "-q"]).expect(0);
    let id = until("the quota is used up", || {
        let status = fleet.rows(&["status"], 0).remove(0);
        let quota = status["registries"].as_array().unwrap().iter().find(|row| row["state"] == "quota_spent").cloned()?;
        Some(quota["id"].as_str().unwrap().to_owned())
    });
    let explained = fleet.run(&["backoff", "explain", &id]).expect(0);
    assert!(explained.stdout.contains("  quota:        100/6h"), "{explained}");
    // Every node forgets a quota, whatever nodes are selected.
    let cleared = fleet.run(&["backoff", "clear", &id, "--node", "n3"]).expect(0);
    assert!(cleared.stdout.starts_with("cleared  quota of "), "{cleared}");
    let events = until("the clear is an event", || {
        let events = fleet.rows(&["events", "--reason", "BackoffCleared"], 0);
        (!events.is_empty()).then_some(events)
    });
    assert_eq!(events.len(), 1, "one for all nodes: {events:?}");
    assert!(events[0]["data"]["message"].as_str().unwrap().contains(" cleared the quota of "), "{events:?}");
    assert!(fleet.run(&["status"]).expect(0).stdout.starts_with("all is well: "));
}
