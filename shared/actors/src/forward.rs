//! Gives an actor the items of a stream as messages.

use actix::{Message, WeakRecipient};
use futures::{Stream, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;

/// A stream whose items an actor receives; none after it is dropped.
#[derive(Debug)]
pub struct Forwarding {
    _task: AbortOnDropHandle<()>,
}

/// Sends each item of a stream to an actor, until the stream or the actor ends.
///
/// For streams whose items are rare: a stream that is added to an actor's context is polled with each message of the actor.
#[must_use]
pub fn forward<M: Message<Result = ()> + Send + 'static>(
    name: &'static str,
    items: impl Stream<Item = M> + Send + 'static,
    actor: WeakRecipient<M>,
) -> Forwarding {
    let task = tasks::spawn(name, async move {
        let mut items = std::pin::pin!(items);
        while let Some(item) = items.next().await {
            let Some(actor) = actor.upgrade() else { return };
            if actor.send(item).await.is_err() {
                return;
            }
        }
    });
    Forwarding { _task: AbortOnDropHandle::new(task) }
}
