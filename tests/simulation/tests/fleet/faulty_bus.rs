//! A bus between a node and the hub with the faults of networks: latency, loss, duplication, delay, and cuts in one direction or both.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::memory::MemoryBus;
use bus::{
    Appended, BucketSpec, Bus, BusError, BusHealth, CallerState, EventLog, HealthChanges, KeyValue, Message, Messaging, SharedState,
    StreamPage, StreamQuery, StreamSpec, StreamStatus, Subscription,
};
use contract::know::LEASES;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream;

use super::arriving::Arriving;
use super::faulty_bucket::FaultyBucket;
use super::faulty_network::{Direction, Fate, FaultyNetwork, Line};

/// The time-out of a change of a bucket, as on a real server.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(2);

impl FaultyNetwork {
    /// A connection of a node through this network.
    pub fn over(&self, inner: MemoryBus, node: usize) -> FaultyBus {
        FaultyBus { inner, node, network: self.clone() }
    }
}

/// The connection of a node.
pub struct FaultyBus {
    inner: MemoryBus,
    node: usize,
    network: FaultyNetwork,
}

impl FaultyBus {
    fn cut(&self) -> Result<(), BusError> {
        if self.network.line(self.node) == Line::Cut {
            self.network.fate(self.node, Direction::Out);
            return Err(BusError::Disconnected { reason: "the line is cut".to_owned() });
        }
        Ok(())
    }
}

#[async_trait]
impl Messaging for FaultyBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        self.cut()?;
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        if fate == Fate::Lost {
            return Ok(());
        }
        tokio::time::sleep(takes).await;
        if fate == Fate::Doubled {
            self.inner.publish(message.clone()).await?;
        }
        self.inner.publish(message).await
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        let inner = self.inner.subscribe(subject, queue).await?;
        Ok(Arriving::new(inner, self.network.clone(), self.node).boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        self.cut()?;
        let (began, subject) = (self.network.now(), message.subject.clone());
        let left = || (began + timeout).saturating_sub(self.network.now());
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        // Either the request is lost, or its answer.
        let arrives = fate != Fate::Lost || (self.network.line(self.node) == Line::Up && self.network.either());
        let mut answer = None;
        if arrives && takes < timeout {
            tokio::time::sleep(takes).await;
            if fate == Fate::Doubled {
                let copy = Message { reply_to: Some(self.inner.new_inbox()), ..message.clone() };
                self.inner.publish(copy).await?;
            }
            answer = if fate == Fate::Lost {
                let _ = self.inner.publish(message).await;
                None
            } else {
                let answer = tokio::time::timeout(left(), self.inner.request(message, timeout)).await.ok();
                answer.and_then(|answer| Some((self.network.answer(self.node).filter(|takes| *takes < left())?, answer)))
            };
        }
        let Some((takes, answer)) = answer else {
            tokio::time::sleep(left()).await;
            return Err(BusError::TimedOut { subject, timeout });
        };
        tokio::time::sleep(takes).await;
        answer
    }

    async fn caller_state(&self, request: &Message) -> CallerState {
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        if fate == Fate::Lost {
            return CallerState::Unknown;
        }
        tokio::time::sleep(takes).await;
        let state = self.inner.caller_state(request).await;
        let Some(takes) = self.network.answer(self.node) else { return CallerState::Unknown };
        tokio::time::sleep(takes).await;
        state
    }

    fn new_inbox(&self) -> String {
        self.inner.new_inbox()
    }

    fn health(&self) -> BusHealth {
        self.network.line(self.node).health()
    }

    fn health_changes(&self) -> HealthChanges {
        let (line, changes) = self.network.listen(self.node);
        let changes = stream::unfold(changes, |mut changes| async move { Some((changes.recv().await?, changes)) });
        stream::iter([line.health()]).chain(changes).boxed()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    async fn drain(&self) {
        self.inner.drain().await;
    }
}

#[async_trait]
impl SharedState for FaultyBus {
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        self.cut()?;
        let inner = self.inner.bucket(spec).await?;
        let of_leases = spec.name == Fleet::default().bucket(LEASES);
        Ok(Arc::new(FaultyBucket { inner, node: self.node, name: spec.name.clone(), of_leases, network: self.network.clone() }))
    }
}

#[async_trait]
impl EventLog for FaultyBus {
    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError> {
        self.cut()?;
        self.inner.stream(spec).await
    }

    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError> {
        self.cut()?;
        self.inner.read(query).await
    }

    async fn append(&self, message: Message, message_id: &str) -> Result<Appended, BusError> {
        self.cut()?;
        let (fate, takes) = self.network.fate(self.node, Direction::Out);
        let lost = BusError::TimedOut { subject: message.subject.clone(), timeout: STORE_TIMEOUT };
        let began = self.network.now();
        let appended = if fate == Fate::Lost {
            None
        } else {
            tokio::time::sleep(takes).await;
            let appended = self.inner.append(message, message_id).await;
            self.network.answer(self.node).map(|takes| (takes, appended))
        };
        let Some((takes, appended)) = appended else {
            tokio::time::sleep((began + STORE_TIMEOUT).saturating_sub(self.network.now())).await;
            return Err(lost);
        };
        tokio::time::sleep(takes).await;
        appended
    }
}

impl Bus for FaultyBus {}
