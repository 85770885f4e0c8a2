//! Lets services call each other without knowing whether the other one runs in this process or behind the bus.
//!
//! - [`Ask`] is the actix message of every command; [`Sender`] sends it to an actor in this process, or over the bus.
//! - [`serve`] takes commands from the bus to an actor.
//! - [`deferred_reply`] lets an actor answer in a later turn.
//! - [`Pending`] lets an actor wait for thousands of futures; each costs only when it is woken.
//! - [`EventSender`] records events of a service.
//! - [`PolicyFollower`] gives an actor the fleet policy from the bus.
//! - [`PanicGuard`] reports a panicking actor: actix neither restarts it nor reports it.

mod abandoned;
mod ask;
mod bucket;
mod deferred_reply;
mod event_sender;
mod gather;
mod panic_guard;
mod pending;
mod policy;
mod sender;
mod serve;
mod wire;

pub use ask::{Ask, MAILBOX_CAPACITY};
pub use bucket::bucket_spec;
pub use deferred_reply::{Answer, DeferredReply, deferred_reply};
pub use event_sender::EventSender;
pub use gather::{PERSON, Patience, gather};
pub use panic_guard::PanicGuard;
pub use pending::{Pending, PendingHandle};
pub use policy::{Followed, PolicyFollower};
pub use sender::{Delivery, Sender, Wiring};
pub use serve::{MAX_STANDING_REQUESTS, Served, serve, serve_as_leader, serve_everywhere};
