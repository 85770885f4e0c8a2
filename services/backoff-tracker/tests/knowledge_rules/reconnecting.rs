//! What a node publishes of what it found out without a bus, once that is back.

use std::time::Duration;

use backoff_tracker::core::knowledge::{About, Binding, Failure, Finding, Input, Outcome};
use contract::{FailureClass, Stage};

use super::node::{Node, endpoint, failed, failure, image};

fn refused() -> Outcome {
    Outcome::Failed(Failure { authoritative: false, ..failure(FailureClass::RegistryUnavailable) })
}

/// A node that wants an image, and has clearance by its own rule as the bus is gone.
fn away(alive: usize, rank: usize) -> Node {
    let mut node = Node::of_rank(alive, rank);
    node.give(Input::BusGone);
    node.until(20.0);
    node.ask();
    assert!(node.is_clear(), "{:?}", node.told);
    node
}

fn is_back(node: &mut Node) {
    node.give(Input::BusBack);
    node.give(Input::CaughtUp);
}

/// Binding and reporters of what is about the registry.
fn entry(node: &Node, about: &About) -> Option<(Binding, usize, bool)> {
    let entries = node.core.entries(node.now);
    entries.iter().find(|entry| entry.topic.about() == about).map(|entry| (entry.binding, entry.reporters, entry.mine))
}

#[test]
fn a_failure_is_published_while_fewer_than_three_others_report_it_and_taken_back_else() {
    for (others, published) in [(0, true), (2, true), (3, false), (8, false)] {
        let mut node = away(1_000, 0);
        let attempt = node.begin();
        node.end(attempt, refused());
        assert_eq!(node.published, [], "there is no bus");
        for other in 0..others {
            node.hear(&format!("n{other}"), endpoint(), failed(1));
        }
        is_back(&mut node);
        assert_eq!(node.published, [], "in its turn");
        node.until(30.0);
        assert_eq!(node.published.len(), usize::from(published), "{others} others");
        if published {
            assert!(node.ages[0] >= Duration::from_millis(1), "as old as it is");
        } else {
            assert_eq!(entry(&node, &endpoint()), Some((Binding::Everybody, others, false)));
        }
    }
}

#[test]
fn a_success_is_published_if_it_closes_an_entry() {
    for (fails, published) in [(false, 0), (true, 1)] {
        let mut node = away(20, 0);
        let attempt = node.begin();
        if fails {
            ["n1", "n2", "n3"].into_iter().for_each(|reporter| node.hear(reporter, endpoint(), failed(1)));
        }
        node.until(21.0);
        node.end(attempt, Outcome::Reached(Stage::Manifest));
        is_back(&mut node);
        node.until(24.0);
        assert_eq!(node.published.len(), published, "{:?}", node.published);
        assert!(node.published.iter().all(|report| report.topic.about() == &endpoint() && report.finding == Finding::Succeeded));
        assert_eq!(entry(&node, &endpoint()), None);
    }
}

/// Nor is anything published before what the others know is read.
#[test]
fn what_an_attempt_from_without_a_bus_comes_to_later_is_published_in_its_turn_too() {
    for read_first in [false, true] {
        let mut node = away(1_000, 0);
        let attempt = node.begin();
        node.give(Input::BusBack);
        if read_first {
            node.give(Input::CaughtUp);
        }
        node.until(21.0);
        node.end(attempt, refused());
        assert_eq!(node.published, []);
        node.give(Input::CaughtUp);
        node.until(32.0);
        assert_eq!(node.published.len(), 1);
    }
}

/// What it had published before counts again, whatever it has found out meanwhile.
#[test]
fn a_report_that_is_taken_back_leaves_the_one_that_the_bus_holds() {
    let mut node = Node::of(1_000);
    node.ask();
    node.fail(FailureClass::NotFound);
    let (stored, before) = (node.published[0].clone(), node.published.len());
    node.give(Input::BusGone);
    node.until(60.0);
    assert!(node.is_clear(), "{:?}", node.told);
    node.fail(FailureClass::NotFound);
    for reporter in ["n1", "n2", "n3"] {
        node.hear(reporter, image(), failed(1));
    }
    node.give(Input::Stored { report: stored, age: node.now });
    is_back(&mut node);
    node.until(71.0);
    assert_eq!(node.published.len(), before);
    assert_eq!(entry(&node, &image()), Some((Binding::Everybody, 4, true)));
}

/// Each has failed by itself, and hears what the others publish after 20 ms.
#[test]
fn of_many_nodes_that_have_failed_alike_three_publish_it_and_all_derive_the_same() {
    const TAKES: Duration = Duration::from_millis(20);
    for count in [3, 10, 100, 500] {
        let mut nodes: Vec<Node> = (0..count).map(|rank| away(count, rank)).collect();
        for node in &mut nodes {
            let attempt = node.begin();
            node.end(attempt, refused());
            is_back(node);
        }
        let (mut under_way, mut published) = (Vec::new(), 0);
        for now in (20_001..32_000).step_by(1).map(Duration::from_millis) {
            for (rank, node) in nodes.iter_mut().enumerate() {
                node.until(now.as_secs_f64());
                for report in std::mem::take(&mut node.published) {
                    published += 1;
                    under_way.push((now + TAKES, rank, report));
                }
            }
            under_way.retain(|(there, from, report)| {
                let arrives = *there <= now;
                for (_, node) in nodes.iter_mut().enumerate().filter(|(rank, _)| arrives && rank != from) {
                    node.give(Input::Heard { report: report.clone(), age: now.saturating_sub(Duration::from_secs(20)) });
                }
                !arrives
            });
        }
        assert_eq!(published, 3, "of {count}");
        let known: Vec<_> = nodes.iter().map(|node| entry(node, &endpoint()).map(|(binding, reporters, _)| (binding, reporters))).collect();
        assert!(known.iter().all(|known| *known == Some((Binding::Everybody, 3))), "of {count}: {known:?}");
    }
}
