//! A command on the agent's own host finds the agent by its socket if no fleet is named.

use e2e::{Agent, Registry, Signal, Workplace, until};
use memory_registry::MadeImage;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NO_FLEET: &str = "no fleet to ask: give --nats URL";

/// A workplace whose settings name the store, and so the place of the agents' state.
fn place() -> Workplace {
    let place = Workplace::new();
    let store = place.path("store").display().to_string();
    place.with("FLEETPULL_STORE_DIR", store)
}

#[test]
fn commands_on_the_agents_host_find_it_without_an_address() {
    let (place, registry) = (place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let image = registry.image("shop/web:v1");
    assert!(place.run(&["nodes"]).expect(2).stderr.contains(NO_FLEET), "no agent is there yet");
    let agent = Agent::start_in(&place, "n1", "store", &[]).ready();
    let notice = format!("asking the agent on this host alone, {}: give --nats URL to ask its whole fleet", agent.url());
    let nodes = place.run(&["nodes", "-o", "json"]).expect(0);
    assert_eq!(nodes.object()["node"], "n1");
    assert!(nodes.stderr.contains(&notice), "{nodes}");
    assert_eq!(place.run(&["nodes", "-q"]).expect(0).stderr, "");

    assert_eq!(place.run(&["pull", &image, "--node", "n1", "-o", "json"]).expect(0).object()["outcome"], "pulled");
    for (arguments, status, expected) in [
        (&["pulls"][..], 0, "nothing"),
        (&["backoff", "list"], 0, ""),
        (&["budget", "list"], 0, ""),
        (&["events"], 0, "Pulled"),
        (&["cancel", &image], 1, "there are none at all"),
        (&["backoff", "clear", &image], 1, ""),
        (&["explain", &image], 0, "n1"),
        (&["explain", &image, "--node", "n1"], 0, "n1"),
    ] {
        let done = place.run(arguments).expect(status);
        assert!(done.output().contains(expected) && done.stderr.contains(&notice), "{done}");
    }
    // This node shares nothing.
    for arguments in [&["budget", "list"][..], &["events", "--since", "1h"]] {
        let asked = agent.asked(arguments).expect(0);
        assert!(!asked.stderr.contains("the fleet"), "{asked}");
    }
    // These commands do not use the agent: a question to this process, and a question that needs the whole fleet.
    let own = place.run(&["explain", &image, "--store", "other"]);
    assert!(!own.stderr.contains(&notice), "{own}");
    for more in [&["--all-nodes"][..], &["-l", "zone=a"]] {
        let refused = place.run(&[&["pull", &image][..], more].concat()).expect(2);
        assert!(refused.stderr.contains(NO_FLEET), "{refused}");
    }
    let other = place.run(&["pull", &image, "--node", "n2"]).expect(2);
    assert!(other.stderr.contains("answers for that node alone"), "{other}");
    // If a bus is named, the command uses it. The error names the socket that works without the bus.
    let without_bus = place.run(&["nodes", "--nats", "nats://127.0.0.1:1"]).expect(1);
    assert!(without_bus.stderr.contains(&format!("answers without the bus: --agent {}", agent.url())), "{without_bus}");
    agent.signal(Signal::Kill);
    let _ = agent.wait();
    assert!(place.run(&["nodes"]).expect(2).stderr.contains(NO_FLEET), "a socket without a listener is left");
}

#[test]
fn events_of_an_agent_with_a_bus_are_followed_through_its_socket_without_an_address() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place, registry) = (NatsServer::start(NatsConfig::default()), place(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agent = Agent::start_in(&place, "n1", "store", &["--nats", &server.url()]).ready();
    let following = place.start(&["events", "--follow", "-o", "json"]);
    until("it follows", || following.stderr().contains("following").then_some(()));
    agent.asked(&["pull", &registry.image("shop/web:v1")]).expect(0);
    until("the events come", || (following.stdout().lines().count() >= 2).then_some(()));
    following.signal(Signal::Interrupt);
    assert_eq!(following.wait().0, 0);
}

#[test]
fn several_agents_on_a_host_require_the_option_agent() {
    let place = place();
    let agents = ["n1", "n2"].map(|node| Agent::start_in(&place, node, "store", &[]).ready());
    let several = place.run(&["nodes"]).expect(2);
    assert!(several.stderr.contains("2 agents answer on this host: give one of them with --agent"), "{several}");
    for agent in &agents {
        assert!(several.stderr.contains(&agent.url()), "{several}");
    }
    let place = place.with("FLEETPULL_NODE_NAME", "n2");
    assert_eq!(place.run(&["nodes", "-o", "json"]).expect(0).object()["node"], "n2");
}
