//! Every message on a command's subject is answered, and the services go on.

use bus::{Headers, Message};
use clock::Random;
use contract::messages::backoff_tracker::{
    AttemptFailure, BeginAttempt, CheckBackoff, ClearBackoff, CountBackoffs, ListBackoffs, LocalKey, ReportAttempt, ResolveAttempt,
    WithdrawClearance,
};
use contract::messages::event_recorder::{CountEvents, ListEvents, RecordEvent};
use contract::messages::pull_coordinator::{
    CancelStandingPull, EnsureImage, ExplainImage, ListImages, ListPulls, ListStandingPulls, OutcomeKind, PullPolicy,
};
use contract::messages::throttler::{
    AcquirePermit, BudgetTurn, CountPermits, ForgetQuota, GrantBudget, KnownLimits, ListBudgets, PermitLimits, RegistryLimit,
    ReleasePermit, RenewBudget, ReportLimits, ReturnBudget,
};
use contract::policy::Caps;
use contract::subject::Fleet;
use contract::{AttemptId, ClearanceId, Command, EventReason, FailureClass, MessageId, PermitId, PullEvent, Stage, TraceContext, headers};
use integration::{Plan, TestNode, ask, pod, real};
use runtimes::scripted::ScriptedRuntime;

use super::{Buses, PATIENCE};

/// How many mutations of each command are sent, on each bus.
const ROUNDS_IN_MEMORY: usize = 2_000;
const ROUNDS_ON_NATS: usize = 200;
/// Linux's default size of a program's main stack.
const MAIN_STACK_BYTES: usize = 8 * 1024 * 1024;

/// A command's subject, and a valid payload.
struct Sample {
    subject: String,
    payload: Vec<u8>,
}

fn sample<C: Command>(body: &C) -> Sample {
    let (fleet, node) = (Fleet::default(), "n1".parse().unwrap());
    let subject = match C::SENDER {
        Some(sender) => fleet.command_from(sender(body), &node, C::SERVICE, C::VERB),
        None => fleet.command(&node, C::SERVICE, C::VERB),
    };
    Sample { subject, payload: rmp_serde::to_vec_named(body).unwrap() }
}

/// Every command of the four services.
fn samples(random: &mut Random) -> Vec<Sample> {
    let key = || LocalKey { pod: Some(pod("web-0")), image: "app:v1".to_owned() };
    let failure = || {
        let retry_after_ms = Some(u64::MAX);
        let cause = "ErrImagePull: gone".to_owned();
        Some(AttemptFailure { class: FailureClass::NotFound, cause, retry_after_ms, ..AttemptFailure::default() })
    };
    let limits = || vec![RegistryLimit { window_ms: u64::MAX, reset_ms: Some(u64::MAX), ..RegistryLimit::default() }];
    let owner = || "owner".to_owned();
    let permit = PermitId::random(random);
    let event = PullEvent {
        pod: Some(pod("web-0")),
        image: "app:v1".to_owned(),
        registry: Some("docker.io".to_owned()),
        duration_ms: Some(1),
        size_bytes: Some(u64::MAX),
        ..PullEvent::new(
            MessageId::random(random),
            1,
            "n1".parse().unwrap(),
            EventReason::Pulled,
            "Pulled".to_owned(),
            TraceContext::root(random),
        )
    };
    vec![
        sample(&EnsureImage { timeout_ms: Some(u64::MAX), platform: Some("linux/amd64".to_owned()), ..ask("app:v1", PullPolicy::Always) }),
        sample(&ListPulls {}),
        sample(&ExplainImage { image: "app:v1".to_owned(), ..ExplainImage::default() }),
        sample(&CheckBackoff { key: key(), peek: false, target: None }),
        sample(&ReportAttempt { key: key(), attempt: AttemptId::random(random), attempt_span: None, failure: failure(), target: None }),
        sample(&CountBackoffs {}),
        sample(&AcquirePermit { permit, image: "app:v1".to_owned(), patience_ms: u64::MAX, budget: None }),
        sample(&ReleasePermit { permit, limits: Vec::new(), served: Some(true) }),
        sample(&CountPermits {}),
        sample(&RecordEvent { event }),
        sample(&ListEvents { after: u64::MAX, ..ListEvents::default() }),
        sample(&CountEvents {}),
        sample(&BeginAttempt { clearance: ClearanceId::random(random), attempt: AttemptId::random(random) }),
        sample(&ResolveAttempt {
            clearance: ClearanceId::random(random),
            attempt: AttemptId::random(random),
            failure: failure(),
            stage: Stage::Manifest,
        }),
        sample(&WithdrawClearance { clearance: ClearanceId::random(random) }),
        sample(&ListBackoffs::default()),
        sample(&ClearBackoff { what: "app:v1".to_owned(), by: "ann@desk".to_owned() }),
        sample(&ListStandingPulls {}),
        sample(&ListImages {}),
        sample(&CancelStandingPull { what: "app:v1".to_owned(), by: "alice@host".to_owned() }),
        sample(&ReportLimits { permit, limits: limits() }),
        sample(&ListBudgets {}),
        sample(&ForgetQuota { owner: owner(), by: "ann@desk".to_owned(), is_recorded: true }),
        sample(&GrantBudget { owner: owner(), node: "n2".parse().unwrap(), permit, known: KnownLimits::default(), caps: Caps::NONE }),
        sample(&RenewBudget {
            owner: owner(),
            node: "n2".parse().unwrap(),
            permits: vec![permit; 2_000],
            limits: vec![PermitLimits { permit, limits: limits() }],
            known: KnownLimits { none_stated: true, limits: limits() },
        }),
        sample(&ReturnBudget {
            owner: owner(),
            node: "n2".parse().unwrap(),
            permit,
            used: true,
            limits: Some(limits()),
            served: Some(false),
        }),
        sample(&BudgetTurn { owner: owner(), permit }),
    ]
}

