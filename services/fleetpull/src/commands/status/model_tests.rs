use serde_json::json;

use super::super::json::object;
use super::super::samples::{OWNER, Sample, budget, description, limited, missing, node, silent};
use super::*;

#[test]
fn nodes_are_counted_and_those_that_are_not_well_are_named_the_silent_first() {
    let degraded = |number: usize, state: &str, since_ms| NodeDescription { state: state.to_owned(), since_ms, ..description(number) };
    let mut nodes: Vec<NodeDescription> = (1..=4).map(description).collect();
    nodes[1] = degraded(2, "degraded: runtime containerd: no answer", 9_000);
    nodes[2] = NodeDescription { version: "0.2.0".to_owned(), ..degraded(3, "of a later version", 10_000) };
    let folded = Nodes::of(&nodes, &[silent(5, 20), silent(6, 40)]);
    let unwell = |number, reason: Option<&str>, since_ms| Unwell { node: node(number), reason: reason.map(str::to_owned), since_ms };
    let expected = [
        unwell(6, None, 40_000),
        unwell(5, None, 20_000),
        unwell(3, Some("of a later version"), 10_000),
        unwell(2, Some("runtime containerd: no answer"), 9_000),
    ];
    assert_eq!((folded.total, folded.ready, folded.degraded, folded.silent), (6, 2, 2, 2));
    assert_eq!((folded.unwell, folded.versions.len()), (expected.to_vec(), 2));
    let many: Vec<Silent> = (0..10_000).map(|number| silent(number, 40)).collect();
    assert_eq!(Nodes::of(&[], &many).unwell.len(), NAMED);
}

#[test]
fn any_counts_of_nodes_add_up() {
    let most = |answers: &mut Answers| {
        for node in &mut answers.nodes {
            (node.pulling, node.waiting, node.standing) = (u64::MAX, u64::MAX, u64::MAX);
        }
    };
    let status = Status::of(Sample::of(2).with(most).answers());
    assert_eq!((status.pulls.running, status.pulls.standing), (u64::MAX, u64::MAX));
    let line = format!("PULLS    {0} running, {0} waiting, {0} of them standing", u64::MAX);
    assert!(super::super::show::lines(&status, 140, false).contains(&line));
}

#[test]
fn bus_is_lost_if_the_only_asked_node_reports_it() {
    let loss = BusLoss { since_ms: 252_000, reason: "connection refused (os error 111)".to_owned() };
    let lost = |of_one_node, bus_loss: Option<&BusLoss>| {
        let change = |answers: &mut Answers| {
            answers.of_one_node = of_one_node;
            answers.nodes[0] = NodeDescription { bus_loss: bus_loss.cloned(), ..description(1) };
        };
        Status::of(Sample::of(1).with(change).answers()).bus.lost
    };
    assert_eq!([lost(true, Some(&loss)), lost(false, Some(&loss)), lost(true, None)], [Some(loss.clone()), None, None]);
}

#[test]
fn bus_is_none_if_the_only_asked_node_has_none_configured() {
    let change = |answers: &mut Answers| {
        answers.of_one_node = true;
        (answers.servers, answers.answered_in_ms) = (None, None);
        answers.nodes[0] = NodeDescription { bus_unset: true, share: "off".to_owned(), ..description(1) };
    };
    let status = Status::of(Sample::of(1).with(change).answers());
    assert!(status.bus.is_unset && status.bus.lost.is_none(), "{:?}", status.bus);
    let object = object(&status);
    assert_eq!((&object["bus"]["state"], &object["bus"]["cause"]), (&json!("none"), &json!(null)));
}

#[test]
fn json_is_one_object_with_what_scripts_read() {
    let image = "registry.example/team/app:v9";
    let sample = Sample::of(3).knowing(&limited()).knowing(&missing("0be1", image)).led(budget(OWNER, 0)).waiting(2, image, 660_000);
    let object = object(&Status::of(sample.answers()));
    assert_eq!((&object["fleet"], &object["node"]), (&json!("prod-eu"), &json!(null)));
    assert_eq!(
        object["nodes"],
        json!({ "total": 3, "ready": 3, "degraded": 0, "silent": 0, "unwell": [], "versions": { "0.1.0": 3 }, "unanswered": 0 })
    );
    let bus = json!({
        "state": "connected",
        "since_ms": null,
        "cause": null,
        "servers": { "total": 3, "up": 3, "down": [] },
        "answered_in_ms": 4,
        "oldest_unsent_ms": 0,
    });
    assert_eq!(object["bus"], bus);
    assert_eq!(object["pulls"], json!({ "running": 0, "waiting": 2, "standing": 0, "oldest_wait_ms": 660_000 }));
    let expected = json!([{
        "id": "91c0",
        "registry": "registry.example",
        "scope": "quota",
        "state": "quota_spent",
        "since_ms": 252_000,
        "cause": "429 (n1)",
        "message": "ErrImagePull: registry.example: 429 Too Many Requests for manifest v1",
        "next_attempt_ms": 8_040_000,
        "prober": null,
        "waiting_nodes": 2,
        "waiting_images": 1,
        "rate": 200.0,
        "cap": 200.0,
        "quota": { "source": null, "limit": 100, "remaining": 0, "window_ms": 21_600_000, "reset_ms": 8_040_000 },
    }]);
    assert_eq!(object["registries"], expected);
    let images = &object["images"][0];
    assert_eq!((&images["image"], &images["state"], images.get("quota")), (&json!(image), &json!("not_found"), None));
    assert_eq!((&object["sharing"]["policy_revision"], &object["left_out"]), (&json!(41), &json!(0)));
}
