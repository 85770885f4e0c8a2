//! The replicas of a stream: three if there are three servers, so that the loss of one server loses nothing; and which of their servers are
//! down.
//!
//! A cluster may be only partly up when the first agent asks. A stream made then has one replica and is marked, and more replicas are
//! requested now and then until it has three. What an operator made is not changed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tracing::{debug, info};

use super::jetstream::{CallError, JetStream, code};
use super::link::Phase;
use super::streams;
use crate::error::BusError;
use crate::shared_state::BucketServers;

/// The least number of replicas that still has a majority after the loss of one.
pub(super) const REPLICAS: u64 = 3;

/// The metadata key of a stream that was made with fewer replicas than were wanted.
const MARK: &str = "fleetpull-replicas-wanted";

/// The pause before more replicas are requested, up to twice this, so that not all agents ask at once. It doubles each time, because a
/// cluster of two servers never has a third.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3_600);

/// A server counts as down if the stream's leader has received nothing from it for this long. nats-server then no longer reports the
/// replica as current, but it marks a server that was killed as offline much later.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// The streams for which this process requests more replicas.
#[derive(Default)]
pub(super) struct Growing(Mutex<BTreeSet<String>>);

/// Makes a stream with three replicas if JetStream has three servers, else with one.
pub(super) async fn create(jetstream: &JetStream, stream: &str, mut config: Value) -> Result<Value, CallError> {
    let name = format!("STREAM.CREATE.{stream}");
    config["num_replicas"] = json!(REPLICAS);
    let (code, description) = match jetstream.call(&name, &config).await {
        // Somebody else has made it, or nothing can be made now.
        refused @ Err(CallError::Refused { code: code::STREAM_NAME_IN_USE | code::NOT_AVAILABLE, .. }) => return refused,
        Err(CallError::Refused { code, description }) => (code, description),
        done => return done,
    };
    config["num_replicas"] = json!(1);
    // A server that is not part of a cluster never has others.
    if code != code::REPLICAS_NOT_SUPPORTED {
        info!(stream, description, "the stream has one replica: JetStream cannot provide {REPLICAS} now");
        config["metadata"] = json!({ MARK: REPLICAS.to_string() });
    }
    jetstream.call(&name, &config).await
}

/// Requests more replicas, later, of a stream that was made with fewer than were wanted.
pub(super) fn grow_later(jetstream: &JetStream, stream: &str, config: &Value) {
    if !wants_more(config) || !jetstream.growing.begin(stream) {
        return;
    }
    let (jetstream, stream) = (jetstream.clone(), stream.to_owned());
    let growing = async move {
        tokio::select! {
            () = jetstream.connection.link.until(Phase::Closed) => {}
            () = grow(&jetstream, &stream) => jetstream.growing.end(&stream),
        }
    };
    tasks::spawn("bus-replicas", growing);
}

async fn grow(jetstream: &JetStream, stream: &str) {
    let mut after = FIRST_AFTER;
    loop {
        tokio::time::sleep(after.mul_f64(1.0 + rand::random::<f64>())).await;
        match more(jetstream, stream).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(CallError::Bus(BusError::Forbidden { .. })) => {
                debug!(stream, "the stream keeps one replica: this login may not change it");
                return;
            }
            Err(error) => debug!(stream, ?error, "the stream still has one replica"),
        }
        after = (after * 2).min(LONGEST);
    }
}

/// Requests more replicas; returns whether nothing is left to do.
async fn more(jetstream: &JetStream, stream: &str) -> Result<bool, CallError> {
    let mut found = match jetstream.call(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
        // If the stream is made again, this begins anew.
        Err(CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) => return Ok(true),
        found => found?,
    };
    let config = found["config"].take();
    if !wants_more(&config) {
        return Ok(true);
    }
    let changes = [("num_replicas", json!(REPLICAS)), ("metadata", unmarked(&config))];
    streams::update(jetstream, stream, config, &changes).await?;
    info!(stream, "the stream has {REPLICAS} replicas from now on");
    Ok(true)
}

