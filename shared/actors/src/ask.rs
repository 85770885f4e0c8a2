//! The actix message of every command.

use actix::Message;
use contract::{CallError, Command, Envelope};

/// How many messages an actor's mailbox holds before senders wait. actix's own default is 16, which stalls a burst of callers;
/// more than this only hides that an actor is stuck.
pub const MAILBOX_CAPACITY: usize = 1024;

/// A command on its way to an actor.
#[derive(Clone, Debug)]
pub struct Ask<C: Command>(pub Envelope<C>);

impl<C: Command> Message for Ask<C> {
    type Result = Result<C::Reply, CallError>;
}
