//! `status`: one screen that names the cause, since when, the nodes that wait, and the next attempt.

use std::cell::RefCell;

use e2e::{Registry, until, until_or};
use memory_registry::Fault;
use serde_json::{Value, json};

use super::common::small;
use super::three_agents::Fleet;

/// The most lines of one screen.
const LINES_MOST: usize = 40;

/// Makes a detached standing pull on each node.
fn want_everywhere(fleet: &Fleet, image: &str) {
    let _ = fleet.run(&["pull", image, "--all-nodes", "--wait", "10m", "--detach", "-q"]).expect(0);
}

/// Waits for the row that names all three nodes.
fn held_everywhere(fleet: &Fleet, list: &str) -> Value {
    until("three nodes wait", || {
        let status = fleet.rows(&["status"], 0).remove(0);
        status[list].as_array().unwrap().iter().find(|row| row["waiting_nodes"] == 3).cloned()
    })
}

/// Waits until the first five lines contain these texts. While the nodes still learn of a failure, two screens may differ.
fn await_first_lines_with(fleet: &Fleet, parts: &[&str]) {
    let last = RefCell::default();
    let has_all = || {
        let shown = fleet.run(&["status"]).expect(0);
        assert!(shown.stdout.lines().count() <= LINES_MOST, "{shown}");
        let first: Vec<&str> = shown.stdout.lines().take(5).collect();
        let first = first.join(" ");
        *last.borrow_mut() = shown.to_string();
        parts.iter().all(|part| first.contains(part)).then_some(())
    };
    until_or(|| format!("the first five lines contain {parts:?}: {}", last.borrow()), has_all);
}

fn assert_well(fleet: &Fleet) {
    until("all is well", || {
        let shown = fleet.run(&["status"]).expect(0);
        shown.stdout.starts_with("all is well: 3 of 3 nodes are ready, nothing is held back\nFLEET ").then_some(())
    });
}

#[test]
fn a_registry_that_answers_503_is_the_first_row_with_all_nodes_that_it_holds() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    assert_well(&fleet);
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    registry.faults().add(Fault::answer("/manifests/", 503, &[], "down"));
    let image = registry.image("shop/web:v1");
    want_everywhere(&fleet, &image);
    let row = held_everywhere(&fleet, "registries");
    assert_eq!(
        (&row["registry"], &row["state"], &row["waiting_images"]),
        (&json!(registry.host()), &json!("registry_unavailable"), &json!(1))
    );
    assert!(row["cause"].as_str().unwrap().starts_with("503 (n") && row["since_ms"].is_u64() && row["next_attempt_ms"].is_u64(), "{row}");
    let what = format!("{}: unavailable for ", registry.host());
    await_first_lines_with(&fleet, &[&what, "503 (n", "3 nodes wait for 1 image"]);

    let id = row["id"].as_str().unwrap();
    let explained = fleet.run(&["explain", id]).expect(0);
    for part in ["since:", "found by:", "503", "next attempt:"] {
        assert!(explained.stdout.contains(part), "{part} in {explained}");
    }
    let listed = fleet.rows(&["backoff", "list"], 0);
    assert!(listed.iter().any(|entry| entry["key"].as_str().is_some_and(|key| key.starts_with(id))), "one source: {listed:?}");

    registry.faults().clear();
    assert_well(&fleet);
}

#[test]
fn a_tag_that_is_missing_is_a_row_until_it_is_pushed() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    want_everywhere(&fleet, &image);
    let row = held_everywhere(&fleet, "images");
    assert_eq!((&row["image"], &row["state"], &row["scope"]), (&json!(image), &json!("not_found"), &json!("image")));
    await_first_lines_with(&fleet, &["not found for ", "404 (n", "3 nodes wait for 1 image", "BUS      1 server, "]);

    // The status of one node, through its socket.
    let socket = fleet.socket("n2");
    let of_one = fleet.run(&["status", "--agent", &socket]).expect(0);
    assert!(of_one.stdout.contains("as n2 knows it, 1 enforce") && of_one.stdout.contains("1 node waits for 1 image"), "{of_one}");

    // `--watch` reads the status again.
    let watching = fleet.place.start(&["status", "--watch", "-o", "json"]);
    until("it is read twice", || (watching.stdout().lines().count() >= 2).then_some(()));
    drop(watching);
    registry.add_image("shop/web", "v9", &small());
    // A node may have found the image by then, so the exit status is ignored.
    let _ = fleet.run(&["backoff", "clear", &image]);
    assert_well(&fleet);
}

#[test]
fn the_status_of_one_node_begins_with_its_lost_bus() {
    let Some(mut fleet) = Fleet::start(&[]) else { return };
    let socket = fleet.socket("n1");
    fleet.nats.kill();
    let shown = until("n1 misses its bus", || {
        let shown = fleet.run(&["status", "--agent", &socket]).expect(0);
        shown.stdout.starts_with("n1 has had no bus for ").then_some(shown)
    });
    assert!(shown.stdout.contains("\nBUS      lost for "), "{shown}");
    let status = fleet.rows(&["status", "--agent", &socket], 0).remove(0);
    assert_eq!((&status["node"], &status["bus"]["state"], &status["nodes"]["degraded"]), (&json!("n1"), &json!("lost"), &json!(1)));
}
