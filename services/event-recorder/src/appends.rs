//! Appends that are under way. They run beside the actor: within its context each would be looked at whenever one is answered.

use std::sync::Arc;

use bus::BusRef;
use contract::PullEvent;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::core::Input;
use crate::durable::within;
use crate::outbound;

/// What appends have come to, in the order in which it came. The core has a window of them under way, so no more than that waits here.
pub(crate) type Answers = mpsc::UnboundedReceiver<Input>;

/// Offers events to the stream. Dropping it ends what is under way.
pub(crate) struct Appends(mpsc::UnboundedSender<Arc<PullEvent>>);

impl Appends {
    pub(crate) fn begin(bus: BusRef, fleet: Fleet) -> (Self, Answers) {
        let (offers, offered) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        tasks::spawn("event-appends", carry_out(bus, fleet, offered, answer));
        (Self(offers), answers)
    }

    pub(crate) fn offer(&self, event: Arc<PullEvent>) {
        // It is taken as long as this lives.
        let _ = self.0.send(event);
    }
}

async fn carry_out(bus: BusRef, fleet: Fleet, mut offered: mpsc::UnboundedReceiver<Arc<PullEvent>>, answer: mpsc::UnboundedSender<Input>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            offer = offered.recv() => match offer {
                Some(event) => under_way.push(append(&bus, &fleet, event)),
                None => return,
            },
            Some(answered) = under_way.next() => {
                if answer.send(answered).is_err() {
                    return;
                }
            }
        }
    }
}

async fn append(bus: &BusRef, fleet: &Fleet, event: Arc<PullEvent>) -> Input {
    let (message, id) = (outbound::message(fleet, &event), event.id.to_string());
    let number = event.sequence.as_ref().map_or(0, |sequence| sequence.number);
    let span = outbound::send_span(&event, "append");
    let result = within(async move { Ok(bus.append(message?, &id).await?.sequence) }).await;
    outbound::end(&span, result.as_ref().err());
    Input::Appended { number, result }
}
