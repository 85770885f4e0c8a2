//! One simulated node: its cores, and the image that it wants.

use std::time::Duration;

use backoff_tracker::core::knowledge::{Input, Knowledge, Outcome, RequestId, Target, View};
use clock::{Now, Random};
use contract::messages::backoff_tracker::{AttemptFailure, LocalKey};
use contract::{AttemptId, FailureClass, NodeName, PermitId, Stage};
use throttler::core::budget::Budgets;

use super::Options;
use crate::registry::Reply;
use crate::scenario::Answer;

const REGISTRY: &str = "registry.example";
/// Makes the random generators of nodes differ between neighbouring seeds.
const NODE_SEED_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state of a node.
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) core: Knowledge,
    pub(super) tick: Option<Duration>,
    pub(super) throttle: throttler::core::Queue,
    pub(super) throttle_tick: Option<Duration>,
    pub(super) budgets: Budgets,
    pub(super) budget_tick: Option<Duration>,
    /// The leader of the budget, learned before this node wanted a permit.
    pub(super) early_leader: Option<(NodeName, u64)>,
    /// The present request; each run of the standing pull has another one.
    pub(super) request: RequestId,
    /// When the present run began.
    pub(super) asked_at: Duration,
    /// The state of the request, if it has clearance.
    pub(super) cleared: Option<ClearedRequest>,
}

/// An attempt, or the wait for its permit.
pub(super) struct ClearedRequest {
    pub(super) permit: PermitId,
    /// When the clearance was given, and until when it is valid.
    pub(super) granted_at: Duration,
    pub(super) answer_by: Option<Duration>,
    /// The stage that the clearance is for.
    pub(super) until: Stage,
    /// Whether that stage has answered, so that the fleet no longer waits for the attempt.
    pub(super) resolve_sent: bool,
    /// Whether the clearance has expired.
    pub(super) expired: bool,
    /// Whether the node has a permit and asks for another clearance.
    pub(super) asks_again: bool,
    /// Whether the node's own token bucket and slots have granted a start.
    pub(super) throttled: bool,
    /// The running attempt; none while the node waits for a permit.
    pub(super) attempt: Option<AttemptId>,
}

impl ClearedRequest {
    /// Whether at least half of the clearance is left for the registry to answer.
    pub(super) fn is_in_time(&self, now: Duration) -> bool {
        !self.expired && self.answer_by.is_none_or(|by| now <= self.granted_at + by.saturating_sub(self.granted_at) / 2)
    }
}

impl Node {
    pub(super) fn new(rank: usize, alive: usize, seed: u64, options: &Options) -> Option<Self> {
        let name: NodeName = format!("n{rank}").parse().ok()?;
        let mut core = Knowledge::new(name.clone(), options.policy.backoff);
        if let Some(planted_bug) = options.planted_bug {
            core = core.with_planted_bug(planted_bug);
        }
        core.step(Duration::ZERO, Input::Fleet { alive, rank: Some(rank), in_zone: None });
        if !options.policy.shares {
            core.step(Duration::ZERO, Input::BusLost);
        }
        let throttle = throttler::core::Queue::new(options.policy.throttle);
        let random = Random::seeded(seed.wrapping_mul(NODE_SEED_FACTOR).wrapping_add(rank as u64));
        let mut budgets = Budgets::new(name.clone(), options.policy.budget, random);
        budgets.step(Now::default(), throttler::core::budget::Input::Fleet { alive: alive as u64 });
        Some(Self {
            name,
            core,
            tick: None,
            throttle,
            throttle_tick: None,
            budgets,
            budget_tick: None,
            early_leader: None,
            request: RequestId(1),
            asked_at: Duration::ZERO,
            cleared: None,
        })
    }
}

/// The failure that the answer of a stage means, if it means one.
pub(super) fn failure(answer: Answer, stage: Stage) -> Option<AttemptFailure> {
    let (class, authoritative, cause) = match answer {
        Answer::Served => return None,
        Answer::NotFound => (FailureClass::NotFound, true, "manifest unknown"),
        Answer::RateLimited { .. } => (FailureClass::RateLimited, true, "too many requests"),
        Answer::Refused => (FailureClass::RegistryUnavailable, false, "connection refused"),
        Answer::Overloaded => (FailureClass::RegistryUnavailable, false, "503 of a proxy"),
        Answer::Unavailable => (FailureClass::RegistryUnavailable, true, "503 of the registry"),
        Answer::Nothing => (FailureClass::RegistryUnavailable, false, "i/o timeout"),
    };
    let retry_after = if let Answer::RateLimited { retry_after } = answer { retry_after } else { None };
    let retry_after_ms = retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    Some(AttemptFailure {
        class,
        authoritative,
        cause: format!("ErrImagePull: {cause}"),
        stage,
        retry_after_ms,
        ..AttemptFailure::default()
    })
}

/// Whether the registry could serve the request, by the pull coordinator's rule; none if the answer does not show it.
pub(super) fn served(reply: &Reply) -> Option<bool> {
    match reply.answer {
        Answer::Served | Answer::NotFound => Some(true),
        Answer::RateLimited { .. } if !reply.limits.is_empty() => None,
        Answer::RateLimited { retry_after } => retry_after.is_none_or(|after| after <= Duration::from_secs(10)).then_some(false),
        Answer::Overloaded | Answer::Unavailable | Answer::Refused | Answer::Nothing => Some(false),
    }
}

/// The outcome of a refusal by the node's own throttler, which is not shared.
pub(super) fn refused(text: String) -> Outcome {
    Outcome::Failed(AttemptFailure { class: FailureClass::NodeLocal, cause: format!("ErrImagePull: {text}"), ..AttemptFailure::default() })
}

pub(super) fn key(image: usize) -> LocalKey {
    LocalKey { pod: None, image: format!("{REGISTRY}/app:{image}") }
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
