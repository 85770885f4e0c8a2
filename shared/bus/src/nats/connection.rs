//! One connection to NATS: messages out, messages in, and never waiting on a server that is not there.

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
use crate::asker::{Asker, PROBE_HEADER};
use crate::error::BusError;
use crate::message::{Headers, MAX_PAYLOAD_BYTES, Message};

/// How long a message may wait for room in the client's queue of commands: the server takes nothing then, and the sender
/// shall know rather than wait.
const SEND_LIMIT: Duration = Duration::from_millis(250);

/// How long a new subscription waits for the server's word that it knows of it.
const CONFIRM_LIMIT: Duration = Duration::from_secs(1);

/// How long an asker may take to answer a probe. One that takes longer counts as waiting.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// What a server adds to a stored message when it republishes it, and what it keeps of one with a time to live.
const REPUBLISHED: [&str; 6] = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence", "Nats-Time-Stamp", "Nats-TTL"];

/// A connection that is kept up by the client library.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) link: Arc<Link>,
    replies: Replies,
}

impl Connection {
    /// Takes over a client that connects in the background.
    pub(super) async fn new(client: Client, link: Arc<Link>) -> Result<Self, BusError> {
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(format!("{inbox}.*")).await.map_err(other)?;
        let replies = Replies::new(&inbox, subscriber, link.waiting.clone(), client.clone());
        Ok(Self { client, link, replies })
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_there() && !self.link.is_aside()
    }

    /// Whether the client library has a connection, set aside or not.
    fn is_there(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Ends the connection. The next one waits until the link is no longer set aside.
    pub(super) async fn leave(&self) {
        if self.is_there() && !matches!(timeout(SEND_LIMIT, self.client.force_reconnect()).await, Ok(Ok(()))) {
            debug!("the server cannot be left yet");
        }
    }

    /// The server that is connected to, for logs.
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

    /// Gives a message to the client library, but not for later.
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

    /// Asks the subscriber of a request's reply subject whether the reply is still awaited.
    pub(super) async fn probe(&self, reply_to: &str) -> Asker {
        let mut probe = Message::new(reply_to.to_owned(), Bytes::new());
        probe.headers.set(PROBE_HEADER, "1");
        match self.ask(probe, PROBE_LIMIT).await {
            Ok(answer) => replies::read_probe_answer(&answer),
            Err(BusError::NoResponders { .. }) => Asker::Absent,
            Err(_) => Asker::Unknown,
        }
    }

    /// Subscribes; on a connected bus, returns when the server knows of it.
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

    /// Sends what waits to be sent, ends all subscriptions and then the connection.
    pub(super) async fn finish(&self) {
        // The client library ends subscriptions without asking the server what is still on the way.
        self.confirm("all").await;
        if self.client.drain().await.is_ok() {
            self.link.ended().await;
        }
    }

    /// A message to ourselves: the server takes commands of a connection in their order, so when it comes back, all before
    /// it is done.
    async fn confirm(&self, what: &str) {
        let mut awaited = self.replies.awaited("");
        let message = Message::new(awaited.subject.clone(), Bytes::new());
        let answer = async { self.hand_over(message).await.is_ok() && (&mut awaited.reply).await.is_ok() };
        if !matches!(timeout(CONFIRM_LIMIT, answer).await, Ok(true)) {
            warn!(subject = what, "the server has not confirmed a subscription: messages may be missed for a moment");
        }
    }
}

/// Headers as the client library has them.
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

/// A message as it came in. Of a header given more than once, the first counts.
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

/// A header's name: of what a server republishes, which every node of a fleet takes in, it is not copied.
fn name_of(name: &str) -> Cow<'static, str> {
    match REPUBLISHED.iter().find(|known| **known == name) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(name.to_owned()),
    }
}

/// An error of the client library that has no name of its own here.
pub(super) fn other(error: impl std::fmt::Display) -> BusError {
    BusError::Other { reason: error.to_string() }
}
