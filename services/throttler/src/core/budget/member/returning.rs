//! Permits that a node gives back, and what it tells of quotas with them.

use std::time::Duration;

use contract::PermitId;
use contract::messages::throttler::RegistryLimit;

use super::super::claim::{Return, Stage, Wanted};
use super::{Member, RETURNS_MAX};

/// Who has pulled under a quota asks so often whether its leader still knows of it.
const WITNESSED_EVERY: Duration = Duration::from_secs(2);

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
        if self.returns.len() < RETURNS_MAX {
            self.returns.insert(permit, Return { served, ..Return::new(now, claim.stage != Stage::Waiting, told) });
        }
        self.tick(now)
    }

    /// A leader has a permit back. Under a quota it is told so again for a while: if it dies, nobody else may know of this pull, and a
    /// node that wants nothing looks for no leader. One will do, as a node tells the next leader all that it knows.
    pub(super) fn returned(&mut self, now: Duration, permit: PermitId) {
        let Some(back) = self.returns.remove(&permit) else { return };
        if back.used && !self.known(now).limits.is_empty() {
            self.returns.retain(|_, other| !other.taken);
            let ask_at = now + WITNESSED_EVERY;
            self.returns.insert(permit, Return { told: None, served: None, taken: true, ask_at, asked: None, ..back });
        }
    }
}
