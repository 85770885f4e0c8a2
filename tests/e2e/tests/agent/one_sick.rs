//! One agent of four fails at every request to the registry. The other agents are not affected.

use std::time::Duration;

use clock::Random;
use contract::TraceContext;
use contract::messages::pull_coordinator::{EnsureImage, ListStandingPulls, OutcomeKind, PullOutcome, PullPolicy};
use e2e::{Agent, Registry, Workplace, until};
use memory_registry::{Fault, FaultAction, MadeImage};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const HEALTHY: [&str; 3] = ["n1", "n2", "n3"];
/// How many images each healthy node pulls once.
const IMAGES: usize = 20;
/// How many images the sick node requests during the whole test.
const WANTED_BY_SICK: usize = 4;
/// How long the sick node keeps each of its standing pulls.
const STANDING_PULL_FOR: Duration = Duration::from_secs(600);

fn image(registry: &Registry, number: usize) -> String {
    registry.image(&format!("shop/app{number}:v1"))
}

fn plain(image: String) -> EnsureImage {
    EnsureImage { image, policy: Some(PullPolicy::Always), ..EnsureImage::default() }
}

#[test]
fn node_that_cannot_reach_the_registry_makes_no_other_refuse() {
    a_sick_node_refuses_nobody(FaultAction::Close);
}

/// An answer of the registry itself to one node is still the report of one node alone.
#[test]
fn node_that_gets_503_alone_makes_no_other_refuse() {
    let body = r#"{"errors":[{"code":"UNAVAILABLE","message":"not now"}]}"#.to_owned();
    a_sick_node_refuses_nobody(FaultAction::Answer {
        status: 503,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body,
    });
}

fn a_sick_node_refuses_nobody(action: FaultAction) {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), Workplace::new(), Registry::new());
    (0..IMAGES).for_each(|number| {
        registry.add_image(&format!("shop/app{number}"), "v1", &MadeImage::of_layers([4_000]));
    });
    let trace = TraceContext::root(&mut Random::from_system());
    registry.faults().add(Fault::new("/v2/", action).of_trace(trace.trace_id_hex()));
    let start = |node: &str| Agent::start(&place, node, &["--nats", &server.url()]);
    let (sick, healthy) = (start("sick"), HEALTHY.map(start));
    let (sick, healthy) = (sick.ready(), healthy.map(Agent::ready));
    for number in 0..WANTED_BY_SICK {
        let wait_ms = u64::try_from(STANDING_PULL_FOR.as_millis()).ok();
        sick.ask_within(trace, &EnsureImage { wait_ms, detach: true, ..plain(image(&registry, number)) });
    }
    until("the sick node has failed with each", || (registry.counts().failing >= WANTED_BY_SICK as u64).then_some(()));
    let pull = |number: usize| -> Vec<PullOutcome> {
        std::thread::scope(|scope| {
            let pulls: Vec<_> = healthy.iter().map(|agent| scope.spawn(|| agent.ask(&plain(image(&registry, number))))).collect();
            pulls.into_iter().map(|pull| pull.join().unwrap()).collect()
        })
    };
    let mut refused = Vec::new();
    for number in 0..IMAGES {
        refused.extend(pull(number).into_iter().filter(|outcome| outcome.outcome != OutcomeKind::Pulled));
    }
    assert!(refused.is_empty(), "{} of {} pulls on healthy nodes: {refused:#?}", refused.len(), IMAGES * HEALTHY.len());
    assert_eq!(sick.ask(&ListStandingPulls {}).standing_pulls.len(), WANTED_BY_SICK, "it was sick all the time");
}
