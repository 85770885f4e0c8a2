//! Receives requests for this node's name from the bus. Requests from others may come from duplicate agents; the agent's own requests get
//! no answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Actor, Context, Handler, Recipient, ResponseFuture};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::{CallError, MessageId};
use tokio::sync::Notify;

/// How long an agent waits for an answer to its name. A running agent answers within milliseconds; one that does not answer in time counts
/// as gone.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The state shared by the agent that asks for its own name and the actor that answers.
#[derive(Debug, Default)]
pub(super) struct NameRequests {
    /// The message id of this agent's last request.
    own_request: Mutex<Option<MessageId>>,
    asked_by_others: Notify,
}

impl NameRequests {
    /// Marks a request as this agent's own before it is sent.
    pub(super) fn expect_own(&self, question: MessageId) {
        *self.own_request.lock().unwrap_or_else(PoisonError::into_inner) = Some(question);
    }

    /// Waits until another agent asks for this node's name.
    pub(super) async fn asked_by_others(&self) {
        self.asked_by_others.notified().await;
    }

    fn is_own(&self, question: MessageId) -> bool {
        *self.own_request.lock().unwrap_or_else(PoisonError::into_inner) == Some(question)
    }
}

/// The actor that receives requests for the node's name.
pub(super) struct NameResponder {
    name_requests: Arc<NameRequests>,
    agent: Recipient<Ask<DescribeNode>>,
    _panic_guard: PanicGuard,
}

impl NameResponder {
    pub(super) fn new(name_requests: Arc<NameRequests>, agent: Recipient<Ask<DescribeNode>>, panic_guard: PanicGuard) -> Self {
        Self { name_requests, agent, _panic_guard: panic_guard }
    }
}

impl Actor for NameResponder {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<DescribeNode>> for NameResponder {
    type Result = ResponseFuture<Result<NodeDescription, CallError>>;

    fn handle(&mut self, ask: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        if self.name_requests.is_own(ask.0.meta.message_id) {
            return Box::pin(async {
                // This answer is delayed because the requester takes the first answer, which has to be another agent's.
                tokio::time::sleep(ANSWER_WITHIN * 2).await;
                Err(CallError::Refused { reason: "an agent does not answer itself".to_owned() })
            });
        }
        self.name_requests.asked_by_others.notify_one();
        let agent = self.agent.clone();
        Box::pin(async move { agent.send(ask).await.unwrap_or(Err(CallError::Ended { service: contract::Service::Agent.name() })) })
    }
}
