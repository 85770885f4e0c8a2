//! Publishes events to the bus as CloudEvents, in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::{BusError, Headers, Message, MessagingRef};
use contract::subject::Fleet;
use contract::{EventReason, PullEvent, cloud_event, headers};
use spans::{Kind, Span, links};
use tokio::sync::{Notify, mpsc, oneshot};

/// The most events that wait for the bus. If it is full, the newest event is not published but counted (and still listed): a gap at the
/// end is better than a wrong order.
pub(crate) const OUTBOX_CAPACITY: usize = 10_000;
/// How long the first event waits for others to be encoded with it. Each wake-up costs a timer, and encoding an event takes about as long
/// as answering a pull, so a caller that makes one pull after the other is not delayed after each.
const LINGER: Duration = Duration::from_millis(10);
/// How many events are encoded before other tasks get a turn, about 0.1 ms; more if more wait.
const ENCODED_AT_ONCE: usize = 16;
/// The longest registry, a host name with a port. The subject of an event with a longer one names none, because subjects are bounded.
const REGISTRY_MAX_BYTES: usize = 253 + ":65535".len();
/// The pause before publishing again while the bus is disconnected.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A message to the publisher.
pub(crate) enum Outgoing {
    /// Publish this.
    Event(Arc<PullEvent>),
    /// Answer when every earlier event is published.
    Flush(oneshot::Sender<()>),
}

/// How many events were published, and how many were not.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) published: AtomicU64,
    pub(crate) unpublished: AtomicU64,
}

/// Publishes events until the sender is dropped.
pub(crate) struct Publisher {
    pub(crate) bus: MessagingRef,
    pub(crate) fleet: Fleet,
    pub(crate) counts: Arc<Published>,
    /// Notified at a flush, which ends the wait of `LINGER`.
    pub(crate) flush_requested: Arc<Notify>,
}

impl Publisher {
    pub(crate) async fn publish_all(self, mut outbox: mpsc::Receiver<Outgoing>) {
        while let Some(first) = outbox.recv().await {
            tokio::select! {
                () = tokio::time::sleep(LINGER) => {}
                () = self.flush_requested.notified() => {}
            }
            self.carry_out(first).await;
            let mut until_others = ENCODED_AT_ONCE;
            while let Ok(next) = outbox.try_recv() {
                if until_others == 0 {
                    tokio::task::yield_now().await;
                    // Half of the waiting events, so that the outbox does not overflow however fast events come.
                    until_others = ENCODED_AT_ONCE.max(outbox.len() / 2);
                }
                self.carry_out(next).await;
                until_others -= 1;
            }
        }
    }

    async fn carry_out(&self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Event(event) => match self.publish(&event).await {
                Ok(()) => {
                    self.counts.published.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::warn!(event = %event.id, %error, "an event was not published");
                    self.counts.unpublished.fetch_add(1, Ordering::Relaxed);
                }
            },
            Outgoing::Flush(done) => {
                let _ = done.send(());
            }
        }
    }

    async fn publish(&self, event: &PullEvent) -> Result<(), BusError> {
        let message = message(&self.fleet, event)?;
        let span = send_span(event, "publish");
        let ended = loop {
            match self.bus.publish(message.clone()).await {
                Err(BusError::Disconnected { .. }) => tokio::time::sleep(RETRY_EVERY).await,
                ended => break ended,
            }
        };
        end(&span, ended.as_ref().err());
        ended
    }
}

/// The span of sending an event to subscribers (`publish`) or to the stream (`append`), in a trace of its own because it may come hours
/// after the recording. None for an event that is not stored, and for one whose pull's trace is not exported.
pub(crate) fn send_span(event: &PullEvent, how: &'static str) -> Span {
    // The traces of failures and refusals are exported whatever the sampler decided.
    let is_exported = event.trace.sampled || matches!(event.reason, EventReason::Failed | EventReason::BackOff);
    if !event.is_durable() || !is_exported {
        return Span::none();
    }
    let span = Span::linked_root("send event", Kind::Producer, event.trace, links::RECORDED);
    if span.is_some() {
        span.set("messaging.system", "nats");
        span.set("messaging.operation.type", "send");
        span.set("messaging.operation.name", how);
        span.set("messaging.message.id", event.id.to_string());
        span.set("fleetpull.event.reason", event.reason.as_str().to_owned());
        span.set_some("fleetpull.entry.id", event.entry.clone());
    }
    span
}

pub(crate) fn end(span: &Span, error: Option<&impl ToString>) {
    if let Some(error) = error.filter(|_| span.is_some()) {
        span.fail("not_sent", &error.to_string());
    }
}

