//! Calls of JetStream, over the same requests as all else: they fail at once without a connection, have a limit, and leave
//! nothing behind when given up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::connection::{Connection, other};
use super::replicas::Growing;
use super::stored::Stored;
use crate::message::{Headers, Message};
use crate::port::{Appended, BusError, BusHealth};

/// How long an answer of JetStream may take: a leader may have to be elected first.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long the first call on a new connection may take, before which the bus does not count as connected.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// How often a message is offered again to a server that has too many in hand (error 10167), and how long between.
const BUSY_ATTEMPTS: u32 = 5;
const BUSY_DELAY: Duration = Duration::from_millis(50);

/// How often a message that nobody takes is offered, and how long between: its stream's leader may be elected this moment, or be on a
/// server of which the others have not heard yet that it listens. What the client libraries of NATS do.
const UNHEARD_ATTEMPTS: u32 = 3;
const UNHEARD_DELAY: Duration = Duration::from_millis(250);

/// Error codes of JetStream, as the server's list of errors names them.
pub(super) mod code {
    pub(in crate::nats) const NOT_AVAILABLE: u64 = 10008;
    pub(in crate::nats) const NO_MESSAGE_FOUND: u64 = 10037;
    pub(in crate::nats) const STREAM_NAME_IN_USE: u64 = 10058;
    pub(in crate::nats) const STREAM_NOT_FOUND: u64 = 10059;
    pub(in crate::nats) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(in crate::nats) const REPLICAS_NOT_SUPPORTED: u64 = 10074;
    pub(in crate::nats) const STREAM_STORE_FAILED: u64 = 10077;
    pub(in crate::nats) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10164;
    pub(in crate::nats) const TOO_MANY_REQUESTS: u64 = 10167;
}

/// JetStream over one connection.
#[derive(Clone)]
pub(super) struct JetStream {
    pub(super) connection: Arc<Connection>,
    api_prefix: Arc<str>,
    /// What the subjects of buckets begin with, when they are in another domain.
    bucket_prefix: Arc<str>,
    pub(super) growing: Arc<Growing>,
}

/// How the bus is on a connection.
pub(super) struct Examined {
    pub(super) health: BusHealth,
    /// Whether that may change by itself any second.
    pub(super) passing: bool,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// What JetStream itself said.
    Refused { code: u64, description: String },
    /// The bus beneath.
    Bus(BusError),
}

impl JetStream {
    pub(super) fn new(connection: Arc<Connection>, api_prefix: &str, foreign_domain: bool) -> Self {
        let bucket_prefix = if foreign_domain { format!("{api_prefix}.") } else { String::new() };
        Self { connection, api_prefix: api_prefix.into(), bucket_prefix: bucket_prefix.into(), growing: Arc::default() }
    }

    /// How the bus is on a new connection: whether state and streams can be had from this server with this login.
    pub(super) async fn examine(&self) -> Examined {
        let degraded = |passing, reason| Examined { health: BusHealth::Degraded { reason }, passing };
        let version = self.connection.client.server_info().version;
        if !self.connection.client.is_server_compatible(2, 11, 0) {
            return degraded(false, format!("nats-server {version} is too old for shared state: upgrade it to 2.11 or newer"));
        }
        let advice = "turn it on (`jetstream {}` in the server's configuration, limits in the account)";
        match self.request("INFO", &Value::Null, PROBE_LIMIT).await {
            Ok(_) => Examined { health: BusHealth::Connected, passing: false },
            Err(CallError::Bus(BusError::NoResponders { .. })) => {
                degraded(false, format!("the server or this account has no JetStream: {advice}"))
            }
            Err(CallError::Refused { code: code::NOT_AVAILABLE, description }) => {
                degraded(true, format!("JetStream's cluster has no leader ({description}): start its servers that are down"))
            }
            Err(CallError::Refused { description, .. }) => {
                degraded(false, format!("JetStream refuses this account ({description}): {advice}"))
            }
            Err(CallError::Bus(error)) => {
                degraded(true, format!("JetStream does not answer ({error}): check its cluster and what this login may publish"))
            }
        }
    }

    /// Fails at once where state and streams cannot be had.
    pub(super) fn check_available(&self) -> Result<(), BusError> {
        self.connection.check_open()?;
        match self.connection.link.health() {
            BusHealth::Degraded { reason } => Err(BusError::Unsupported { reason }),
            _ if !self.connection.is_up() => Err(self.connection.link.disconnected()),
            _ => Ok(()),
        }
    }

    /// Calls the API, for example `STREAM.INFO.name`.
    pub(super) async fn call(&self, name: &str, body: &Value) -> Result<Value, CallError> {
        self.check_available().map_err(CallError::Bus)?;
        match self.request(name, body, ANSWER_LIMIT).await {
            Err(CallError::Bus(BusError::NoResponders { .. })) => {
                Err(CallError::Bus(BusError::Unsupported { reason: "the server or this account has no JetStream: turn it on".to_owned() }))
            }
            Err(unavailable @ CallError::Refused { code: code::NOT_AVAILABLE, .. }) => {
                self.connection.link.doubt();
                Err(unavailable)
            }
            answer => answer,
        }
    }

