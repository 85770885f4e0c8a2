//! The registry limits one agent, as by its address, and serves the others: 429 with `Retry-After: 60`.
//!
//! Contracts: the limited agent sends no request until `Retry-After` is over, and nobody else waits.

use std::time::Duration;

use clock::Random;
use contract::TraceContext;
use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use e2e::{Agent, Registry, Watch, Workplace, until, until_within};
use memory_registry::{Fault, MadeImage};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const OTHERS: [&str; 4] = ["n1", "n2", "n3", "n4"];
const IMAGES: usize = 6;
/// How many of the images the limited agent wants.
const WANTED_BY_LIMITED: usize = 2;
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Requests that the limited agent had sent before its first answer may still fail within this time.
const SENT_BEFORE: Duration = Duration::from_secs(5);
/// When the limit ends: before `Retry-After`, so that the agent's next request is served.
const LIMITED_FOR: Duration = Duration::from_secs(45);
/// The longest wait of a pull on another agent.
const OTHERS_WITHIN: Duration = Duration::from_secs(10);
const SHARE_WITHIN: Duration = Duration::from_secs(30);
/// `Retry-After` with its jitter of a tenth, and time for the pulls on a busy machine.
const SERVED_WITHIN: Duration = Duration::from_secs(60 + 6 + 10);
/// A limit that nothing here reaches.
const PATIENCE: Duration = Duration::from_secs(120);

fn image(registry: &Registry, number: usize) -> String {
    registry.image(&format!("shop/app{number}:v1"))
}

fn wanted(image: String) -> EnsureImage {
    EnsureImage { image, policy: Some(PullPolicy::IfNotPresent), ..EnsureImage::default() }
}

#[test]
fn agent_whose_address_is_limited_waits_and_nobody_else_does() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), Workplace::new(), Registry::new());
    for number in 0..IMAGES {
        registry.add_image(&format!("shop/app{number}"), "v1", &MadeImage::of_layers([4_000 + number as u64]));
    }
    let trace = TraceContext::root(&mut Random::from_system());
    let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
    let headers = [("content-type", "application/json"), ("retry-after", "60")];
    registry.faults().add(Fault::answer("/v2/", 429, &headers, body).of_trace(trace.trace_id_hex()));
    let start = |node: &str| Agent::start(&place, node, &["--nats", &server.url()]);
    let (limited, others) = (start("limited"), OTHERS.map(start));
    let (limited, others) = (limited.ready(), others.map(Agent::ready));
    for agent in others.iter().chain([&limited]) {
        let shares = || (!agent.ask(&CountBackoffs {}).shared.alone).then_some(());
        until_within("all agents share what they learn", SHARE_WITHIN, shares);
    }

    for number in 0..WANTED_BY_LIMITED {
        limited.ask_within(trace, &EnsureImage { wait_ms: Some(600_000), detach: true, ..wanted(image(&registry, number)) });
    }
    until("the limited agent has its first answer", || (registry.counts().failing > 0).then_some(()));
    let since = Watch::start();
    for number in 0..IMAGES {
        let waited = std::thread::scope(|scope| {
            let pull = |agent: &Agent<'_>| {
                let began = Watch::start();
                let outcome = agent.ask(&wanted(image(&registry, number)));
                assert_eq!(outcome.outcome, OutcomeKind::Pulled, "{outcome:?}");
                began.elapsed()
            };
            let pulls: Vec<_> = others.iter().map(|agent| scope.spawn(move || pull(agent))).collect();
            pulls.into_iter().map(|pull| pull.join().unwrap()).max()
        });
        eprintln!("image {number} was on all other agents after {waited:.1?}");
        assert!(waited <= Some(OTHERS_WITHIN), "image {number}: {waited:?}");
    }

    since.until(LIMITED_FOR);
    let refused = registry.requests().into_iter().filter(|request| request.status == Some(429));
    let refused: Vec<Duration> = refused.map(|request| request.at).collect();
    let first = refused.iter().min().copied().unwrap_or_default();
    assert!(refused.iter().all(|at| *at <= first + SENT_BEFORE), "requests before Retry-After was over: {refused:.1?}");
    registry.faults().clear();
    let index = place.path("store-of-limited").join("index.json");
    until_within("the limited agent has its images", PATIENCE, || {
        let index = std::fs::read_to_string(&index).ok()?;
        (0..WANTED_BY_LIMITED).all(|number| index.contains(&format!("shop/app{number}:v1"))).then_some(())
    });
    let served = since.elapsed();
    eprintln!("the limited agent was served after {served:.1?}, with {} requests refused", refused.len());
    assert!((RETRY_AFTER - Duration::from_secs(2)..=SERVED_WITHIN).contains(&served), "served after {served:.1?}");
}
