//! `nats-setup` creates the buckets and the stream that agents need, and changes existing ones only by its rule.

use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions};
use bus::{Message, Messaging as _};
use e2e::Workplace;
use serde_json::{Value, json};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::NOBODY;

const LIMIT: Duration = Duration::from_secs(10);
const BUCKETS: [&str; 7] = [
    "fleetpull-reports",
    "fleetpull-leases",
    "fleetpull-leaders",
    "fleetpull-pauses",
    "fleetpull-members",
    "fleetpull-policy",
    "fleetpull-keys",
];

/// The answer of JetStream's API.
fn api(server: &NatsServer, call: &str, body: &Value) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = bus.request(Message::new(format!("$JS.API.STREAM.{call}"), body), LIMIT).await.unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    })
}

fn config(server: &NatsServer, bucket: &str) -> Value {
    api(server, &format!("INFO.KV_{bucket}"), &Value::Null)["config"].take()
}

/// The rows of a run with these options and this exit status.
fn set_up(place: &Workplace, server: &NatsServer, options: &[&str], status: i32) -> Vec<Value> {
    let (url, json) = (server.url(), ["-o", "json"]);
    place.run(&[&["nats-setup", "--nats", &url], &json[..], options].concat()).expect(status).objects()
}

fn states(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["state"].as_str().unwrap()).collect()
}

#[test]
fn it_makes_each_bucket_once_and_a_dry_run_makes_none() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let missing = set_up(&place, &server, &["--dry-run"], 1);
    let (buckets, stream) = missing.split_at(BUCKETS.len());
    assert_eq!(buckets.iter().map(|row| row["bucket"].as_str().unwrap()).collect::<Vec<_>>(), BUCKETS);
    assert_eq!(stream.iter().map(|row| &row["bucket"]).collect::<Vec<_>>(), ["FLEETPULL_EVENTS"]);
    assert_eq!(states(&missing), ["missing"; 8]);
    assert_eq!(api(&server, "NAMES", &Value::Null)["total"], 0);

    let made = set_up(&place, &server, &[], 0);
    assert_eq!(states(&made), ["made"; 8]);
    assert!(made.iter().all(|row| row["replicas"] == 1), "{made:?}");
    let before: Vec<Value> = BUCKETS.iter().map(|bucket| config(&server, bucket)).collect();
    for options in [&[][..], &["--force"], &["--dry-run"]] {
        assert_eq!(states(&set_up(&place, &server, options, 0)), ["unchanged"; 8]);
    }
    assert_eq!(BUCKETS.iter().map(|bucket| config(&server, bucket)).collect::<Vec<_>>(), before);
    let reports = &before[0];
    for (setting, value) in [
        ("discard", json!("old")),
        ("max_bytes", json!(16 * 1024 * 1024)),
        ("max_msgs_per_subject", json!(1)),
        ("allow_msg_ttl", json!(true)),
        ("subject_delete_marker_ttl", json!(60_000_000_000_u64)),
        ("deny_delete", json!(true)),
    ] {
        assert_eq!(reports[setting], value, "{setting}");
    }
    assert_eq!(reports["republish"]["dest"], "fleetpull.v1.know.reports.>");
    // Otherwise each writer of the bucket could empty it by a header.
    for bucket in [&before[5], &before[6]] {
        assert_ne!(bucket["allow_rollup_hdrs"], true);
    }
    let text = place.run(&["nats-setup", "--nats", &server.url()]).expect(0);
    assert!(text.stdout.contains("BUCKET") && text.stdout.contains("fleetpull-keys"), "{text}");
    assert!(text.stderr.contains("nothing was changed"), "{text}");
}

