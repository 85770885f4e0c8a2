//! What comes in on a connection, until that is cut.
//!
//! Like `take_until`, but the end is asked after only when nothing has come, and not twice by the same task: a message that goes to
//! every node of a fleet is worth little work on each.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};

use super::link::{Link, Phase};

/// A stream that ends when the link is cut.
pub(super) struct UntilCut<S> {
    stream: S,
    link: Arc<Link>,
    cut: BoxFuture<'static, ()>,
    /// Who is woken when the link comes further, and how far it was then.
    woken: Option<(Waker, Phase)>,
}

impl<S> UntilCut<S> {
    pub(super) fn new(stream: S, link: &Arc<Link>) -> Self {
        Self { stream, link: Arc::clone(link), cut: link.until(Phase::Cut).boxed(), woken: None }
    }
}

impl<S: Stream + Unpin> Stream for UntilCut<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let phase = self.link.phase();
        if phase >= Phase::Cut {
            return Poll::Ready(None);
        }
        if let ready @ Poll::Ready(_) = self.stream.poll_next_unpin(context) {
            return ready;
        }
        if !self.woken.as_ref().is_some_and(|(woken, since)| *since == phase && woken.will_wake(context.waker())) {
            self.woken = Some((context.waker().clone(), phase));
            if self.cut.poll_unpin(context).is_ready() {
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use futures::channel::mpsc;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_gives_what_comes_and_ends_for_whoever_waits_last_when_the_link_is_cut() {
        let link = Arc::new(Link::new("nats://r:4222"));
        let (sender, receiver) = mpsc::unbounded();
        let mut stream = UntilCut::new(receiver, &link);
        let (one, other) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let (one_waker, other_waker) = (Waker::from(Arc::clone(&one)), Waker::from(Arc::clone(&other)));
        let mut poll = |waker: &Waker| stream.poll_next_unpin(&mut Context::from_waker(waker));
        sender.unbounded_send(1).unwrap();
        assert_eq!(poll(&one_waker), Poll::Ready(Some(1)));
        assert_eq!((poll(&one_waker), poll(&one_waker)), (Poll::Pending, Poll::Pending));
        sender.unbounded_send(2).unwrap();
        assert_eq!((one.0.load(Ordering::Relaxed), poll(&one_waker)), (1, Poll::Ready(Some(2))));
        assert_eq!(poll(&other_waker), Poll::Pending, "another task waits now");
        link.set_phase(Phase::Over);
        assert_eq!(poll(&other_waker), Poll::Pending, "what has arrived may still be read");
        sender.unbounded_send(3).unwrap();
        let before = other.0.load(Ordering::Relaxed);
        link.set_phase(Phase::Cut);
        assert_eq!(other.0.load(Ordering::Relaxed), before + 1);
        assert_eq!((poll(&other_waker), poll(&other_waker)), (Poll::Ready(None), Poll::Ready(None)));
    }

    #[test]
    fn nothing_comes_of_a_link_that_is_gone() {
        let link = Arc::new(Link::new("nats://r:4222"));
        link.set_phase(Phase::Cut);
        let mut stream = UntilCut::new(futures::stream::pending::<()>(), &link);
        assert_eq!(stream.poll_next_unpin(&mut Context::from_waker(Waker::noop())), Poll::Ready(None));
    }
}
