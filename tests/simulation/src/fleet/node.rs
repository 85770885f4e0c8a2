//! One simulated node: its cores, and what it wants.

use std::time::Duration;

use backoff_tracker::core::knowledge::{Failure, Input, Knowledge, Outcome, Target, View, WishId};
use clock::{Now, Random};
use contract::messages::backoff_tracker::BackoffKey;
use contract::{AttemptId, FailureClass, NodeName, PermitId, Stage};
use throttler::core::budget::Budgets;

use super::Options;
use crate::registry::Reply;
use crate::scenario::Answer;

const REGISTRY: &str = "registry.example";
/// One wish a node.
pub(super) const WISH: WishId = WishId(1);

/// Keeps the chance of each node apart from that of other seeds.
const OTHER_CHANCE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A node.
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) core: Knowledge,
    pub(super) tick: Option<Duration>,
    pub(super) throttle: throttler::core::Queue,
    pub(super) throttle_tick: Option<Duration>,
    pub(super) budgets: Budgets,
    pub(super) budget_tick: Option<Duration>,
    /// Who leads the budget, heard before this node wanted anything of it.
    pub(super) heard_leader: Option<(NodeName, u64)>,
    /// What its wish is at.
    pub(super) tried: Option<Tried>,
}

/// An attempt, or the wait for its permit.
pub(super) struct Tried {
    pub(super) permit: PermitId,
    pub(super) answer_by: Option<Duration>,
    /// The node's own bucket and slots have let it go.
    pub(super) throttled: bool,
    /// None as long as it waits.
    pub(super) attempt: Option<AttemptId>,
}

impl Node {
    pub(super) fn new(rank: usize, alive: usize, seed: u64, options: &Options) -> Option<Self> {
        let name: NodeName = format!("n{rank}").parse().ok()?;
        let mut core = Knowledge::new(name.clone(), options.policy.backoff);
        if let Some(fault) = options.fault {
            core = core.with_fault(fault);
        }
        core.step(Duration::ZERO, Input::Fleet { alive, rank: Some(rank) });
        // The shell measures it when it opens the buckets.
        core.step(Duration::ZERO, Input::RoundTrip((options.round_trip.least + options.round_trip.most) / 2));
        if !options.policy.shares {
            core.step(Duration::ZERO, Input::BusGone);
        }
        let throttle = throttler::core::Queue::new(options.policy.throttle);
        let random = Random::seeded(seed.wrapping_mul(OTHER_CHANCE).wrapping_add(rank as u64));
        let mut budgets = Budgets::new(name.clone(), options.policy.budget, random);
        budgets.step(Now::default(), throttler::core::budget::Input::Fleet { alive: alive as u64 });
        Some(Self { name, core, tick: None, throttle, throttle_tick: None, budgets, budget_tick: None, heard_leader: None, tried: None })
    }
}

pub(super) fn outcome(answer: Answer) -> Outcome {
    let failure = |class, authoritative, cause: &str| Failure { class, authoritative, cause: cause.to_owned(), ..Failure::default() };
    match answer {
        Answer::Served => Outcome::Reached(Stage::Manifest),
        Answer::NotFound => Outcome::Failed(failure(FailureClass::NotFound, true, "ErrImagePull: manifest unknown")),
        Answer::RateLimited { retry_after } => {
            Outcome::Failed(Failure { retry_after, ..failure(FailureClass::RateLimited, true, "ErrImagePull: too many requests") })
        }
        Answer::Refused => Outcome::Failed(failure(FailureClass::RegistryUnavailable, false, "ErrImagePull: connection refused")),
        Answer::Overloaded => Outcome::Failed(failure(FailureClass::RegistryUnavailable, false, "ErrImagePull: 503 of a proxy")),
        Answer::Nothing => Outcome::Failed(failure(FailureClass::RegistryUnavailable, false, "ErrImagePull: i/o timeout")),
    }
}

/// Whether the registry could do what was asked, as the pull coordinator tells it.
pub(super) fn served(reply: &Reply) -> Option<bool> {
    match reply.answer {
        Answer::Served | Answer::NotFound => Some(true),
        Answer::RateLimited { .. } if !reply.limits.is_empty() => None,
        Answer::RateLimited { retry_after } => retry_after.is_none_or(|after| after <= Duration::from_secs(10)).then_some(false),
        Answer::Overloaded | Answer::Refused | Answer::Nothing => Some(false),
    }
}

/// The node's own throttler refused: nobody else's matter.
pub(super) fn refused(text: String) -> Outcome {
    Outcome::Failed(Failure { class: FailureClass::NodeLocal, cause: format!("ErrImagePull: {text}"), ..Failure::default() })
}

pub(super) fn key(image: usize) -> BackoffKey {
    BackoffKey { pod: None, image: format!("{REGISTRY}/app:{image}") }
}

pub(super) fn target(image: usize) -> Target {
    Target {
        view: View { scope: "default".to_owned(), registry: REGISTRY.to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: format!("{REGISTRY}:443"),
        zone: "default".to_owned(),
        repository: format!("app{image}"),
        reference: format!("{REGISTRY}/app{image}:1"),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    }
}
