//! An agent whose server is far away.

use std::time::Duration;

use e2e::{Agent, Watch, Workplace, binary};
use support::faulty_link::FaultyLink;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

/// A round trip half around the world.
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// The promised time to become ready: a node's start does not wait for its fleet.
const READY_WITHIN: Duration = Duration::from_secs(3);

#[test]
fn an_agent_is_ready_within_three_seconds_at_round_trips_of_a_hundred_milliseconds_and_all_is_served() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new());
    let link = FaultyLink::from(&server.address(), ROUND_TRIP);
    // If the program must be built, do it before the measurement.
    let _built = binary();
    let watch = Watch::start();
    let agent = Agent::start(&place, "n1", &["--nats", &format!("nats://{}", link.address())]).ready();
    let took = watch.elapsed();
    assert!(took < READY_WITHIN, "ready after {took:?}");
    // A ready agent is served on the bus: a client near the server asks at once.
    let nodes = place.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0).objects();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(agent.until_state("the bus is there", |state| state == "ok"), "ok");
}
