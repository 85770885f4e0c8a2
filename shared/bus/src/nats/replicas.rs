//! On how many servers something is kept: on three where there are three, so that the loss of one loses nothing.
//!
//! A cluster that is only partly up when the first agent asks has no three servers to give. What is made then is kept on one and
//! marked, and three are asked for now and then until it has them. What an operator made is left as it is.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tracing::{debug, info};

use super::jetstream::{CallError, JetStream, code};
use super::link::Phase;
use super::streams;
use crate::error::BusError;

/// The least number that is still whole without one.
pub(super) const REPLICAS: u64 = 3;

/// Marks what was made with fewer than were wanted, in its metadata.
const MARK: &str = "fleetpull-replicas-wanted";

/// How long after it was made, or found, more replicas are asked for: twice that at most, so that not all agents ask at once. Doubles
/// each time, as a cluster of two servers has no third for ever.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3_600);

/// What is being given more replicas by this process.
#[derive(Default)]
pub(super) struct Growing(Mutex<BTreeSet<String>>);

/// Makes a stream: on three servers if JetStream has them, else on one.
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
    // A server that is no part of a cluster never has others.
    if code != code::REPLICAS_NOT_SUPPORTED {
        info!(stream, description, "it is kept on one server, as JetStream does not give {REPLICAS} now");
        config["metadata"] = json!({ MARK: REPLICAS.to_string() });
    }
    jetstream.call(&name, &config).await
}

/// Sees to more replicas of a stream that was made with fewer than were wanted.
pub(super) fn see_to(jetstream: &JetStream, stream: &str, config: &Value) {
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
                debug!(stream, "it is kept on one server: this login may not change that");
                return;
            }
            Err(error) => debug!(stream, ?error, "it is kept on one server still"),
        }
        after = (after * 2).min(LONGEST);
    }
}

/// Asks for more replicas; whether nothing is left to be done.
async fn more(jetstream: &JetStream, stream: &str) -> Result<bool, CallError> {
    let mut found = match jetstream.call(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
        // Who makes it again begins anew.
        Err(CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) => return Ok(true),
        found => found?,
    };
    let config = found["config"].take();
    if !wants_more(&config) {
        return Ok(true);
    }
    let changes = [("num_replicas", json!(REPLICAS)), ("metadata", unmarked(&config))];
    streams::update(jetstream, stream, config, &changes).await?;
    info!(stream, "it is kept on {REPLICAS} servers from now on");
    Ok(true)
}

/// The metadata of a stream that has its replicas: from now on it is as its operator wants it.
pub(super) fn unmarked(config: &Value) -> Value {
    let mut metadata = config["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove(MARK);
    }
    metadata
}

fn wants_more(config: &Value) -> bool {
    config["metadata"][MARK].is_string() && config["num_replicas"].as_u64().is_some_and(|replicas| replicas < REPLICAS)
}

impl Growing {
    /// Whether nobody was at it yet.
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
    fn only_what_was_made_with_fewer_than_wanted_wants_more() {
        for (config, wants) in [
            (json!({ "num_replicas": 1, "metadata": { MARK: "3" } }), true),
            (json!({ "num_replicas": 3, "metadata": { MARK: "3" } }), false),
            (json!({ "num_replicas": 1, "metadata": { "other": "3" } }), false),
            (json!({ "num_replicas": 1 }), false),
        ] {
            assert_eq!(wants_more(&config), wants, "{config}");
        }
    }
}
