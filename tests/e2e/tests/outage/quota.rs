//! A registry that lets six pulls through in a window, and ten agents that want an image, while the leader of the budget dies.

use std::time::Duration;

use e2e::{Agent, Registry, Signal, Watch, Workplace, until, until_within};
use practice_registry::{Deed, Fault, MadeImage, Quota};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

const NODES: usize = 10;
const PULLS: u64 = 6;
const WINDOW: Duration = Duration::from_secs(60);
/// After the window: a new leader may have to learn, and the four that are left take their turns.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_quota_is_never_exceeded_although_its_leader_dies_in_the_middle() {
    if met(current_program()).is_none() {
        return;
    }
    let (place, server, registry) = (Workplace::new(), NatsServer::start(NatsConfig::default()), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let quota = Quota::new(PULLS, WINDOW.as_secs());
    registry.faults().add(Fault::new("/manifests/", Deed::Quota(quota.clone())));
    let start = |node: usize| Agent::start(&place, &name(node), &["--nats", &server.url()]);
    let agents: Vec<_> = (0..NODES).map(start).collect();
    let mut agents: Vec<_> = agents.into_iter().map(Agent::ready).collect();
    until("the fleet knows itself", || (agents[NODES - 1].counter("presence_alive") == NODES as u64).then_some(()));

    let image = registry.image("shop/web:v1");
    let command = place.start(&["pull", "--all-nodes", "--wait", "10m", "--detach", "--nats", &server.url(), &image]);
    let (status, ..) = command.wait();
    assert_eq!(status, 0, "every wish is kept");
    until("the first is served", || (registry.counts().requests > 0).then_some(()));
    let window = Watch::start();
    let leader = until("somebody leads the budget", || leader(&place, &server.url()));
    let dead = agents.remove((0..NODES).find(|node| name(*node) == leader).expect("the leader is one of the fleet"));
    dead.signal(Signal::Kill);
    let dead = dead.kill_and_start_again().ready();

    window.until(WINDOW);
    let counts = registry.counts();
    let asked = pulls(&registry);
    assert!(asked <= PULLS && counts.failing == 0, "{asked} pulls in the window, {} failing requests", counts.failing);
    eprintln!("quota: {asked} of {PULLS} pulls in the first window");
    quota.renew();
    let renewed = Watch::start();
    for node in 0..NODES {
        let index = place.path(&format!("store-of-{}", name(node))).join("index.json");
        until_within(&format!("{} has the image", name(node)), SERVED_WITHIN.saturating_sub(renewed.elapsed()), || {
            std::fs::read_to_string(&index).ok().filter(|index| index.contains("shop/web:v1")).map(|_| ())
        });
    }
    eprintln!("quota: all served {:?} after the window, {} failing requests", renewed.elapsed(), registry.counts().failing);
    assert_eq!(registry.counts().failing, 0, "nobody was ever refused");
    drop((agents, dead));
}

fn name(node: usize) -> String {
    format!("n{node:02}")
}

/// Requests that the registry counts as pulls.
fn pulls(registry: &Registry) -> u64 {
    registry.requests().iter().filter(|request| request.method == "GET" && request.path.contains("/manifests/")).count() as u64
}

/// Who leads the only budget.
fn leader(place: &Workplace, server: &str) -> Option<String> {
    let budgets = place.run(&["budget", "list", "-o", "json", "--nats", server]).expect(0).objects();
    budgets.iter().find_map(|budget| budget["leader"].as_str().map(str::to_owned))
}
