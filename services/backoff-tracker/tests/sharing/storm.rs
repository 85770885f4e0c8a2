//! Many nodes that want one image that is not there, then is: what the registry sees does not grow with them.

use std::cell::Cell;
use std::time::Duration;

use clock::Random;
use contract::messages::backoff_tracker::{Leave, ReportAttempt, ResolveAttempt, WithdrawWish};
use contract::{AttemptId, WishId};

use crate::fleet::{Nodes, key, not_found};

const IMAGE: &str = "r.example/a:1";
const NODES: usize = 300;
/// When the tag is pushed.
const PUSHED_AT: Duration = Duration::from_secs(100);

#[actix::test]
async fn a_bad_tag_on_many_nodes_is_a_handful_of_requests_and_a_push_wakes_all() {
    tokio::time::pause();
    let fleet = Nodes::start(NODES).await;
    let (failing, served, last) = (Cell::new(0), Cell::new(0), Cell::new(Duration::ZERO));
    let wanting = fleet.nodes.iter().zip(1_000..).map(|(node, seed)| {
        let (clock, failing, served, last) = (&fleet.clock, &failing, &served, &last);
        async move {
            let mut random = Random::seeded(seed);
            let wish = WishId::random(&mut random);
            loop {
                let attempt = AttemptId::random(&mut random);
                while !matches!(node.stand(wish, attempt, IMAGE, 10_000).await, Leave::Granted { .. }) {}
                tokio::time::sleep(Duration::from_millis(50)).await;
                let now = clock.now().monotonic;
                let failure = (now < PUSHED_AT).then(not_found);
                node.put(ResolveAttempt { wish, attempt, failure: failure.clone() }).await;
                node.put(ReportAttempt { key: key(IMAGE), attempt, failure: failure.clone() }).await;
                if failure.is_none() {
                    node.put(WithdrawWish { wish }).await;
                    served.set(served.get() + 1);
                    last.set(now);
                    return;
                }
                failing.set(failing.get() + 1);
            }
        }
    });
    let all = futures::future::join_all(wanting);
    tokio::time::timeout(Duration::from_secs(300), all).await.expect("all are served");
    // The lead at once, then a probe 10, 20 and 40 s after the one before.
    assert!((3..=6).contains(&failing.get()), "{} failing requests", failing.get());
    assert_eq!(served.get(), NODES);
    let late = last.get() - PUSHED_AT;
    assert!(late <= Duration::from_secs(70), "the last was served {late:?} after the push");
}
