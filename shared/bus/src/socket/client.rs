//! The client: a bus that is behind a socket file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::frame::{ToClient, ToServer, codec, decode, encode};
use crate::error::BusError;
use crate::health::{BusHealth, HealthChanges};
use crate::message::{MAX_PAYLOAD_BYTES, Message};
use crate::messaging::{Messaging, SUBSCRIPTION_CAPACITY, Subscription};
use crate::rules;

/// The most frames that wait to be written; then the sender waits.
const OUTBOX_FRAMES: usize = 64;

/// A connection to a bus behind a socket; clones are the same one. It does not reconnect by itself, because its requests live no longer
/// than the agent that was asked.
#[derive(Clone)]
pub struct SocketBus {
    connection: Arc<Connection>,
    _tasks: Arc<[AbortOnDropHandle<()>; 2]>,
}

/// The state that the bus, its reader and its subscriptions share.
struct Connection {
    outbox: mpsc::Sender<Bytes>,
    last_id: AtomicU64,
    dropped: AtomicU64,
    health: watch::Sender<BusHealth>,
    state: Mutex<State>,
}

/// What is awaited, by id.
#[derive(Default)]
struct State {
    /// Set once draining has begun or the connection has ended: the error for callers.
    over: Option<BusError>,
    awaited: BTreeMap<u64, Answer>,
    subscribers: BTreeMap<u64, mpsc::Sender<Message>>,
}

/// Takes an answer; no message if it only confirms that something is done.
type Answer = oneshot::Sender<Result<Option<Message>, BusError>>;

impl SocketBus {
    /// Connects to the socket file. Needs a tokio runtime, which carries the connection from then on.
    ///
    /// # Errors
    /// [`BusError::Disconnected`] with the reason: there is no socket, nobody listens, or this user may not connect.
    pub async fn connect(path: &Path) -> Result<Self, BusError> {
        let stream = open(path).await.map_err(|error| BusError::Disconnected { reason: explain(path, &error) })?;
        let (reader, writer) = stream.into_split();
        let (outbox, frames) = mpsc::channel(OUTBOX_FRAMES);
        let connection = Arc::new(Connection {
            outbox,
            last_id: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            health: watch::Sender::new(BusHealth::Connected),
            state: Mutex::default(),
        });
        let reading = tasks::spawn("socket-reader", read_all(FramedRead::new(reader, codec()), Arc::clone(&connection)));
        let writing = tasks::spawn("socket-writer", write_all(writer, frames));
        Ok(Self { connection, _tasks: Arc::new([AbortOnDropHandle::new(reading), AbortOnDropHandle::new(writing)]) })
    }
}

async fn open(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Address::of(path)?.path()).await
}

/// Why there is no connection, and what to do.
fn explain(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "no agent keeps its socket there: start one, or correct the path",
        io::ErrorKind::ConnectionRefused => "the agent that made it has ended: start it again",
        io::ErrorKind::PermissionDenied => "only the agent's own user may ask there: become that user",
        _ => "check the path",
    };
    format!("the socket {}: {error}; {advice}", path.display())
}

