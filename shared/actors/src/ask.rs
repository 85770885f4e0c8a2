//! The actix message of every command.

use actix::Message;
use contract::{CallError, Command, Envelope};

/// The capacity of an actor's mailbox; senders wait when it is full. actix's default of 16 stalls a burst of callers. A larger one would
/// only hide a stuck actor.
pub const MAILBOX_CAPACITY: usize = 1024;

/// A command to an actor.
#[derive(Clone, Debug)]
pub struct Ask<C: Command>(pub Envelope<C>);

impl<C: Command> Message for Ask<C> {
    type Result = Result<C::Reply, CallError>;
}
