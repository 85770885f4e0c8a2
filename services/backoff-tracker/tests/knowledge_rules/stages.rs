//! Token server, manifests and blobs: the answer of one stage shows nothing about another.

use backoff_tracker::core::knowledge::{AttemptFailure, Decision, Duty, Finding, Input, KeyInView, Outcome, Target};
use contract::{FailureClass, Stage};

use super::node::{Node, REQUEST, endpoint, failed, image, key, target};

fn blobs() -> KeyInView {
    KeyInView::Blobs { endpoint: "r:443".to_owned(), zone: "z".to_owned() }
}

fn tokens() -> KeyInView {
    KeyInView::TokenServer { endpoint: "r:443".to_owned(), zone: "z".to_owned() }
}

/// A node of a fleet that has had manifests lately, after three nodes have reported that `in_view` fails.
fn failing(in_view: &KeyInView) -> Node {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2", "n3"] {
        node.receive(reporter, in_view.clone(), failed(1));
    }
    node.receive("n4", image(), Finding::Succeeded);
    node.receive("n4", endpoint(), Finding::Succeeded);
    node
}

#[test]
fn an_answered_manifest_closes_no_entry_of_blobs_or_tokens() {
    for in_view in [blobs(), tokens()] {
        let mut node = failing(&in_view);
        node.ask();
        assert_eq!(node.held().class, FailureClass::RegistryUnavailable, "{in_view:?}");
        node.receive("n5", image(), Finding::Succeeded);
        node.receive("n5", endpoint(), Finding::Succeeded);
        assert!(matches!(node.decision, Some(Decision::Refused(_))), "{in_view:?}");
        node.receive("n5", in_view.clone(), Finding::Succeeded);
        node.until(1.0);
        assert!(node.is_clear(), "{in_view:?}: {:?}", node.decision);
    }
}

#[test]
fn a_probe_of_blobs_is_over_with_their_first_byte_and_not_before() {
    let mut node = failing(&blobs());
    node.ask();
    node.until(6.0);
    let Some(Decision::Granted { duty: Duty::Probe(_), until, .. }) = node.decision else { panic!("{:?}", node.decision) };
    assert_eq!(until, Stage::Blob);
    let attempt = node.begin();
    let before = node.published.len();
    node.end(attempt, Outcome::Reached(Stage::Manifest));
    let of_blobs = |node: &Node| node.published[before..].iter().any(|report| *report.backoff_key.in_view() == blobs());
    assert!(node.core.has_request(REQUEST) && !of_blobs(&node), "a manifest is not what it was sent for");
    node.end(attempt, Outcome::Reached(Stage::Blob));
    assert!(!node.core.has_request(REQUEST) && of_blobs(&node));
    assert_eq!(node.core.entries(node.now).len(), 0);
}

/// No node is known to have had a blob lately: the node that resolves an image first keeps its slot until the first byte of a blob.
#[test]
fn lead_lasts_until_the_first_blob_if_none_came_recently() {
    for (shows_blobs, expected) in [(true, Stage::Blob), (false, Stage::Manifest)] {
        let mut node = Node::of(1_000);
        node.give(Input::Request { request: REQUEST, key: key("r/a:1"), target: Target { shows_blobs, ..target() } });
        let Some(Decision::Granted { duty: Duty::Lead, until, .. }) = node.decision else { panic!("{:?}", node.decision) };
        assert_eq!(until, expected);
    }
}

/// A failure after the manifest that this node alone has is attempted again by kubelet's rule, even if manifests are answered meanwhile.
#[test]
fn a_failure_after_the_manifest_is_not_released_by_manifests() {
    let mut node = Node::of(1_000);
    node.receive("n4", image(), Finding::Succeeded);
    node.receive("n4", endpoint(), Finding::Succeeded);
    node.ask();
    assert!(node.is_clear(), "{:?}", node.decision);
    let attempt = node.begin();
    let failure = AttemptFailure { class: FailureClass::RegistryUnavailable, stage: Stage::Blob, ..AttemptFailure::default() };
    node.end(attempt, Outcome::Failed(failure));
    for second in 1..10 {
        node.until(f64::from(second));
        node.receive("n5", image(), Finding::Succeeded);
        node.receive("n5", endpoint(), Finding::Succeeded);
        assert!(!node.is_clear(), "after {second} s: {:?}", node.decision);
    }
    node.until(10.1);
    assert!(node.is_clear(), "{:?}", node.decision);
}
