//! Calls of JetStream as plain requests: they fail at once without a connection, have a time limit, and leave nothing behind if abandoned.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::{Connection, other};
use super::refusals::{self, Act};
use super::replicas::Growing;
use super::stored::Stored;
use crate::error::BusError;
use crate::event_log::Appended;
use crate::health::BusHealth;
use crate::message::{Headers, Message};

/// The time-out of a JetStream call; a leader may have to be elected first.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The time-out of the first call on a new connection. The bus does not count as connected before it ends.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// The oldest server whose per-key expiry does what buckets need (major, minor, patch). 2.11.0 does not report that a key has expired and
/// does not answer writes to some full buckets; 2.11.2 keeps leases until the time of their bucket's markers is over; up to 2.11.3, a
/// bucket to which expiry is added expires nothing; up to 2.11.6, the end of a deletion's marker is reported as another deletion.
const OLDEST_SERVER: (u64, u64, u64) = (2, 11, 7);

/// How often a message is offered again to a server that has too many in hand (error 10167), and the pause in between.
const BUSY_ATTEMPTS: u32 = 5;
const BUSY_DELAY: Duration = Duration::from_millis(50);

/// How often a message that nobody takes is offered, and the pause in between: the leader of its stream may be elected just now, or its
/// subscription may not have reached the other servers yet. NATS's client libraries do the same.
const NO_RESPONDERS_ATTEMPTS: u32 = 3;
const NO_RESPONDERS_DELAY: Duration = Duration::from_millis(250);

/// After this time an unacknowledged message may have no stream, so JetStream is asked whether there is one.
const UNSTORED_AFTER: Duration = Duration::from_millis(500);

/// Advice if there is no JetStream.
pub(super) const ENABLE_JETSTREAM: &str = "turn it on (`jetstream {}` in the server's configuration, limits in the account)";

/// Advice if a login may not make or change buckets. It is the same for each bucket, so that it is shown once.
const BUCKETS_MISSING: &str =
    "buckets of the fleet are missing and this login may not make them: run `fleetpull nats-setup` once with a login that may";
const BUCKETS_OUTDATED: &str =
    "buckets of the fleet lack settings and this login may not change them: run `fleetpull nats-setup` once with a login that may";

/// Error codes of JetStream, from the server's list of errors.
pub(super) mod code {
    pub(in crate::nats) const ACCOUNT_RESOURCES_EXCEEDED: u64 = 10002;
    pub(in crate::nats) const NO_PEERS: u64 = 10005;
    pub(in crate::nats) const NOT_AVAILABLE: u64 = 10008;
    pub(in crate::nats) const INSUFFICIENT_RESOURCES: u64 = 10023;
    pub(in crate::nats) const STREAMS_LIMIT: u64 = 10027;
    pub(in crate::nats) const NO_MESSAGE_FOUND: u64 = 10037;
    pub(in crate::nats) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    pub(in crate::nats) const NO_STORAGE: u64 = 10047;
    pub(in crate::nats) const STREAM_NAME_IN_USE: u64 = 10058;
    pub(in crate::nats) const STREAM_NOT_FOUND: u64 = 10059;
    pub(in crate::nats) const SUBJECT_OVERLAP: u64 = 10065;
    pub(in crate::nats) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(in crate::nats) const REPLICAS_NOT_SUPPORTED: u64 = 10074;
    pub(in crate::nats) const NOT_ENABLED: u64 = 10076;
    pub(in crate::nats) const STREAM_STORE_FAILED: u64 = 10077;
    pub(in crate::nats) const STREAM_BYTES_LIMIT: u64 = 10122;
    pub(in crate::nats) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10164;
    pub(in crate::nats) const TOO_MANY_REQUESTS: u64 = 10167;
}

/// JetStream over one connection.
#[derive(Clone)]
pub(super) struct JetStream {
    pub(super) connection: Arc<Connection>,
    api_prefix: Arc<str>,
    /// The prefix of bucket subjects if they are in another domain.
    bucket_prefix: Arc<str>,
    pub(super) growing: Arc<Growing>,
}

/// Why a JetStream call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// JetStream refused it.
    Refused { code: u64, description: String },
    /// The bus failed.
    Bus(BusError),
}

impl JetStream {
    pub(super) fn new(connection: Arc<Connection>, api_prefix: &str, foreign_domain: bool) -> Self {
        let bucket_prefix = if foreign_domain { format!("{api_prefix}.") } else { String::new() };
        Self { connection, api_prefix: api_prefix.into(), bucket_prefix: bucket_prefix.into(), growing: Arc::default() }
    }

