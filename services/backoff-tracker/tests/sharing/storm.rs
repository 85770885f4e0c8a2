//! Many nodes request one image that is missing and then there: the number of requests at the registry does not grow with them.

use std::cell::Cell;
use std::time::Duration;

use clock::Random;
use contract::messages::backoff_tracker::{AttemptFailure, Clearance, ReportAttempt, ResolveAttempt, WithdrawClearance};
use contract::{AttemptId, ClearanceId, Stage};

use super::fleet::{Nodes, key, not_found, refused};

const IMAGE: &str = "r.example/a:1";
const NODES: usize = 300;

/// The requests at the registry.
struct Seen {
    failing: usize,
    served: usize,
    /// How long after the registry worked again the last node was served.
    late: Duration,
}

/// All nodes request the image until they have it; every attempt before `well_at` fails with `failure`, within 50 ms.
async fn storm(failure: AttemptFailure, well_at: Duration) -> Seen {
    let fleet = Nodes::start(NODES).await;
    let (failing, served, last) = (Cell::new(0), Cell::new(0), Cell::new(Duration::ZERO));
    let wanting = fleet.nodes.iter().zip(1_000..).map(|(node, seed)| {
        let (clock, failing, served, last, failure) = (&fleet.clock, &failing, &served, &last, &failure);
        async move {
            let mut random = Random::seeded(seed);
            let clearance = ClearanceId::random(&mut random);
            loop {
                let attempt = AttemptId::random(&mut random);
                while !matches!(node.stand(clearance, attempt, IMAGE, 10_000).await, Clearance::Granted { .. }) {}
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = clock.now().monotonic;
                let failure = (now < well_at).then(|| failure.clone());
                node.put(ResolveAttempt { clearance, attempt, failure: failure.clone(), stage: Stage::Manifest }).await;
                node.put(ReportAttempt { key: key(IMAGE), attempt, attempt_span: None, failure: failure.clone(), target: None }).await;
                if failure.is_none() {
                    node.put(WithdrawClearance { clearance }).await;
                    served.set(served.get() + 1);
                    last.set(now);
                    return;
                }
                failing.set(failing.get() + 1);
            }
        }
    });
    let all = futures::future::join_all(wanting);
    tokio::time::timeout(Duration::from_secs(600), all).await.expect("all are served");
    Seen { failing: failing.get(), served: served.get(), late: last.get() - well_at }
}

#[actix::test]
async fn missing_tag_costs_many_nodes_few_requests_and_a_push_releases_all() {
    tokio::time::pause();
    let seen = storm(not_found(), Duration::from_secs(100)).await;
    // The lead at once, then a probe 10, 20 and 40 s after the one before.
    assert!((3..=6).contains(&seen.failing), "{} failing requests", seen.failing);
    assert_eq!(seen.served, NODES);
    assert!(seen.late <= Duration::from_secs(70), "the last was served {:?} after the push", seen.late);
}

#[actix::test]
async fn a_registry_that_is_down_is_asked_by_few_and_all_nodes_continue_when_it_is_back() {
    tokio::time::pause();
    let seen = storm(refused(), Duration::from_secs(100)).await;
    // Three attempts until the entry is corroborated, then a probe after 2, 4 and each 8 s, with a second and third slot if one is late.
    assert!((10..=30).contains(&seen.failing), "{} failing requests", seen.failing);
    assert_eq!(seen.served, NODES);
    assert!(seen.late <= Duration::from_secs(15), "the last was served {:?} after recovery", seen.late);
}
