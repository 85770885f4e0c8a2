//! Pauses, clears, and the fleet policy.

use actors::bucket_spec;
use backoff_tracker::Share;
use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
use bus::SharedState as _;
use contract::EventReason::{self, BackoffCleared, SharingPaused, SharingResumed};
use contract::know::{KeyKind, MAX_KEYS_CLEARED, ReportKey, SharedBucket, StoredKeyInView, StoredReport, encode};
use contract::messages::backoff_tracker::{AttemptFailure, BackoffAnswer, ClearBackoff, ListBackoffs, PauseSharing};
use contract::policy::{FleetPolicy, POLICY_KEY, ShareAtMost, StoredPolicy};
use contract::subject::Fleet;
use contract::{FailureClass, PullEvent};

use super::fleet::{Node, Nodes, not_found, pass, refused, target};
use super::forged;

const IMAGE: &str = "r.example/a:1";

pub(crate) fn pause(registry: Option<&str>, for_ms: u64) -> PauseSharing {
    PauseSharing { registry: registry.map(str::to_owned), for_ms, by: "ops@desk".to_owned() }
}

/// The events about operators, of all that a node has recorded.
fn done_by_operators(node: &Node) -> Vec<PullEvent> {
    let by_operators = |event: &&PullEvent| [BackoffCleared, SharingPaused, SharingResumed].contains(&event.reason);
    node.events.borrow().iter().filter(by_operators).cloned().collect()
}

/// Checks the events that the first node has recorded.
async fn check_events(fleet: &Nodes, actions: &[(EventReason, &str)]) {
    pass(1).await;
    let events = done_by_operators(&fleet.nodes[0]);
    let seen: Vec<_> = events.iter().map(|event| (event.reason, event.message.as_str())).collect();
    assert_eq!(seen, actions);
}

#[actix::test]
async fn a_pause_reaches_every_node_survives_restarts_and_ends_by_itself() {
    tokio::time::pause();
    let mut fleet = Nodes::start(3).await;
    fleet.nodes[2].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[0].fails_when_let(2, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[1].held(IMAGE).await;
    let paused = fleet.nodes[0].put(pause(Some("r.example"), 2_500)).await;
    check_events(&fleet, &[(SharingPaused, "ops@desk paused what is shared of registry r.example for 2.5s")]).await;
    assert_eq!((paused.pauses.len(), paused.pauses[0].by.as_str()), (1, "ops@desk"));
    pass(5).await;
    assert_eq!(fleet.nodes[1].check_before_pull(IMAGE).await, BackoffAnswer::Allowed);
    assert_eq!(fleet.nodes[1].counts().await.shared.observed_total, 1);
    // A node that knew the pause and one that did not: each starts with only what the bus keeps.
    drop(fleet.nodes.remove(1));
    for name in ["n2", "late"] {
        let node = fleet.join(name, Share::Enforce);
        pass(5).await;
        assert_eq!(node.check(IMAGE).await, BackoffAnswer::Allowed, "{name} starts anew and receives the pause");
        assert_eq!(node.counts().await.shared.entries, 1, "{name} knows what is paused");
        fleet.nodes.push(node);
    }
    pass(2_600).await;
    for node in [0, 2, 3] {
        fleet.nodes[node].held(IMAGE).await;
    }
}

/// If the bus fails in the same incident, an operator's pause stays in force.
#[actix::test]
async fn a_pause_that_the_bus_lost_continues_and_is_stored_again() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[2].fails(1, IMAGE, not_found()).await;
    fleet.nodes[0].put(pause(None, 60_000)).await;
    pass(5).await;
    for bucket in ["fleetpull-reports", "fleetpull-pauses"] {
        fleet.bus.lose_bucket(bucket);
    }
    fleet.nodes[1].fails(2, "r.example/b:1", not_found()).await;
    pass(3_000).await;
    for node in &fleet.nodes {
        assert_eq!(node.check(IMAGE).await, BackoffAnswer::Allowed, "still paused");
    }
    let late = fleet.join("late", Share::Enforce);
    pass(5).await;
    let pauses = late.put(ListBackoffs::default()).await.pauses;
    assert!(matches!(&pauses[..], [one] if one.by == "ops@desk" && (50_000..58_000).contains(&one.left_ms)), "{pauses:?}");
    // A pause that was ended meanwhile is not stored again: the bucket is the same.
    fleet.nodes[1].put(pause(None, 0)).await;
    pass(5).await;
    for node in fleet.nodes.iter().chain([&late]) {
        node.held(IMAGE).await;
    }
}

