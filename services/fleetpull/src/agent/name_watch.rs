//! Where questions for this node's name arrive from the bus: they tell of duplicate agents, and this agent's own are not answered.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Actor, Context, Handler, Recipient, ResponseFuture};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::{CallError, MessageId};
use tokio::sync::Notify;

/// An agent that is alive answers within milliseconds. One that does not answer for so long counts as gone.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What the door knows.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// The question that this agent asked last.
    own: Mutex<Option<MessageId>>,
    rung: Notify,
}

impl Door {
    /// This agent is about to ask this.
    pub(super) fn expect_own(&self, question: MessageId) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(question);
    }

    /// Waits until somebody else asks for this node's name.
    pub(super) async fn rung(&self) {
        self.rung.notified().await;
    }

    fn is_own(&self, question: MessageId) -> bool {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) == Some(question)
    }
}

/// The actor at the door.
pub(super) struct Doorkeeper {
    door: Arc<Door>,
    agent: Recipient<Ask<DescribeNode>>,
    _panic_guard: PanicGuard,
}

impl Doorkeeper {
    pub(super) fn new(door: Arc<Door>, agent: Recipient<Ask<DescribeNode>>, panic_guard: PanicGuard) -> Self {
        Self { door, agent, _panic_guard: panic_guard }
    }
}

impl Actor for Doorkeeper {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<DescribeNode>> for Doorkeeper {
    type Result = ResponseFuture<Result<NodeDescription, CallError>>;

    fn handle(&mut self, ask: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        if self.door.is_own(ask.0.meta.message_id) {
            return Box::pin(async {
                // The first answer counts, and it has to be somebody else's.
                tokio::time::sleep(ANSWER_WITHIN * 2).await;
                Err(CallError::Refused { reason: "an agent does not answer itself".to_owned() })
            });
        }
        self.door.rung.notify_one();
        let agent = self.agent.clone();
        Box::pin(async move { agent.send(ask).await.unwrap_or(Err(CallError::Ended { service: contract::Service::Agent.name() })) })
    }
}