    /// The health of the bus on a new connection: whether this server gives this login state and streams.
    pub(super) async fn examine(&self) -> BusHealth {
        let degraded = |transient, reason| BusHealth::Degraded { reason, transient };
        let version = self.connection.client.server_info().version;
        if !is_new_enough(&version) {
            let (major, minor, patch) = OLDEST_SERVER;
            return degraded(
                false,
                format!("nats-server {version} is too old for shared state: upgrade it to {major}.{minor}.{patch} or newer"),
            );
        }
        match self.request("INFO", &Value::Null, PROBE_LIMIT).await {
            Ok(_) => BusHealth::Connected,
            Err(CallError::Bus(BusError::NoResponders { .. })) => {
                degraded(false, format!("the server or this account has no JetStream: {ENABLE_JETSTREAM}"))
            }
            Err(CallError::Refused { code: code::NOT_AVAILABLE, description }) => {
                degraded(true, format!("JetStream's cluster has no leader ({description}): start its servers that are down"))
            }
            Err(CallError::Refused { description, .. }) => {
                degraded(false, format!("JetStream refuses this account ({description}): {ENABLE_JETSTREAM}"))
            }
            Err(CallError::Bus(error @ BusError::Forbidden { .. })) => degraded(false, format!("JetStream cannot be asked: {error}")),
            Err(CallError::Bus(error)) => {
                degraded(true, format!("JetStream does not answer ({error}): check its cluster and what this login may publish"))
            }
        }
    }

    /// Fails at once if state and streams are not available.
    pub(super) fn check_available(&self) -> Result<(), BusError> {
        self.connection.check_open()?;
        match self.connection.link.server_health() {
            BusHealth::Degraded { reason, .. } => Err(BusError::Unsupported { reason }),
            _ if !self.connection.is_up() => Err(self.connection.link.disconnected()),
            _ => Ok(()),
        }
    }

