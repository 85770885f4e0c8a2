//! Makes all nodes forget a used-up quota, for `fleetpull backoff clear`.

use anyhow::Result;
use contract::messages::throttler::{ForgetQuota, QuotaForgotten};
use contract::{NodeName, budget_in_words};
use serde_json::json;

use crate::cli::OutputFormat;
use crate::commands::acting::by;
use crate::fleet::FleetClient;
use crate::output;

/// Sends the command to every node that answers, and shows how many knew the quota. False if one did not answer or none knew it.
///
/// A selection of nodes does not apply, because a node that still knows the quota states it to the others again.
pub(super) async fn forget(client: &FleetClient, owner: &str, format: OutputFormat) -> Result<bool> {
    let nodes: Vec<NodeName> = client.answering(None).await?.into_iter().map(|node| node.node).collect();
    let command = ForgetQuota { owner: owner.to_owned(), by: by(), is_recorded: false };
    let (mut knew, mut silent) = (Vec::new(), Vec::new());
    for (node, answer) in client.ask_each(&nodes, &command).await {
        match answer {
            Ok(QuotaForgotten { was_known: true }) => knew.push(node),
            Ok(_) => {}
            Err(_) => silent.push(node),
        }
    }
    // A node that forgets the quota before the budget leader does can learn it from the leader again, so it is asked twice. One of these
    // nodes records the event, for all.
    let (recorder, others) = knew.split_at(knew.len().min(1));
    let again = client.ask_each(&[others, silent.as_slice()].concat(), &command).await;
    let recorded = client.ask_each(recorder, &ForgetQuota { is_recorded: true, ..command }).await;
    let knew = knew.len();
    match format {
        OutputFormat::Json => output::json(&json!({ "kind": "quota_forgotten", "owner": owner, "node_count": knew })),
        OutputFormat::Text if knew == 0 => {
            output::remark(&format!("no node that answered knew a quota of {}", budget_in_words(owner)));
        }
        OutputFormat::Text => {
            let on = if knew == 1 { "1 node".to_owned() } else { format!("{knew} nodes") };
            output::fact(&format!("cleared  quota of {}  on {on}", budget_in_words(owner)));
        }
    }
    let silent = again.iter().chain(&recorded).filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
    let mut is_forgotten = knew > 0;
    for (node, silence) in silent {
        output::remark(&format!("{node}: {silence}"));
        is_forgotten = false;
    }
    Ok(is_forgotten)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::agent::{DescribeNode, NodeDescription};
    use contract::subject::Fleet;

    use super::*;
    use crate::commands::status::samples::description;

    /// An agent that knows a quota until it is asked to forget it.
    struct Agent {
        description: NodeDescription,
        knows: bool,
        /// For each request to any agent, whether the agent is to record the event.
        requests: Rc<RefCell<Vec<bool>>>,
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

    impl Handler<Ask<ForgetQuota>> for Agent {
        type Result = MessageResult<Ask<ForgetQuota>>;

        fn handle(&mut self, Ask(forget): Ask<ForgetQuota>, _: &mut Self::Context) -> Self::Result {
            self.requests.borrow_mut().push(forget.body.is_recorded);
            MessageResult(Ok(QuotaForgotten { was_known: std::mem::take(&mut self.knows) }))
        }
    }

    #[test]
    fn quota_is_forgotten_if_all_nodes_answer_and_one_knew_it() {
        actix::System::new().block_on(async {
            for (knows, answering, expected) in [([true, false], 2, true), ([false, false], 2, false), ([true, true], 1, false)] {
                let clock = Clock::host();
                let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
                let (mut served, mut served_to_all, requests) = (Vec::new(), Vec::new(), Rc::default());
                let knew = knows[..answering].iter().filter(|knows| **knows).count();
                for (number, knows) in knows.into_iter().enumerate() {
                    let description = description(number);
                    let wiring = client.wiring(&description.node);
                    let agent = Agent { description, knows, requests: Rc::clone(&requests) }.start();
                    served_to_all.push(actors::serve_everywhere::<DescribeNode>(&wiring, agent.clone().recipient()).await.expect("open"));
                    if number < answering {
                        served.push(actors::serve::<ForgetQuota>(&wiring, agent.recipient()).await.expect("open"));
                    }
                }
                let is_forgotten = forget(&client, "default|r.example||||e", OutputFormat::Text).await;
                assert_eq!(is_forgotten.ok(), Some(expected), "{knows:?}, {answering} answer");
                let requests = requests.borrow();
                assert_eq!(requests.len(), answering + knew, "only nodes that knew it are asked twice");
                let recorded = requests.iter().filter(|is_recorded| **is_recorded).count();
                assert_eq!(recorded, knew.min(1), "one node records the event if any knew the quota");
            }
        });
    }
}
