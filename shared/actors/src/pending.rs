//! Futures that an actor waits for in addition to its mailbox.
//!
//! actix polls all futures of a context in each turn of its actor: with 1,000 futures each message costs 1,000 polls. A [`Pending`] is a
//! single future of the context, which polls only the futures that were woken.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use actix::{Actor, ActorFuture, AsyncContext, Context};
use futures::future::{AbortHandle, Abortable, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

/// What the actor does when a future is ready.
type Done<A> = Box<dyn FnOnce(&mut A, &mut Context<A>)>;
type Waiting<A> = Abortable<LocalBoxFuture<'static, Done<A>>>;

/// The futures that an actor waits for. They end with the actor.
pub struct Pending<A: Actor<Context = Context<A>>>(Rc<RefCell<Shared<A>>>);

/// Cancels a future.
#[derive(Debug)]
pub struct PendingHandle(AbortHandle);

/// Shared by the actor and the driver.
struct Shared<A: Actor<Context = Context<A>>> {
    /// Not polled yet.
    begun: Vec<Waiting<A>>,
    /// A driver runs in the context. It ends when no future is left, so that an actor without addresses can end too.
    driven: bool,
    waker: Option<Waker>,
}

impl<A: Actor<Context = Context<A>>> Default for Pending<A> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(Shared { begun: Vec::new(), driven: false, waker: None })))
    }
}

impl<A: Actor<Context = Context<A>>> fmt::Debug for Pending<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pending")
    }
}

impl<A: Actor<Context = Context<A>>> Pending<A> {
    /// Waits for `future` while the mailbox is served, then calls `done` with the actor.
    pub fn spawn<T: 'static>(
        &self,
        context: &mut Context<A>,
        future: impl Future<Output = T> + 'static,
        done: impl FnOnce(T, &mut A, &mut Context<A>) + 'static,
    ) -> PendingHandle {
        let waiting = future.map(|result| Box::new(move |actor: &mut A, context: &mut Context<A>| done(result, actor, context)) as Done<A>);
        let (abort, registration) = AbortHandle::new_pair();
        let mut shared = self.0.borrow_mut();
        shared.begun.push(Abortable::new(waiting.boxed_local(), registration));
        if !std::mem::replace(&mut shared.driven, true) {
            context.spawn(Driver { shared: Rc::clone(&self.0), waiting: FuturesUnordered::new() });
        } else if let Some(waker) = &shared.waker {
            waker.wake_by_ref();
        }
        PendingHandle(abort)
    }

    /// Calls `done` with the actor after a delay.
    pub fn run_later(
        &self,
        context: &mut Context<A>,
        after: Duration,
        then: impl FnOnce(&mut A, &mut Context<A>) + 'static,
    ) -> PendingHandle {
        self.spawn(context, tokio::time::sleep(after), |(), actor, context| then(actor, context))
    }
}

impl PendingHandle {
    /// Drops the future; its `done` is not called.
    pub fn cancel(self) {
        self.0.abort();
    }
}

/// The one future of the context.
struct Driver<A: Actor<Context = Context<A>>> {
    shared: Rc<RefCell<Shared<A>>>,
    waiting: FuturesUnordered<Waiting<A>>,
}

