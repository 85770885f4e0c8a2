//! A registry that serves a part of the requests: some manifests per second, or one of five by chance.
//!
//! Contracts: 20 agents with 6 standing pulls each are served about as soon as the registry can serve them, and few requests fail; failures
//! by chance cost seconds, not kubelet's minutes.

use std::time::Duration;

use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use e2e::{Agent, Registry, Watch, Workplace, until_within};
use memory_registry::{Capacity, Fault, FaultAction, MadeImage};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NODES: usize = 20;
const IMAGES: usize = 6;
/// The manifests that the registry serves per second.
const PER_SECOND: u32 = 5;
/// The share of failing requests of a registry that fails by chance, in percent.
const FAIL_PERCENT: u8 = 80;
const SHARE_WITHIN: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(400);
/// The longest time for all pulls if four of five requests fail by chance. Kubelet's rule takes half an hour for nine tenths of them.
const BY_CHANCE_WITHIN: Duration = Duration::from_secs(180);

/// The result of 120 pulls.
struct Served {
    took: Duration,
    failing: u64,
}

fn image(registry: &Registry, number: usize) -> String {
    registry.image(&format!("shop/app{number}:v1"))
}

/// All agents request all images at the same time, and the test waits until every store has them.
fn measure(name: &str, capacity: Capacity, status: u16, headers: &[(&str, &str)], body: &str) -> Option<Served> {
    met(current_program())?;
    let registry = Registry::new();
    for number in 0..IMAGES {
        registry.add_image(&format!("shop/app{number}"), "v1", &MadeImage::of_layers([4_000 + number as u64]));
    }
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    registry.faults().add(Fault::new("/manifests/", FaultAction::Beyond { capacity, status, headers, body: body.to_owned() }));
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let start = |node: usize| Agent::start(&place, &format!("n{node:02}"), &["--nats", &server.url()]);
    let agents: Vec<_> = (1..=NODES).map(start).collect();
    let agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
    for agent in &agents {
        let shares = || (!agent.ask(&CountBackoffs {}).shared.alone).then_some(());
        until_within("all agents share what they learn", SHARE_WITHIN, shares);
    }
    let began = Watch::start();
    std::thread::scope(|scope| {
        for agent in &agents {
            let registry = &registry;
            scope.spawn(move || {
                for number in 0..IMAGES {
                    let (image, policy) = (image(registry, number), Some(PullPolicy::IfNotPresent));
                    agent.ask(&EnsureImage { image, policy, wait_ms: Some(600_000), detach: true, ..EnsureImage::default() });
                }
            });
        }
    });
    for node in 1..=NODES {
        let index = place.path(&format!("store-of-n{node:02}")).join("index.json");
        until_within(&format!("{name}: n{node:02} has all images"), PATIENCE, || {
            let index = std::fs::read_to_string(&index).ok()?;
            (0..IMAGES).all(|number| index.contains(&format!("shop/app{number}:v1"))).then_some(())
        });
    }
    let served = Served { took: began.elapsed(), failing: registry.counts().failing };
    eprintln!("{name}: all {} pulls served within {:.1?}, {} failing requests", NODES * IMAGES, served.took, served.failing);
    Some(served)
}

/// The least time in which the registry can serve all pulls.
fn own_time() -> Duration {
    Duration::from_secs((NODES * IMAGES) as u64 / u64::from(PER_SECOND))
}

#[test]
fn an_overloaded_registry_that_answers_429_is_asked_about_as_much_as_it_can_do() {
    let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
    let headers = [("content-type", "application/json"), ("retry-after", "1")];
    let Some(served) = measure("overload, 429", Capacity::per_second(PER_SECOND), 429, &headers, body) else { return };
    // In the test command, with tests of a slow bus, the factor was 1.08 to 1.13 in four runs.
    assert!(served.took <= own_time().mul_f64(1.3), "{:?}, the registry itself takes {:?}", served.took, own_time());
    assert!(served.took >= own_time() / 2, "the registry was overloaded: {:?}", served.took);
    assert!(served.failing <= 30, "{} failing requests", served.failing);
}

#[test]
fn an_overloaded_registry_whose_proxy_answers_503_is_asked_about_as_much_as_it_can_do() {
    let headers = [("content-type", "text/html")];
    let Some(served) = measure("overload, 503", Capacity::per_second(PER_SECOND), 503, &headers, "<h1>503 Service Unavailable</h1>") else {
        return;
    };
    assert!(served.took <= own_time().mul_f64(1.5), "{:?}, the registry itself takes {:?}", served.took, own_time());
    assert!(served.took >= own_time() / 2, "the registry was overloaded: {:?}", served.took);
    assert!(served.failing <= 40, "{} failing requests", served.failing);
}

#[test]
fn failures_by_chance_cost_seconds() {
    let headers = [("content-type", "text/html")];
    let chance = Capacity::by_chance(FAIL_PERCENT, 1);
    let Some(served) = measure("brownout, 4 of 5", chance, 503, &headers, "<h1>503 Service Unavailable</h1>") else { return };
    assert!(served.took <= BY_CHANCE_WITHIN, "{:?}", served.took);
    let pulls = (NODES * IMAGES) as u64;
    assert!((pulls..=5 * pulls).contains(&served.failing), "{} failing requests", served.failing);
}
