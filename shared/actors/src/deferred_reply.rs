//! An answer that an actor gives in a later turn, straight to who asked.
//!
//! actix runs what a handler returns as a `ResponseFuture` in a task of its own. Where the actor itself answers later, that task
//! would only carry the answer from one channel to the next: it would be made, woken and dropped for nothing with every message.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};

/// What a handler returns that answers later.
pub struct DeferredReply<M: Message>(Rc<Cell<Meeting<M::Result>>>);

/// The right to answer, once. If it is dropped, who asked is told that the service has ended.
pub struct Answer<M: Message>(Rc<Cell<Meeting<M::Result>>>);

/// Where who asked and the answer meet: whichever is there first waits for the other.
enum Meeting<R> {
    Nobody,
    Asked(OneshotSender<R>),
    Answered(R),
}

/// For a handler: what it keeps until it answers, and what it returns.
#[must_use]
pub fn deferred_reply<M: Message>() -> (Answer<M>, DeferredReply<M>) {
    let meeting = Rc::new(Cell::new(Meeting::Nobody));
    (Answer(Rc::clone(&meeting)), DeferredReply(meeting))
}

impl<M: Message> Answer<M> {
    /// Answers. Who hung up does not want to know.
    pub fn give(self, answer: M::Result) {
        match self.0.replace(Meeting::Nobody) {
            Meeting::Asked(asked) => {
                let _ = asked.send(answer);
            }
            // Still being handled.
            Meeting::Nobody | Meeting::Answered(_) => self.0.set(Meeting::Answered(answer)),
        }
    }
}

impl<M: Message> Answer<M> {
    /// Whether the caller has given up waiting.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let meeting = self.0.replace(Meeting::Nobody);
        let abandoned = matches!(&meeting, Meeting::Asked(asked) if asked.is_closed());
        self.0.set(meeting);
        abandoned
    }
}

impl<A: Actor, M: Message> MessageResponse<A, M> for DeferredReply<M> {
    fn handle(self, _: &mut A::Context, asked: Option<OneshotSender<M::Result>>) {
        let Some(asked) = asked else { return };
        match self.0.replace(Meeting::Nobody) {
            Meeting::Answered(answer) => {
                let _ = asked.send(answer);
            }
            Meeting::Nobody | Meeting::Asked(_) => self.0.set(Meeting::Asked(asked)),
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
        formatter.write_str("Later")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use actix::{Context, Handler, MailboxError};

    use super::*;

    /// Asks for an answer in one of three ways.
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
    async fn who_gives_up_is_seen_and_the_others_get_their_answers() {
        let desk = Desk::default().start();
        let (patient, hasty) = (desk.send(Ask::WhenReleased), desk.send(Ask::WhenReleased));
        assert_eq!(desk.send(CountAbandoned).await, Ok(0));
        drop(hasty);
        assert_eq!(desk.send(CountAbandoned).await, Ok(1));
        desk.send(Release(3)).await.unwrap();
        assert_eq!(patient.await, Ok(3));
    }

    #[actix::test]
    async fn an_answer_comes_at_once_or_later_and_its_loss_is_told() {
        let desk = Desk::default().start();
        assert_eq!(desk.send(Ask::AtOnce(1)).await, Ok(1));
        let (first, second) = (desk.send(Ask::WhenReleased), desk.send(Ask::WhenReleased));
        // Nobody waits for the answer to this one.
        desk.try_send(Ask::WhenReleased).unwrap();
        desk.send(Release(2)).await.unwrap();
        assert_eq!((first.await, second.await), (Ok(2), Ok(2)));
        assert_eq!(desk.send(Ask::Never).await, Err(MailboxError::Closed));
    }
}
