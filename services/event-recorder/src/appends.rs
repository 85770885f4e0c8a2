//! Appends to the stream, in a task of their own: in the actor's context every answer would poll all of them.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, BusRef};
use contract::PullEvent;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::core::Input;
use crate::outbound;

/// How long a call to the stream may take.
const STREAM_WITHIN: Duration = Duration::from_secs(15);

/// The results of appends, in the order of their arrival. Bounded by the core's window of appends under way.
pub(crate) type Answers = mpsc::UnboundedReceiver<Input>;

/// Offers events to the stream. Dropping it ends the appends under way.
pub(crate) struct Appends(mpsc::UnboundedSender<Arc<PullEvent>>);

impl Appends {
    pub(crate) fn begin(bus: BusRef, fleet: Fleet) -> (Self, Answers) {
        let (offers, offered) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        tasks::spawn("event-appends", carry_out(bus, fleet, offered, answer));
        (Self(offers), answers)
    }

    pub(crate) fn offer(&self, event: Arc<PullEvent>) {
        // The receiver lives as long as this sender.
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
    let number = event.sequence.as_ref().map_or(0, |sequence| sequence.number);
    let span = outbound::send_span(&event, "append");
    let result = within(async { bus.append(outbound::message(fleet, &event)?, &event.id.to_string()).await }).await;
    outbound::end(&span, result.as_ref().err());
    match result {
        Ok(appended) => Input::Appended { number, result: Ok(appended.sequence) },
        Err(error @ (BusError::TooLarge { .. } | BusError::BadSubject { .. } | BusError::BadHeader { .. })) => {
            tracing::warn!(event = %event.id, %error, "an event was dropped: no server takes it");
            Input::Refused { number }
        }
        Err(error) => Input::Appended { number, result: Err(error.to_string()) },
    }
}

/// The answer of the bus, or an error if there is none in time.
pub(crate) async fn within<T>(call: impl Future<Output = Result<T, BusError>>) -> Result<T, BusError> {
    let late = |_| BusError::Other { reason: format!("no answer within {STREAM_WITHIN:?}") };
    tokio::time::timeout(STREAM_WITHIN, call).await.map_err(late)?
}
