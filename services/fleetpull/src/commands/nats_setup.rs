//! `fleetpull nats-setup`

use actors::bucket_spec;
use anyhow::{Context as _, Result};
use bus::nats::{BucketSetup, Change, Difference, SetupOptions, SetupState};
use contract::know::SharedBucket;
use contract::subject::Fleet;
use event_recorder::{StreamLimits, event_stream};
use serde::Serialize;
use serde_json::Value;

use super::nats_accounts;
use crate::cli::{NatsSetupArgs, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::connect_nats;
use crate::output::{self, table};

/// A bucket in JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonBucket<'a> {
    kind: &'static str,
    bucket: &'a str,
    /// `made`, `missing`, `unchanged`, `changed`, `differs`.
    state: &'static str,
    /// Null if the bucket is missing.
    replicas: Option<u64>,
    differences: Vec<JsonDifference<'a>>,
}

/// A setting that differed from what agents need.
#[derive(Serialize)]
struct JsonDifference<'a> {
    setting: &'a str,
    found: &'a Value,
    wanted: &'a Value,
    /// `safe`, `forced`, `impossible`.
    change: &'static str,
    changed: bool,
}

/// Makes or changes the fleet's buckets.
pub(super) fn carry_out(args: &NatsSetupArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.settings, args.flags())?;
    configuration.start_log("error");
    let fleet = Fleet::named(&configuration.settings().fleet.name).context("fleet.name is not valid")?;
    if let Some(directory) = &args.accounts.directory {
        return nats_accounts::carry_out(args, configuration.settings(), fleet, directory);
    }
    actix::System::new().block_on(async {
        let bus = connect_nats(configuration.settings()).await?;
        let options = SetupOptions { dry_run: args.dry_run, force: args.force, replicas: args.replicas };
        let mut done = Vec::new();
        for bucket in SharedBucket::all(&fleet) {
            let name = bucket.name.clone();
            let setup = bus.set_up(&bucket_spec(bucket), options).await;
            done.push((name.clone(), setup.with_context(|| format!("the bucket {name} cannot be set up"))?));
        }
        let events = &configuration.settings().events;
        let spec = event_stream(&fleet, StreamLimits { max_age: events.stream_max_age, max_bytes: events.stream_max_bytes });
        let setup = bus.set_up_stream(&spec, options).await;
        done.push((spec.name.clone(), setup.with_context(|| format!("the stream {} cannot be set up", spec.name))?));
        Ok(report(args, &done))
    })
}

fn report(args: &NatsSetupArgs, done: &[(String, BucketSetup)]) -> Exit {
    match args.output.format {
        OutputFormat::Json => done.iter().for_each(|(bucket, setup)| output::json(&json(bucket, setup))),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = done.iter().flat_map(|(bucket, setup)| rows(bucket, setup)).collect();
            table::columns(&["BUCKET", "STATE", "REPLICAS", "SETTING"], &rows).iter().for_each(|line| output::fact(line));
            if !args.output.quiet {
                output::remark(remark(args.dry_run, done));
            }
        }
    }
    let left = done.iter().any(|(_, setup)| matches!(setup.state, SetupState::Missing | SetupState::Differs));
    if left { Exit::Failure } else { Exit::Success }
}

fn remark(dry_run: bool, done: &[(String, BucketSetup)]) -> &'static str {
    let all = |state: SetupState| done.iter().all(|(_, setup)| setup.state == state);
    let any = |state: SetupState| done.iter().any(|(_, setup)| setup.state == state);
    match () {
        () if all(SetupState::Unchanged) => "All buckets are as agents need them: nothing was changed.",
        () if dry_run => "This is a dry run: nothing was changed.",
        () if any(SetupState::Differs) => "What differs still may work; --force changes what the server can change.",
        () => "Agents use the buckets within 10 s.",
    }
}

