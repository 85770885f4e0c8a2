//! Commands: requests to one service, with one reply.

use std::sync::Arc;
use std::time::Duration;

use clock::Random;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Carried, MessageId, NodeName, TraceContext};

/// The services of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Handles a pull request from the first check to the outcome.
    PullCoordinator,
    /// Tracks failures and when the next attempt is due.
    BackoffTracker,
    /// The node's token bucket and slots.
    Throttler,
    /// Records events.
    EventRecorder,
    /// The node as a whole: description and state.
    Agent,
    /// The nodes of the fleet; served by the agent that holds the registrar's lease.
    Registrar,
}

impl Service {
    /// All services, in the order in which a pull passes them.
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

/// A request to one service. A repeated command gets the same answer as the first.
pub trait Command: Serialize + DeserializeOwned + Clone + Send + 'static {
    /// The reply.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The service that answers.
    const SERVICE: Service;
    /// The last token of the command's subject.
    const VERB: &'static str;
    /// Whether it is also carried out for senders that want no answer (one-way). Only for commands that are done at once, so that no
    /// unawaited work accumulates.
    const ALLOWS_ONE_WAY: bool = false;
    /// The sending node, for commands from one node to another. The subject then ends with that node's token, so that the server's
    /// permissions decide who may send it; a command whose subject names another node is refused.
    const SENDER: Option<fn(&Self) -> &NodeName> = None;
}

/// The metadata of every message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The id of the message.
    pub message_id: MessageId,
    /// The sender's span; a [`TraceContext::fresh`] one if the sender has none.
    pub trace: TraceContext,
    /// The headers to be passed on with it.
    pub carried: Option<Arc<Carried>>,
}

impl Meta {
    /// The first message of a new trace; the receiver makes the root span.
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

/// A command with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<C> {
    /// The metadata.
    pub meta: Meta,
    /// The command.
    pub body: C,
}

/// Why a command got no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No agent serves this command there.
    #[error("no agent answers on {subject}")]
    NoResponders {
        /// The subject of the command.
        subject: String,
    },
    /// No reply came within the time-out.
    #[error("no answer within {timeout:?}")]
    TimedOut {
        /// The time-out.
        timeout: Duration,
    },
    /// The service refused it: it is malformed, of another version, or the service is too busy.
    #[error("refused: {reason}")]
    Refused {
        /// The reason in words.
        reason: String,
    },
    /// The service ended, which it does when its agent stops.
    #[error("the service {service} has ended: its agent stops or starts again, ask when it answers")]
    Ended {
        /// The service.
        service: &'static str,
    },
    /// The bus failed.
    #[error("{reason}")]
    Bus {
        /// The error in words.
        reason: String,
    },
}
