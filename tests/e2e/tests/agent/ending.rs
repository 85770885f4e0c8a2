//! The end of an agent, and the answers to its waiting callers.

use e2e::{Agent, Registry, Signal, Workplace, until};
use memory_registry::{Fault, FaultAction, MadeImage};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

#[test]
fn a_caller_that_waits_over_the_bus_gets_an_answer_when_the_agent_stops() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(Fault::new("/manifests/", FaultAction::Hang));
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let (image, url) = (registry.image("shop/web:v1"), server.url());
    let arguments = ["pull", "--node", "n1", "--nats", &url, &image];
    let waiting = place.start(&arguments);
    until("the pull is under way", || (agent.described()["pulling"].as_u64() == Some(1)).then_some(()));
    agent.signal(Signal::Terminate);
    let ended = agent.end();
    assert_eq!(ended.status, 0, "{ended}");
    assert!(!ended.output().contains("the bus is not connected reason="), "the agent closed it itself: {ended}");
    let done = e2e::Finished::of(&arguments, waiting).expect(1);
    assert!(
        done.output().contains("the service pull-coordinator has ended: its agent stops or starts again, ask when it answers"),
        "{done}"
    );
}

/// Only a debug build can be made to panic.
#[cfg(debug_assertions)]
#[test]
fn an_agent_whose_task_panics_names_the_task_and_ends_as_for_a_service() {
    if std::env::var_os("FLEETPULL_BINARY").is_some() || met(current_program()).is_none() {
        return;
    }
    let server = NatsServer::start(NatsConfig::default());
    for task in ["event-publisher", "report-writer", "socket-accept", "bus-observer", "command-receiver", "member-record"] {
        let place = Workplace::new().with("PLANTED_PANIC", task);
        let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
        // The agent publishes reports once the fleet's buckets are open.
        agent.until_state("the agent is well", |state| state == "ok");
        agent.signal(Signal::Panic);
        let (status, _, log) = agent.wait();
        assert_eq!(status, 1, "{task}: {log}");
        let ends = format!("the task {task} panicked; the log above shows where. The agent exits, so that its supervisor starts it again");
        for text in [&format!("planted in the task {task}"), "a task panicked; its work is not done any more", &ends] {
            assert!(log.contains(text), "{task}: {text:?} is not in {log}");
        }
    }
}

/// A panic of the agent would repeat after each restart, because standing pulls outlive the agent. Only a debug build can be made to panic.
#[cfg(debug_assertions)]
#[test]
fn a_download_that_panics_fails_its_pull_and_not_the_agent() {
    if std::env::var_os("FLEETPULL_BINARY").is_some() {
        return;
    }
    let (place, registry) = (Workplace::new().with("PLANTED_PANIC", "download"), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(Fault::new("/blobs/", FaultAction::Hang));
    let agent = Agent::start(&place, "n1", &[]).ready();
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", "--node", "n1", &image];
    let waiting = agent.asked_meanwhile(&arguments);
    until("the download runs", || (agent.described()["pulling"].as_u64() == Some(1)).then_some(()));
    agent.signal(Signal::Panic);
    let done = e2e::Finished::of(&arguments, waiting).expect(1);
    assert!(done.output().contains("the download ended by itself") && done.output().contains("report this as a bug"), "{done}");
    let _ = agent.log_with("a task panicked; what waits for it fails");
    assert_eq!(agent.state(), "ok");
}

/// Only a debug build can be made to panic.
#[cfg(debug_assertions)]
#[test]
fn an_agent_whose_service_panics_logs_it_and_ends_so_that_it_is_restarted() {
    if std::env::var_os("FLEETPULL_BINARY").is_some() {
        return;
    }
    let place = Workplace::new();
    let agent = Agent::start(&place, "n1", &[]).ready();
    agent.signal(Signal::Panic);
    let (status, _, log) = agent.wait();
    assert_eq!(status, 1, "{log}");
    assert!(log.contains("an actor panicked; its service has ended"), "{log}");
    assert!(
        log.contains("the service agent panicked; the log above shows where. The agent exits, so that its supervisor starts it again"),
        "{log}"
    );
    // The panic leaves nothing that hinders the next agent.
    let again = Agent::start(&place, "n1", &[]).ready();
    assert_eq!(again.state(), "ok");
    let unit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd/fleetpull.service")).unwrap();
    assert!(unit.lines().any(|line| matches!(line, "Restart=always" | "Restart=on-failure")), "systemd would leave it dead");
}
