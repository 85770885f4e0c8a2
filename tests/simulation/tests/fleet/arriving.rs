//! The messages that arrive at a node, each after its delay.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bus::{Message, Subscription};
use futures::StreamExt as _;
use futures::stream::Stream;
use tokio::time::Sleep;

use super::faulty_network::{Direction, Fate, FaultyNetwork};

/// The most messages under way to a node.
const UNDER_WAY: usize = 4_096;

/// The messages of one subscription. No message overtakes another: a late message delays those after it, but the delays of several
/// late messages overlap.
pub struct Arriving {
    arriving: Subscription,
    network: FaultyNetwork,
    node: usize,
    /// The messages in order, each with its time of arrival.
    under_way: VecDeque<(Message, Duration)>,
    /// Wakes when the first message arrives, if set.
    timer: Option<Pin<Box<Sleep>>>,
    is_set: bool,
    ended: bool,
}

impl Arriving {
    pub fn new(arriving: Subscription, network: FaultyNetwork, node: usize) -> Self {
        Self { arriving, network, node, under_way: VecDeque::new(), timer: None, is_set: false, ended: false }
    }

    /// Receives the messages that the server has sent.
    fn take(&mut self, context: &mut Context<'_>) {
        let mut now = None;
        while !self.ended && self.under_way.len() < UNDER_WAY {
            let message = match self.arriving.poll_next_unpin(context) {
                Poll::Ready(Some(message)) => message,
                Poll::Ready(None) => {
                    self.ended = true;
                    return;
                }
                Poll::Pending => return,
            };
            let (fate, takes) = self.network.fate(self.node, Direction::In);
            if fate == Fate::Lost {
                continue;
            }
            let last = self.under_way.back().map(|(_, there)| *there).unwrap_or_default();
            let there = last.max(*now.get_or_insert_with(|| self.network.now()) + takes);
            if fate == Fate::Doubled {
                self.under_way.push_back((message.clone(), there));
            }
            self.under_way.push_back((message, there));
        }
    }
}

impl Stream for Arriving {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let arrivals = &mut *self;
        arrivals.take(context);
        let Some((_, there)) = arrivals.under_way.front() else {
            return if arrivals.ended { Poll::Ready(None) } else { Poll::Pending };
        };
        if !arrivals.is_set {
            let left = there.saturating_sub(arrivals.network.now());
            match &mut arrivals.timer {
                Some(timer) => timer.set(tokio::time::sleep(left)),
                None => arrivals.timer = Some(Box::pin(tokio::time::sleep(left))),
            }
            arrivals.is_set = true;
        }
        if let Some(timer) = &mut arrivals.timer {
            ready!(timer.as_mut().poll(context));
        }
        arrivals.is_set = false;
        Poll::Ready(arrivals.under_way.pop_front().map(|(message, _)| message))
    }
}
