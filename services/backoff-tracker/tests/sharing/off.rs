//! A node with `fleet.share = off` uses kubelet's rule alone, by the same core as a node that shares.

use backoff_tracker::Share;
use contract::PodRef;
use contract::messages::backoff_tracker::{
    BackoffAnswer, CheckBackoff, ClearBackoff, Clearance, ListBackoffs, LocalKey, PauseSharing, ReportAttempt, SharedCounts,
};

use super::fleet::{Node, Nodes, PATIENCE_MS, envelope, ids, key, not_found, pass, target};

const IMAGE: &str = "r.example/a:1";

fn of_pod(name: &str) -> LocalKey {
    let pod = PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: String::new() };
    LocalKey { pod: Some(pod), ..key(IMAGE) }
}

/// An attempt fails; returns for how long the key is refused.
async fn fails(node: &Node, number: u64, key: LocalKey) -> Option<u64> {
    let (_, attempt) = ids(number);
    let report = ReportAttempt { key, attempt, attempt_span: None, failure: Some(not_found()), target: Some(target(IMAGE)) };
    node.put(report).await.next_attempt_ms
}

async fn is_allowed(node: &Node, key: LocalKey) -> bool {
    node.put(CheckBackoff { key, peek: false, target: Some(target(IMAGE)) }).await == BackoffAnswer::Allowed
}

async fn clear(node: &Node, what: &str) -> Vec<String> {
    let cleared = node.put(ClearBackoff { what: what.to_owned(), by: "ops".to_owned() }).await;
    assert!(cleared.still_binding.is_empty(), "{cleared:?}");
    cleared.cleared
}

#[actix::test]
async fn a_node_that_does_not_share_uses_kubelets_rule_and_needs_no_clearance() {
    tokio::time::pause();
    let fleet = Nodes::sharing(1, Share::Off).await;
    let node = &fleet.nodes[0];
    assert!(is_allowed(node, key(IMAGE)).await);
    assert_eq!(fails(node, 1, key(IMAGE)).await, Some(10_000));
    assert_eq!(fails(node, 1, key(IMAGE)).await, Some(10_000), "the same report again");
    assert!(!is_allowed(node, key(IMAGE)).await);
    assert!(is_allowed(node, of_pod("web-0")).await, "another key");
    pass(10_000).await;
    assert!(is_allowed(node, key(IMAGE)).await);
    assert_eq!(fails(node, 2, key(IMAGE)).await, Some(20_000));
    let (clearance, attempt) = ids(3);
    let clearance = node.clearance(clearance, attempt, IMAGE, PATIENCE_MS).await;
    assert!(matches!(clearance, Clearance::Granted { for_all: false, .. }), "kubelet's rule was checked before: {clearance:?}");
    let counts = node.counts().await;
    assert_eq!((counts.held, counts.known, counts.refused_total, counts.failures_total), (1, 1, 1, 2));
    assert_eq!(counts.shared, SharedCounts::default());
    assert!(fleet.join("other", Share::Enforce).check(IMAGE).await == BackoffAnswer::Allowed, "nothing is published");
}

#[actix::test]
async fn a_node_that_does_not_share_lists_and_clears_its_own_keys() {
    tokio::time::pause();
    let fleet = Nodes::sharing(1, Share::Off).await;
    let node = &fleet.nodes[0];
    for (number, key) in [key(IMAGE), of_pod("web-0"), of_pod("web-1")].into_iter().enumerate() {
        assert_eq!(fails(node, number as u64, key).await, Some(10_000));
    }
    let list = node.put(ListBackoffs::default()).await;
    let listed: Vec<&str> = list.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(listed, [IMAGE, "shop/web-0 r.example/a:1", "shop/web-1 r.example/a:1"]);
    assert!(list.entries.iter().all(|entry| entry.binds == "this node" && entry.next_attempt_ms == 10_000), "{list:?}");
    assert_eq!((list.share.as_str(), list.alone), ("off", false));
    let of_one = node.put(ListBackoffs { pod: of_pod("web-1").pod, ..ListBackoffs::default() }).await;
    assert_eq!(of_one.entries.len(), 1, "{of_one:?}");
    assert!(clear(node, "r.example/b:1").await.is_empty(), "another image");
    let of_image = [IMAGE, "shop/web-0 r.example/a:1", "shop/web-1 r.example/a:1"];
    assert_eq!(clear(node, "shop/web-0 r.example/a:1").await, of_image, "the key of a pod clears its image, as on a node that shares");
    for key in [key(IMAGE), of_pod("web-0"), of_pod("web-1")] {
        assert!(is_allowed(node, key).await);
    }
    assert!(clear(node, IMAGE).await.is_empty());
    assert_eq!(node.counts().await.shared, SharedCounts { cleared_total: 3, ..SharedCounts::default() }, "nothing else is shared");
    assert!(fleet.join("other", Share::Enforce).check(IMAGE).await == BackoffAnswer::Allowed, "nothing is published");
    let pause = PauseSharing { registry: None, for_ms: 60_000, by: "ops".to_owned() };
    let paused = node.tracker.send(actors::Ask(envelope(pause))).await.expect("the tracker lives");
    assert!(paused.is_err(), "there is no sharing to pause");
}