impl<A: Actor<Context = Context<A>>> Unpin for Driver<A> {}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Driver<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, actor: &mut A, context: &mut Context<A>, task: &mut TaskContext<'_>) -> Poll<()> {
        loop {
            let begun = std::mem::take(&mut self.shared.borrow_mut().begun);
            self.waiting.extend(begun);
            match self.waiting.poll_next_unpin(task) {
                Poll::Ready(Some(Ok(done))) => done(actor, context),
                Poll::Ready(Some(Err(_aborted))) => {}
                Poll::Ready(None) => {
                    let mut shared = self.shared.borrow_mut();
                    (shared.driven, shared.waker) = (false, None);
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    let mut shared = self.shared.borrow_mut();
                    if shared.waker.as_ref().is_none_or(|waker| !waker.will_wake(task.waker())) {
                        shared.waker = Some(task.waker().clone());
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use actix::{Handler, Message};
    use futures::channel::oneshot;
    use futures::future::poll_fn;

    use super::*;

    #[derive(Default)]
    struct Desk {
        pending: Pending<Self>,
        done: Vec<u32>,
        cancelled: Option<PendingHandle>,
        /// Gets the handled numbers when the actor ends.
        ended: Option<oneshot::Sender<Vec<u32>>>,
    }

    impl Actor for Desk {
        type Context = Context<Self>;

        fn stopped(&mut self, _: &mut Context<Self>) {
            if let Some(ended) = self.ended.take() {
                let _ = ended.send(std::mem::take(&mut self.done));
            }
        }
    }

    /// Waits for a number, and counts the polls.
    struct Wait {
        number: oneshot::Receiver<u32>,
        polls: Arc<AtomicUsize>,
        cancelled: bool,
    }

    impl Message for Wait {
        type Result = ();
    }

    impl Handler<Wait> for Desk {
        type Result = ();

        fn handle(&mut self, Wait { mut number, polls, cancelled }: Wait, context: &mut Context<Self>) {
            let counted = poll_fn(move |task| {
                polls.fetch_add(1, Ordering::Relaxed);
                number.poll_unpin(task)
            });
            let handle = self.pending.spawn(context, counted, |number, desk, _| desk.done.extend(number.ok()));
            if cancelled {
                self.cancelled = Some(handle);
            }
        }
    }

    #[derive(Message)]
    #[rtype(result = "Vec<u32>")]
    struct Done;

    impl Handler<Done> for Desk {
        type Result = Vec<u32>;

        fn handle(&mut self, Done: Done, _: &mut Context<Self>) -> Vec<u32> {
            if let Some(handle) = self.cancelled.take() {
                handle.cancel();
            }
            self.done.clone()
        }
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct PutOff(u32, Duration);

    impl Handler<PutOff> for Desk {
        type Result = ();

        fn handle(&mut self, PutOff(number, after): PutOff, context: &mut Context<Self>) {
            self.pending.run_later(context, after, move |desk, _| desk.done.push(number));
        }
    }

    #[actix::test]
    async fn message_polls_only_woken_futures() {
        let (desk, polls) = (Desk::default().start(), Arc::new(AtomicUsize::new(0)));
        let mut answers = Vec::new();
        for _ in 0..1_000 {
            let (answer, number) = oneshot::channel();
            desk.send(Wait { number, polls: Arc::clone(&polls), cancelled: false }).await.unwrap();
            answers.push(answer);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1_000, "each is polled once, when it begins");
        answers.remove(500).send(7).unwrap();
        while desk.send(Done).await.unwrap().is_empty() {}
        assert_eq!(polls.load(Ordering::Relaxed), 1_001);
        assert_eq!(desk.send(Done).await.unwrap(), [7]);
    }

    #[actix::test]
    async fn cancelled_future_is_dropped_without_effect() {
        let (desk, polls) = (Desk::default().start(), Arc::new(AtomicUsize::new(0)));
        let (answer, number) = oneshot::channel();
        desk.send(Wait { number, polls, cancelled: true }).await.unwrap();
        assert!(!answer.is_canceled());
        desk.send(Done).await.unwrap();
        assert_eq!(desk.send(Done).await.unwrap(), [0; 0]);
        assert!(answer.is_canceled(), "it is dropped in the same turn");
    }

    #[actix::test]
    async fn actor_without_addresses_ends_with_its_last_future() {
        let (ended, mut is_over) = oneshot::channel();
        let desk = Desk { ended: Some(ended), ..Desk::default() }.start();
        let (answer, number) = oneshot::channel();
        desk.send(Wait { number, polls: Arc::default(), cancelled: false }).await.unwrap();
        drop(desk);
        tokio::task::yield_now().await;
        assert_eq!(is_over.try_recv(), Ok(None), "it waits on");
        answer.send(7).unwrap();
        assert_eq!(is_over.await, Ok(vec![7]));
    }

    #[actix::test]
    async fn delayed_calls_run_in_order() {
        let desk = Desk::default().start();
        for (number, after_ms) in [(1, 600), (2, 5), (3, 300)] {
            desk.send(PutOff(number, Duration::from_millis(after_ms))).await.unwrap();
        }
        let mut done = Vec::new();
        while done.len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            done = desk.send(Done).await.unwrap();
        }
        assert_eq!(done, [2, 3, 1]);
    }
}
