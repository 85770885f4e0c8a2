//! A registry permits six pulls in a window, and ten agents pull an image, while the leader of the budget dies.

use std::time::Duration;

use e2e::{Agent, Registry, Signal, Workplace, until, until_within};
use memory_registry::{Fault, FaultAction, MadeImage, Quota};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NODES: usize = 10;
const PULLS: u64 = 6;
const WINDOW: Duration = Duration::from_secs(60);
/// The budget's rate: the six pulls begin within about 10 s, so that the leader can be found and killed between two of them.
const PULLS_PER_SECOND: &str = "0.5";
/// The leader dies when this many pulls have begun.
const DIES_AFTER: u64 = 2;
/// The longest time after the window: no leader dies any more, so the other four nodes pull at the budget's rate.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_quota_is_used_up_and_never_exceeded_although_its_leader_dies_in_mid_release() {
    if met(current_program()).is_none() {
        return;
    }
    let (place, server, registry) = (workplace(), NatsServer::start(NatsConfig::default()), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let quota = Quota::new(PULLS, WINDOW.as_secs());
    registry.faults().add(Fault::new("/manifests/", FaultAction::Quota(quota.clone())));
    let start = |node: usize| Agent::start(&place, &name(node), &["--nats", &server.url()]);
    let agents: Vec<_> = (0..NODES).map(start).collect();
    let mut agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
    until("the fleet knows itself", || (agents[NODES - 1].counter("presence_alive") == NODES as u64).then_some(()));

    let image = registry.image("shop/web:v1");
    let command = place.start(&["pull", "--all-nodes", "--wait", "10m", "--detach", "--nats", &server.url(), &image]);
    let (status, ..) = command.wait();
    assert_eq!(status, 0, "every standing pull is kept");
    until("some were let go", || (pulls(&registry).len() as u64 >= DIES_AFTER).then_some(()));
    let leader = until("the budget has a leader", || leader(&place, &server.url()));
    let dead = agents.remove((0..NODES).find(|node| name(*node) == leader).expect("the leader is one of the fleet"));
    dead.signal(Signal::Kill);
    let at_its_death = pulls(&registry).len() as u64;
    assert!(at_its_death < PULLS, "it dies in the middle of the release: {at_its_death} of {PULLS} were let go");

    // The window began when the first pull was counted.
    let began = pulls(&registry)[0];
    until_within("the window is over", 2 * WINDOW, || (registry.age() >= began + WINDOW).then_some(()));
    let (asked, failing) = (pulls(&registry).len() as u64, registry.counts().failing);
    eprintln!("quota: {at_its_death} of {PULLS} pulls when the leader died, {asked} in the window, {failing} failing requests");
    assert_eq!((asked, failing), (PULLS, 0), "all of the quota without the leader, and never a seventh");

    quota.renew();
    let renewed = registry.age();
    let dead = dead.kill_and_start_again().ready();
    for node in 0..NODES {
        let index = place.path(&format!("store-of-{}", name(node))).join("index.json");
        until(&format!("{} has the image", name(node)), || {
            std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
        });
    }
    let served = pulls(&registry).last().copied().unwrap_or_default() - renewed;
    eprintln!("quota: all served {served:.1?} after the window, {} failing requests", registry.counts().failing);
    assert!(served <= SERVED_WITHIN, "{served:?}");
    assert_eq!(registry.counts().failing, 0, "the registry has refused no request");
    drop((agents, dead));
}

fn workplace() -> Workplace {
    Workplace::new().with("FLEETPULL_BUDGET_PULLS_PER_SECOND", PULLS_PER_SECOND)
}

fn name(node: usize) -> String {
    format!("n{node:02}")
}

/// The times of the requests that the registry counts as pulls, by its clock.
fn pulls(registry: &Registry) -> Vec<Duration> {
    let is_pull = |method: &str, path: &str| method == "GET" && path.contains("/manifests/");
    registry.requests().iter().filter(|request| is_pull(&request.method, &request.path)).map(|request| request.at).collect()
}

/// The leader of the only budget.
fn leader(place: &Workplace, server: &str) -> Option<String> {
    let budgets = place.run(&["budget", "list", "-o", "json", "--nats", server]).expect(0).objects();
    budgets.iter().find_map(|budget| budget["leader"].as_str().map(str::to_owned))
}
