//! Replays a case of the recording on an agent's actors with the real `cri` runtime over a unix socket.

use std::sync::LazyLock;
use std::time::Duration;

use actors::Delivery;
use backoff_tracker::core::BackoffPolicy;
use base64::Engine as _;
use clock::{Clock, ClockDriver};
use contract::PodRef;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use integration::{Plan, TestNode, UNLIMITED};
use regex::Regex;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use support::scripted_cri::{self, CODES, PresentImage, Script, ScriptedCri};
use tempfile::TempDir;
use throttler::core::{OnExhausted, ThrottlePolicy};

use super::recording::{Answers, CallResult, Case, Event, Failed, Login, PullAnswer, Source, StatusAnswer};

/// The two durations in the message of a success. No image name can match.
static DURATIONS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"in [0-9hms.]+ \([0-9hms.]+ including waiting\)(\. Image size: [0-9]+ bytes\.)$").expect("a pattern"));

/// The results of an agent for a case, call by call.
pub(crate) async fn replay(source: &Source, case: &Case, delivery: Delivery) -> Vec<CallResult> {
    let runtime = ScriptedCri::start(script(&case.script));
    let logins = TempDir::with_prefix("golden-").expect("a folder for logins can be made");
    let (clock, driver) = Clock::driven();
    let node = TestNode::start(Plan { delivery, ..plan(source, case, &runtime, &logins, clock) }).await;
    let mut results = Vec::new();
    let (mut events_seen, mut calls_seen) = (0, 0);
    for call in &case.calls {
        advance(&driver, call.advance_ms);
        let outcome = node.ensure(standing_pull(case, &call.pod)).await;
        let events = node.events().await;
        let calls = runtime.calls();
        let new_calls = &calls[calls_seen..];
        results.push(CallResult {
            reason: outcome.reason.map(|reason| reason.to_string()).unwrap_or_default(),
            message: outcome.message,
            image_ref: outcome.image_ref,
            events: events[events_seen..].iter().map(event).collect(),
            cri_calls: new_calls.iter().map(|call| call.method.to_owned()).collect(),
            pull_users: new_calls.iter().filter_map(|call| call.auth.as_ref()).map(|auth| auth.username.clone()).collect(),
        });
        assert!(new_calls.iter().all(|call| call.image == case.runtime_image), "{}: the runtime got another name", case.name);
        (events_seen, calls_seen) = (events.len(), calls.len());
    }
    results
}

fn advance(driver: &ClockDriver, milliseconds: u64) {
    driver.advance(Duration::from_millis(milliseconds));
}

fn plan(source: &Source, case: &Case, runtime: &ScriptedCri, logins: &TempDir, clock: Clock) -> Plan {
    let keyring = Keyring::new(KeyringOptions {
        authfile: (!case.credentials.is_empty()).then(|| write_logins(logins, &case.credentials)),
        environment: Environment::default(),
        kubelet_file: logins.path().join("there-is-none.json"),
    });
    let cri = CriRuntime::new(CriOptions::new(runtime.endpoint(), keyring, clock::Clock::host())).expect("the endpoint is a socket's");
    let throttle = case.throttle.map_or(UNLIMITED, |throttle| ThrottlePolicy {
        per_second: throttle.qps,
        burst: throttle.burst,
        on_exhausted: OnExhausted::Fail,
        ..UNLIMITED
    });
    let backoff =
        BackoffPolicy { initial: Duration::from_millis(source.back_off_initial_ms), max: Duration::from_millis(source.back_off_max_ms) };
    Plan { clock, throttle, backoff, ..Plan::with(cri) }
}

fn standing_pull(case: &Case, pod: &str) -> EnsureImage {
    let (namespace, name) = pod.split_once('/').expect("a pod is namespace/name");
    EnsureImage {
        image: case.image.clone(),
        // An unknown policy cannot be requested; such cases run only if the policy does not matter.
        policy: case.policy.parse::<PullPolicy>().ok().filter(|policy| policy.as_str() == case.policy),
        pod: Some(PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() }),
        ..EnsureImage::default()
    }
}

fn event(event: &contract::PullEvent) -> Event {
    Event {
        r#type: event.reason.event_type().as_str().to_owned(),
        reason: event.reason.to_string(),
        message: DURATIONS.replace(&event.message, "in <d> (<d> including waiting)$1").into_owned(),
    }
}

fn script(answers: &Answers) -> Script {
    let failure = |failed: &Failed| scripted_cri::Failure::new(CODES[failed.code], &failed.message);
    let status = |answer: &StatusAnswer| match answer {
        StatusAnswer::Failed(failed) => scripted_cri::StatusAnswer::Failed(failure(failed)),
        StatusAnswer::Image { image: None } => scripted_cri::StatusAnswer::Absent,
        StatusAnswer::Image { image: Some(image) } => {
            scripted_cri::StatusAnswer::Present(PresentImage { id: image.id.clone(), size: image.size, ..PresentImage::default() })
        }
    };
    let pull = |answer: &PullAnswer| match answer {
        PullAnswer::Failed(failed) => scripted_cri::PullAnswer::Failed(failure(failed)),
        PullAnswer::Pulled { image_ref } => scripted_cri::PullAnswer::Pulled { image_ref: image_ref.clone() },
    };
    Script {
        image_status: answers.image_status.iter().map(status).collect(),
        pull_image: answers.pull_image.iter().map(pull).collect(),
        ..Script::default()
    }
}

fn write_logins(folder: &TempDir, logins: &[Login]) -> std::path::PathBuf {
    let entry = |login: &Login| {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.username, login.password));
        (login.registry.clone(), serde_json::json!({ "auth": auth }))
    };
    let entries: serde_json::Map<String, serde_json::Value> = logins.iter().map(entry).collect();
    let path = folder.path().join("config.json");
    std::fs::write(&path, serde_json::json!({ "auths": entries }).to_string()).expect("the logins can be written");
    path
}
