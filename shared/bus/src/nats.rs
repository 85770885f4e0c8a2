//! The bus on a real NATS: nats-server 2.11.7 or newer, with JetStream for state and streams.
//!
//! The client library connects and reconnects by itself. This module adds what it lacks: it fails at once instead of waiting for an absent
//! server, reports problems in words, confirms subscriptions, keeps times to live, and lists state again after every reconnect.

mod connection;
mod context;
mod jetstream;
mod key_value;
mod link;
mod log;
mod login;
mod no_connection;
mod options;
mod reconnect_delay;
mod refusals;
mod replicas;
mod replies;
mod setup;
mod snapshot;
mod stored;
mod streams;
mod target;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use self::connection::{Connection, from_wire};
use self::jetstream::JetStream;
use self::key_value::NatsKeyValue;
use self::link::{Link, Phase};
use self::login::Login;
pub use self::options::{LoggedHealth, NatsOptions, NatsOptionsError};
pub use self::setup::{BucketSetup, Change, Difference, SetupOptions, SetupState};
use self::target::Target;
use crate::caller_state::{ANSWERS_PROBES_HEADER, CallerState};
use crate::error::BusError;
use crate::event_log::{Appended, EventLog, StreamPage, StreamQuery, StreamSpec, StreamStatus};
use crate::health::{BusHealth, HealthChanges};
use crate::message::Message;
use crate::messaging::{Messaging, SUBSCRIPTION_CAPACITY, Subscription};
use crate::port::Bus;
use crate::rules;
use crate::shared_state::{BucketSpec, KeyValue, SharedState};

/// The capacity of the client's command queue. If it is full, a sender waits for a moment and then gets an error.
const COMMAND_CAPACITY: usize = 2048;

/// How often a silent server is pinged. The third ping without an answer ends the connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// How long connecting to one server may take, TLS and login included.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long draining waits for the server; it takes a round trip.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How often the observer checks without an event, because the client library drops events when many come at once.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);

/// How often a server that did not provide state or streams is checked again, so that a repaired server is used soon.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(5);

/// As `EXAMINE_INTERVAL`, if the problem may end by itself: the servers of a cluster elect a leader within seconds.
const PASSING_INTERVAL: Duration = Duration::from_secs(1);

/// A connection to NATS; clones are the same one.
#[derive(Clone)]
pub struct NatsBus {
    inner: Arc<Inner>,
}

struct Inner {
    jetstream: JetStream,
    observer: AbortHandle,
}

impl NatsBus {
    /// Begins to connect and returns at once, whether or not a server is there; it keeps trying. Needs a tokio runtime, which carries the
    /// connection from then on.
    ///
    /// # Errors
    /// [`NatsOptionsError`] if the options cannot be used: no server is named, a file is missing or has the wrong contents.
    pub async fn connect(options: NatsOptions) -> Result<Self, NatsOptionsError> {
        let (fleet_size, logged) = (options.fleet_size, options.logged);
        let target = Target::resolve(options)?;
        // The only provider of cryptography here. An error means that it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shown = target.shown();
        let refused = |why: String| NatsOptionsError::BadUrl { url: shown.clone(), why };
        let link = Arc::new(Link::new(&shown, fleet_size, logged));
        let (api_prefix, foreign_domain) = (target.api_prefix.clone(), target.foreign_domain);
        let servers = target.servers.clone();
        let options = connect_options(target, Arc::clone(&link));
        let client = options.connect(servers).await.map_err(|error| refused(error.to_string()))?;
        let connection = Connection::new(client, link).await.map_err(|error| refused(error.to_string()))?;
        let jetstream = JetStream::new(Arc::new(connection), &api_prefix, foreign_domain);
        let observer = tasks::spawn("bus-observer", observe(jetstream.clone())).abort_handle();
        Ok(Self { inner: Arc::new(Inner { jetstream, observer }) })
    }

    /// Waits until messages flow. State and streams may still be missing; [`Messaging::health`] says so.
    ///
    /// # Errors
    /// [`BusError::Disconnected`] with the reason if that takes longer than `limit`.
    pub async fn wait_connected(&self, limit: Duration) -> Result<(), BusError> {
        let link = &self.connection().link;
        match timeout(limit, link.wait_up()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(link.disconnected()),
        }
    }

    /// True if every server has refused: none listens, or the login is wrong. Changes before [`Messaging::health`] does.
    #[must_use]
    pub fn is_refused_by_all(&self) -> bool {
        self.connection().link.all_refuse()
    }

    fn connection(&self) -> &Connection {
        &self.inner.jetstream.connection
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.observer.abort();
        // Also stops the client library from reconnecting.
        self.jetstream.connection.link.set_phase(Phase::Cut);
    }
}

#[async_trait]
impl Messaging for NatsBus {
    async fn publish(&self, message: Message) -> Result<(), BusError> {
        rules::check_message(&message, self.connection().limit())?;
        self.connection().send(message).await
    }

    async fn subscribe(&self, subject: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        rules::check_pattern(subject)?;
        queue.map_or(Ok(()), rules::check_queue)?;
        let subscriber = self.connection().subscribe(subject, queue).await?;
        Ok(subscriber.map(from_wire).take_until(self.connection().link.until(Phase::Cut)).boxed())
    }

    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, BusError> {
        let mut message = rules::with_deadline(message, timeout);
        message.headers.set(ANSWERS_PROBES_HEADER, "1");
        rules::check_message(&message, self.connection().limit())?;
        self.connection().ask(message, timeout).await.map(from_wire)
    }

