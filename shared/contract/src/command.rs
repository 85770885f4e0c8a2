//! What a command is: a request to one service, with one reply.

use std::sync::Arc;
use std::time::Duration;

use clock::Random;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Carried, MessageId, NodeName, TraceContext};

/// The services of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// One pull request from first check to outcome.
    PullCoordinator,
    /// Who failed, why, and when to try again.
    BackoffTracker,
    /// The node's bucket and slots.
    Throttler,
    /// The facts.
    EventRecorder,
    /// The node as a whole: what it is and how it is.
    Agent,
    /// The agent that holds the registrar's lease: who is there.
    Registrar,
}

impl Service {
    /// Every service, in the order in which a pull flows.
    pub const ALL: [Self; 6] =
        [Self::PullCoordinator, Self::BackoffTracker, Self::Throttler, Self::EventRecorder, Self::Agent, Self::Registrar];

    /// The name in subjects and in the NATS services API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PullCoordinator => "pull-coordinator",
            Self::BackoffTracker => "backoff-tracker",
            Self::Throttler => "throttler",
            Self::EventRecorder => "event-recorder",
            Self::Agent => "agent",
            Self::Registrar => "registrar",
        }
    }
}

/// A request to one service. Every command can come twice: the service answers the second as the first.
pub trait Command: Serialize + DeserializeOwned + Clone + Send + 'static {
    /// What is answered.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// Who answers.
    const SERVICE: Service;
    /// The last token of its subject.
    const VERB: &'static str;
    /// Whether it is carried out also for who wants no answer: only what is done at once, so that nothing piles up that nobody waits for.
    const TOLD: bool = false;
    /// The node that a command says it comes from, for commands that one node sends another. Its subject then ends with that node's
    /// token, so that the server's permissions bind who may send it; a command whose subject names another node is refused.
    const SENDER: Option<fn(&Self) -> &NodeName> = None;
}

/// What travels with every message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The message.
    pub message_id: MessageId,
    /// The sender's span; a [`TraceContext::fresh`] one if the sender has none.
    pub trace: TraceContext,
    /// What came along with that, to be passed on.
    pub carried: Option<Arc<Carried>>,
}

impl Meta {
    /// The first message of a new trace, whose root is made by the receiver.
    #[must_use]
    pub fn root(random: &mut Random) -> Self {
        Self { message_id: MessageId::random(random), trace: TraceContext::fresh(random), carried: None }
    }

    /// A message within `trace`.
    #[must_use]
    pub fn within(trace: TraceContext, random: &mut Random) -> Self {
        Self { message_id: MessageId::random(random), trace: trace.child(random), carried: None }
    }
}

/// A command with what travels with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<C> {
    /// What travels with every message.
    pub meta: Meta,
    /// The command.
    pub body: C,
}

/// Why a command got no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody takes this command there.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// Where it was sent.
        subject: String,
    },
    /// No reply within the time.
    #[error("no answer within {timeout:?}")]
    TimedOut {
        /// How long was waited.
        timeout: Duration,
    },
    /// The service refused it: malformed, another version, or too busy.
    #[error("refused: {reason}")]
    Refused {
        /// In words.
        reason: String,
    },
    /// The service ended.
    #[error("the service {service} has ended")]
    Ended {
        /// The service.
        service: &'static str,
    },
    /// The bus failed.
    #[error("{reason}")]
    Bus {
        /// In words.
        reason: String,
    },
}
