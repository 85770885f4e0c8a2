//! Standing pulls: `pull --wait`, `pull --detach`, `pulls` and `cancel`.

use std::collections::BTreeSet;

use e2e::{Finished, Registry, Signal, until};
use memory_registry::{BodyFault, Fault, MadeImage};
use serde_json::{Value, json};

use super::common::small;
use super::three_agents::{Fleet, NODES};

/// The standing pulls in the list.
fn standing_pulls(fleet: &Fleet) -> Vec<Value> {
    fleet.rows(&["pulls"], 0).into_iter().filter(|row| row["standing_pull"].is_string()).collect()
}

#[test]
fn a_standing_pull_stands_until_the_image_is_there() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_BACKOFF_INITIAL", "1s")]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--all-nodes", "--wait", "50s", "-o", "json"];
    let waiting = fleet.place.start(&arguments);
    let standing = until("a standing pull is held on each node", || {
        let standing = standing_pulls(&fleet);
        // Until the first node's attempt has failed, the other nodes wait for it without a class.
        let has_failed = |standing_pull: &Value| standing_pull["class"].is_string() && standing_pull["cause"].is_string();
        (standing.len() == 3 && standing.iter().all(has_failed)).then_some(standing)
    });
    let ids: BTreeSet<&str> = standing.iter().map(|standing_pull| standing_pull["standing_pull"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 1, "one id cancels all of them");
    let left_ms = |standing_pull: &Value| standing_pull["left_ms"].as_u64();
    assert!(standing.iter().all(|one| left_ms(one).is_some_and(|left| left <= 50_000) && one["class"] == "not_found"), "{standing:?}");
    let table = fleet.run(&["pulls"]).expect(0);
    assert!(table.stdout.contains("WAITS FOR") && table.stdout.contains("404 (n"), "{table}");
    registry.add_image("shop/web", "v1", &small());
    let rows = Finished::of(&arguments, waiting).expect(0).objects();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
    assert!(standing_pulls(&fleet).is_empty());
}

#[test]
fn expired_wait_has_exit_status_5() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let rows = fleet.rows(&["pull", &registry.image("shop/web:v9"), "--all-nodes", "--wait", "2s"], 5);
    assert!(rows.len() == 3 && rows.iter().all(|row| row["timed_out"] == true), "{rows:?}");
    assert!(standing_pulls(&fleet).is_empty(), "a standing pull ends with its time");
}

#[test]
fn ctrl_c_withdraws_the_standing_pulls() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let arguments = ["pull", &image, "--all-nodes", "--wait", "10m"];
    let waiting = fleet.place.start(&arguments);
    until("the standing pulls go on", || (standing_pulls(&fleet).len() == 3).then_some(()));
    waiting.signal(Signal::Interrupt);
    let done = Finished::of(&arguments, waiting).expect(130);
    assert!(done.stderr.contains("3 standing pulls were withdrawn") && done.stderr.contains("nothing is left running"), "{done}");
    assert!(standing_pulls(&fleet).is_empty());
}

#[test]
fn a_second_ctrl_c_ends_the_command_at_once() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let arguments = ["pull", &image, "--all-nodes", "--wait", "10m"];
    let waiting = fleet.place.start(&arguments);
    until("the standing pulls go on", || (standing_pulls(&fleet).len() == 3).then_some(()));
    // The command waits for n3's answer, long enough for a second signal.
    fleet.agents["n3"].signal(Signal::Stop);
    waiting.signal(Signal::Interrupt);
    until("it explains what a second Ctrl-C does", || waiting.stderr().contains("Ctrl-C again").then_some(()));
    waiting.signal(Signal::Interrupt);
    let done = Finished::of(&arguments, waiting).expect(130);
    assert!(done.stderr.contains("the remaining standing pulls go on until their time is over"), "{done}");
    fleet.agents["n3"].signal(Signal::Continue);
}

#[test]
fn ctrl_c_lists_pulls_that_continue_for_others() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([600_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(100_000)));
    let image = registry.image("shop/web:v1");
    let other = fleet.place.start(&["pull", &image, "--node", "n2"]);
    let arguments = ["pull", &image, "--node", "n2", "--node", "n3", "--wait", "10m"];
    let waiting = fleet.place.start(&arguments);
    until("both nodes fetch, n2 for two", || {
        let pulls = fleet.rows(&["pulls"], 0);
        let callers = |node: &str| {
            pulls.iter().find(|pull| pull["node"] == node && pull["standing_pull"].is_null()).map(|pull| pull["callers"].clone())
        };
        (callers("n2")? == 2 && callers("n3")? == 1).then_some(())
    });
    waiting.signal(Signal::Interrupt);
    let done = Finished::of(&arguments, waiting).expect(130);
    assert!(done.stderr.contains(&format!("left running because another caller wants it: {image} on n2")), "{done}");
    let _ = Finished::of(&["pull"], other).expect(0);
}