/// Sends a command as a client in any language would; returns the refusal, or none.
async fn send(buses: &Buses, sample: &Sample, payload: Vec<u8>, lines: Headers) -> Option<String> {
    let message = Message { headers: lines, ..Message::new(sample.subject.clone(), payload) };
    let reply = buses.client.request(message, PATIENCE).await.unwrap_or_else(|error| panic!("{}: {error}", sample.subject));
    reply.headers.get(headers::SERVICE_ERROR).map(str::to_owned)
}

async fn check_alive(node: &TestNode) {
    assert!(node.is_alive(), "an actor has died");
    assert_eq!(node.ensure(ask("well:v1", PullPolicy::Always)).await.outcome, OutcomeKind::Pulled);
}

#[test]
fn valid_command_is_answered_with_and_without_headers() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            for sample in samples(&mut Random::seeded(1)) {
                for lines in [Headers::new(), [(headers::VERSION, "1"), ("news", "of a later version")].into_iter().collect()] {
                    assert_eq!(send(&buses, &sample, sample.payload.clone(), lines).await, None, "{}", sample.subject);
                }
            }
            check_alive(&node).await;
        }
    });
}

#[test]
fn another_version_is_refused_by_its_name() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            for sample in samples(&mut Random::seeded(1)) {
                for version in ["2", "0", "", "one", "1.0"] {
                    let lines = [(headers::VERSION, version)].into_iter().collect();
                    let refusal = send(&buses, &sample, sample.payload.clone(), lines).await.expect("is refused");
                    let expected = format!("reads messages of version 1, not {version:?}: use a client of the same major version");
                    assert!(refusal.contains(&expected), "{refusal}");
                }
            }
            check_alive(&node).await;
        }
    });
}

#[test]
fn no_header_can_do_harm() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            for sample in samples(&mut Random::seeded(1)) {
                for name in [headers::TRACEPARENT, headers::MESSAGE_ID, bus::DEADLINE_HEADER, headers::CONTENT_TYPE, headers::TRACESTATE] {
                    for value in ["", "-1", "00-0-0-00", "\u{e9}\u{1f4e6}", "99999999999999999999999999999999999999999", &"f".repeat(9_000)]
                    {
                        let lines = [(name, value.to_owned())].into_iter().collect();
                        assert_eq!(send(&buses, &sample, sample.payload.clone(), lines).await, None, "{name}: {value:?}");
                    }
                }
            }
            check_alive(&node).await;
        }
    });
}

