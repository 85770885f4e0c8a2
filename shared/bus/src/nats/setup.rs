//! Makes a fleet's buckets once, with a login that may, for agents that may not. Existing buckets are compared and changed by rule.

use serde_json::{Value, json};

use super::NatsBus;
use super::jetstream::{CallError, JetStream, code};
use super::refusals;
use super::replicas::{self, REPLICAS};
use super::streams::{bucket_config, stream_config, stream_of, update};
use crate::error::BusError;
use crate::event_log::StreamSpec;
use crate::rules;
use crate::shared_state::BucketSpec;

/// How a bucket is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetupOptions {
    /// Changes nothing.
    pub dry_run: bool,
    /// Also makes changes that may lose stored values or revert an operator's settings.
    pub force: bool,
    /// The number of replicas of a bucket; none: at least three in a cluster, else one.
    pub replicas: Option<u64>,
}

/// A bucket after it was set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSetup {
    /// What was done or found.
    pub state: SetupState,
    /// The number of its replicas; none: the bucket does not exist.
    pub replicas: Option<u64>,
    /// How it differed from what agents need.
    pub differences: Vec<Difference>,
}

/// What was done to a bucket, or found in a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupState {
    /// It did not exist and was made.
    Made,
    /// It does not exist, and this is a dry run.
    Missing,
    /// It needed no change.
    Unchanged,
    /// All differences were changed.
    Changed,
    /// A difference remains.
    Differs,
}

/// A setting of a bucket's stream that differs from what agents need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name in the stream's configuration.
    pub setting: String,
    /// The value found.
    pub found: Value,
    /// The value that agents need.
    pub wanted: Value,
    /// What it takes to change it.
    pub change: Change,
    /// Whether it was changed.
    pub changed: bool,
}

/// What it takes to change a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing stored is lost, and no user of the bucket misses anything.
    Safe,
    /// Stored values may be lost, or an operator has set it on purpose.
    Forced,
    /// The server does not change it in an existing bucket.
    Impossible,
}

impl NatsBus {
    /// Makes a missing bucket, and changes an existing one to what agents need as far as `options` allow. Repeatable.
    ///
    /// # Errors
    /// [`BusError::BadSubject`] for a name that is not allowed, [`BusError::Unsupported`] if JetStream, its limits or this login's
    /// permissions do not allow it, and those of [`crate::Messaging::request`].
    pub async fn set_up(&self, spec: &BucketSpec, options: SetupOptions) -> Result<BucketSetup, BusError> {
        rules::check_bucket(spec)?;
        self.set_up_as(&stream_of(&spec.name), bucket_config(spec), options).await
    }

    /// As [`NatsBus::set_up`], for a stream. Its age and size belong to the operator: those of an existing stream are not compared.
    ///
    /// # Errors
    /// As [`NatsBus::set_up`].
    pub async fn set_up_stream(&self, spec: &StreamSpec, options: SetupOptions) -> Result<BucketSetup, BusError> {
        rules::check_name(&spec.name)?;
        spec.subjects.iter().try_for_each(|subject| rules::check_pattern(subject))?;
        self.set_up_as(&spec.name, stream_config(spec), options).await
    }

    async fn set_up_as(&self, stream: &str, wanted: Value, options: SetupOptions) -> Result<BucketSetup, BusError> {
        let doing = format!("the stream {stream}");
        set_up(&self.inner.jetstream, stream, wanted, options).await.map_err(|error| match refusals::lasting(&error, &doing) {
            Some(reason) => BusError::Unsupported { reason },
            None => error.into_bus(&doing),
        })
    }
}

