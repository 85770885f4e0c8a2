//! Standing pulls on disk: written at each change, read at the start.

use std::time::Duration;

use clock::Now;
use contract::TraceContext;

use super::{WISHES_MAX, stands, wait_of};
use crate::core::alarms::Alarm;
use crate::core::coordinator::Coordinator;
use crate::core::step::{Effect, KeptWish};
use crate::core::words;

impl Coordinator {
    /// The agent began again: what stood, stands for the rest of its time.
    pub(in crate::core) fn wishes_loaded(&mut self, now: Now, wishes: Vec<KeptWish>) {
        for kept in wishes.into_iter().take(WISHES_MAX) {
            if self.wishes.standing.contains_key(&kept.wish) || wait_of(&kept.ask).is_none() {
                continue;
            }
            // By a clock that is not set yet it is never more than the whole.
            let whole = kept.until_ms.saturating_sub(kept.since_ms);
            let left = Duration::from_millis(kept.until_ms.saturating_sub(now.wall_ms()).min(whole));
            let (id, trace) = (kept.wish, TraceContext::root(&mut self.random));
            self.keep(kept, now.monotonic.saturating_add(left), trace);
            if let Some(wish) = self.wishes.standing.get_mut(&id) {
                wish.written = true;
            }
            self.alarms.set(Alarm::Wish(id), now.monotonic);
        }
    }

    pub(super) fn write_wishes(&mut self, effects: &mut Vec<Effect>) {
        if !self.policy.writes_wishes || !self.wishes.changed || self.wishes.writing {
            return;
        }
        (self.wishes.changed, self.wishes.writing) = (false, true);
        self.wishes.writings += 1;
        let mut wishes = Vec::with_capacity(self.wishes.standing.len());
        for (id, wish) in &mut self.wishes.standing {
            wish.in_writing = true;
            wishes.push(KeptWish { wish: *id, ask: wish.ask.clone(), since_ms: wish.since_ms, until_ms: wish.until_ms });
        }
        effects.push(Effect::KeepWishes { wishes });
    }

    pub(in crate::core) fn wishes_kept(&mut self, error: Option<&str>, effects: &mut Vec<Effect>) {
        if !std::mem::take(&mut self.wishes.writing) {
            return;
        }
        for (id, wish) in self.wishes.standing.iter_mut().filter(|(_, wish)| wish.in_writing) {
            wish.in_writing = false;
            wish.written |= error.is_none();
            for (request, message) in wish.detached.drain(..) {
                let message = error.map_or(message, words::wish_not_kept);
                effects.push(Effect::Answer { request, outcome: stands(*id, wish.trace, message) });
            }
        }
        self.write_wishes(effects);
    }

    /// Which writing of wishes will have what stands now; none when there is none under way.
    #[must_use]
    pub fn writing_of_wishes(&self) -> Option<u64> {
        self.wishes.writing.then_some(self.wishes.writings + u64::from(self.wishes.changed))
    }

    /// Whether that writing is over, however it ended.
    #[must_use]
    pub fn is_written(&self, writing: u64) -> bool {
        self.wishes.writings > writing || (self.wishes.writings == writing && !self.wishes.writing)
    }
}