    async fn caller_state(&self, request: &Message) -> CallerState {
        match &request.reply_to {
            Some(reply_to) if request.headers.get(ANSWERS_PROBES_HEADER).is_some() => self.connection().probe(reply_to).await,
            _ => CallerState::Unknown,
        }
    }

    fn new_inbox(&self) -> String {
        self.connection().client.new_inbox()
    }

    fn health(&self) -> BusHealth {
        self.connection().link.health()
    }

    fn health_changes(&self) -> HealthChanges {
        self.connection().link.health_changes()
    }

    fn dropped(&self) -> u64 {
        self.connection().link.dropped()
    }

    async fn drain(&self) {
        let connection = self.connection();
        if !connection.link.set_phase(Phase::Closed) {
            return;
        }
        self.inner.observer.abort();
        let finished = connection.is_up() && timeout(DRAIN_LIMIT, connection.finish()).await.is_ok();
        connection.link.set_down("it was closed".to_owned());
        connection.link.set_phase(if finished { Phase::Over } else { Phase::Cut });
    }
}

#[async_trait]
impl SharedState for NatsBus {
    async fn bucket(&self, spec: &BucketSpec) -> Result<Arc<dyn KeyValue>, BusError> {
        rules::check_bucket(spec)?;
        let jetstream = &self.inner.jetstream;
        let existing = streams::ensure_bucket(jetstream, spec).await?;
        Ok(Arc::new(NatsKeyValue::new(jetstream.clone(), spec.clone(), existing.clustered)))
    }
}

#[async_trait]
impl EventLog for NatsBus {
    async fn stream(&self, spec: &StreamSpec) -> Result<StreamStatus, BusError> {
        rules::check_name(&spec.name)?;
        spec.subjects.iter().try_for_each(|subject| rules::check_pattern(subject))?;
        streams::ensure_stream(&self.inner.jetstream, spec).await
    }

    async fn read(&self, query: &StreamQuery) -> Result<StreamPage, BusError> {
        rules::check_name(&query.stream)?;
        query.subjects.iter().try_for_each(|subject| rules::check_pattern(subject))?;
        log::read(&self.inner.jetstream, query).await
    }

    async fn append(&self, mut message: Message, message_id: &str) -> Result<Appended, BusError> {
        message.headers.set("Nats-Msg-Id", message_id.to_owned());
        rules::check_message(&message, self.connection().limit())?;
        let doing = format!("storing a message on {}", message.subject);
        self.inner.jetstream.append(message).await.map_err(|error| error.into_bus(&doing))
    }
}

impl Bus for NatsBus {
    fn set_fleet_size(&self, nodes: u64) {
        self.connection().link.set_fleet_size(nodes);
    }

    fn set_suspended(&self, reason: Option<String>) {
        self.connection().link.set_suspended(reason);
    }
}

/// The options of the client library.
fn connect_options(target: Target, link: Arc<Link>) -> ConnectOptions {
    let Target { login, ca, certificate, tls_first, inbox_prefix, name, .. } = target;
    let events = Arc::clone(&link);
    let login = Arc::new(Mutex::new(login));
    let mut options = ConnectOptions::with_auth_callback(move |nonce| Login::answer(Arc::clone(&login), nonce))
        .retry_on_initial_connect()
        .connection_timeout(CONNECT_LIMIT)
        .ping_interval(PING_INTERVAL)
        .client_capacity(COMMAND_CAPACITY)
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .skip_subject_validation(true)
        .reconnect_to_server_callback(move |pool, _| Arc::clone(&link).choose(pool))
        .event_callback(move |event| {
            events.on_event(event);
            ready(())
        });
    if let Some(ca) = ca {
        options = options.add_root_certificates(ca).require_tls(true);
    }
    if let Some((certificate, key)) = certificate {
        options = options.add_client_certificate(certificate, key).require_tls(true);
    }
    if tls_first {
        options = options.tls_first();
    }
    if let Some(prefix) = inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if let Some(name) = name {
        options = options.name(name);
    }
    options
}

/// Watches the connection: reports whether it is up, and whether state and streams work on it.
async fn observe(jetstream: JetStream) {
    let connection = Arc::clone(&jetstream.connection);
    let link = Arc::clone(&connection.link);
    let (mut examined, mut due) = (0, false);
    let mut again = Box::pin(sleep(EXAMINE_INTERVAL));
    loop {
        let (up, connects) = (connection.is_up(), connection.connects());
        if link.is_suspended() {
            connection.leave().await;
        }
        if !up {
            link.set_lost();
        } else if link.take_recheck_request() || due || examined != connects {
            let health = jetstream.examine().await;
            if !connection.is_up() || connection.connects() != connects {
                continue;
            }
            let transient = matches!(health, BusHealth::Degraded { transient: true, .. });
            let fit = health == BusHealth::Connected;
            link.set_up(health, connects, &connection.server());
            examined = connects;
            if fit {
                streams::make_refused(&jetstream).await;
            }
            again = Box::pin(sleep(if transient { PASSING_INTERVAL } else { EXAMINE_INTERVAL }));
        }
        due = tokio::select! {
            () = &mut again => {
                again = Box::pin(sleep(EXAMINE_INTERVAL));
                link.examined_again();
                matches!(link.health(), BusHealth::Degraded { .. })
            }
            _ = timeout(OBSERVE_INTERVAL, link.changed()) => false,
        };
    }
}
