//! A bus that agents cannot use costs no pull: the agent reports the error, and uses the bus as soon as it is repaired.

use std::time::Duration;

use contract::messages::backoff_tracker::CountBackoffs;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind};
use contract::messages::throttler::CountPermits;
use e2e::{Agent, Registry, Watch, Workplace, until_within};
use memory_registry::MadeImage;
use support::nats::{NatsConfig, NatsServer, current_program, old_program};
use support::requirement::met;

/// The longest time until the error is reported, and until a repaired bus is used.
const WITHIN: Duration = Duration::from_secs(10);
/// The most that the first pull waits for the bus.
const FIRST_WAITS_MS: u64 = 2_000;
/// The longest duration of a pull that waits for nothing: the time of the actors' messages on a machine under load.
const NO_WAIT_MS: u64 = 500;
/// The right login of a server that requires one.
const LOGIN: &str = "ann:right";

/// A server, and the error that the agent must report about it.
struct Case {
    name: &'static str,
    /// The server's configuration; none: no server runs.
    config: Option<NatsConfig>,
    /// The agent's login.
    login: &'static str,
    /// The texts with which the agent reports the error; empty: there is no error.
    expected: &'static [&'static str],
}

/// A configuration with one account with JetStream, one user, and more lines.
fn account(jetstream: &str) -> NatsConfig {
    let limits = format!("jetstream: {{ {jetstream} }}");
    NatsConfig::default().with(&format!("accounts {{ A {{ {limits}, users: [{{ user: ann, password: right }}] }} }}"))
}

fn healthy() -> NatsConfig {
    account("max_mem: 64MB, max_file: 2GB")
}

fn with_login(jetstream: NatsConfig) -> NatsConfig {
    jetstream.with("authorization { users: [{ user: ann, password: right }] }")
}

fn denied(subject: &str) -> NatsConfig {
    let permissions = format!("permissions: {{ publish: {{ deny: [\"{subject}\"] }} }}");
    NatsConfig::default().with(&format!("authorization {{ users: [{{ user: ann, password: right, {permissions} }}] }}"))
}

fn cases() -> Vec<Case> {
    let case = |name, config, expected| Case { name, config: Some(config), login: LOGIN, expected };
    let mut cases = vec![
        case("in-order", healthy(), &[]),
        case(
            "room-of-the-server",
            with_login(NatsConfig::default().with_jetstream("max_file_store: 100KB")),
            &["insufficient storage", "max_file_store"],
        ),
        case("memory-only", account("max_mem: 64MB, max_file: 0"), &["insufficient storage", "max_file"]),
        case("streams", account("max_mem: 64MB, max_file: 1GB, max_streams: 1"), &["maximum number of streams", "max_streams"]),
        case("no-jetstream", with_login(NatsConfig::default().without_jetstream()), &["no JetStream", "turn it on"]),
        case("no-permission", denied("$JS.>"), &["may not publish to $JS.API.INFO", "allow"]),
        case("no-permission-to-make", denied("$JS.API.STREAM.CREATE.>"), &["may not make them", "fleetpull nats-setup"]),
        case("no-permission-to-write", denied("$KV.>"), &["may not publish to $KV.", "allow"]),
        Case {
            name: "wrong-password",
            config: Some(healthy()),
            login: "ann:wrong",
            expected: &["no bus since", "refuses the login", "check"],
        },
        Case { name: "nobody-there", config: None, login: LOGIN, expected: &["no bus since", "no server listens there", "start it"] },
    ];
    if let Some(program) = met(old_program()) {
        cases.push(case("too-old", with_login(NatsConfig::default()).with_program(program), &["too old", "2.11.7 or newer"]));
    }
    cases
}

/// Pulls an image that is served at once; returns how long the pull waited, in milliseconds.
fn pull(agent: &Agent<'_>, image: String) -> u64 {
    let ask = EnsureImage { image, ..EnsureImage::default() };
    let outcome = agent.ask(&ask);
    assert_eq!(outcome.outcome, OutcomeKind::Pulled, "{outcome:?}");
    outcome.waiting_ms
}

fn try_out(case: &Case, registries: &[Registry; 2]) {
    let Case { name, config, login, expected } = case;
    let (mut server, place) = (NatsServer::start(config.clone().unwrap_or_else(healthy)), Workplace::new());
    if config.is_none() {
        server.kill();
    }
    let watch = Watch::start();
    let agent = Agent::start(&place, "n1", &["--nats", &format!("nats://{login}@{}", server.address())]).ready();
    let image = |registry: usize, tag| registries[registry].image(&format!("shop/web:v{tag}"));
    // The first and second pull after the start; then the first and second pull from another registry.
    let waited = [(0, 1), (0, 2), (1, 1), (1, 2)].map(|(registry, tag)| pull(&agent, image(registry, tag)));
    let most = [FIRST_WAITS_MS, NO_WAIT_MS, NO_WAIT_MS, NO_WAIT_MS];
    assert!(waited.iter().zip(most).all(|(waited, most)| *waited <= most), "{name}: the pulls waited {waited:?} ms");
    let is_reported = |text: &str| expected.iter().all(|part| text.contains(part));
    let left = WITHIN.saturating_sub(watch.elapsed());
    let state = until_within(&format!("{name}: the error is reported: {}", agent.state()), left, || {
        Some(agent.state()).filter(|state| is_reported(state) && state.starts_with("degraded") != expected.is_empty())
    });
    let log = agent.log_with(if expected.is_empty() { "" } else { "this node is degraded" });
    let what_to_change = expected.last().copied().unwrap_or_default();
    assert!(log.contains(what_to_change), "{name}: the log contains it too: {log}");
    if expected.is_empty() {
        return;
    }
    let password = if *login == LOGIN { "right" } else { "wrong" };
    let mended = NatsConfig::default().with(&format!("authorization {{ users: [{{ user: ann, password: {password} }}] }}"));
    server.restart_with(mended);
    let watch = Watch::start();
    until_within(&format!("{name}: it is found again after {state}"), WITHIN, || (agent.state() == "ok").then_some(()));
    until_within(&format!("{name}: the node shares again"), WITHIN.saturating_sub(watch.elapsed()), || {
        (!agent.ask(&CountBackoffs {}).shared.alone).then_some(())
    });
    pull(&agent, image(0, 3));
    until_within(&format!("{name}: the budget is led and reports are sent"), WITHIN.saturating_sub(watch.elapsed()), || {
        let (backoffs, permits) = (agent.ask(&CountBackoffs {}), agent.ask(&CountPermits {}));
        (permits.budgets_led > 0 && backoffs.shared.reports_sent_total > 0).then_some(())
    });
}

#[test]
fn every_error_of_the_bus_is_reported_and_no_pull_waits_for_it() {
    if met(current_program()).is_none() {
        return;
    }
    let registries = [Registry::new(), Registry::new()];
    for registry in &registries {
        for tag in 1..=3_u64 {
            registry.add_image("shop/web", &format!("v{tag}"), &MadeImage::of_layers([4_000 + tag]));
        }
    }
    let cases = cases();
    // The cases run at the same time, because each mostly waits.
    std::thread::scope(|scope| {
        let tried: Vec<_> = cases.iter().map(|case| scope.spawn(|| try_out(case, &registries))).collect();
        let failed: Vec<&str> = cases.iter().zip(tried).filter_map(|(case, tried)| tried.join().is_err().then_some(case.name)).collect();
        assert!(failed.is_empty(), "these failed: {failed:?}");
    });
}