async fn set_up(jetstream: &JetStream, stream: &str, wanted: Value, options: SetupOptions) -> Result<BucketSetup, CallError> {
    let mut found = match jetstream.call(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
        Err(CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) if options.dry_run => {
            return Ok(BucketSetup { state: SetupState::Missing, replicas: None, differences: Vec::new() });
        }
        Err(CallError::Refused { code: code::STREAM_NOT_FOUND, .. }) => return make(jetstream, stream, wanted, options).await,
        found => found?,
    };
    let clustered = found["cluster"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let config = found["config"].take();
    let replicas = config["num_replicas"].as_u64().unwrap_or(1);
    let wanted_replicas = options.replicas.unwrap_or(if clustered { replicas.max(REPLICAS) } else { replicas });
    let mut differences = differences(&config, &wanted, wanted_replicas);
    let chosen = |difference: &Difference| match difference.change {
        Change::Safe => true,
        Change::Forced => options.force,
        Change::Impossible => false,
    };
    let mut changes: Vec<(&str, Value)> = Vec::new();
    if !options.dry_run {
        differences.iter_mut().for_each(|difference| difference.changed = chosen(difference));
        changes.extend(differences.iter().filter(|one| one.changed).map(|one| (one.setting.as_str(), one.wanted.clone())));
    }
    let grown = changes.iter().any(|(setting, _)| *setting == NUM_REPLICAS);
    if grown {
        changes.push(("metadata", replicas::unmarked(&config)));
    }
    if !changes.is_empty() {
        update(jetstream, stream, config, &changes).await?;
    }
    let state = match (differences.is_empty(), differences.iter().all(|difference| difference.changed)) {
        (true, _) => SetupState::Unchanged,
        (false, true) => SetupState::Changed,
        (false, false) => SetupState::Differs,
    };
    Ok(BucketSetup { state, replicas: Some(if grown { wanted_replicas } else { replicas }), differences })
}

async fn make(jetstream: &JetStream, stream: &str, mut config: Value, options: SetupOptions) -> Result<BucketSetup, CallError> {
    let name = format!("STREAM.CREATE.{stream}");
    let mut replicas = options.replicas.unwrap_or(REPLICAS);
    config[NUM_REPLICAS] = json!(replicas);
    match jetstream.call(&name, &config).await {
        // A server that is not part of a cluster.
        Err(CallError::Refused { code: code::REPLICAS_NOT_SUPPORTED, .. }) if options.replicas.is_none() => {
            replicas = 1;
            config[NUM_REPLICAS] = json!(replicas);
            jetstream.call(&name, &config).await?;
        }
        made => drop(made?),
    }
    Ok(BucketSetup { state: SetupState::Made, replicas: Some(replicas), differences: Vec::new() })
}

const NUM_REPLICAS: &str = "num_replicas";

/// The differences between a stream's configuration and what agents need.
fn differences(found: &Value, wanted: &Value, replicas: u64) -> Vec<Difference> {
    let mut wanted = wanted.clone();
    wanted[NUM_REPLICAS] = json!(replicas);
    // Agents set no limits when they make a bucket.
    let is_bucket = wanted["max_age"].is_null();
    if is_bucket {
        wanted["max_age"] = json!(0);
        wanted["max_msgs"] = json!(-1);
        wanted["max_msg_size"] = json!(-1);
    }
    let is_compared = |setting: &str| match setting {
        "name" | "duplicate_window" => false,
        "max_age" | "max_bytes" => is_bucket,
        _ => true,
    };
    let settings = wanted.as_object().into_iter().flatten().filter(|(setting, _)| is_compared(setting));
    let differing = settings.filter(|(setting, wanted)| !is_as(&found[setting.as_str()], wanted));
    differing
        .map(|(setting, wanted)| {
            let found = found[setting.as_str()].clone();
            let change = change(setting, &found, wanted);
            Difference { setting: setting.clone(), found, wanted: wanted.clone(), change, changed: false }
        })
        .collect()
}

/// Whether a setting has this value. A server leaves out empty values, and adds defaults to a republication.
fn is_as(found: &Value, wanted: &Value) -> bool {
    let empty = |value: &Value| value.is_null() || *value == json!(false) || *value == json!(0);
    match wanted {
        wanted if empty(wanted) => empty(found),
        Value::Number(number) if number.as_i64() == Some(-1) => empty(found) || found == wanted,
        Value::Object(wanted) => wanted.iter().all(|(name, value)| is_as(&found[name.as_str()], value)),
        wanted => found == wanted,
    }
}

fn change(setting: &str, found: &Value, wanted: &Value) -> Change {
    // For limits, null and -1 mean none.
    let limit = |value: &Value| value.as_i64().filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    match setting {
        "storage" | "retention" => Change::Impossible,
        "allow_direct" | "allow_msg_ttl" | "deny_delete" | "allow_rollup_hdrs" | "discard" => Change::Safe,
        "max_bytes" | "max_age" | "max_msgs" | "max_msg_size" if limit(wanted) > limit(found) => Change::Safe,
        NUM_REPLICAS if wanted.as_u64() > found.as_u64() => Change::Safe,
        "republish" | "subject_transform" if found.is_null() => Change::Safe,
        "subject_delete_marker_ttl" if found.as_u64().unwrap_or(0) == 0 => Change::Safe,
        _ => Change::Forced,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spec() -> BucketSpec {
        let marker_ttl = Some(Duration::from_secs(60));
        let republish_to = Some("changes".to_owned());
        BucketSpec { name: "state".to_owned(), marker_ttl, max_bytes: Some(1_000), forgets_oldest: false, republish_to }
    }

    #[test]
    fn difference_states_if_the_setting_can_be_changed() {
        let wanted = bucket_config(&spec());
        for (setting, found, change) in [
            ("storage", json!("memory"), Change::Impossible),
            ("retention", json!("workqueue"), Change::Impossible),
            ("allow_direct", json!(null), Change::Safe),
            ("allow_rollup_hdrs", json!(false), Change::Safe),
            ("deny_delete", json!(false), Change::Safe),
            ("discard", json!("old"), Change::Safe),
            ("max_bytes", json!(999), Change::Safe),
            ("max_bytes", json!(1_001), Change::Forced),
            ("max_bytes", json!(-1), Change::Forced),
            ("max_age", json!(7), Change::Safe),
            ("max_msgs_per_subject", json!(5), Change::Forced),
            ("num_replicas", json!(1), Change::Safe),
            ("num_replicas", json!(5), Change::Forced),
            ("republish", json!(null), Change::Safe),
            ("republish", json!({ "src": ">", "dest": "elsewhere" }), Change::Forced),
            ("subject_delete_marker_ttl", json!(null), Change::Safe),
            ("subject_delete_marker_ttl", json!(1_000_000_000), Change::Forced),
            ("subjects", json!(["other"]), Change::Forced),
        ] {
            let mut config = wanted.clone();
            config["num_replicas"] = json!(3);
            config[setting] = found.clone();
            let differing = differences(&config, &wanted, 3);
            let seen: Vec<_> = differing.iter().map(|one| (one.setting.as_str(), &one.found, one.change)).collect();
            assert_eq!(seen, [(setting, &found, change)], "{setting}");
        }
    }

    #[test]
    fn fields_that_a_server_adds_or_omits_are_no_difference() {
        let mut config = bucket_config(&spec());
        config["num_replicas"] = json!(1);
        config["republish"]["headers_only"] = json!(false);
        config["max_msgs"] = json!(-1);
        config["max_consumers"] = json!(-1);
        assert_eq!(differences(&config, &bucket_config(&spec()), 1), []);
        let lasting = BucketSpec { marker_ttl: None, republish_to: None, ..spec() };
        let mut config = bucket_config(&lasting);
        config["num_replicas"] = json!(1);
        for setting in ["allow_msg_ttl", "allow_rollup_hdrs", "subject_delete_marker_ttl", "republish"] {
            config.as_object_mut().expect("it is an object").remove(setting);
        }
        assert_eq!(differences(&config, &bucket_config(&lasting), 1), []);
    }
}