#[actix::test]
async fn a_pause_is_of_its_registry_and_can_be_ended() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    fleet.nodes[0].put(pause(Some("other.example"), 60_000)).await;
    pass(5).await;
    fleet.nodes[1].held(IMAGE).await;
    fleet.nodes[0].put(pause(None, 60_000)).await;
    pass(5).await;
    assert_eq!(fleet.nodes[1].check(IMAGE).await, BackoffAnswer::Allowed);
    fleet.nodes[1].put(pause(None, 0)).await;
    pass(5).await;
    assert_eq!(done_by_operators(&fleet.nodes[1])[0].reason, SharingResumed);
    assert_eq!(fleet.nodes[0].put(ListBackoffs::default()).await.pauses.len(), 1, "the other one");
    fleet.nodes[1].held(IMAGE).await;
}

#[actix::test]
async fn clear_removes_shared_and_own_back_off_on_every_node() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    // The registry answers "not found", so it serves. Only a failure that is not known to be the registry's is refused for longer.
    let unknown = AttemptFailure { cause: "ErrImagePull: odd".to_owned(), ..AttemptFailure::default() };
    fleet.nodes[2].fails(2, "r.example/b:1", unknown).await;
    pass(5).await;
    fleet.nodes[2].held("r.example/b:1").await;
    let cleared = fleet.nodes[1].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    assert_eq!(cleared.cleared, [format!("image {IMAGE}")]);
    pass(5).await;
    assert_eq!(done_by_operators(&fleet.nodes[1])[0].message, format!("ops@desk cleared {IMAGE}: image {IMAGE}"));
    assert_eq!(done_by_operators(&fleet.nodes[0]), [], "once, by the node that received the command");
    for node in &fleet.nodes {
        assert_eq!(node.check(IMAGE).await, BackoffAnswer::Allowed);
    }
    fleet.nodes[2].put(ClearBackoff { what: "r.example/b:1".to_owned(), by: "ops@desk".to_owned() }).await;
    assert_eq!(fleet.nodes[2].check("r.example/b:1").await, BackoffAnswer::Allowed);
    let late = fleet.join("late", Share::Enforce);
    assert_eq!(late.check(IMAGE).await, BackoffAnswer::Allowed, "a node that reads the old report reads the clear as well");
    let nothing = fleet.nodes[0].put(ClearBackoff { what: "r.example/never:1".to_owned(), by: "ops@desk".to_owned() }).await;
    assert_eq!(nothing.cleared, Vec::<String>::new());
    let actions = [(BackoffCleared, "ops@desk cleared r.example/never:1: nothing is known of it on this node")];
    check_events(&fleet, &actions).await;
    fleet.nodes[1].fails(3, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[0].held(IMAGE).await;
}

#[actix::test]
async fn clear_removes_own_back_off_of_other_nodes() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    let unknown = AttemptFailure { cause: "ErrImagePull: odd".to_owned(), ..AttemptFailure::default() };
    fleet.nodes[0].fails(1, IMAGE, unknown).await;
    pass(5).await;
    let cleared = fleet.nodes[2].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    assert!(cleared.cleared.is_empty() && cleared.still_binding.is_empty(), "nothing here: {cleared:?}");
    pass(5).await;
    assert_eq!(fleet.nodes[0].counts().await.known, 0, "its own back-off is removed");
}

fn failure(class: FailureClass, authoritative: bool, retry_after_ms: Option<u64>) -> AttemptFailure {
    let cause = format!("ErrImagePull: {class}");
    AttemptFailure { class, cause, authoritative, retry_after_ms, ..AttemptFailure::default() }
}

