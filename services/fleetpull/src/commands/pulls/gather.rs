//! Gathers the pulls and standing pulls of all nodes.

use contract::messages::pull_coordinator::{ListPulls, ListStandingPulls, PullList, PullStatus, StandingPullList, StandingPullStatus};
use contract::{FailureClass, NodeName};
use image::Reference;

use crate::commands::holds::Budgets;
use crate::fleet::{Answer, FleetClient};
use crate::output::standing_pull;

/// The answer of one node.
pub(super) struct NodePulls {
    pub(super) node: NodeName,
    pub(super) pulls: Vec<PullStatus>,
    pub(super) standing_pulls: Vec<StandingPullStatus>,
}

/// Asks each node for its pulls and standing pulls. Also returns messages about nodes that did not answer, or not with all.
pub(super) async fn ask(client: &FleetClient, nodes: &[NodeName]) -> (Vec<NodePulls>, Vec<String>) {
    let pulls: Vec<Answer<PullList>> = client.ask_each(nodes, &ListPulls {}).await;
    let answering: Vec<NodeName> = pulls.iter().filter(|(_, answer)| answer.is_ok()).map(|(node, _)| node.clone()).collect();
    let standing_pulls: Vec<Answer<StandingPullList>> = client.ask_each(&answering, &ListStandingPulls {}).await;
    joined(pulls, standing_pulls)
}

/// Joins the two lists of each node.
pub(super) fn joined(pulls: Vec<Answer<PullList>>, mut standing_pulls: Vec<Answer<StandingPullList>>) -> (Vec<NodePulls>, Vec<String>) {
    let (mut answered, mut unanswered) = (Vec::new(), Vec::new());
    for (node, answer) in pulls {
        match answer {
            Err(silence) => unanswered.push(format!("{node}: {silence}")),
            Ok(list) => {
                unanswered.extend(standing_pull::pulls_left_out(&node, &list));
                let place = standing_pulls.iter().position(|(other, _)| *other == node);
                let standing_pulls = match place.map(|place| standing_pulls.swap_remove(place).1) {
                    Some(Ok(standing)) => {
                        unanswered.extend(standing_pull::left_out(&node, &standing));
                        standing.standing_pulls
                    }
                    Some(Err(silence)) if list.standing > 0 => {
                        unanswered.push(format!("{node}: its {} standing pulls are not listed: {silence}", list.standing));
                        Vec::new()
                    }
                    // The node has none, or is of an older version.
                    Some(Err(_)) | None => Vec::new(),
                };
                answered.push(NodePulls { node, pulls: list.pulls, standing_pulls });
            }
        }
    }
    (answered, unanswered)
}

/// Makes the next attempt of each standing pull that was refused for too many requests wait for the quota of its registry, if that is used
/// up. A node that has not asked the budget yet waits for it too.
pub(super) async fn delay(client: &FleetClient, answered: &mut [NodePulls]) {
    let is_limited = |status: &StandingPullStatus| status.class == Some(FailureClass::RateLimited);
    let limited = answered.iter().filter(|of_node| of_node.standing_pulls.iter().any(is_limited)).map(|of_node| of_node.node.clone());
    let limited: Vec<NodeName> = limited.collect();
    if limited.is_empty() {
        return;
    }
    let budgets = Budgets::of(client, &limited).await;
    for status in answered.iter_mut().flat_map(|of_node| &mut of_node.standing_pulls).filter(|status| is_limited(status)) {
        let registry = Reference::parse(&status.image).map(|reference| reference.registry().to_owned());
        let wait_ms = registry.ok().and_then(|registry| budgets.spent_quota(&registry)).map_or(0, |spent| spent.wait_ms);
        status.next_attempt_ms = status.next_attempt_ms.map(|left_ms| left_ms.max(wait_ms));
    }
}
