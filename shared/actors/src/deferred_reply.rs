//! An answer that an actor gives in a later turn, directly to the caller.
//!
//! actix runs a `ResponseFuture` of a handler in its own task. If the actor itself answers later, that task would only pass the answer from
//! one channel to another, at the cost of a task for every message.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};

/// The return value of a handler that answers later.
pub struct DeferredReply<M: Message>(Rc<Cell<ReplySlot<M::Result>>>);

/// The right to answer once. If it is dropped, the caller gets an error that the service has ended.
pub struct Answer<M: Message>(Rc<Cell<ReplySlot<M::Result>>>);

/// The reply slot: holds the caller or the answer, whichever comes first.
enum ReplySlot<R> {
    Empty,
    Asked(OneshotSender<R>),
    Answered(R),
}

/// Makes a deferred reply: the handler keeps the first part until it answers, and returns the second.
#[must_use]
pub fn deferred_reply<M: Message>() -> (Answer<M>, DeferredReply<M>) {
    let slot = Rc::new(Cell::new(ReplySlot::Empty));
    (Answer(Rc::clone(&slot)), DeferredReply(slot))
}

impl<M: Message> Answer<M> {
    /// Answers. It has no effect on an abandoned caller.
    pub fn give(self, answer: M::Result) {
        match self.0.replace(ReplySlot::Empty) {
            ReplySlot::Asked(asked) => {
                let _ = asked.send(answer);
            }
            // The handler has not returned yet.
            ReplySlot::Empty | ReplySlot::Answered(_) => self.0.set(ReplySlot::Answered(answer)),
        }
    }
}

impl<M: Message> Answer<M> {
    /// Whether the caller is abandoned.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let slot = self.0.replace(ReplySlot::Empty);
        let abandoned = matches!(&slot, ReplySlot::Asked(asked) if asked.is_closed());
        self.0.set(slot);
        abandoned
    }
}

impl<A: Actor, M: Message> MessageResponse<A, M> for DeferredReply<M> {
    fn handle(self, _: &mut A::Context, asked: Option<OneshotSender<M::Result>>) {
        let Some(asked) = asked else { return };
        match self.0.replace(ReplySlot::Empty) {
            ReplySlot::Answered(answer) => {
                let _ = asked.send(answer);
            }
            ReplySlot::Empty | ReplySlot::Asked(_) => self.0.set(ReplySlot::Asked(asked)),
        }
    }
}

impl<M: Message> fmt::Debug for Answer<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Answer")
    }
}

impl<M: Message> fmt::Debug for DeferredReply<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DeferredReply")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use actix::{Context, Handler, MailboxError};

    use super::*;

    /// Asks for an answer at once, later, or never.
    #[derive(Clone, Copy, Message)]
    #[rtype(result = "u32")]
    enum Ask {
        AtOnce(u32),
        WhenReleased,
        Never,
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Release(u32);

    #[derive(Default)]
    struct Desk(Vec<Answer<Ask>>);

    impl Actor for Desk {
        type Context = Context<Self>;
    }

    impl Handler<Ask> for Desk {
        type Result = DeferredReply<Ask>;

        fn handle(&mut self, ask: Ask, _: &mut Context<Self>) -> DeferredReply<Ask> {
            let (answer, deferred) = deferred_reply();
            match ask {
                Ask::AtOnce(number) => answer.give(number),
                Ask::WhenReleased => self.0.push(answer),
                Ask::Never => drop(answer),
            }
            deferred
        }
    }

    impl Handler<Release> for Desk {
        type Result = ();

        fn handle(&mut self, Release(number): Release, _: &mut Context<Self>) {
            self.0.drain(..).for_each(|answer| answer.give(number));
        }
    }

    impl Handler<CountAbandoned> for Desk {
        type Result = usize;

        fn handle(&mut self, _: CountAbandoned, _: &mut Context<Self>) -> usize {
            self.0.iter().filter(|answer| answer.is_abandoned()).count()
        }
    }

    #[derive(Message)]
    #[rtype(result = "usize")]
    struct CountAbandoned;

    #[actix::test]
    async fn abandoned_callers_are_noticed_and_others_get_their_answers() {
        let desk = Desk::default().start();
        let (patient, hasty) = (desk.send(Ask::WhenReleased), desk.send(Ask::WhenReleased));
        assert_eq!(desk.send(CountAbandoned).await, Ok(0));
        drop(hasty);
        assert_eq!(desk.send(CountAbandoned).await, Ok(1));
        desk.send(Release(3)).await.unwrap();
        assert_eq!(patient.await, Ok(3));
    }

    #[actix::test]
    async fn answer_comes_at_once_or_later_and_a_lost_one_is_an_error() {
        let desk = Desk::default().start();
        assert_eq!(desk.send(Ask::AtOnce(1)).await, Ok(1));
        let (first, second) = (desk.send(Ask::WhenReleased), desk.send(Ask::WhenReleased));
        // The caller of this one is abandoned.
        desk.try_send(Ask::WhenReleased).unwrap();
        desk.send(Release(2)).await.unwrap();
        assert_eq!((first.await, second.await), (Ok(2), Ok(2)));
        assert_eq!(desk.send(Ask::Never).await, Err(MailboxError::Closed));
    }
}