/// For anything that refuses an image: a clear by the image or by a listed key clears what is listed, on every node.
#[actix::test]
async fn clear_of_an_image_removes_every_cause_of_its_refusal() {
    tokio::time::pause();
    let table = [
        ("a tag that is missing", failure(FailureClass::NotFound, true, None)),
        ("a login that is refused", failure(FailureClass::Denied, true, None)),
        ("429", failure(FailureClass::RateLimited, true, Some(60_000))),
        ("503", failure(FailureClass::RegistryUnavailable, true, Some(60_000))),
        ("no answer", failure(FailureClass::RegistryUnavailable, false, None)),
    ];
    for (name, failure) in table {
        for by_key in [false, true] {
            let fleet = Nodes::start(3).await;
            for (number, node) in fleet.nodes.iter().enumerate() {
                if matches!(node.check(IMAGE).await, BackoffAnswer::Allowed) {
                    node.fails(number as u64 + 1, IMAGE, failure.clone()).await;
                }
                pass(5).await;
            }
            for node in &fleet.nodes {
                node.held(IMAGE).await;
            }
            let listed = ListBackoffs { what: Some(IMAGE.to_owned()), ..ListBackoffs::default() };
            let entries = fleet.nodes[2].put(listed.clone()).await.entries;
            let keys = entries.into_iter().filter(|entry| entry.view.is_some()).map(|entry| entry.key);
            let whats: Vec<String> = if by_key { keys.collect() } else { vec![IMAGE.to_owned()] };
            assert!(!whats.is_empty(), "{name}");
            for what in whats {
                let cleared = fleet.nodes[2].put(ClearBackoff { what, by: "ops@desk".to_owned() }).await;
                assert!(!cleared.cleared.is_empty() && cleared.still_binding.is_empty(), "{name}: {cleared:?}");
            }
            pass(5).await;
            for (number, node) in fleet.nodes.iter().enumerate() {
                assert_eq!(node.check(IMAGE).await, BackoffAnswer::Allowed, "{name}, by key: {by_key}, n{}", number + 1);
                let left = node.put(listed.clone()).await.entries;
                assert!(
                    left.iter().all(|entry| !["everybody", "unconfirmed"].contains(&entry.binds.as_str())),
                    "{name}, by key: {by_key}: {left:?}"
                );
            }
        }
    }
}

/// A report that the registry does not answer in a zone, and its key.
fn silent_in(zone: &str) -> (String, StoredReport) {
    let (_, report) = forged::report("n9", IMAGE);
    let endpoint = target(IMAGE).endpoint;
    let in_view =
        StoredKeyInView { kind: KeyKind::Endpoint, endpoint: endpoint.clone(), zone: zone.to_owned(), ..StoredKeyInView::default() };
    let backoff_key = BackoffKey::new(report.view.clone(), KeyInView::Endpoint { endpoint, zone: zone.to_owned() });
    let key = ReportKey { node: "n9".parse().unwrap(), class: Some(backoff_key.class()), backoff_key: backoff_key.id().0 }.text();
    (key, StoredReport { in_view, ..report })
}

/// A registry fails by one entry per zone, so in a fleet of many zones one image has many entries: other nodes read all keys that a clear
/// names.
#[actix::test]
async fn a_clear_of_a_registry_in_many_zones_reaches_every_node_in_full() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    for zone in 0..MAX_KEYS_CLEARED {
        let (key, report) = silent_in(&format!("z{zone}"));
        forged::put(&fleet, &key, encode(&report).unwrap()).await;
    }
    let listed = ListBackoffs { what: Some(IMAGE.to_owned()), ..ListBackoffs::default() };
    for node in &fleet.nodes {
        assert_eq!(node.put(listed.clone()).await.entries.len(), MAX_KEYS_CLEARED);
    }
    let cleared = fleet.nodes[0].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    assert_eq!(cleared.cleared.len(), MAX_KEYS_CLEARED);
    pass(5).await;
    for node in &fleet.nodes {
        assert_eq!(node.put(listed.clone()).await.entries, []);
    }
}

/// An entry of several images is cleared by the name of each; other entries of another image are not.
#[actix::test]
async fn a_clear_of_one_image_clears_the_registry_and_no_other_entry_of_another_image() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    fleet.nodes[0].fails(1, "r.example/b:1", not_found()).await;
    fleet.nodes[0].fails(2, IMAGE, failure(FailureClass::RateLimited, true, Some(60_000))).await;
    pass(5).await;
    fleet.nodes[1].held("r.example/c:1").await;
    fleet.nodes[1].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    pass(5).await;
    for node in &fleet.nodes {
        assert_eq!(node.check("r.example/c:1").await, BackoffAnswer::Allowed, "the registry may be asked again");
        assert_eq!(node.held("r.example/b:1").await.class, FailureClass::NotFound);
    }
    let events = done_by_operators(&fleet.nodes[1]);
    assert_eq!(events[0].message, format!("ops@desk cleared {IMAGE}: budget anonymous@default of registry r.example"));
}