    /// Converts an error of a stream operation. If the error lasts until an operator changes something, the bus is degraded from now on.
    pub(super) fn refused(&self, stream: &str, act: Act, error: CallError, doing: &str, config: Option<Value>) -> BusError {
        let forbidden = matches!(error, CallError::Bus(BusError::Forbidden { .. }));
        let reason = match act {
            Act::Make if forbidden => Some(BUCKETS_MISSING.to_owned()),
            Act::Change if forbidden => Some(BUCKETS_OUTDATED.to_owned()),
            _ => refusals::lasting(&error, doing),
        };
        if forbidden {
            self.connection.link.refusals.forbid(stream, act);
        }
        match reason {
            Some(reason) => {
                self.connection.link.refused(stream, act, &reason, config);
                BusError::Unsupported { reason }
            }
            None => error.into_bus(doing),
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
                self.connection.link.request_recheck();
                Err(unavailable)
            }
            answer => answer,
        }
    }

    /// Reads the newest message of a subject by a direct get; none if there is none.
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

    /// Reads the newest message of a subject from the stream's leader, which has every acknowledged message; none if there is none.
    pub(super) async fn newest_by_leader(&self, stream: &str, subject: &str) -> Result<Option<Stored>, CallError> {
        match self.call(&format!("STREAM.MSG.GET.{stream}"), &json!({ "last_by_subj": subject })).await {
            Ok(answer) => Stored::of_leader(&answer["message"]).ok_or_else(|| CallError::Bus(unreadable(subject))).map(Some),
            Err(CallError::Refused { code: code::NO_MESSAGE_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Requests a page of messages by direct get; they are sent to `reply_to`.
    pub(super) async fn ask_for_page(&self, stream: &str, body: &Value, reply_to: &str) -> Result<(), BusError> {
        self.check_available()?;
        let subject = format!("{}.DIRECT.GET.{stream}", self.api_prefix);
        let payload = body.to_string().into();
        self.connection.send(Message { subject, reply_to: Some(reply_to.to_owned()), headers: Headers::new(), payload }).await
    }

    /// Stores a message of a bucket and waits for the acknowledgement. `exists`: the bucket was just seen.
    pub(super) async fn store_in_bucket(&self, mut message: Message, exists: bool) -> Result<Appended, CallError> {
        message.subject.insert_str(0, &self.bucket_prefix);
        if exists { self.store_in_existing(message).await } else { self.store(message).await }
    }

    /// Stores a message whose stream exists, and offers it again if nobody takes it at the moment.
    pub(super) async fn store_in_existing(&self, message: Message) -> Result<Appended, CallError> {
        for _ in 1..NO_RESPONDERS_ATTEMPTS {
            match self.store(message.clone()).await {
                Err(CallError::Bus(BusError::NoResponders { .. })) => tokio::time::sleep(NO_RESPONDERS_DELAY).await,
                stored => return stored,
            }
        }
        self.store(message).await
    }

    /// Stores a message that may have plain subscribers too, and waits for the acknowledgement. Each subscriber gets it once, because it is
    /// offered again only if nobody received it.
    pub(super) async fn append(&self, message: Message) -> Result<Appended, CallError> {
        let subject = message.subject.clone();
        for attempt in 1..=NO_RESPONDERS_ATTEMPTS {
            self.check_available().map_err(CallError::Bus)?;
            let mut asking = pin!(self.connection.ask(message.clone(), ANSWER_LIMIT));
            let answer = match tokio::time::timeout(UNSTORED_AFTER, &mut asking).await {
                Ok(Err(BusError::NoResponders { .. })) if attempt < NO_RESPONDERS_ATTEMPTS => {
                    tokio::time::sleep(NO_RESPONDERS_DELAY).await;
                    continue;
                }
                Ok(answer) => answer,
                // There is a subscriber, because the server did not report that there is none, but it need not be a stream.
                Err(_) if self.is_stored(&subject).await == Some(false) => break,
                Err(_) => asking.await,
            };
            return appended(&subject, &answer.map_err(CallError::Bus)?.payload);
        }
        Err(CallError::Bus(BusError::NoResponders { subject }))
    }

    /// Whether a stream stores this subject; none: unknown at the moment.
    async fn is_stored(&self, subject: &str) -> Option<bool> {
        let names = self.call("STREAM.NAMES", &json!({ "subject": subject })).await.ok()?;
        Some(names["total"].as_u64()? > 0)
    }

    /// Stores a message and waits for the acknowledgement. A server that has too many in hand is offered it again.
    async fn store(&self, message: Message) -> Result<Appended, CallError> {
        self.check_available().map_err(CallError::Bus)?;
        let mut attempt = 1;
        loop {
            let answer = self.connection.ask(message.clone(), ANSWER_LIMIT).await.map_err(CallError::Bus)?;
            match appended(&message.subject, &answer.payload) {
                Err(CallError::Refused { code: code::TOO_MANY_REQUESTS, .. }) if attempt < BUSY_ATTEMPTS => {
                    tokio::time::sleep(BUSY_DELAY * attempt).await;
                    attempt += 1;
                }
                stored => return stored,
            }
        }
    }

    /// The subject of an API call.
    pub(super) fn api_subject(&self, name: &str) -> String {
        format!("{}.{name}", self.api_prefix)
    }

    async fn request(&self, name: &str, body: &Value, limit: Duration) -> Result<Value, CallError> {
        let payload = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let subject = self.api_subject(name);
        let message = Message { subject, reply_to: None, headers: Headers::new(), payload };
        let answer = self.connection.ask(message, limit).await.map_err(CallError::Bus)?;
        parsed(&answer.payload)
    }
}

impl CallError {
    /// Converts to an error of the bus, in words.
    pub(super) fn into_bus(self, doing: &str) -> BusError {
        match self {
            Self::Refused { description, .. } => other(format!("{doing}: {description}")),
            Self::Bus(error) => error,
        }
    }
}

/// Whether this server version can hold the fleet's state. A pre-release counts as its release.
fn is_new_enough(version: &str) -> bool {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = release.split('.').map(str::parse);
    let mut number = || numbers.next().and_then(Result::ok);
    let read = (|| Some((number()?, number()?, number()?)))();
    read.is_some_and(|version: (u64, u64, u64)| version >= OLDEST_SERVER)
}

/// The acknowledgement of a stored message. There is one for each event, so it is read without a [`Value`] in between.
#[derive(Deserialize)]
struct Acknowledgement {
    error: Option<ApiError>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

/// Why JetStream refuses a call.
#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    description: Option<String>,
}

impl From<ApiError> for CallError {
    fn from(error: ApiError) -> Self {
        let description = error.description.unwrap_or_else(|| "no description".to_owned());
        Self::Refused { code: error.err_code, description }
    }
}

/// The place of a message, from its acknowledgement.
fn appended(subject: &str, payload: &[u8]) -> Result<Appended, CallError> {
    let unreadable = || CallError::Bus(unreadable(subject));
    let answer: Acknowledgement = serde_json::from_slice(payload).map_err(|_| unreadable())?;
    if let Some(error) = answer.error {
        return Err(error.into());
    }
    Ok(Appended { sequence: answer.seq.ok_or_else(unreadable)?, duplicate: answer.duplicate })
}

fn parsed(payload: &[u8]) -> Result<Value, CallError> {
    let unreadable = |_| CallError::Bus(unreadable("JetStream"));
    let mut answer: Value = serde_json::from_slice(payload).map_err(unreadable)?;
    match answer.get_mut("error") {
        Some(error) => Err(serde_json::from_value::<ApiError>(error.take()).map_err(unreadable)?.into()),
        None => Ok(answer),
    }
}

fn unreadable(what: &str) -> BusError {
    other(format!("{what}: the answer cannot be read; is something else answering there?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_new_enough_from_the_oldest_on_that_the_conformance_suite_passes() {
        for (version, new_enough) in [
            ("2.9.10", false),
            ("2.11.0", false),
            ("2.11.6", false),
            ("2.11.7", true),
            ("2.11.7-RC.1", true),
            ("2.11.11", true),
            ("2.12.0", true),
            ("2.15.1", true),
            ("3.0.0", true),
            ("", false),
            ("2.11", false),
            ("devel", false),
        ] {
            assert_eq!(is_new_enough(version), new_enough, "{version:?}");
        }
    }
}
