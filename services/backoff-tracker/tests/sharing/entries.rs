//! A change of an entry is the event of exactly one node.

use contract::EventReason::{self, BackoffOpened, BackoffProbed, BackoffReleased, RegistryRecovered, RegistryUnavailable};
use contract::messages::backoff_tracker::{AttemptFailure, ClearBackoff, Clearance, ResolveAttempt};
use contract::{PullEvent, Stage, TraceContext};
use futures::future::join_all;

use super::fleet::{Nodes, PATIENCE_MS, ids, not_found, pass, refused};

const IMAGE: &str = "r.example/a:1";

/// The events of all nodes, with the number of the node.
fn events(fleet: &Nodes) -> Vec<(usize, PullEvent)> {
    let of = |(number, node): (usize, &super::fleet::Node)| -> Vec<(usize, PullEvent)> {
        node.events.borrow().iter().map(|event| (number, event.clone())).collect()
    };
    fleet.nodes.iter().enumerate().flat_map(of).collect()
}

fn of(events: &[(usize, PullEvent)], reason: EventReason) -> Vec<(usize, PullEvent)> {
    events.iter().filter(|(_, event)| event.reason == reason).cloned().collect()
}

/// Each node has clearance for an image of its own, because its registry answered lately, and then all attempts end with this result at the
/// same moment.
async fn all_end(fleet: &Nodes, round: u64, failure: Option<AttemptFailure>) {
    let number = |node: usize| 1_000 * round + node as u64;
    let image = |node: usize| format!("r.example/a{node}:1");
    let clearances = fleet.nodes.iter().enumerate().map(async |(node, tracker)| {
        let (clearance, attempt) = ids(number(node));
        for _ in 0..240 {
            if matches!(tracker.clearance(clearance, attempt, &image(node), PATIENCE_MS).await, Clearance::Granted { .. }) {
                return;
            }
            pass(500).await;
        }
        panic!("node {node} has no clearance in round {round}");
    });
    join_all(clearances).await;
    let ends = fleet.nodes.iter().enumerate().map(async |(node, tracker)| tracker.ends(number(node), &image(node), failure.clone()).await);
    join_all(ends).await;
    pass(50).await;
}

#[actix::test]
async fn an_outage_that_all_nodes_meet_at_once_is_opened_and_released_once() {
    tokio::time::pause();
    for count in [3, 40] {
        let fleet = Nodes::start(count).await;
        fleet.nodes[0].ends_well(900_000, "r.example/first:1").await;
        // A registry that served a node within 10 s is not down: it is asked less.
        pass(11_000).await;
        all_end(&fleet, 1, Some(refused())).await;
        let seen = events(&fleet);
        assert_eq!(seen.iter().map(|(_, event)| event.reason).collect::<Vec<_>>(), [BackoffOpened, RegistryUnavailable], "of {count}");
        assert_eq!(seen[0].0, seen[1].0, "the same node records both");
        let opened = &seen[0].1;
        assert_eq!(opened.registry.as_deref(), Some("r.example"));
        assert!(opened.entry.as_ref().is_some_and(|entry| entry.len() == 32) && opened.next_attempt_ms.is_some(), "{opened:?}");
        assert!(opened.details.as_ref().is_some_and(|details| details.reporters >= Some(3)), "{opened:?}");
        pass(30_000).await;
        all_end(&fleet, 2, None).await;
        let seen = events(&fleet);
        let (released, recovered) = (of(&seen, BackoffReleased), of(&seen, RegistryRecovered));
        assert_eq!((released.len(), recovered.len(), of(&seen, BackoffOpened).len()), (1, 1, 1), "of {count}: {seen:?}");
        assert_eq!(released[0].1.entry, opened.entry);
        assert!(released[0].1.details.as_ref().is_some_and(|details| details.lasted_ms >= Some(30_000)), "{released:?}");
    }
}

#[actix::test]
async fn events_of_a_missing_tag_come_from_its_first_reporter_its_prober_and_the_node_that_succeeds() {
    tokio::time::pause();
    let fleet = Nodes::start(5).await;
    fleet.nodes[3].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    let seen = events(&fleet);
    assert_eq!(seen.iter().map(|(node, event)| (*node, event.reason)).collect::<Vec<_>>(), [(3, BackoffOpened)]);
    let attempt_span = TraceContext::root(&mut clock::Random::seeded(12));
    let opened = seen[0].1.clone();
    assert_eq!((opened.trace.trace_id, opened.attempt), (attempt_span.trace_id, Some(ids(1).1)), "in the trace of the attempt that failed");
    assert_eq!(opened.image, IMAGE);
    fleet.nodes[0].fails_when_let(2, IMAGE, not_found()).await;
    // The next attempt is due: one node of all makes it for all.
    pass(11_000).await;
    let failures = fleet.nodes.iter().enumerate().map(|(number, node)| node.fails_or_not(10 + number as u64, IMAGE));
    join_all(failures).await;
    pass(50).await;
    let seen = events(&fleet);
    assert_eq!(of(&seen, BackoffOpened).len(), 1, "{seen:?}");
    let probed = of(&seen, BackoffProbed);
    assert!(!probed.is_empty() && probed.iter().all(|(_, event)| event.entry == opened.entry), "{seen:?}");
    pass(60_000).await;
    fleet.nodes[2].ends_well(30, IMAGE).await;
    fleet.nodes[4].ends_well(31, IMAGE).await;
    pass(50).await;
    let released = of(&events(&fleet), BackoffReleased);
    assert_eq!(released.iter().map(|(node, event)| (*node, event.entry.clone())).collect::<Vec<_>>(), [(2, opened.entry)]);
}

#[actix::test]
async fn a_cleared_entry_is_not_released_and_may_be_opened_again() {
    tokio::time::pause();
    let fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    fleet.nodes[1].put(ClearBackoff { what: IMAGE.to_owned(), by: "ops@desk".to_owned() }).await;
    pass(5).await;
    fleet.nodes[1].fails(2, IMAGE, not_found()).await;
    pass(5).await;
    let seen = events(&fleet);
    assert_eq!(of(&seen, BackoffOpened).iter().map(|(node, _)| *node).collect::<Vec<_>>(), [0, 1], "{seen:?}");
    assert_eq!(of(&seen, BackoffReleased), []);
}

/// A node that starts later reads the open entries and records no event about them.
#[actix::test]
async fn a_node_that_joins_records_no_event_of_entries_that_others_opened() {
    tokio::time::pause();
    let mut fleet = Nodes::start(3).await;
    fleet.nodes[0].fails(1, IMAGE, not_found()).await;
    pass(5).await;
    for name in ["late", "n1"] {
        let late = fleet.join(name, backoff_tracker::Share::Enforce);
        late.held(IMAGE).await;
        fleet.nodes.push(late);
    }
    pass(3_000).await;
    assert_eq!(events(&fleet).len(), 1);
    let late = &fleet.nodes[3];
    let (clearance, attempt) = ids(7);
    late.put(ResolveAttempt { clearance, attempt, failure: None, stage: Stage::Manifest }).await;
    pass(50).await;
    assert_eq!(events(&fleet).len(), 1, "a result of nothing is nothing");
}
