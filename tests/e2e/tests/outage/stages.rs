//! A stage after the manifest fails, while manifests are served: the token server, the registry's own blobs, the host that blobs redirect
//! to, or the bytes of blobs.

use std::time::Duration;

use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use e2e::{Agent, Registry, Watch, Workplace, until_within};
use memory_registry::{Auth, BodyFault, Fault, FaultAction, MadeImage, Options, TokenAuth};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const OUTAGE: Duration = Duration::from_secs(60);
const IMAGES: usize = 3;
const AGENTS_AT_ONCE: usize = 30;
/// The longest time until an agent that has just started shares: until it has read the fleet's reports, it goes by its own rule; on a busy
/// machine for a second or two.
const SHARE_WITHIN: Duration = Duration::from_secs(30);
/// A limit that no case reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// The part that fails.
#[derive(Clone, Copy, Debug)]
enum Behind {
    TokenServer(FailureMode),
    OwnBlobs(FailureMode),
    BlobHost(FailureMode),
    WrongBytes,
}

/// How it fails.
#[derive(Clone, Copy, Debug)]
enum FailureMode {
    Unavailable,
    Reset,
    Hang,
}

impl FailureMode {
    fn fault_at(self, path: &str) -> Fault {
        match self {
            Self::Unavailable => Fault::answer(path, 503, &[("content-type", "text/plain")], "upstream connect error"),
            Self::Reset => Fault::new(path, FaultAction::Close),
            Self::Hang => Fault::new(path, FaultAction::Hang),
        }
    }

    fn failing_at_most(self) -> u64 {
        if matches!(self, Self::Hang) { 14 } else { 24 }
    }
}

impl Behind {
    const ALL: [Self; 9] = [
        Self::TokenServer(FailureMode::Unavailable),
        Self::TokenServer(FailureMode::Reset),
        Self::OwnBlobs(FailureMode::Unavailable),
        Self::OwnBlobs(FailureMode::Reset),
        Self::OwnBlobs(FailureMode::Hang),
        Self::BlobHost(FailureMode::Unavailable),
        Self::BlobHost(FailureMode::Reset),
        Self::BlobHost(FailureMode::Hang),
        Self::WrongBytes,
    ];

    /// The most failing requests, whatever the size of the fleet, and the longest time after healing until the last node is served.
    fn bars(self) -> (u64, Duration) {
        match self {
            Self::TokenServer(mode) | Self::OwnBlobs(mode) | Self::BlobHost(mode) => (mode.failing_at_most(), Duration::from_secs(15)),
            // Wrong bytes come with status 200, so they are counted separately.
            Self::WrongBytes => (0, Duration::from_secs(75)),
        }
    }
}

#[test]
fn five_agents_recover_from_each_failing_stage() {
    run_all::<5>(&Behind::ALL);
}

/// Runs all cases if `OUTAGE_BEHIND=all`, otherwise one of each stage and of each failure mode, because each case needs 20 agents.
#[test]
fn twenty_agents_recover_from_each_failing_stage() {
    let some = [Behind::TokenServer(FailureMode::Unavailable), Behind::OwnBlobs(FailureMode::Hang), Behind::BlobHost(FailureMode::Reset)];
    let all = std::env::var("OUTAGE_BEHIND").is_ok_and(|which| which == "all");
    run_all::<20>(if all { &Behind::ALL } else { &some });
}

/// Runs as many cases at a time as have [`AGENTS_AT_ONCE`] agents, because agents mostly wait; the panic names all that failed.
fn run_all<const NODES: usize>(cases: &[Behind]) {
    if met(current_program()).is_none() {
        return;
    }
    let at_once = |cases: &[Behind]| -> Vec<Behind> {
        std::thread::scope(|scope| {
            let running: Vec<_> = cases.iter().map(|case| (*case, scope.spawn(move || outage(*case, NODES)))).collect();
            running.into_iter().filter_map(|(case, thread)| thread.join().is_err().then_some(case)).collect()
        })
    };
    let failed: Vec<Behind> = cases.chunks(AGENTS_AT_ONCE / NODES).flat_map(at_once).collect();
    assert!(failed.is_empty(), "failed: {failed:?}; the output of each is above");
}

fn image(registry: &Registry, number: usize) -> String {
    registry.image(&format!("shop/app{number}:v1"))
}

fn outage(case: Behind, nodes: usize) {
    let auth = match case {
        Behind::TokenServer(_) => Auth::Token(TokenAuth {
            user: "nobody".to_owned(),
            password: "none".to_owned(),
            identity_token: String::new(),
            anonymous: true,
            expires_in: "300".to_owned(),
        }),
        _ => Auth::None,
    };
    let (registry, blobs) = (Registry::with(Options { auth, ..Options::default() }), Registry::new());
    for number in 0..IMAGES {
        // Each image has layers of its own, so that each image must be fetched.
        let made = MadeImage::of_layers([4_000 + number as u64]);
        registry.add_image(&format!("shop/app{number}"), "v1", &made);
        blobs.add_image(&format!("shop/app{number}"), "v1", &made);
    }
    let (failing, broken) = match case {
        Behind::TokenServer(mode) => (&registry, mode.fault_at("/token")),
        Behind::OwnBlobs(mode) => (&registry, mode.fault_at("/blobs/")),
        Behind::BlobHost(mode) => (&blobs, mode.fault_at("/blobs/")),
        Behind::WrongBytes => (&registry, Fault::body("/blobs/", BodyFault::CorruptAt(1))),
    };
    failing.faults().add(broken);
    if matches!(case, Behind::BlobHost(_)) {
        registry.faults().add(Fault::new("/blobs/", FaultAction::Redirect { to: blobs.url().to_owned() }));
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let start = |node: usize| Agent::start(&place, &format!("n{node:02}"), &["--nats", &server.url()]);
    let agents: Vec<_> = (1..=nodes).map(start).collect();
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
    began.until(OUTAGE);
    let (failed, asked) = (failing.counts().failing, registry.counts().requests);
    let requests: Vec<_> = failing.requests().into_iter().map(|request| (request.at, request.path)).collect();
    // If the bus of a busy machine does not answer a node in time, the node makes one attempt by its own rule.
    let misses: u64 = agents.iter().map(|agent| agent.ask(&CountBackoffs {}).shared.bus_misses_total).sum();
    let served = failing.blobs_served().values().sum::<u64>();
    failing.faults().clear();
    let healed = Watch::start();
    let (failing_at_most, within) = case.bars();
    for node in 1..=nodes {
        let index = place.path(&format!("store-of-n{node:02}")).join("index.json");
        until_within(&format!("{case:?}, {nodes} agents: n{node:02} has all images"), PATIENCE, || {
            let index = std::fs::read_to_string(&index).ok()?;
            (0..IMAGES).all(|number| index.contains(&format!("shop/app{number}:v1"))).then_some(())
        });
    }
    let last = healed.elapsed();
    eprintln!(
        "{case:?}, {nodes} agents: {failed} failing requests, {asked} in all, {served} blobs begun, {misses} answers of the bus missed; all \
         served {last:.1?} after it"
    );
    if matches!(case, Behind::WrongBytes) {
        assert!(served <= 200, "{case:?}, {nodes} agents: {served} blobs with wrong bytes");
    } else {
        let most = failing_at_most + misses;
        assert!((1..=most).contains(&failed), "{case:?}, {nodes} agents: {failed} failing requests of {most}; {requests:?}");
    }
    assert!(last <= within, "{case:?}, {nodes} agents: all served {last:.1?} after healing");
}