fn json<'a>(bucket: &'a str, setup: &'a BucketSetup) -> JsonBucket<'a> {
    let difference = |one: &'a Difference| JsonDifference {
        setting: &one.setting,
        found: &one.found,
        wanted: &one.wanted,
        change: match one.change {
            Change::Safe => "safe",
            Change::Forced => "forced",
            Change::Impossible => "impossible",
        },
        changed: one.changed,
    };
    JsonBucket {
        kind: "bucket",
        bucket,
        state: word(setup.state),
        replicas: setup.replicas,
        differences: setup.differences.iter().map(difference).collect(),
    }
}

fn word(state: SetupState) -> &'static str {
    match state {
        SetupState::Made => "made",
        SetupState::Missing => "missing",
        SetupState::Unchanged => "unchanged",
        SetupState::Changed => "changed",
        SetupState::Differs => "differs",
    }
}

/// A row for each setting that differs. The first row names the bucket.
fn rows(bucket: &str, setup: &BucketSetup) -> Vec<Vec<String>> {
    let replicas = setup.replicas.map_or_else(|| "-".to_owned(), |replicas| replicas.to_string());
    let mut settings = setup.differences.iter().map(|difference| setting(bucket, difference));
    let first = vec![bucket.to_owned(), word(setup.state).to_owned(), replicas, settings.next().unwrap_or_default()];
    let more = settings.map(|setting| vec![String::new(), String::new(), String::new(), setting]);
    std::iter::once(first).chain(more).collect()
}

fn setting(bucket: &str, difference: &Difference) -> String {
    let Difference { setting, found, wanted, change, changed } = difference;
    let how = match (changed, change) {
        (true, _) => "changed".to_owned(),
        (false, Change::Safe) => "to be changed".to_owned(),
        (false, Change::Forced) => "--force changes it".to_owned(),
        (false, Change::Impossible) => format!("`nats stream rm KV_{bucket}` and this command make it anew; agents fill it again"),
    };
    let found = if found.is_null() { "nothing".to_owned() } else { found.to_string() };
    format!("{setting}: {found}, wanted {wanted} ({how})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn difference(setting: &str, change: Change, changed: bool) -> Difference {
        Difference { setting: setting.to_owned(), found: json!(null), wanted: json!(1), change, changed }
    }

    #[test]
    fn each_setting_that_differs_has_a_row_with_what_a_change_needs() {
        let differences = vec![
            difference("max_bytes", Change::Safe, true),
            difference("max_age", Change::Safe, false),
            difference("republish", Change::Forced, false),
            difference("storage", Change::Impossible, false),
        ];
        let setup = BucketSetup { state: SetupState::Differs, replicas: Some(3), differences };
        let rows = rows("f-keys", &setup);
        assert_eq!(rows[0], ["f-keys", "differs", "3", "max_bytes: nothing, wanted 1 (changed)"]);
        let settings: Vec<&str> = rows[1..].iter().map(|row| row[3].as_str()).collect();
        assert_eq!(
            settings,
            [
                "max_age: nothing, wanted 1 (to be changed)",
                "republish: nothing, wanted 1 (--force changes it)",
                "storage: nothing, wanted 1 (`nats stream rm KV_f-keys` and this command make it anew; agents fill it again)",
            ]
        );
        let value = serde_json::to_value(super::json("f-keys", &setup)).expect("serialises");
        assert_eq!(
            value["differences"][3],
            json!({ "setting": "storage", "found": null, "wanted": 1, "change": "impossible", "changed": false })
        );
    }

    #[test]
    fn a_bucket_that_is_missing_is_kept_on_no_server() {
        let setup = BucketSetup { state: SetupState::Missing, replicas: None, differences: Vec::new() };
        assert_eq!(rows("f-keys", &setup), [["f-keys", "missing", "-", ""]]);
        assert!(serde_json::to_value(super::json("f-keys", &setup)).expect("serialises")["replicas"].is_null());
    }
}
