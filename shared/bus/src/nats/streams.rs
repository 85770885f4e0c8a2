//! Streams, and the streams of buckets. Missing ones are made, missing capabilities are added, and the rest is left as the operator set it.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::debug;

use super::connection::other;
use super::jetstream::{CallError, JetStream, code};
use super::refusals::Act;
use super::replicas;
use crate::error::BusError;
use crate::event_log::{StreamSpec, StreamStatus, SubjectTransform};
use crate::shared_state::{BucketServers, BucketSpec, BucketStatus};

/// The server's default window for message ids; a bucket does not use it.
const BUCKET_DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// An existing stream.
pub(super) struct Existing {
    /// When it was made, as the server writes it. A different time means a different stream.
    pub(super) created: String,
    /// The sequence of its last message.
    pub(super) last_sequence: u64,
    /// The server's time of that answer, as the server writes it; empty if unknown.
    server_time: String,
    /// The number of subjects with messages.
    pub(super) subjects: u64,
    /// Whether JetStream is a cluster, in which each server may lag behind the stream's leader.
    pub(super) clustered: bool,
    /// The servers that hold it, if JetStream names them.
    servers: Option<BucketServers>,
    config: Value,
}

impl Existing {
    /// The server's time of that answer, if known.
    pub(super) fn server_time(&self) -> Option<OffsetDateTime> {
        OffsetDateTime::parse(&self.server_time, &Rfc3339).ok()
    }

    /// The status of the bucket, for its users.
    pub(super) fn status(&self) -> BucketStatus {
        let made = OffsetDateTime::parse(&self.created, &Rfc3339).ok();
        let made_at = made.and_then(|made| (made - OffsetDateTime::UNIX_EPOCH).try_into().ok());
        let age = made.zip(self.server_time()).and_then(|(made, now)| (now - made).try_into().ok());
        BucketStatus {
            created: self.created.clone(),
            sequence: self.last_sequence,
            made_at: made_at.unwrap_or_default(),
            age: age.unwrap_or_default(),
            servers: self.servers.clone(),
        }
    }
}

/// The stream of a bucket.
pub(super) fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// Makes sure that a stream exists and stores its subjects.
pub(super) async fn ensure_stream(jetstream: &JetStream, spec: &StreamSpec) -> Result<StreamStatus, BusError> {
    let existing = ensure(jetstream, &spec.name, stream_config(spec)).await?;
    let status = StreamStatus { created: existing.created, last_sequence: existing.last_sequence };
    let changes = changes_of(spec, &existing.config)?;
    if changes.is_empty() {
        jetstream.connection.link.done(&spec.name, Act::Change);
        return Ok(status);
    }
    let updated = match check_allowed(jetstream, &spec.name, Act::Change, "UPDATE") {
        Ok(()) => update(jetstream, &spec.name, existing.config, &changes).await,
        refused => refused,
    };
    changed(jetstream, &spec.name, updated).map(|()| status)
}

/// The changes that an existing stream needs.
fn changes_of(spec: &StreamSpec, found: &Value) -> Result<Vec<(&'static str, Value)>, BusError> {
    let mut changes = Vec::new();
    let mut subjects: Vec<Value> = found["subjects"].as_array().cloned().unwrap_or_default();
    let missing: Vec<Value> = spec.subjects.iter().map(|subject| json!(subject)).filter(|one| !subjects.contains(one)).collect();
    if !missing.is_empty() {
        subjects.extend(missing);
        changes.push(("subjects", json!(subjects)));
    }
    if let Some(wanted) = &spec.transform {
        let wanted = transform(wanted);
        if found[SUBJECT_TRANSFORM].is_null() {
            changes.push((SUBJECT_TRANSFORM, wanted));
        } else if found[SUBJECT_TRANSFORM] != wanted {
            // With another transform, stored messages would not be found under its subjects.
            let name = &spec.name;
            let reason = format!("the stream {name} stores under other subjects than agents look for: run `fleetpull nats-setup --force`");
            return Err(BusError::Unsupported { reason });
        }
    }
    Ok(changes)
}

const SUBJECT_TRANSFORM: &str = "subject_transform";

fn transform(transform: &SubjectTransform) -> Value {
    json!({ "src": transform.source, "dest": transform.destination })
}

/// Makes sure that a bucket exists and has what its spec asks for; returns its state.
pub(super) async fn ensure_bucket(jetstream: &JetStream, spec: &BucketSpec) -> Result<Existing, BusError> {
    let wanted = bucket_config(spec);
    let stream = stream_of(&spec.name);
    let existing = ensure(jetstream, &stream, wanted.clone()).await?;
    let mut changes = Vec::new();
    if spec.marker_ttl.is_some() && existing.config["subject_delete_marker_ttl"].as_u64().unwrap_or(0) == 0 {
        changes.push(("allow_msg_ttl", json!(true)));
        changes.push(("subject_delete_marker_ttl", wanted["subject_delete_marker_ttl"].clone()));
    }
    if spec.republish_to.is_some() && existing.config["republish"].is_null() {
        changes.push(("republish", wanted["republish"].clone()));
    }
    if changes.is_empty() {
        jetstream.connection.link.done(&stream, Act::Change);
    } else {
        let updated = match check_allowed(jetstream, &stream, Act::Change, "UPDATE") {
            Ok(()) => update(jetstream, &stream, existing.config.clone(), &changes).await,
            refused => refused,
        };
        changed(jetstream, &stream, updated)?;
    }
    Ok(existing)
}