#[actix::test]
async fn known_failures_can_be_listed() {
    tokio::time::pause();
    let fleet = Nodes::start(4).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    // "Not found" is an answer: only a later failure means that the registry is down.
    pass(5).await;
    fleet.nodes[1].fails(2, "r.example/b:1", refused()).await;
    let unknown = AttemptFailure { cause: "ErrImagePull: odd".to_owned(), ..AttemptFailure::default() };
    fleet.nodes[1].fails(3, "r.example/c:1", unknown).await;
    pass(5).await;
    let list = fleet.nodes[1].put(ListBackoffs::default()).await;
    let seen: Vec<_> = list.entries.iter().map(|entry| (entry.key_parts.to_string(), entry.binds.as_str())).collect();
    let seen: Vec<_> = seen.iter().map(|(key_parts, binds)| (key_parts.as_str(), *binds)).collect();
    assert!(seen.contains(&("image r.example/a:1", "unconfirmed")), "{seen:?}");
    assert!(seen.contains(&("registry r.example:443 from zone z", "reporters")), "{seen:?}");
    assert!(seen.contains(&("image r.example/c:1 on this node", "this node")), "{seen:?}");
    assert_eq!((list.share.as_str(), list.alone), ("enforce", false));
    let key = &list.entries.iter().find(|entry| entry.binds == "unconfirmed").unwrap().key;
    let cleared = fleet.nodes[2].put(ClearBackoff { what: key.clone(), by: "ops@desk".to_owned() }).await;
    assert_eq!(cleared.cleared, ["image r.example/a:1"]);
}

/// For any text: nothing else is cleared, the event names the operator, and the fleet continues.
#[actix::test]
async fn unreadable_clear_is_ignored() {
    tokio::time::pause();
    let fleet = Nodes::start(2).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let nonsense = [
        String::new(),
        " ".to_owned(),
        "0".repeat(32),
        "f".repeat(32),
        "f".repeat(33),
        "*".to_owned(),
        ">".to_owned(),
        "R.EXAMPLE/A:1 ".to_owned(),
        "r.example/a".to_owned(),
        "r.example/a:1@sha256:0".to_owned(),
        "\u{0}".to_owned(),
        "r.example/".to_owned() + &"a".repeat(1_000_000),
    ];
    let count = nonsense.len();
    for what in nonsense {
        let shown: String = what.chars().take(40).collect();
        let cleared = fleet.nodes[1].put(ClearBackoff { what, by: "ops@desk".to_owned() }).await;
        assert_eq!(cleared.cleared, Vec::<String>::new(), "{shown:?}");
        pass(5).await;
        fleet.nodes[0].held(IMAGE).await;
        fleet.nodes[1].held(IMAGE).await;
    }
    assert_eq!(done_by_operators(&fleet.nodes[1]).len(), count, "each is an event");
    assert_eq!(done_by_operators(&fleet.nodes[0]), []);
}

/// Stores the fleet policy as an operator does.
async fn set_policy(fleet: &Nodes, share: Option<ShareAtMost>) {
    let bucket = fleet.bus.bucket(&bucket_spec(SharedBucket::policy(&Fleet::default()))).await.unwrap();
    let stored = StoredPolicy { policy: FleetPolicy { share, ..FleetPolicy::default() }, by: "ann@desk".to_owned() };
    bucket.put(POLICY_KEY, encode(&stored).unwrap().into(), None).await.unwrap();
}

async fn shares_of(fleet: &Nodes) -> Vec<String> {
    let mut shares = Vec::new();
    for node in &fleet.nodes {
        shares.push(node.put(ListBackoffs::default()).await.share);
    }
    shares
}

#[actix::test]
async fn policy_observe_lets_shared_entries_refuse_no_pull() {
    tokio::time::pause();
    let mut fleet = Nodes::start(3).await;
    fleet.nodes[2].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[0].fails_when_let(2, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[1].held(IMAGE).await;
    set_policy(&fleet, Some(ShareAtMost::Observe)).await;
    pass(5).await;
    assert_eq!(fleet.nodes[1].check_before_pull(IMAGE).await, BackoffAnswer::Allowed);
    assert_eq!(fleet.nodes[1].counts().await.shared.observed_total, 1, "what it would have refused is counted");
    let late = fleet.join("late", Share::Enforce);
    pass(5).await;
    assert_eq!(late.check(IMAGE).await, BackoffAnswer::Allowed);
    fleet.nodes.push(late);
    assert_eq!(shares_of(&fleet).await, ["observe"; 4]);
    for share in [Some(ShareAtMost::Enforce), None] {
        set_policy(&fleet, share).await;
        pass(5).await;
        fleet.nodes[1].held(IMAGE).await;
        assert_eq!(shares_of(&fleet).await, ["enforce"; 4]);
    }
}

/// A node's own settings may be stricter for itself.
#[actix::test]
async fn a_node_that_observes_by_its_own_settings_ignores_the_policy() {
    tokio::time::pause();
    let fleet = Nodes::sharing(1, Share::Observe).await;
    set_policy(&fleet, Some(ShareAtMost::Enforce)).await;
    pass(5).await;
    assert_eq!(shares_of(&fleet).await, ["observe"]);
}
