//! Pauses that an operator ordered while the bus did not take them, and later commands to other nodes.

use std::time::Duration;

use backoff_tracker::Share;
use contract::messages::backoff_tracker::ListBackoffs;

use super::fleet::{Nodes, pass};
use super::operators::pause;

/// The bus is full: it takes the end of a pause, and no pause.
#[actix::test]
async fn an_unstored_pause_is_ended_by_a_later_command_to_another_node_and_not_by_the_expiry_of_an_earlier_one() {
    tokio::time::pause();
    for is_ended in [true, false] {
        let fleet = Nodes::start(2).await;
        fleet.nodes[0].put(pause(None, 2_000)).await;
        pass(5).await;
        fleet.bus.set_full(true);
        assert!(fleet.nodes[0].put(pause(None, 600_000)).await.only_here.is_some());
        // The earlier pause expires.
        pass(5_000).await;
        assert_eq!(fleet.nodes[0].put(ListBackoffs::default()).await.pauses.len(), 1);
        if is_ended {
            fleet.nodes[1].put(pause(None, 0)).await;
            pass(5).await;
        }
        fleet.bus.set_full(false);
        pass(31_000).await;
        fleet.see(2).await;
        pass(5).await;
        for node in &fleet.nodes {
            let pauses = node.put(ListBackoffs::default()).await.pauses;
            assert_eq!(pauses.len(), usize::from(!is_ended), "{pauses:?}");
        }
    }
}

/// The node receives no message about the end, because it is not connected.
#[actix::test]
async fn node_that_connects_after_the_end_of_its_unstored_pause_does_not_store_it_again() {
    tokio::time::pause();
    for is_ended_later in [true, false] {
        let mut fleet = Nodes::start(1).await;
        fleet.bus.set_delay(Duration::from_secs(60));
        let late = fleet.join("late", Share::Enforce);
        // It has tried to connect in vain, and tries again after 1 s.
        pass(600).await;
        fleet.bus.set_delay(Duration::ZERO);
        if !is_ended_later {
            fleet.nodes[0].put(pause(None, 0)).await;
            pass(100).await;
        }
        assert!(late.put(pause(None, 600_000)).await.only_here.is_some());
        pass(100).await;
        if is_ended_later {
            fleet.nodes[0].put(pause(None, 0)).await;
        }
        pass(3_000).await;
        let later = fleet.join("later", Share::Enforce);
        pass(5).await;
        fleet.nodes.extend([late, later]);
        for node in &fleet.nodes {
            let pauses = node.put(ListBackoffs::default()).await.pauses;
            assert_eq!(pauses.len(), usize::from(!is_ended_later), "{pauses:?}");
        }
    }
}