/// Tries again to make what JetStream has refused to make.
pub(super) async fn make_refused(jetstream: &JetStream) {
    for (name, config) in jetstream.connection.link.refusals.to_make() {
        if let Err(error) = ensure(jetstream, &name, config).await {
            debug!(stream = name, %error, "the stream cannot be made yet");
        }
    }
}

async fn ensure(jetstream: &JetStream, name: &str, config: Value) -> Result<Existing, BusError> {
    match find_or_make(jetstream, name, config.clone()).await {
        Ok(found) => {
            jetstream.connection.link.done(name, Act::Make);
            existing(jetstream, name, found)
        }
        Err(error) => Err(jetstream.refused(name, Act::Make, error, &format!("the stream {name}"), Some(config))),
    }
}

/// JetStream's information on a stream, which is made if it does not exist.
async fn find_or_make(jetstream: &JetStream, name: &str, config: Value) -> Result<Value, CallError> {
    let info = format!("STREAM.INFO.{name}");
    match jetstream.call(&info, &Value::Null).await {
        Err(CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) => {
            check_allowed(jetstream, name, Act::Make, "CREATE")?;
            match replicas::create(jetstream, name, config).await {
                // Another client has just made it, with another configuration.
                Err(CallError::Refused { code: code::STREAM_NAME_IN_USE, .. }) => jetstream.call(&info, &Value::Null).await,
                made => made,
            }
        }
        found => found,
    }
}

/// Fails without a request if the server has forbidden this to the login on this connection.
fn check_allowed(jetstream: &JetStream, name: &str, act: Act, verb: &str) -> Result<(), CallError> {
    if jetstream.connection.link.refusals.is_forbidden(name, act) {
        let subject = jetstream.api_subject(&format!("STREAM.{verb}.{name}"));
        return Err(CallError::Bus(BusError::Forbidden { subject }));
    }
    Ok(())
}

fn existing(jetstream: &JetStream, name: &str, mut found: Value) -> Result<Existing, BusError> {
    let created = found["created"].as_str().unwrap_or_default().to_owned();
    let server_time = found["ts"].as_str().unwrap_or_default().to_owned();
    let last_sequence = found["state"]["last_seq"].as_u64().unwrap_or_default();
    let subjects = found["state"]["num_subjects"].as_u64().unwrap_or_default();
    // A server that stands alone names itself as the leader of a cluster without a name.
    let clustered = found["cluster"]["name"].as_str().is_some_and(|name| !name.is_empty());
    // Without a leader, each server answers by its own state.
    if clustered && found["cluster"]["leader"].as_str().is_none_or(str::is_empty) {
        return Err(other(format!("the stream {name}: its servers have no leader now: start those that are down")));
    }
    let servers = replicas::servers(&found["cluster"]);
    let config = found["config"].take();
    replicas::grow_later(jetstream, name, &config);
    Ok(Existing { created, last_sequence, server_time, subjects, clustered, servers, config })
}

/// Changes some settings and leaves all others, including unknown ones, unchanged.
pub(super) async fn update(jetstream: &JetStream, name: &str, mut config: Value, changes: &[(&str, Value)]) -> Result<(), CallError> {
    for (setting, value) in changes {
        config[*setting] = value.clone();
    }
    jetstream.call(&format!("STREAM.UPDATE.{name}"), &config).await.map(|_| ())
}

fn changed(jetstream: &JetStream, name: &str, updated: Result<(), CallError>) -> Result<(), BusError> {
    match updated {
        Ok(()) => {
            jetstream.connection.link.done(name, Act::Change);
            Ok(())
        }
        Err(error) => Err(jetstream.refused(name, Act::Change, error, &format!("a change of the stream {name}"), None)),
    }
}

pub(super) fn stream_config(spec: &StreamSpec) -> Value {
    json!({
        "name": spec.name,
        "subjects": spec.subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": spec.max_age.map_or(0, nanoseconds),
        "max_bytes": limit(spec.max_bytes),
        "duplicate_window": nanoseconds(spec.duplicate_window),
        "allow_direct": true,
        SUBJECT_TRANSFORM: spec.transform.as_ref().map(transform),
    })
}

/// The configuration that the `nats` command and every client library take for a bucket with a history of one.
pub(super) fn bucket_config(spec: &BucketSpec) -> Value {
    let subjects = format!("$KV.{}.>", spec.name);
    json!({
        "name": stream_of(&spec.name),
        "subjects": [subjects],
        "retention": "limits",
        // Revisions must survive a restart of the server: in memory they would start over, and after an outage of a whole cluster a watcher
        // could not tell the new bucket from the old one.
        "storage": "file",
        "discard": if spec.forgets_oldest { "old" } else { "new" },
        "max_msgs_per_subject": 1,
        "max_bytes": limit(spec.max_bytes),
        "duplicate_window": nanoseconds(BUCKET_DUPLICATE_WINDOW),
        "deny_delete": true,
        // A message with the header `Nats-Rollup: all` lets each writer empty the bucket, but nats-server requires this where there are
        // markers.
        "allow_rollup_hdrs": spec.marker_ttl.is_some(),
        "allow_direct": true,
        "allow_msg_ttl": spec.marker_ttl.is_some(),
        "subject_delete_marker_ttl": spec.marker_ttl.map_or(0, nanoseconds),
        "republish": spec.republish_to.as_ref().map(|target| json!({ "src": subjects, "dest": format!("{target}.>") })),
    })
}

/// The server's value for no limit is -1.
fn limit(bytes: Option<u64>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
