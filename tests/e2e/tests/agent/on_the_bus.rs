//! An agent on a real nats-server, and commands from elsewhere.

use e2e::{Registry, Workplace};
use memory_registry::MadeImage;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use e2e::Agent;

#[test]
fn agents_are_asked_and_pull_through_the_bus() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let agents = ["n1", "n2"].map(|node| Agent::start(&place, node, &["--nats", &server.url()])).map(Agent::ready);
    let nodes = place.run(&["nodes", "-o", "json", "--nats", &server.url()]).expect(0).objects();
    let names: Vec<_> = nodes.iter().map(|node| (node["node"].as_str().unwrap(), node["state"].as_str().unwrap())).collect();
    assert_eq!(names, [("n1", "ok"), ("n2", "ok")]);
    let image = registry.image("shop/web:v1");
    let rows = place.run(&["pull", "--all-nodes", "-o", "json", "--nats", &server.url(), &image]).expect(0).objects();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["outcome"] == "pulled"), "{rows:?}");
    for agent in &agents {
        // Each agent's services also answer on its socket.
        assert_eq!(agent.counter("throttle_granted_total"), 1);
        let present = agent.asked(&["pull", "--all-nodes", "-o", "json", &image]).expect(0).object();
        assert_eq!(present["outcome"], "present");
    }
}

#[test]
fn the_start_line_names_the_bus_without_its_password() {
    if met(current_program()).is_none() {
        return;
    }
    let login = "authorization { user: ann, password: correct-horse }";
    let (server, place) = (NatsServer::start(NatsConfig::default().with(login)), Workplace::new());
    let url = format!("nats://ann:correct-horse@{}", server.address());
    let agent = Agent::start(&place, "n1", &["--nats", &url, "--log-level", "trace"]).ready();
    agent.until_state("the login is good", |state| state == "ok");
    let log = agent.log_with(&server.address());
    assert!(!log.contains("correct-horse"), "{log}");
}

#[test]
fn a_refused_login_is_reported_and_the_agent_goes_on_without_bus() {
    if met(current_program()).is_none() {
        return;
    }
    let login = "authorization { user: ann, password: correct-horse }";
    let (server, place) = (NatsServer::start(NatsConfig::default().with(login)), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &format!("nats://ann:wrong-horse@{}", server.address())]).ready();
    assert!(agent.state().starts_with("degraded: no bus since 20"), "{}", agent.state());
    let log = agent.log_with("the server refuses the login");
    assert!(!log.contains("wrong-horse"), "{log}");
}

#[test]
fn a_server_without_jetstream_is_reported() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default().without_jetstream()), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let state = agent.until_state("the bus is seen as it is", |state| !state.contains("no bus"));
    assert!(state.starts_with("degraded: ") && state.contains("JetStream"), "{state}");
}
