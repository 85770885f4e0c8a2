//! From the actor to the bus: events as CloudEvents, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{BusError, BusRef, Headers, Message};
use contract::subject::Fleet;
use contract::{PullEvent, cloud_event, headers};
use tokio::sync::{mpsc, oneshot};

/// How many events may wait for the bus. When it is full the newest is not published (it is still kept and listed) and counted:
/// what is out of order is worth less than what is missing at the end.
pub const OUTBOX_CAPACITY: usize = 10_000;
/// How many events are taken out of the outbox before others have their turn; those count as published or not, but no longer
/// against the outbox's limit.
const TAKEN_AT_ONCE: usize = 1_000;
/// How long the first of several events waits for those that follow, to be encoded together. Nobody reads them so soon.
const LINGER: Duration = Duration::from_millis(1);
/// How often a bus that is not there is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// What the publisher is told.
pub(crate) enum Outgoing {
    /// Publish this.
    Event(Arc<PullEvent>),
    /// Say when all before this is published.
    Flush(oneshot::Sender<()>),
}

/// How many were published and how many were not.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) published: AtomicU64,
    pub(crate) unpublished: AtomicU64,
}

/// Publishes what it is given until the sender is dropped.
pub(crate) async fn publish_all(bus: BusRef, fleet: Fleet, mut outbox: mpsc::Receiver<Outgoing>, counts: Arc<Published>) {
    let mut taken = Vec::new();
    while outbox.recv_many(&mut taken, TAKEN_AT_ONCE).await > 0 {
        // Whoever waits for an answer comes first: encoding an event takes about as long as answering a pull.
        tokio::time::sleep(LINGER).await;
        for outgoing in taken.drain(..) {
            match outgoing {
                Outgoing::Event(event) => match publish(&bus, &fleet, &event).await {
                    Ok(()) => counts.published.fetch_add(1, Ordering::Relaxed),
                    Err(error) => {
                        tracing::warn!(event = %event.id, %error, "an event was not published");
                        counts.unpublished.fetch_add(1, Ordering::Relaxed)
                    }
                },
                Outgoing::Flush(done) => {
                    let _ = done.send(());
                    0
                }
            };
        }
    }
}

async fn publish(bus: &BusRef, fleet: &Fleet, event: &PullEvent) -> Result<(), BusError> {
    loop {
        match bus.publish(message(fleet, event)?).await {
            Err(BusError::Disconnected { .. }) => tokio::time::sleep(RETRY_EVERY).await,
            ended => return ended,
        }
    }
}

fn message(fleet: &Fleet, event: &PullEvent) -> Result<Message, BusError> {
    let payload = cloud_event::to_json(event).map_err(|error| BusError::Other { reason: error.to_string() })?;
    let mut lines = Headers::new();
    lines.set(headers::CONTENT_TYPE, headers::CLOUD_EVENT_JSON);
    lines.set(headers::TRACEPARENT, event.trace.traceparent());
    lines.set(headers::MESSAGE_ID, event.id.to_string());
    Ok(Message::new(fleet.event(event.reason, event.registry.as_deref(), &event.node), payload).with_headers(lines))
}
