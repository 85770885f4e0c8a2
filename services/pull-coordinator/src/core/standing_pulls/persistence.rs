//! Stores standing pulls at each change, and restores them at the start.

use std::time::Duration;

use clock::Now;
use contract::{StandingPullId, TraceContext};

use super::{STANDING_PULLS_MAX, StandingPulls, stands, wait_of};
use crate::core::alarms::Alarm;
use crate::core::coordinator::Coordinator;
use crate::core::kubelet_messages;
use crate::core::request::milliseconds;
use crate::core::step::{Effect, KeptStandingPull, RequestId};

/// The pause before a failed write is repeated.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// If wall clock and monotonic clock differ by more than this, the wall clock was set.
const CLOCK_SET_BY: Duration = Duration::from_secs(60);

impl StandingPulls {
    /// Removes a detached caller that waits for a write; returns its standing pull.
    pub(super) fn remove_detached(&mut self, caller: RequestId) -> Option<(StandingPullId, TraceContext)> {
        self.standing.iter_mut().find_map(|(id, standing_pull)| {
            let place = standing_pull.detached.iter().position(|(detached, _)| *detached == caller)?;
            standing_pull.detached.remove(place);
            Some((*id, standing_pull.trace))
        })
    }
}

impl Coordinator {
    /// Restores stored standing pulls for the rest of their time.
    pub(in crate::core) fn standing_pulls_loaded(&mut self, now: Now, standing_pulls: Vec<KeptStandingPull>) {
        self.standing_pulls.written_at = Some(now);
        for kept in standing_pulls.into_iter().take(STANDING_PULLS_MAX) {
            if self.standing_pulls.standing.contains_key(&kept.standing_pull) || wait_of(&kept.ask).is_none() {
                continue;
            }
            // If the clock is not set yet, the rest is at most the whole time.
            let whole = Duration::from_millis(kept.until_ms.saturating_sub(kept.since_ms));
            let left = Duration::from_millis(kept.until_ms.saturating_sub(now.wall_ms())).min(whole);
            let (id, trace) = (kept.standing_pull, TraceContext::root(&mut self.random));
            self.keep(id, kept.ask, whole, now.monotonic.saturating_add(left), trace);
            if let Some(standing_pull) = self.standing_pulls.standing.get_mut(&id) {
                standing_pull.written = true;
            }
            self.alarms.set(Alarm::StandingPull(id), now.monotonic);
        }
    }

    /// Writes the standing pulls again if the wall clock was set since the last write: only the file has times of that clock. So a standing
    /// pull keeps its rest when the agent restarts, even if it began before the clock was set.
    pub(in crate::core) fn write_if_clock_was_set(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(written_at) = self.standing_pulls.written_at else { return };
        let expected = written_at.after(now.monotonic.saturating_sub(written_at.monotonic));
        if expected.wall.abs_diff(now.wall) > CLOCK_SET_BY {
            self.standing_pulls.changed = true;
            self.write_standing_pulls(now, effects);
        }
    }

    pub(super) fn write_standing_pulls(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.policy.writes_standing_pulls || !self.standing_pulls.changed || self.standing_pulls.writing {
            return;
        }
        self.alarms.clear(Alarm::StandingPullFile);
        (self.standing_pulls.changed, self.standing_pulls.writing) = (false, true);
        self.standing_pulls.writings += 1;
        self.standing_pulls.written_at = Some(now);
        let mut standing_pulls = Vec::with_capacity(self.standing_pulls.standing.len());
        for (id, standing_pull) in &mut self.standing_pulls.standing {
            standing_pull.in_writing = true;
            standing_pulls.push(KeptStandingPull {
                standing_pull: *id,
                ask: standing_pull.ask.clone(),
                since_ms: now.wall_ms().saturating_sub(milliseconds(standing_pull.age(now))),
                until_ms: now.wall_ms().saturating_add(milliseconds(standing_pull.left(now))),
            });
        }
        effects.push(Effect::KeepStandingPulls { standing_pulls });
    }

    pub(in crate::core) fn standing_pulls_kept(&mut self, now: Now, error: Option<&str>, effects: &mut Vec<Effect>) {
        if !std::mem::take(&mut self.standing_pulls.writing) {
            return;
        }
        for (id, standing_pull) in self.standing_pulls.standing.iter_mut().filter(|(_, standing_pull)| standing_pull.in_writing) {
            standing_pull.in_writing = false;
            standing_pull.written |= error.is_none();
            for (request, message) in standing_pull.detached.drain(..) {
                let message = error.map_or(message, kubelet_messages::standing_pull_not_kept);
                effects.push(Effect::Answer { request, outcome: stands(*id, standing_pull.trace, message) });
            }
        }
        if error.is_some() {
            self.alarms.set(Alarm::StandingPullFile, now.monotonic + WRITE_AGAIN_AFTER);
        }
        self.write_standing_pulls(now, effects);
    }

    pub(in crate::core) fn write_standing_pulls_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.standing_pulls.changed = true;
        self.write_standing_pulls(now, effects);
    }

    /// Answers a detached caller whose time is over before the write is.
    pub(super) fn leave_write(&mut self, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some((id, trace)) = self.standing_pulls.remove_detached(caller) else { return };
        let outcome = stands(id, trace, kubelet_messages::standing_pull_not_kept_yet());
        effects.push(Effect::Answer { request: caller, outcome });
    }

    /// The number of the write that will contain the present state; none if no write is under way.
    #[must_use]
    pub fn writing_of_standing_pulls(&self) -> Option<u64> {
        self.standing_pulls.writing.then_some(self.standing_pulls.writings + u64::from(self.standing_pulls.changed))
    }

    /// Whether the write with this number is over, successful or not.
    #[must_use]
    pub fn is_written(&self, writing: u64) -> bool {
        self.standing_pulls.writings > writing || (self.standing_pulls.writings == writing && !self.standing_pulls.writing)
    }
}
