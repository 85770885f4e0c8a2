//! Permits that a node gives back, and what it tells of quotas with them.

use std::time::Duration;

use contract::PermitId;
use contract::messages::throttler::RegistryLimit;

use super::super::claim::{Return, Stage, Wanted};
use super::{Member, RETURNS_MAX};

/// So long after a pull, or after the bus came back: by then a leader that died has a successor, which has been told.
const WITNESS_FOR: Duration = Duration::from_secs(10);

impl Member {
    pub(in crate::core::budget) fn release(
        &mut self,
        now: Duration,
        permit: PermitId,
        limits: Vec<RegistryLimit>,
        served: Option<bool>,
    ) -> Vec<Wanted> {
        let Some(claim) = self.claims.remove(permit) else { return Vec::new() };
        let told = if limits.is_empty() { claim.told.filter(|_| !claim.told_sent) } else { Some(limits) };
        if let Some(limits) = &told {
            self.remembered.learn_first_hand(now, limits);
        }
        if claim.stage != Stage::Waiting {
            self.bear_witness(now);
        }
        if self.returns.len() < RETURNS_MAX {
            self.returns.insert(permit, Return { served, ..Return::new(now, claim.stage != Stage::Waiting, told) });
        }
        self.tick(now)
    }

    /// Whoever leads is asked for a while whether it knows of a quota what this node knows: if a leader dies, nobody else may know of
    /// this node's pull, and a node that wants nothing looks for no leader.
    pub(super) fn bear_witness(&mut self, now: Duration) {
        if !self.known(now).limits.is_empty() {
            self.witness_until = Some(now + WITNESS_FOR);
        }
    }
}