#[test]
fn cancel_stops_a_running_pull_or_names_the_other_callers() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([6_000_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(100_000)));
    let image = registry.image("shop/web:v1");
    let other = fleet.place.start(&["pull", &image, "--node", "n2"]);
    let arguments = ["pull", &image, "--node", "n2", "--node", "n3", "--wait", "10m"];
    let waiting = fleet.place.start(&arguments);
    let callers = |node: &str| {
        let pulls = fleet.rows(&["pulls"], 0);
        pulls.iter().find(|pull| pull["node"] == node && pull["standing_pull"].is_null()).map(|pull| pull["callers"].clone())
    };
    until("both nodes fetch, n2 for two", || (callers("n2")? == 2 && callers("n3")? == 1).then_some(()));
    let cancelled = fleet.run(&["cancel", &image]).expect(1);
    assert_eq!(cancelled.stdout.lines().filter(|line| line.starts_with("cancelled  ")).count(), 2, "{cancelled}");
    let goes_on = |callers: &str| format!("n2 goes on pulling {image}: {callers} for it, and it ends when it does");
    assert!(cancelled.stderr.contains(&goes_on("1 other caller waits")), "{cancelled}");
    assert!(!cancelled.stderr.contains("n3"), "{cancelled}");
    let done = Finished::of(&arguments, waiting).expect(1);
    assert_eq!(done.output().matches("was cancelled by ").count(), 2, "{done}");
    assert_eq!((callers("n2"), callers("n3")), (Some(json!(1)), None), "the pull without other callers has ended");
    // No standing pull is left: the command names the pull that still runs, and why.
    let none = fleet.run(&["cancel", &image]).expect(1);
    assert!(none.stdout.is_empty() && none.stderr.contains(&goes_on("1 other caller waits")), "{none}");
    other.signal(Signal::Interrupt);
    let _ = Finished::of(&["pull"], other).expect(130);
    until("nothing runs any more", || callers("n2").is_none().then_some(()));
    let nothing = fleet.run(&["cancel", &image]).expect(1);
    assert!(nothing.stderr.contains("there are none at all"), "{nothing}");
}

#[test]
fn a_killed_command_withdraws_nothing() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_BACKOFF_INITIAL", "1s")]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let waiting = fleet.place.start(&["pull", &image, "--all-nodes", "--wait", "50s"]);
    until("the standing pulls go on", || (standing_pulls(&fleet).len() == 3).then_some(()));
    waiting.signal(Signal::Kill);
    let _ = waiting.wait();
    assert_eq!(standing_pulls(&fleet).len(), 3);
    registry.add_image("shop/web", "v1", &small());
    until("every node has it", || {
        let rows = fleet.rows(&["pull", &image, "--all-nodes", "--dry-run"], 0);
        rows.iter().all(|row| row["present"] == true).then_some(())
    });
}

#[test]
fn a_command_that_waits_outlives_its_agents() {
    let Some(mut fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--all-nodes", "--wait", "50s", "-o", "json"];
    let waiting = fleet.place.start(&arguments);
    until("the standing pulls go on", || (standing_pulls(&fleet).len() == 3).then_some(()));
    fleet.restart("n2", Signal::Kill);
    until("the standing pull of n2 stands again", || (standing_pulls(&fleet).len() == 3).then_some(()));
    registry.add_image("shop/web", "v1", &small());
    let rows = Finished::of(&arguments, waiting).expect(0).objects();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
}

#[test]
fn failing_canary_with_standing_pull_delays_all_others() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--all-nodes", "--wait", "50s", "--canary", "1", "-o", "json"];
    let waiting = fleet.place.start(&arguments);
    until("the canary's standing pull is held", || {
        let standing = standing_pulls(&fleet);
        (standing.len() == 1 && standing[0]["class"] == "not_found").then_some(())
    });
    registry.add_image("shop/web", "v1", &small());
    let rows = Finished::of(&arguments, waiting).expect(0).objects();
    assert_eq!((rows.len(), &rows[0]["node"]), (3, &json!("n1")), "{rows:?}");
}

