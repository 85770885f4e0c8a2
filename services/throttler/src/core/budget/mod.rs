//! What the fleet may ask of a registry: pulls a second, pulls at once, and what its quotas leave.
//!
//! Each budget owner has one leader, which holds a lease; everybody asks it for permits. A permit is a lease too: its holder renews
//! it and returns it, and a dead node's permit comes back by itself. [`Budgets`] is all of it for one node: it asks, and leads those
//! budgets whose lease the node has taken. It knows neither bus nor clock: see [`Input`] and [`Effect`].
//!
//! What holds among nodes that reach a leader, whatever is lost, late, doubled, cut off or dead:
//! - permits in use are never more than `at_once`, but for pulls that went on after their permit had run out (counted);
//! - no sliding second sees more grants than `per_second`, and than the registry turns out to be able to do ([`AdaptiveRate`]);
//!   pulls begin within 80 ms of the same time after their grants, but for those of nodes that are slow to reach: twice as many may begin;
//! - never more pulls are let go than the registry has said are left, permits that are out included.
//!
//! Who reaches no leader for [`ALONE_AFTER`] goes on by its share of the budget, at least one at a time, and is counted.

mod adaptive_rate;
mod claim;
mod claims;
#[cfg(test)]
mod claims_tests;
mod client;
mod fair_queue;
mod leader;
mod node;
mod permits;
mod planted_bug;
mod policies;
mod quota;
mod rate;
mod rate_limiter;
mod remembered;
mod silence;
mod step;

use std::time::Duration;

use contract::policy::Caps;

pub use adaptive_rate::{AdaptiveRate, RegistryAnswer};
pub use claim::BudgetWait;
pub use leader::Term;
pub use node::Budgets;
pub use planted_bug::PlantedBug;
pub use rate::{Rate, RateCause};
pub use rate_limiter::RateLimiter;
pub use step::{BudgetReply, BudgetRequest, Effect, Input};

/// How long a fleet permit lasts without a renewal, and so how long a new leader learns who holds what: three renewals.
pub const FLEET_PERMIT_LEASE: Duration = Duration::from_secs(3);
/// How often permits are renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long a leader's lease lasts without a renewal.
pub const LEADER_LEASE: Duration = Duration::from_secs(3);
/// How often a leader renews its lease.
pub const LEAD_RENEWED_EVERY: Duration = Duration::from_secs(1);
/// How long the bucket of leases may take to answer; a leader renews its lease three times within it.
pub const BUCKET_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take to find out who leads a budget, or to become its leader: up to five answers of the bucket, one after the other, and
/// less than a lease lasts.
pub const CAMPAIGN_WITHIN: Duration = Duration::from_millis(2_500);
/// How long a leader's answer is waited for: twice as long as it usually takes, within these.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(250);
const ANSWER_WITHIN_MOST: Duration = Duration::from_secs(2);
/// An answer counts for twice as long as it is waited for, as it was asked again meanwhile; but half a second is left of a permit's lease to
/// renew it.
const ANSWER_COUNTS_MOST: Duration = Duration::from_millis(FLEET_PERMIT_LEASE.as_millis() as u64 - 500);
/// What took longer than usual by more than this was held up: it says of a time that is over.
const HELD_UP: Duration = Duration::from_millis(40);
/// One that comes until then grants nothing, but a leader that says so late who has to wait is not gone: its line is slow, or it has many
/// to answer.
pub const ANSWER_HEARD: Duration = Duration::from_secs(5);
/// So many answers missing in a row mean that the leader is gone.
pub const MISSES_TO_GONE: u32 = 3;
/// Who waits asks again at least so often, as calls may be lost. Three times within the time after which a place lapses.
pub const ASK_AGAIN: Duration = Duration::from_secs(5);
/// After so long without a leader a node goes on alone.
pub const ALONE_AFTER: Duration = Duration::from_secs(15);
/// The same where the bus was never there or cannot hold leases: long enough for one that is being connected to, and below the 2 s that a
/// pull may wait for such a bus.
pub const ALONE_AFTER_UNUSABLE: Duration = Duration::from_millis(1_500);
/// Who was not heard for so long is not reckoned with any more.
pub const KNOWN_FOR: Duration = Duration::from_millis(contract::messages::registrar::KNOWN_FOR_MS);

/// What a node that reaches no leader does about a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alone {
    /// It goes on: the registry's own answer decides.
    #[default]
    Open,
    /// It waits until the quota's window is over.
    Share,
}

/// The budget of one owner, as a node's settings have it for all owners: what the fleet policy says goes before it. The leader's is what
/// counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetPolicy {
    /// Pulls that the fleet may begin in a second; 0 for no limit.
    pub per_second: f64,
    /// Pulls at once in the fleet; 0 for no limit.
    pub at_once: usize,
    /// What a node without a leader does about a quota.
    pub alone: Alone,
    /// What the node's own file says of the two caps. Where the fleet policy says more, it binds this node alone.
    pub own: Caps,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { per_second: 200.0, at_once: 0, alone: Alone::Open, own: Caps::NONE }
    }
}
