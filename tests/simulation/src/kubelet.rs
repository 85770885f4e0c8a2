//! Runs a scenario by kubelet's rule: every node decides by itself.

use std::time::Duration;

use backoff_tracker::core::{BackoffPolicy, Delay};
use clock::Random;
use contract::Stage;

use crate::queue::Queue;
use crate::registry::Registry;
use crate::scenario::{Answer, Scenario};

/// The time in which all nodes make their first request.
pub(crate) const ASKED_WITHIN: Duration = Duration::from_millis(500);
/// Kubelet syncs a pod again after this time multiplied by a random number in `[1, 1.5)`.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long the runtime waits for an answer of the registry.
pub const RUNTIME_TIME_OUT: Duration = Duration::from_secs(30);

enum Event {
    Look(usize),
    Answered(usize, Stage, Answer),
}

/// Runs the scenario; the returned registry has the figures.
#[must_use]
pub fn run(scenario: Scenario, nodes: usize, end: Duration, seed: u64) -> Registry {
    let mut random = Random::seeded(seed);
    let mut registry = Registry::new(scenario, nodes, RUNTIME_TIME_OUT, seed);
    let policy = BackoffPolicy::default();
    let mut delays: Vec<Option<Delay>> = vec![None; nodes];
    let mut queue = Queue::default();
    let stages = scenario.stages();
    for node in 0..nodes {
        queue.plan(ASKED_WITHIN.mul_f64(random.fraction()), Event::Look(node));
    }
    while let Some((now, event)) = queue.next(end) {
        match event {
            Event::Look(node) if policy.held(delays[node], now).is_some() => {
                queue.plan(now + LOOK_AGAIN.mul_f64(1.0 + random.fraction() / 2.0), Event::Look(node));
            }
            Event::Look(node) => {
                registry.wanted(now, node);
                ask(&mut registry, &mut queue, now, (node, stages.first()));
            }
            Event::Answered(node, stage, Answer::Served) => {
                ask(&mut registry, &mut queue, now, (node, stages.iter().find(|next| **next > stage)));
            }
            Event::Answered(node, ..) => {
                delays[node] = Some(policy.next(delays[node], now));
                queue.plan(now + LOOK_AGAIN.mul_f64(1.0 + random.fraction() / 2.0), Event::Look(node));
            }
        }
    }
    registry
}

/// Requests a stage, if there is one left.
fn ask(registry: &mut Registry, queue: &mut Queue<Event>, now: Duration, (node, stage): (usize, Option<&Stage>)) {
    if let Some(stage) = stage {
        let reply = registry.request(now, node, *stage);
        queue.plan(now + reply.takes, Event::Answered(node, *stage, reply.answer));
    }
}