    /// Reads the newest message of a subject directly; none if there is none.
    pub(super) async fn newest(&self, stream: &str, subject: &str) -> Result<Option<Stored>, BusError> {
        self.check_available()?;
        let ask = Message::new(format!("{}.DIRECT.GET.{stream}.{subject}", self.api_prefix), Bytes::new());
        let answer = self.connection.ask(ask, ANSWER_LIMIT).await?;
        match answer.status.map(|status| status.as_u16()) {
            None => Stored::of_message(answer).ok_or_else(|| unreadable(subject)).map(Some),
            Some(404) => Ok(None),
            Some(status) => Err(other(format!("reading {subject}: {status} {}", answer.description.unwrap_or_default()))),
        }
    }

    /// Reads the newest message of a subject from the leader of its stream, who knows of all that was acknowledged; none if there
    /// is none.
    pub(super) async fn newest_by_leader(&self, stream: &str, subject: &str) -> Result<Option<Stored>, CallError> {
        match self.call(&format!("STREAM.MSG.GET.{stream}"), &json!({ "last_by_subj": subject })).await {
            Ok(answer) => Stored::of_leader(&answer["message"]).ok_or_else(|| CallError::Bus(unreadable(subject))).map(Some),
            Err(CallError::Refused { code: code::NO_MESSAGE_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for a page of messages directly, to be sent to `reply_to`.
    pub(super) async fn ask_for_page(&self, stream: &str, body: &Value, reply_to: &str) -> Result<(), BusError> {
        self.check_available()?;
        let subject = format!("{}.DIRECT.GET.{stream}", self.api_prefix);
        let payload = body.to_string().into();
        self.connection.send(Message { subject, reply_to: Some(reply_to.to_owned()), headers: Headers::new(), payload }).await
    }

    /// Stores a message of a bucket and waits for the acknowledgement; `exists`: the bucket was seen this moment.
    pub(super) async fn store_in_bucket(&self, mut message: Message, exists: bool) -> Result<Appended, CallError> {
        message.subject.insert_str(0, &self.bucket_prefix);
        if exists { self.store_in_existing(message).await } else { self.store(message).await }
    }

    /// Stores a message whose stream is there, though it may be that nobody takes it this moment.
    pub(super) async fn store_in_existing(&self, message: Message) -> Result<Appended, CallError> {
        for _ in 1..UNHEARD_ATTEMPTS {
            match self.store(message.clone()).await {
                Err(CallError::Bus(BusError::NoResponders { .. })) => tokio::time::sleep(UNHEARD_DELAY).await,
                stored => return stored,
            }
        }
        self.store(message).await
    }

    /// Stores a message and waits for the acknowledgement; offers it again to a server that has too many in hand.
    async fn store(&self, message: Message) -> Result<Appended, CallError> {
        self.check_available().map_err(CallError::Bus)?;
        let mut attempt = 1;
        loop {
            let answer = self.connection.ask(message.clone(), ANSWER_LIMIT).await.map_err(CallError::Bus)?;
            match parsed(&answer.payload) {
                Err(CallError::Refused { code: code::TOO_MANY_REQUESTS, .. }) if attempt < BUSY_ATTEMPTS => {
                    tokio::time::sleep(BUSY_DELAY * attempt).await;
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(answer) => {
                    let sequence = answer["seq"].as_u64().ok_or_else(|| CallError::Bus(unreadable(&message.subject)))?;
                    return Ok(Appended { sequence, duplicate: answer["duplicate"] == json!(true) });
                }
            }
        }
    }

    async fn request(&self, name: &str, body: &Value, limit: Duration) -> Result<Value, CallError> {
        let payload = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let subject = format!("{}.{name}", self.api_prefix);
        let message = Message { subject, reply_to: None, headers: Headers::new(), payload };
        let answer = self.connection.ask(message, limit).await.map_err(CallError::Bus)?;
        parsed(&answer.payload)
    }
}

impl CallError {
    /// The same as an error of the bus, in words.
    pub(super) fn into_bus(self, doing: &str) -> BusError {
        match self {
            Self::Refused { description, .. } => other(format!("{doing}: {description}")),
            Self::Bus(error) => error,
        }
    }
}

fn parsed(payload: &[u8]) -> Result<Value, CallError> {
    let answer: Value = serde_json::from_slice(payload).map_err(|_| CallError::Bus(unreadable("JetStream")))?;
    match answer.get("error") {
        Some(error) => Err(CallError::Refused {
            code: error["err_code"].as_u64().unwrap_or_default(),
            description: error["description"].as_str().unwrap_or("no description").to_owned(),
        }),
        None => Ok(answer),
    }
}

fn unreadable(what: &str) -> BusError {
    other(format!("{what}: the answer cannot be read; is something else answering there?"))
}
