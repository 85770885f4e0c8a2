//! Asks for the data of the status: every node for its state, and the nodes with back-off entries or waiting pulls for these.

use std::collections::BTreeSet;

use anyhow::Result;
use contract::NodeName;
use contract::messages::agent::NodeDescription;
use contract::messages::backoff_tracker::ListBackoffs;
use contract::messages::pull_coordinator::{ListPulls, ListStandingPulls};

use super::model::Answers;
use super::waits::Waits;
use crate::cli::Selector;
use crate::commands::backoff::{GatheredEntries, IN_FULL};
use crate::commands::holds::Budgets;
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, Members};

/// Asks the fleet, or the one agent behind a socket. The exit status says whether all asked nodes answered.
pub(super) async fn ask(client: &FleetClient, selector: Option<&Selector>) -> Result<(Answers, Exit)> {
    let Members { answering: nodes, duplicates, silent, servers } = client.members(selector).await?;
    let involved = involved(&nodes);
    let answered_in_ms = round_trip(client, involved.first()).await;
    let gathered = GatheredEntries::ask(client, &involved, &ListBackoffs::default()).await;
    let left_out = gathered.left_out.saturating_add(gathered.most_left_out());
    let GatheredEntries { mut known, pauses, unanswered, .. } = gathered;
    let mut unanswered: BTreeSet<NodeName> = unanswered.into_iter().map(|(node, _)| node).collect();
    let budgets = Budgets::of(client, &involved).await;
    budgets.delay(&mut known);
    let (waits, without_pulls) = waits(client, &nodes).await;
    unanswered.extend(without_pulls);
    // Only its description is known of a duplicate agent.
    let nodes = nodes.into_iter().chain(duplicates).collect();
    let exit = if unanswered.is_empty() { Exit::Success } else { Exit::Failure };
    let unanswered = unanswered.into_iter().collect();
    let (fleet, of_one_node) = (client.fleet().name().to_owned(), client.bus().is_none());
    let answers =
        Answers { fleet, of_one_node, nodes, silent, unanswered, known, left_out, pauses, budgets, waits, servers, answered_in_ms };
    Ok((answers, exit))
}

/// The nodes with back-off entries or waiting pulls, and a few others that may have entries that delay no pull.
fn involved(nodes: &[NodeDescription]) -> Vec<NodeName> {
    let is_involved = |node: &NodeDescription| [node.backoff, node.waiting, node.standing].iter().any(|count| *count > 0);
    let (first, others) = nodes.split_at(nodes.len().min(IN_FULL));
    first.iter().chain(others.iter().filter(|node| is_involved(node))).map(|node| node.node.clone()).collect()
}

/// How long an agent takes to answer, in milliseconds. None if there is no agent, or if it is asked through a socket.
async fn round_trip(client: &FleetClient, node: Option<&NodeName>) -> Option<u64> {
    let node = node.filter(|_| client.bus().is_some())?;
    let asked = client.clock().now().monotonic;
    client.ask(node, ListBackoffs { limit: Some(0), ..ListBackoffs::default() }, ANSWER_WITHIN).await.ok()?;
    let took = client.clock().now().monotonic.saturating_sub(asked);
    u64::try_from(took.as_millis()).ok()
}