#[test]
fn the_same_detached_pull_twice_is_one_standing_pull_a_node() {
    let Some(mut fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let ids = |rows: &[Value]| rows.iter().map(|row| row["standing_pull"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>();
    let first = fleet.rows(&["pull", &image, "--node", "n1", "--node", "n2", "--wait", "10m", "--detach"], 0);
    assert_eq!(ids(&first).len(), 1, "{first:?}");
    let again = fleet.run(&["pull", &image, "--node", "n1", "--wait", "1h", "--detach"]).expect(0);
    let id = first[0]["standing_pull"].as_str().unwrap();
    assert!(again.stdout.contains(&format!("standing pull {id}  already standing for ")), "{again}");
    // A node without a standing pull gets a new one.
    let more = fleet.rows(&["pull", &image, "--all-nodes", "--wait", "10m", "--detach"], 0);
    assert!(more.len() == 3 && ids(&more).len() == 2, "{more:?}");
    let standing = standing_pulls(&fleet);
    assert_eq!(standing.len(), 3, "{standing:?}");
    let left = |node: &str| standing.iter().find(|standing_pull| standing_pull["node"] == node).unwrap()["left_ms"].as_u64().unwrap();
    assert!(left("n1") > 3_000_000 && left("n2") <= 600_000, "it stands for as long as the longer of both: {standing:?}");
    fleet.restart("n1", Signal::Kill);
    until("the standing pull of n1 stands again", || (standing_pulls(&fleet).len() == 3).then_some(()));
    let after = fleet.rows(&["pull", &image, "--node", "n1", "--wait", "10m", "--detach"], 0);
    assert_eq!((ids(&after), standing_pulls(&fleet).len()), (BTreeSet::from([id.to_owned()]), 3), "a restart changes nothing of it");
    // A command that waits has a standing pull of its own: its Ctrl-C ends no other.
    let waiting = fleet.place.start(&["pull", &image, "--node", "n1", "--wait", "10m"]);
    until("another one stands", || (standing_pulls(&fleet).len() == 4).then_some(()));
    waiting.signal(Signal::Interrupt);
    let _ = Finished::of(&["pull"], waiting).expect(130);
    assert_eq!(standing_pulls(&fleet).len(), 3);
}

#[test]
fn detached_standing_pulls_are_listed_and_cancelled() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let (first, second) = (registry.image("shop/web:v8"), registry.image("shop/web:v9"));
    let rows = fleet.rows(&["pull", &first, "--all-nodes", "--wait", "10m", "--detach"], 0);
    assert!(rows.len() == 3 && rows.iter().all(|row| row["outcome"] == "standing"), "{rows:?}");
    let id = rows[0]["standing_pull"].as_str().unwrap().to_owned();
    let text = fleet.run(&["pull", &second, "--node", "n1", "--wait", "10m", "--detach"]).expect(0);
    assert!(
        text.stdout.starts_with("standing  n1  ")
            && text.stdout.contains("  standing pull ")
            && text.stderr.contains("1 standing pull goes on in the agents"),
        "{text}"
    );
    assert_eq!(standing_pulls(&fleet).len(), 4);

    let none = fleet.run(&["cancel", "shop/other:v1"]).expect(1);
    assert!(none.stdout.is_empty() && none.stderr.contains("There are 4 others") && none.stderr.contains(&second), "{none}");
    let of_one = fleet.rows(&["cancel", &id, "--node", "n2"], 0);
    assert_eq!((of_one.len(), &of_one[0]["node"], &of_one[0]["image"]), (1, &json!("n2"), &json!(first)));
    let by_id = fleet.rows(&["cancel", &id[..10]], 0);
    let nodes: BTreeSet<&str> = by_id.iter().map(|row| row["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, BTreeSet::from([NODES[0], NODES[2]]), "the beginning of an id is enough: {by_id:?}");
    let by_image = fleet.run(&["cancel", &second]).expect(0);
    assert!(by_image.stdout.starts_with("cancelled  n1  "), "{by_image}");
    assert!(standing_pulls(&fleet).is_empty());
    let nothing = fleet.run(&["cancel", &second]).expect(1);
    assert!(nothing.stderr.contains("there are none at all"), "{nothing}");
}
