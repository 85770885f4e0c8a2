//! Makes all nodes forget a used-up quota, for `fleetpull backoff clear`.

use anyhow::Result;
use contract::messages::throttler::{ForgetQuota, QuotaForgotten};
use contract::{NodeName, budget_in_words};
use serde_json::json;

use crate::cli::OutputFormat;
use crate::commands::user_at_host::user_at_host;
use crate::fleet::FleetClient;
use crate::output;

/// Sends the command to every node that answers, and shows how many knew the quota. False if one did not answer or none knew it.
///
/// A selection of nodes does not apply, because a node that still knows the quota states it to the others again.
pub(super) async fn forget(client: &FleetClient, owner: &str, format: OutputFormat) -> Result<bool> {
    let nodes: Vec<NodeName> = client.answering(None).await?.into_iter().map(|node| node.node).collect();
    let command = ForgetQuota { owner: owner.to_owned(), by: user_at_host(), is_recorded: false };
    // Until the budget leader forgets the quota, a node that was asked before can learn it from the leader, even one that did not know it.
    // So all are asked twice.
    let first = client.ask_each(&nodes, &command).await;
    let again = client.ask_each(&nodes, &command).await;
    let did_know = first.into_iter().filter(|(_, answer)| matches!(answer, Ok(QuotaForgotten { was_known: true })));
    let knew: Vec<NodeName> = did_know.map(|(node, _)| node).collect();
    // One node that knew the quota records the event, for all.
    let recorder = knew.get(..1).unwrap_or_default();
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
    use std::cell::{Cell, RefCell};
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
        knows: Rc<Cell<bool>>,
        /// Whether it learns the quota from the budget leader after the first request.
        learns: bool,
        /// The nodes that were asked to record the event.
        recorders: Rc<RefCell<Vec<NodeName>>>,
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
            if forget.body.is_recorded {
                self.recorders.borrow_mut().push(self.description.node.clone());
            }
            MessageResult(Ok(QuotaForgotten { was_known: self.knows.replace(std::mem::take(&mut self.learns)) }))
        }
    }

    #[test]
    fn quota_is_forgotten_if_all_nodes_answer_and_one_knew_it() {
        actix::System::new().block_on(async {
            let table = [
                ([true, false], false, 2, true),
                ([true, false], true, 2, true),
                ([false, false], false, 2, false),
                ([true, true], false, 1, false),
            ];
            for (knows, learns, answering, expected) in table {
                let clock = Clock::host();
                let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
                let (mut served, mut served_to_all, recorders) = (Vec::new(), Vec::new(), Rc::default());
                let known = knows.map(|knows| Rc::new(Cell::new(knows)));
                for (number, knows) in known.iter().cloned().enumerate() {
                    let description = description(number);
                    let wiring = client.wiring(&description.node);
                    let agent = Agent { description, knows, learns: learns && number == 1, recorders: Rc::clone(&recorders) }.start();
                    served_to_all.push(actors::serve_everywhere::<DescribeNode>(&wiring, agent.clone().recipient()).await.expect("open"));
                    if number < answering {
                        served.push(actors::serve::<ForgetQuota>(&wiring, agent.recipient()).await.expect("open"));
                    }
                }
                let is_forgotten = forget(&client, "default|r.example||||e", OutputFormat::Text).await;
                assert_eq!(is_forgotten.ok(), Some(expected), "{knows:?}, {answering} answer");
                assert!(known[..answering].iter().all(|knows| !knows.get()), "no node that answers knows it any more");
                let recorded = recorders.borrow().len();
                assert_eq!(recorded, usize::from(knows != [false, false]), "one node records the event if any knew the quota");
            }
        });
    }
}