/// The waits of the nodes that report waiting pulls, and the nodes among them that did not list these.
async fn waits(client: &FleetClient, nodes: &[NodeDescription]) -> (Waits, Vec<NodeName>) {
    let (mut waits, mut unanswered) = (Waits::default(), Vec::new());
    let those =
        |wait: fn(&NodeDescription) -> bool| nodes.iter().filter(|node| wait(node)).map(|node| node.node.clone()).collect::<Vec<_>>();
    let with_pulls = those(|node| node.waiting > 0);
    client
        .for_each_answer(&with_pulls, &ListPulls {}, |node, answer| match answer {
            Ok(list) => waits.add_pulls(&node, &list.pulls),
            Err(_) => unanswered.push(node),
        })
        .await;
    let with_standing_pulls = those(|node| node.standing > 0);
    client
        .for_each_answer(&with_standing_pulls, &ListStandingPulls {}, |node, answer| match answer {
            Ok(list) => waits.add_standing_pulls(&node, &list.standing_pulls),
            Err(_) => unanswered.push(node),
        })
        .await;
    (waits, unanswered)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::agent::DescribeNode;
    use contract::messages::backoff_tracker::BackoffList;
    use contract::messages::pull_coordinator::{PullList, StandingPullList};
    use contract::messages::throttler::{BudgetList, ListBudgets};
    use contract::subject::Fleet;

    use super::super::model::Status;
    use super::super::samples::{description, unavailable, waiting};
    use super::*;

    /// An agent with a pull that waits because a registry is down, or an agent without pulls.
    struct Agent {
        description: NodeDescription,
        /// The number of requests to all agents.
        asked: Rc<Cell<usize>>,
    }

    impl Actor for Agent {
        type Context = Context<Self>;
    }

    impl Handler<Ask<DescribeNode>> for Agent {
        type Result = MessageResult<Ask<DescribeNode>>;

        fn handle(&mut self, _: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
            MessageResult(Ok(self.description.clone()))
        }
    }

    impl Handler<Ask<ListBackoffs>> for Agent {
        type Result = MessageResult<Ask<ListBackoffs>>;

        fn handle(&mut self, Ask(list): Ask<ListBackoffs>, _: &mut Self::Context) -> Self::Result {
            self.asked.set(self.asked.get() + 1);
            let entry = (self.description.backoff > 0).then(unavailable);
            let keys = entry.iter().filter(|_| list.body.shared_by_key).map(|entry| entry.key.clone()).collect();
            let entries = entry.into_iter().filter(|_| !list.body.shared_by_key).collect();
            let left_out = 7 * self.description.backoff;
            MessageResult(Ok(BackoffList { entries, shared_keys: keys, left_out, share: "enforce".to_owned(), ..BackoffList::default() }))
        }
    }

    impl Handler<Ask<ListBudgets>> for Agent {
        type Result = MessageResult<Ask<ListBudgets>>;

        fn handle(&mut self, _: Ask<ListBudgets>, _: &mut Self::Context) -> Self::Result {
            self.asked.set(self.asked.get() + 1);
            MessageResult(Ok(BudgetList::default()))
        }
    }

    impl Handler<Ask<ListPulls>> for Agent {
        type Result = MessageResult<Ask<ListPulls>>;

        fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
            self.asked.set(self.asked.get() + 1);
            MessageResult(Ok(PullList { pulls: vec![waiting("registry.example/a:1", 5_000)], ..PullList::default() }))
        }
    }

    impl Handler<Ask<ListStandingPulls>> for Agent {
        type Result = MessageResult<Ask<ListStandingPulls>>;

        fn handle(&mut self, _: Ask<ListStandingPulls>, _: &mut Self::Context) -> Self::Result {
            self.asked.set(self.asked.get() + 1);
            MessageResult(Ok(StandingPullList::default()))
        }
    }

    #[test]
    fn node_with_any_counts_is_involved() {
        let most = NodeDescription { backoff: u64::MAX, waiting: 1, ..description(IN_FULL) };
        let nodes: Vec<NodeDescription> = (0..IN_FULL).map(description).chain([most, description(IN_FULL + 1)]).collect();
        assert_eq!(involved(&nodes).len(), IN_FULL + 1);
    }

    #[test]
    fn only_waiting_or_blocked_nodes_get_further_queries() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let (asked, mut served, mut served_to_all) = (Rc::new(Cell::new(0)), Vec::new(), Vec::new());
            for number in 0..300 {
                let busy = u64::from(number >= 290);
                let described = NodeDescription { waiting: busy, standing: busy, backoff: busy, ..description(number) };
                let node = described.node.clone();
                let wiring = client.wiring(&node);
                let agent = Agent { description: described, asked: asked.clone() }.start();
                served_to_all.push(actors::serve_everywhere::<DescribeNode>(&wiring, agent.clone().recipient()).await.expect("open"));
                served.push(actors::serve::<ListBackoffs>(&wiring, agent.clone().recipient()).await.expect("open"));
                served.push(actors::serve::<ListBudgets>(&wiring, agent.clone().recipient()).await.expect("open"));
                served.push(actors::serve::<ListPulls>(&wiring, agent.clone().recipient()).await.expect("open"));
                served.push(actors::serve::<ListStandingPulls>(&wiring, agent.recipient()).await.expect("open"));
            }
            let (answers, exit) = ask(&client, None).await.expect("they answer");
            assert_eq!((answers.nodes.len(), exit), (300, Exit::Success));
            // A few nodes are asked for back-off entries and budgets, those with waiting pulls also for pulls; one more request measures
            // the round trip.
            assert!(asked.get() <= 2 * (IN_FULL + 10) + 2 * 10 + 2, "{}", asked.get());
            assert_eq!(answers.left_out, 7, "each of the nodes with entries has 7 more, which may be the same ones");
            let status = Status::of(answers);
            let row = status.rows.first().expect("a row");
            assert_eq!((status.rows.len(), row.waiting.nodes, row.waiting.images, row.node_count), (1, 10, 1, 10));
        });
    }

    #[test]
    fn nodes_that_do_not_list_their_waiting_pulls_are_counted_as_unanswered() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let (asked, mut served, mut served_to_all) = (Rc::new(Cell::new(0)), Vec::new(), Vec::new());
            // Only the first node has no waiting pulls. Each of the others serves all lists but one, or all of them.
            for (number, waiting, standing, (serves_pulls, serves_standing_pulls)) in
                [(0, 0, 0, (false, false)), (1, 1, 0, (false, true)), (2, 0, 1, (true, false)), (3, 1, 1, (true, true))]
            {
                let described = NodeDescription { waiting, standing, ..description(number) };
                let wiring = client.wiring(&described.node);
                let agent = Agent { description: described, asked: asked.clone() }.start();
                served_to_all.push(actors::serve_everywhere::<DescribeNode>(&wiring, agent.clone().recipient()).await.expect("open"));
                served.push(actors::serve::<ListBackoffs>(&wiring, agent.clone().recipient()).await.expect("open"));
                if serves_pulls {
                    served.push(actors::serve::<ListPulls>(&wiring, agent.clone().recipient()).await.expect("open"));
                }
                if serves_standing_pulls {
                    served.push(actors::serve::<ListStandingPulls>(&wiring, agent.recipient()).await.expect("open"));
                }
            }
            let (answers, exit) = ask(&client, None).await.expect("they answer");
            let unanswered: Vec<&str> = answers.unanswered.iter().map(NodeName::as_str).collect();
            assert_eq!((unanswered, exit), (vec!["n1", "n2"], Exit::Failure));
        });
    }
}
