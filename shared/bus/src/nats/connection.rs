//! One connection to NATS: it sends and receives messages, and never waits for an absent server.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::client::traits::Publisher;
use async_nats::connection::State;
use async_nats::message::OutboundMessage;
use async_nats::{Client, HeaderMap, HeaderName, HeaderValue, PublishErrorKind, StatusCode, Subscriber};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::link::Link;
use super::replies::{self, Replies};
use crate::caller_state::{CallerState, PROBE_HEADER};
use crate::error::BusError;
use crate::message::{Headers, MAX_PAYLOAD_BYTES, Message};

/// How long a message may wait for room in the client's command queue. If it takes longer, the server is not reading, and the sender gets
/// an error.
const SEND_LIMIT: Duration = Duration::from_millis(250);

/// How long a new subscription waits for the server's confirmation.
const CONFIRM_LIMIT: Duration = Duration::from_secs(1);

/// How long a caller may take to answer a probe. One that takes longer counts as waiting.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Headers that a server adds when it republishes a stored message, and the time to live that it keeps.
const REPUBLISHED: [&str; 6] = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence", "Nats-Time-Stamp", "Nats-TTL"];

/// A connection that the client library maintains.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) link: Arc<Link>,
    replies: Replies,
}

impl Connection {
    /// Wraps a client that connects in the background.
    pub(super) async fn new(client: Client, link: Arc<Link>) -> Result<Self, BusError> {
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(format!("{inbox}.*")).await.map_err(other)?;
        let replies = Replies::new(&inbox, subscriber, link.waiting.clone(), client.clone());
        Ok(Self { client, link, replies })
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_there() && !self.link.is_suspended()
    }

    /// Whether the client library has a connection, including one that was suspended.
    fn is_there(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Ends the connection. The next one waits until the link is no longer suspended.
    pub(super) async fn leave(&self) {
        if self.is_there() && !matches!(timeout(SEND_LIMIT, self.client.force_reconnect()).await, Ok(Ok(()))) {
            debug!("the connection to the server cannot be closed yet");
        }
    }

    /// The name of the connected server, for logs.
    pub(super) fn server(&self) -> String {
        let info = self.client.server_info();
        format!("nats-server {} at {}:{} ({})", info.version, info.host, info.port, info.server_name)
    }

    /// How often a connection was made.
    pub(super) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    /// The most bytes of headers and payload that the server takes.
    pub(super) fn limit(&self) -> usize {
        self.client.max_payload().min(MAX_PAYLOAD_BYTES)
    }

    pub(super) fn check_open(&self) -> Result<(), BusError> {
        if self.link.is_closed() { Err(BusError::Closed) } else { Ok(()) }
    }

    /// Sends a message.
    pub(super) async fn send(&self, message: Message) -> Result<(), BusError> {
        self.check_open()?;
        self.hand_over(message).await
    }

    /// Hands a message to the client library, unless it would only be queued for a later connection.
    async fn hand_over(&self, message: Message) -> Result<(), BusError> {
        if !self.is_up() {
            return Err(self.link.disconnected());
        }
        let Message { subject, reply_to, headers, payload } = message;
        let outbound =
            OutboundMessage { subject: subject.as_str().into(), reply: reply_to.map(Into::into), headers: to_wire(&headers)?, payload };
        let bytes = outbound.payload.len();
        match timeout(SEND_LIMIT, self.client.publish_message(outbound)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                Err(BusError::TooLarge { subject, bytes, limit: self.limit() })
            }
            Ok(Err(error)) => Err(other(error)),
            Err(_) => {
                Err(BusError::Disconnected { reason: format!("the server takes no messages for {SEND_LIMIT:?}: check whether it hangs") })
            }
        }
    }

