//! A command is killed in the middle of a pull: its node stops the pulls that have no other caller, and goes on with the others.

use std::time::Duration;

use e2e::{Agent, Registry, Signal, Started, Workplace, until, until_within};
use memory_registry::{BodyFault, Fault, MadeImage};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// The longest time until a node notices that its caller was killed, on a machine under load.
const NOTICED_WITHIN: Duration = Duration::from_secs(15);

/// An image whose layer takes minutes, so that no pull ends by itself.
fn slow_image(registry: &Registry) -> String {
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([300_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(1_000)));
    registry.image("shop/web:v1")
}

/// Kills one of two callers, then the other one.
fn kill_one_after_the_other(agent: &Agent<'_>, registry: &Registry, start: impl Fn(&str) -> Started) {
    let image = slow_image(registry);
    let (first, second) = (start(&image), start(&image));
    let callers = || {
        let pulls = agent.asked(&["pulls", "-o", "json"]).expect(0).objects();
        pulls.first().and_then(|pull| pull["callers"].as_u64()).unwrap_or_default()
    };
    until("both wait, and the node fetches", || (callers() == 2 && registry.counts().peak_blobs_in_flight > 0).then_some(()));
    first.signal(Signal::Kill);
    until_within("the first is given up", NOTICED_WITHIN, || (agent.counter("pulls_abandoned_total") == 1).then_some(()));
    assert_eq!((callers(), agent.counter("throttle_granted")), (1, 1), "the other one still wants it");
    second.signal(Signal::Kill);
    until_within("the pull has ended", NOTICED_WITHIN, || (agent.counter("throttle_granted") == 0).then_some(()));
    assert_eq!((callers(), agent.counter("pulls_abandoned_total")), (0, 2));
}

#[test]
fn a_pull_ends_with_its_last_caller_on_the_socket() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let agent = Agent::start(&place, "n1", &[]).ready();
    kill_one_after_the_other(&agent, &registry, |image| agent.asked_meanwhile(&["pull", image]));
}

#[test]
fn a_pull_ends_with_its_last_caller_on_nats() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    kill_one_after_the_other(&agent, &registry, |image| place.start(&["pull", image, "--node", "n1", "--nats", &server.url()]));
}
