//! The fleet's budget for a registry: pulls a second, pulls at once, and what the registry's quotas leave.
//!
//! Each budget owner has one budget leader, which holds a lease; all nodes ask it for permits. A permit is a lease too: its holder renews
//! and returns it, and a dead node's permit expires. [`Budgets`] is the part of one node: it asks for permits, and leads the budgets whose
//! lease it holds. It uses neither bus nor clock: see [`Input`] and [`Effect`].
//!
//! Guarantees among nodes that reach a leader, even if messages are lost, late or doubled, and nodes are cut off or dead:
//! - permits in use never exceed `at_once`, except for pulls that continue after their permit has expired (counted);
//! - no sliding second sees more grants than `per_second`, nor more than the registry turns out to sustain (`adaptive_rate`). The delay
//!   from grant to begin differs by at most 80 ms between pulls, except on nodes that are slow to reach: because of them, twice as many
//!   pulls may begin in a second;
//! - no more pulls are granted than the registry has stated to be left, outstanding permits included.
//!
//! A node that reaches no leader for `DEADLINES.alone_after` continues with its share of the budget, at least one pull at a time; such
//! pulls are counted.

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

use std::collections::BTreeMap;
use std::time::Duration;

use contract::DEADLINES;
use contract::policy::Caps;

pub use claim::BudgetWait;
pub use leader::Term;
pub use node::Budgets;
pub use planted_bug::PlantedBug;
pub use rate::{Rate, RateCause};
pub use step::{BudgetReply, BudgetRequest, Effect, Input};

/// The most budget owners that a node remembers: registries times logins in use on one node. The least recently used one is forgotten.
pub(crate) const OWNERS_MAX: usize = 1_000;

/// How long a leader's permits may be in use after it answered last, or after its lease was lost: as long as the lease, and then as long as
/// the last permits that it granted.
pub(crate) const LEADERS_PERMITS_LAST: Duration = DEADLINES.leader_lease.saturating_add(DEADLINES.budget_permit_lease);

/// An answer that took longer than usual by more than this was held up: the moment for which it was given is over.
const HELD_UP: Duration = Duration::from_millis(40);

/// The longest that a quota's window is taken to last, by a leader and by a node that remembers it for the next leader.
const WINDOW_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Up to this many permits, places or claims are counted again after each step, if assertions are on.
const COUNTED_ANEW: usize = 64;

/// What a node that reaches no leader does about a quota that is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alone {
    /// It continues: the registry's own answer decides.
    #[default]
    Open,
    /// It waits until the quota's window is over.
    Share,
}

/// The budget of one owner. A node's settings are the same for all owners; the caps that its leader applies are those of the fleet policy,
/// where it sets none the median of those that nodes state, and else the leader's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetPolicy {
    /// Pulls that the fleet may begin in a second; 0 for no limit.
    pub per_second: f64,
    /// Pulls at once in the fleet; 0 for no limit.
    pub at_once: usize,
    /// What a node without a leader does about a quota.
    pub alone: Alone,
    /// The two caps in the node's own file. If the fleet's caps in force are higher, they bind this node alone.
    pub own: Caps,
}

impl BudgetPolicy {
    /// This budget with these caps where they are set.
    fn with(self, caps: Caps) -> Self {
        Self {
            per_second: caps.pulls_per_second.unwrap_or(self.per_second),
            at_once: caps.pulls_at_once.map_or(self.at_once, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            ..self
        }
    }

    /// The two caps of the fleet.
    fn caps(&self) -> Caps {
        Caps { pulls_per_second: Some(self.per_second), pulls_at_once: Some(self.at_once as u64) }
    }
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { per_second: 200.0, at_once: 0, alone: Alone::Open, own: Caps::NONE }
    }
}

/// Counts one less of a key, and forgets the key at zero.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count = count.saturating_sub(1);
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_that_falls_to_zero_is_forgotten() {
        let mut counts = BTreeMap::from([("a", 2), ("b", 1)]);
        for (key, left) in [("a", vec![("a", 1), ("b", 1)]), ("b", vec![("a", 1)]), ("b", vec![("a", 1)]), ("a", vec![])] {
            count_down(&mut counts, &key);
            assert_eq!(counts.iter().map(|(key, count)| (*key, *count)).collect::<Vec<_>>(), left);
        }
    }
}