/// The metadata of a stream that has its replicas. From now on it is not changed.
pub(super) fn unmarked(config: &Value) -> Value {
    let mut metadata = config["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove(MARK);
    }
    metadata
}

/// The servers that hold a stream, from the `cluster` of JetStream's information on it. None if it names no leader.
pub(super) fn servers(cluster: &Value) -> Option<BucketServers> {
    if cluster["leader"].as_str().is_none_or(str::is_empty) {
        return None;
    }
    let others = cluster["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut down: Vec<String> = others.iter().filter(|replica| is_down(replica)).map(server_name).collect();
    down.sort();
    Some(BucketServers { total: others.len() as u64 + 1, down })
}

/// Whether the leader has lost contact with the server of a replica. A leader that was elected after a server died has received nothing
/// from it: the replica is then not current, and its time is zero.
fn is_down(replica: &Value) -> bool {
    let is_set = |key: &str| replica[key].as_bool().unwrap_or(false);
    let silent_for = Duration::from_nanos(replica["active"].as_u64().unwrap_or_default());
    is_set("offline") || silent_for >= DOWN_AFTER || (silent_for.is_zero() && !is_set("current"))
}

/// The name of a replica's server, or its id if the leader does not know the name.
fn server_name(replica: &Value) -> String {
    let names = [&replica["name"], &replica["peer"]];
    names.into_iter().filter_map(Value::as_str).find(|name| !name.is_empty()).unwrap_or("unknown").to_owned()
}

fn wants_more(config: &Value) -> bool {
    config["metadata"][MARK].is_string() && config["num_replicas"].as_u64().is_some_and(|replicas| replicas < REPLICAS)
}

impl Growing {
    /// Marks the stream as being worked on; false if it is already.
    fn begin(&self, stream: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.to_owned())
    }

    fn end(&self, stream: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_under_replicated_bucket_is_raised() {
        for (config, wants) in [
            (json!({ "num_replicas": 1, "metadata": { MARK: "3" } }), true),
            (json!({ "num_replicas": 3, "metadata": { MARK: "3" } }), false),
            (json!({ "num_replicas": 1, "metadata": { "other": "3" } }), false),
            (json!({ "num_replicas": 1 }), false),
        ] {
            assert_eq!(wants_more(&config), wants, "{config}");
        }
    }

    #[test]
    fn server_is_down_if_the_leader_receives_nothing_from_it() {
        let of_three =
            |third: Value| json!({ "name": "c", "leader": "s0", "replicas": [{ "name": "s1", "current": true, "active": 9 }, third] });
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        for (cluster, expected) in [
            (json!({ "leader": "s0" }), Some((1, vec![]))),
            (of_three(json!({ "name": "s2", "current": true, "active": seconds(1) })), Some((3, vec![]))),
            // It has restarted and copies what it lacks.
            (of_three(json!({ "name": "s2", "current": false, "active": 9, "lag": 700 })), Some((3, vec![]))),
            // It was stopped.
            (of_three(json!({ "name": "s2", "current": true, "offline": true, "active": seconds(1) })), Some((3, vec!["s2"]))),
            // It was killed, as its leader sees it, and as a leader that was elected afterwards sees it.
            (of_three(json!({ "name": "s2", "current": false, "active": seconds(10) })), Some((3, vec!["s2"]))),
            (of_three(json!({ "name": "s2", "current": false, "active": 0, "lag": 2 })), Some((3, vec!["s2"]))),
            (of_three(json!({ "name": "", "peer": "k2My6qdB", "current": false, "offline": true })), Some((3, vec!["k2My6qdB"]))),
            (json!({ "name": "c", "leader": "" }), None),
            (Value::Null, None),
        ] {
            let down = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
            let expected = expected.map(|(total, names)| BucketServers { total, down: down(names) });
            assert_eq!(servers(&cluster), expected, "{cluster}");
        }
    }
}
