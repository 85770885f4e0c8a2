//! Describes how an agent is set up, for those that ask.

use std::path::Path;

use actix::{Context, Handler, MessageResult};
use actors::Ask;
use contract::messages::agent::{NodeSetup, ReadSetup};
use settings::{Loaded, differing};

use super::actor::Agent;

/// The setup of an agent with these settings and this socket.
pub(super) fn setup_of(loaded: &Loaded, socket: &Path) -> NodeSetup {
    NodeSetup { socket: socket.display().to_string(), settings: differing(loaded) }
}

impl Handler<Ask<ReadSetup>> for Agent {
    type Result = MessageResult<Ask<ReadSetup>>;

    fn handle(&mut self, _: Ask<ReadSetup>, _: &mut Context<Self>) -> Self::Result {
        MessageResult(Ok(self.setup.clone()))
    }
}