    /// Sends a message and waits for one answer.
    pub(super) async fn ask(&self, mut message: Message, limit: Duration) -> Result<async_nats::Message, BusError> {
        let subject = message.subject.clone();
        let mut awaited = self.replies.awaited(&subject);
        message.reply_to = Some(awaited.subject.clone());
        let answer = async {
            self.send(message).await?;
            let answer = (&mut awaited.reply).await.map_err(|_| BusError::Closed)?;
            answer.ok_or_else(|| BusError::Forbidden { subject: subject.clone() })
        };
        match timeout(limit, answer).await {
            Ok(Ok(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => Err(BusError::NoResponders { subject }),
            Ok(answer) => answer,
            Err(_) => Err(BusError::TimedOut { subject, timeout: limit }),
        }
    }

    /// Asks the subscriber of a request's reply subject whether it still awaits the reply.
    pub(super) async fn probe(&self, reply_to: &str) -> CallerState {
        let mut probe = Message::new(reply_to.to_owned(), Bytes::new());
        probe.headers.set(PROBE_HEADER, "1");
        match self.ask(probe, PROBE_LIMIT).await {
            Ok(answer) => replies::read_probe_answer(&answer),
            Err(BusError::NoResponders { .. }) => CallerState::Absent,
            Err(_) => CallerState::Unknown,
        }
    }

    /// Subscribes. On a connected bus, returns after the server has confirmed it.
    pub(super) async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscriber, BusError> {
        self.check_open()?;
        let subscribing = async {
            match queue {
                Some(queue) => self.client.queue_subscribe(subject.to_owned(), queue.to_owned()).await,
                None => self.client.subscribe(subject.to_owned()).await,
            }
        };
        let subscriber = match timeout(SEND_LIMIT, subscribing).await {
            Ok(subscriber) => subscriber.map_err(other)?,
            Err(_) => return Err(self.link.disconnected()),
        };
        if self.is_up() {
            self.confirm(subject).await;
        }
        Ok(subscriber)
    }

    /// Sends the queued messages, ends all subscriptions and then the connection.
    pub(super) async fn finish(&self) {
        // The client library ends subscriptions without asking the server for messages in transit.
        self.confirm("all").await;
        if self.client.drain().await.is_ok() {
            self.link.ended().await;
        }
    }

    /// Sends a message to this connection. The server processes a connection's commands in order, so when the message comes back, all
    /// earlier ones are done.
    async fn confirm(&self, what: &str) {
        let mut awaited = self.replies.awaited("");
        let message = Message::new(awaited.subject.clone(), Bytes::new());
        let answer = async { self.hand_over(message).await.is_ok() && (&mut awaited.reply).await.is_ok() };
        if !matches!(timeout(CONFIRM_LIMIT, answer).await, Ok(true)) {
            warn!(subject = what, "the server has not confirmed a subscription: messages may be missed for a moment");
        }
    }
}

/// Converts headers to the client library's.
fn to_wire(headers: &Headers) -> Result<Option<HeaderMap>, BusError> {
    if headers.is_empty() {
        return Ok(None);
    }
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        let bad = || BusError::BadHeader { name: name.to_owned() };
        let wire_name: HeaderName = name.parse().map_err(|_| bad())?;
        let wire_value: HeaderValue = value.parse().map_err(|_| bad())?;
        map.insert(wire_name, wire_value);
    }
    Ok(Some(map))
}

/// Converts a received message. If a header occurs more than once, the first counts.
pub(super) fn from_wire(message: async_nats::Message) -> Message {
    let headers = message.headers.unwrap_or_default();
    let lines = headers.iter().filter_map(|(name, values)| Some((name_of(name.as_ref()), values.first()?.as_str().to_owned())));
    Message {
        subject: message.subject.as_str().to_owned(),
        reply_to: message.reply.map(|reply| reply.as_str().to_owned()),
        headers: lines.collect(),
        payload: message.payload,
    }
}

/// A header's name. Names that a server adds to republished messages are not copied, because every node receives many of these.
fn name_of(name: &str) -> Cow<'static, str> {
    match REPUBLISHED.iter().find(|known| **known == name) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(name.to_owned()),
    }
}

/// An error of the client library that has no variant here.
pub(super) fn other(error: impl std::fmt::Display) -> BusError {
    BusError::Other { reason: error.to_string() }
}