/// An event as a message of the bus.
pub(crate) fn message(fleet: &Fleet, event: &PullEvent) -> Result<Message, BusError> {
    let payload = cloud_event::to_json(event).map_err(|error| BusError::Other { reason: error.to_string() })?;
    let mut lines = Headers::new();
    lines.set(headers::CONTENT_TYPE, headers::CLOUD_EVENT_JSON);
    lines.set(headers::TRACEPARENT, event.trace.traceparent());
    lines.set(headers::MESSAGE_ID, event.id.to_string());
    if let Some(sequence) = &event.sequence {
        lines.set(headers::EVENT_SEQUENCE, format!("{}/{}", sequence.incarnation, sequence.number));
        // The stream also stores published events, and must not store them again when they are offered.
        lines.set(headers::STREAM_MESSAGE_ID, event.id.to_string());
    }
    let registry = event.registry.as_deref().filter(|registry| registry.len() <= REGISTRY_MAX_BYTES);
    let is_present = !event.is_durable();
    let subject = if is_present { fleet.present(registry, &event.node) } else { fleet.event(event.reason, registry, &event.node) };
    Ok(Message::new(subject, payload).with_headers(lines))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use bus::memory::MemoryBus;
    use bus::{Messaging as _, Subscription};
    use clock::{Clock, Random};
    use contract::EventReason;
    use futures::StreamExt as _;

    use super::*;

    /// More events than `ENCODED_AT_ONCE`, and no multiple of it.
    const EVENTS: u64 = 5 * ENCODED_AT_ONCE as u64 + 3;

    fn event(random: &mut Random, number: u64) -> PullEvent {
        let event = crate::core::test_event(random, "registry.example/team/app:v1", EventReason::Pulled, 0);
        PullEvent {
            time_ms: number,
            registry: Some("registry.example".to_owned()),
            size_bytes: Some(number),
            duration_ms: Some(1),
            ..event
        }
    }

    /// A publisher with `EVENTS` events in its outbox, and a subscriber.
    async fn publishing() -> (mpsc::Sender<Outgoing>, Arc<Notify>, Arc<Published>, Subscription) {
        let (bus, fleet) = (Arc::new(MemoryBus::new(Clock::host())), Fleet::default());
        let subscription =
            bus.subscribe(&fleet.event(EventReason::Pulled, Some("registry.example"), &"n1".parse().unwrap()), None).await.unwrap();
        let (outbox, waiting) = mpsc::channel(OUTBOX_CAPACITY);
        let (counts, flush_requested) = (Arc::new(Published::default()), Arc::new(Notify::new()));
        let publisher = Publisher { bus, fleet, counts: Arc::clone(&counts), flush_requested: Arc::clone(&flush_requested) };
        tokio::spawn(publisher.publish_all(waiting));
        let mut random = Random::seeded(1);
        for number in 0..EVENTS {
            outbox.send(Outgoing::Event(Arc::new(event(&mut random, number)))).await.unwrap_or_else(|_| panic!("the publisher lives"));
        }
        (outbox, flush_requested, counts, subscription)
    }

    async fn sizes(subscription: &mut Subscription) -> Vec<u64> {
        let size = |message: Message| {
            let event: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
            event["data"]["size_bytes"].as_u64().unwrap()
        };
        subscription.take(EVENTS as usize).map(size).collect().await
    }

    #[tokio::test]
    async fn event_of_a_registry_with_an_endless_name_can_be_sent() {
        let registry = Some(format!("{}.example", "a".repeat(4_000)));
        let event = PullEvent { registry, ..event(&mut Random::seeded(1), 1) };
        let message = message(&Fleet::default(), &event).unwrap();
        assert_eq!(message.subject, "fleetpull.v1.evt.Pulled._.n1");
        assert_eq!(MemoryBus::new(Clock::host()).publish(message).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_published_in_order_after_the_linger() {
        let clock = Clock::host();
        let began = clock.now().monotonic;
        let (_outbox, _, counts, mut subscription) = publishing().await;
        assert_eq!(sizes(&mut subscription).await, (0..EVENTS).collect::<Vec<_>>());
        assert!(clock.now().monotonic.saturating_sub(began) >= LINGER);
        assert_eq!(counts.published.load(Ordering::Relaxed), EVENTS);
    }

    /// The publisher gets a turn after every 64 events, about as on the actors' thread.
    #[tokio::test(start_paused = true)]
    async fn many_fast_events_do_not_overflow_the_outbox() {
        const IN_A_TURN: u64 = 64;
        let (outbox, flush_requested, counts, _subscription) = publishing().await;
        let mut random = Random::seeded(2);
        for number in 0..3 * OUTBOX_CAPACITY as u64 {
            let taken = outbox.try_send(Outgoing::Event(Arc::new(event(&mut random, number))));
            assert!(taken.is_ok(), "event {number} is not taken: {} wait", OUTBOX_CAPACITY - outbox.capacity());
            if number % IN_A_TURN == 0 {
                // Paused time advances only while every task is idle, so end the publisher's wait.
                flush_requested.notify_one();
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(counts.unpublished.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn flush_ends_the_linger() {
        let clock = Clock::host();
        let began = clock.now().monotonic;
        let (outbox, flush_requested, counts, _subscription) = publishing().await;
        let (done, flushed) = oneshot::channel();
        outbox.send(Outgoing::Flush(done)).await.unwrap_or_else(|_| panic!("the publisher lives"));
        flush_requested.notify_one();
        flushed.await.unwrap();
        assert_eq!(clock.now().monotonic, began);
        assert_eq!(counts.published.load(Ordering::Relaxed), EVENTS);
    }
}