#[test]
fn different_setting_is_shown_and_changed_only_without_data_loss() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    set_up(&place, &server, &["--fleet", "other"], 0);
    set_up(&place, &server, &[], 0);
    // A configuration as an operator, or an earlier version, may have set it.
    let mut set = config(&server, "fleetpull-pauses");
    set["max_bytes"] = json!(1_000);
    set["allow_direct"] = json!(false);
    set["max_msgs_per_subject"] = json!(5);
    set["description"] = json!("ours");
    assert!(api(&server, "UPDATE.KV_fleetpull-pauses", &set)["error"].is_null());

    let differing = |rows: &[Value]| -> Vec<(String, String, bool)> {
        let differences = rows[3]["differences"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut all: Vec<_> =
            differences.map(|one| (text(&one["setting"]), text(&one["change"]), one["changed"].as_bool().unwrap())).collect();
        all.sort();
        all
    };
    let row = |setting: &str, change: &str, changed| (setting.to_owned(), change.to_owned(), changed);
    let all =
        |safe, forced| [row("allow_direct", "safe", safe), row("max_bytes", "safe", safe), row("max_msgs_per_subject", "forced", forced)];
    let dry = set_up(&place, &server, &["--dry-run", "--force"], 1);
    assert_eq!((states(&dry)[3], differing(&dry)), ("differs", all(false, false).to_vec()));
    assert_eq!(config(&server, "fleetpull-pauses")["max_bytes"], 1_000);
    let text = place.run(&["nats-setup", "--dry-run", "--nats", &server.url()]).expect(1);
    assert!(text.stdout.contains("max_bytes: 1000, wanted 1048576 (to be changed)"), "{text}");

    let safe = set_up(&place, &server, &[], 1);
    assert_eq!((states(&safe)[3], differing(&safe)), ("differs", all(true, false).to_vec()));
    let forced = set_up(&place, &server, &["--force"], 0);
    assert_eq!((states(&forced)[3], differing(&forced)), ("changed", [row("max_msgs_per_subject", "forced", true)].to_vec()));
    assert_eq!(states(&set_up(&place, &server, &[], 0)), ["unchanged"; 8]);
    assert_eq!(config(&server, "fleetpull-pauses")["description"], "ours", "settings that it does not know stay");
}

#[test]
fn the_stream_stores_under_few_subjects_and_another_transform_is_replaced_by_force_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    set_up(&place, &server, &[], 0);
    let found = || api(&server, "INFO.FLEETPULL_EVENTS", &Value::Null)["config"].take();
    let wanted = json!({
        "src": "fleetpull.v1.evt.*.*.*",
        "dest": "fleetpull.v1.evt.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(512,3)}}",
    });
    assert_eq!(found()["subject_transform"], wanted);
    let set = |transform: Value| {
        let mut config = found();
        config["subject_transform"] = transform;
        let updated = api(&server, "UPDATE.FLEETPULL_EVENTS", &config);
        assert!(updated["error"].is_null(), "{updated}");
    };
    // The configuration of an earlier version.
    set(Value::Null);
    assert_eq!(states(&set_up(&place, &server, &["--dry-run"], 1))[7], "differs");
    assert_eq!(states(&set_up(&place, &server, &[], 0))[7], "changed");
    assert_eq!(found()["subject_transform"], wanted);
    // An operator's own transform: agents would not find the stored events.
    set(json!({ "src": "fleetpull.v1.evt.*.*.*", "dest": "fleetpull.v1.evt.{{wildcard(1)}}" }));
    let agent = e2e::Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    e2e::until("its events wait", || (agent.counter("events_stream_failures_total") > 1).then_some(()));
    assert!(agent.counter("events_waiting") > 0);
    assert_eq!(states(&set_up(&place, &server, &[], 1))[7], "differs");
    assert_eq!(states(&set_up(&place, &server, &["--force"], 0))[7], "changed");
    e2e::until("the stream has them", || (agent.counter("events_waiting") == 0).then_some(()));
}

#[test]
fn failed_nats_setup_is_reported_with_advice() {
    let place = Workplace::new();
    let nobody = place.run(&["nats-setup"]).expect(2);
    assert!(nobody.stderr.contains("--nats URL"), "{nobody}");
    let unreached = place.run(&["nats-setup", "--nats", &format!("nats://{NOBODY}")]).expect(1);
    assert!(unreached.stderr.contains("no server listens there"), "{unreached}");
    if met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default().without_jetstream());
    let without = place.run(&["nats-setup", "--nats", &server.url()]).expect(1);
    assert!(without.stderr.contains("no JetStream") && without.stderr.contains("turn it on"), "{without}");
    let denied =
        "authorization { users: [{ user: ann, password: pw, permissions: { publish: { deny: [\"$JS.API.STREAM.CREATE.>\"] } } }] }";
    let server = NatsServer::start(NatsConfig::default().with(denied));
    let forbidden = place.run(&["nats-setup", "--nats", &format!("nats://ann:pw@{}", server.address())]).expect(1);
    assert!(forbidden.stderr.contains("may not publish to $JS.API.STREAM.CREATE.KV_fleetpull-reports"), "{forbidden}");
}