/// The largest number in MessagePack, and the same bytes as a signed number.
#[test]
fn negative_delays_and_counts_are_refused_and_harm_nothing() {
    real(async {
        for buses in Buses::each().await {
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            let largest = rmp_serde::to_vec(&u64::MAX).unwrap();
            let minus_one = [0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
            let mut tried = 0;
            for sample in samples(&mut Random::seeded(1)) {
                let Some(at) = sample.payload.windows(largest.len()).position(|window| window == largest) else { continue };
                let mut payload = sample.payload.clone();
                payload[at..at + minus_one.len()].copy_from_slice(&minus_one);
                let refusal = send(&buses, &sample, payload, Headers::new()).await.expect("is refused");
                assert!(refusal.starts_with("refused: the message cannot be decoded"), "{refusal}");
                tried += 1;
            }
            assert!(tried >= 6, "{tried}");
            check_alive(&node).await;
        }
    });
}

/// Runs on a stack as large as that of a program's main thread, on which a node's actors run, because a decoder recurses 1,000 levels deep.
#[test]
fn random_bytes_and_broken_commands_are_answered_and_harm_nothing() {
    std::thread::Builder::new().stack_size(MAIN_STACK_BYTES).spawn(send_broken_commands).unwrap().join().unwrap();
}

fn send_broken_commands() {
    real(async {
        for buses in Buses::each().await {
            let rounds = if buses.server.is_some() { ROUNDS_ON_NATS } else { ROUNDS_IN_MEMORY };
            let node = TestNode::start(Plan { bus: buses.node.clone(), ..Plan::with(ScriptedRuntime::new()) }).await;
            let mut random = Random::seeded(7);
            let mut refused = 0;
            for sample in samples(&mut random) {
                for payload in hand_made().into_iter().chain((0..rounds).map(|_| broken(&sample.payload, &mut random)).collect::<Vec<_>>())
                {
                    let refusal = send(&buses, &sample, payload, Headers::new()).await;
                    refused += usize::from(refusal.is_some_and(|refusal| refusal.starts_with("refused: the message cannot be decoded")));
                }
            }
            // Commands without fields accept every map and an empty payload, and a name with a changed letter is still a name.
            assert!(refused > 3 * rounds, "only {refused} were refused");
            check_alive(&node).await;
        }
    });
}

/// Payloads that may break a decoder.
fn hand_made() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        vec![0xc1],
        // Lengths without the data: a string, a map, an array and bytes of 4 GiB each.
        vec![0xdb, 0xff, 0xff, 0xff, 0xff],
        vec![0xdf, 0xff, 0xff, 0xff, 0xff],
        vec![0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0xc6, 0xff, 0xff, 0xff, 0xff],
        // 100,000 nested arrays and maps.
        vec![0x91; 100_000],
        vec![0x81; 100_000],
        [vec![0x81, 0xa5], b"image".to_vec(), vec![0x91; 100_000]].concat(),
        // JSON, and a payload as large as a message can be.
        b"{\"image\":\"app:v1\"}".to_vec(),
        vec![0xc0; bus::MAX_PAYLOAD_BYTES - 1_024],
    ]
}

/// A command with some bytes changed, removed, doubled or cut off; or random bytes.
fn broken(payload: &[u8], random: &mut Random) -> Vec<u8> {
    let mut below = |limit: usize| usize::try_from(random.word() % limit.max(1) as u64).unwrap();
    let mut bytes = payload.to_vec();
    match below(5) {
        0 => return (0..below(200)).map(|_| below(256) as u8).collect(),
        1 => bytes.truncate(below(payload.len())),
        2 => {
            let from = below(payload.len());
            let to = from + below(payload.len() - from);
            bytes.drain(from..to);
        }
        3 => {
            let at = below(payload.len());
            bytes.extend_from_slice(&payload[at..]);
        }
        _ => {}
    }
    for _ in 0..below(4) {
        if !bytes.is_empty() {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
    }
    bytes
}