#[async_trait]
impl Messaging for SocketBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        rules::check_message(&message, MAX_PAYLOAD_BYTES)?;
        let mut waiting = self.connection.waiting()?;
        waiting.send(&ToServer::Publish { id: waiting.id, message: message.into() }).await?;
        waiting.answer().await.map(|_| ())
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        rules::check_pattern(subject)?;
        queue.map_or(Ok(()), rules::check_queue)?;
        let mut waiting = self.connection.waiting()?;
        let (sender, messages) = mpsc::channel(SUBSCRIPTION_CAPACITY);
        self.connection.state().subscribers.insert(waiting.id, sender);
        // From here on, dropping it unsubscribes.
        let subscription = SocketSubscription { id: waiting.id, messages, bus: self.clone() };
        waiting.send(&ToServer::Subscribe { id: waiting.id, subject: subject.to_owned(), queue: queue.map(str::to_owned) }).await?;
        waiting.answer().await?;
        Ok(subscription.boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        let message = rules::with_deadline(message, timeout);
        rules::check_message(&message, MAX_PAYLOAD_BYTES)?;
        let subject = message.subject.clone();
        let mut waiting = self.connection.waiting()?;
        let answer = async {
            waiting.send(&ToServer::Request { id: waiting.id, timeout, message: message.into() }).await?;
            waiting.answer().await
        };
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer?.ok_or_else(|| BusError::Other { reason: "the agent answered a request without an answer".to_owned() }),
            Err(_) => Err(BusError::TimedOut { subject, timeout }),
        }
    }

    fn health(&self) -> BusHealth {
        self.connection.health.borrow().clone()
    }

    fn health_changes(&self) -> HealthChanges {
        let states = self.connection.health.subscribe();
        futures::stream::unfold((states, true), |(mut states, first)| async move {
            if !first {
                states.changed().await.ok()?;
            }
            let health = states.borrow_and_update().clone();
            Some((health, (states, false)))
        })
        .boxed()
    }

    fn dropped(&self) -> u64 {
        self.connection.dropped.load(Ordering::Relaxed)
    }

    async fn drain(&self) {
        self.connection.end(BusError::Closed);
    }
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an awaited answer.
    fn waiting(&self) -> Result<Waiting<'_>, BusError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if let Some(over) = &state.over {
            return Err(over.clone());
        }
        state.awaited.insert(id, sender);
        Ok(Waiting { id, answer, connection: self })
    }

    fn receive(&self, frame: ToClient) {
        match frame {
            ToClient::Reply { id, message } => self.give(id, Ok(Some(message.into()))),
            ToClient::Done { id } => self.give(id, Ok(None)),
            ToClient::Failed { id, error } => self.give(id, Err(error)),
            ToClient::Refused { reason } => self.end(BusError::Disconnected { reason }),
            ToClient::Delivered { id, message } => {
                if let Some(Err(mpsc::error::TrySendError::Full(_))) =
                    self.state().subscribers.get(&id).map(|subscriber| subscriber.try_send(message.into()))
                {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn give(&self, id: u64, answer: Result<Option<Message>, BusError>) {
        if let Some(waiting) = self.state().awaited.remove(&id) {
            // The caller may have given up just now.
            let _ = waiting.send(answer);
        }
    }

    /// Ends the connection. The first reason counts.
    fn end(&self, reason: BusError) {
        let mut state = self.state();
        let reason = state.over.get_or_insert(reason).clone();
        self.health.send_replace(BusHealth::Disconnected { reason: reason.to_string() });
        state.subscribers.clear();
        for (_, waiting) in std::mem::take(&mut state.awaited) {
            let _ = waiting.send(Err(reason.clone()));
        }
    }

    /// Tells the server that nobody waits any more. If the outbox is full, the server finds out when the connection ends.
    fn give_up(&self, id: u64) {
        if let Ok(frame) = encode(&ToServer::End { id }) {
            let _ = self.outbox.try_send(frame);
        }
    }
}

/// An awaited answer. Dropping it before the answer arrives gives it up.
struct Waiting<'a> {
    id: u64,
    answer: oneshot::Receiver<Result<Option<Message>, BusError>>,
    connection: &'a Connection,
}

impl Waiting<'_> {
    /// Sends the frame whose answer is awaited.
    async fn send(&self, frame: &ToServer) -> Result<(), BusError> {
        let frame = encode(frame).map_err(|error| BusError::Other { reason: error.to_string() })?;
        // An error means that the writer has ended; the reader then answers with the reason.
        let _ = self.connection.outbox.send(frame).await;
        Ok(())
    }

    async fn answer(&mut self) -> Result<Option<Message>, BusError> {
        (&mut self.answer).await.unwrap_or(Err(BusError::Closed))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.connection.state().awaited.remove(&self.id).is_some();
        if unanswered {
            self.connection.give_up(self.id);
        }
    }
}

/// The receiving end of a subscription; dropping it unsubscribes.
struct SocketSubscription {
    id: u64,
    messages: mpsc::Receiver<Message>,
    bus: SocketBus,
}

impl Stream for SocketSubscription {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(context)
    }
}

impl Drop for SocketSubscription {
    fn drop(&mut self) {
        let connection = &self.bus.connection;
        if connection.state().subscribers.remove(&self.id).is_some() {
            connection.give_up(self.id);
        }
    }
}

async fn read_all(mut frames: FramedRead<OwnedReadHalf, LengthDelimitedCodec>, connection: Arc<Connection>) {
    let reason = loop {
        match frames.next().await {
            Some(Ok(bytes)) => match decode(&bytes) {
                Ok(frame) => connection.receive(frame),
                Err(error) => break format!("the agent's answer cannot be read: {error}; use a client of the agent's version"),
            },
            Some(Err(error)) => break format!("the connection to the agent's socket failed: {error}"),
            None => break "the agent has closed its socket: it was stopped".to_owned(),
        }
    };
    connection.end(BusError::Disconnected { reason });
}

async fn write_all(writer: OwnedWriteHalf, mut frames: mpsc::Receiver<Bytes>) {
    let mut writer = FramedWrite::new(writer, codec());
    while let Some(frame) = frames.recv().await {
        if writer.send(frame).await.is_err() {
            // The reader detects it too, and reports it.
            return;
        }
    }
}
