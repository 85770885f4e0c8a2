//! The wishes that callers ask leave for, and the answers that are held back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actors::Answer;
use contract::messages::backoff_tracker::{AwaitLeave, LEAVE_LAPSES_AFTER_MS, Leave};
use contract::{AttemptId, TraceContext, WishId};

use crate::core::knowledge::{self, Duty, Knowledge, MAX_WISHES, TopicId, Verdict};

/// The longest that an answer is held back, whatever the caller's patience: well before its wish would lapse.
const LONGEST_PATIENCE: Duration = Duration::from_millis(LEAVE_LAPSES_AFTER_MS / 2);
/// Who is not heard of for so long wishes no more.
const LAPSES_AFTER: Duration = Duration::from_millis(LEAVE_LAPSES_AFTER_MS);

/// All wishes of the node, by the caller's id and by the core's.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    by_id: BTreeMap<WishId, Box<Wish>>,
    by_number: BTreeMap<knowledge::WishId, WishId>,
    /// When the patience of each is over, or it lapses.
    due: BTreeSet<(Duration, WishId)>,
    last_number: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) number: knowledge::WishId,
    pub(super) attempt: AttemptId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
    pub(super) stage: Stage,
    waiting: Option<HeldBack>,
    /// Whether the core was told that the attempt has begun.
    begun: bool,
    /// The last attempt that was abandoned.
    abandoned: Option<AttemptId>,
    /// The shared entry that last held it.
    held_by: Option<TopicId>,
    heard: Duration,
}

/// An answer that is held back until there is something to say, or until then. Who is given none, as its wish is asked for again or has
/// ended, is to ask again.
#[derive(Debug)]
struct HeldBack {
    answer: Option<Answer<actors::Ask<AwaitLeave>>>,
    until: Duration,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Nothing is decided.
    Waiting,
    /// A standing wish is held.
    Held(knowledge::Held),
    /// It may go ahead, and nobody has been told yet.
    Cleared(Grant),
    /// It goes ahead.
    Granted(Grant),
    /// Its attempt is to end without a word.
    Abandoned,
    /// Its attempt has come to something.
    Resolved,
}

/// What an attempt is known by that has come to something.
pub(super) struct Resolved {
    pub(super) number: knowledge::WishId,
    /// Its span, if the core does not know that it has begun.
    pub(super) not_begun: Option<TraceContext>,
    pub(super) standing: bool,
    /// Its clearance is over by that.
    pub(super) over: bool,
}

/// How a wish may go ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Grant {
    pub(super) for_all: bool,
    pub(super) answer_by: Option<Duration>,
    /// The stage that must have answered by then.
    pub(super) until: contract::Stage,
}

/// An ask for leave.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) attempt: AttemptId,
    pub(super) trace: TraceContext,
    pub(super) standing: bool,
}

impl Wishes {
    /// Takes note of an ask: the wish's number, and whether the core does not know of it yet.
    pub(super) fn ask(&mut self, now: Duration, id: WishId, ask: &Ask) -> (knowledge::WishId, bool) {
        let known = self.change(id, |wish| {
            let anew = wish.attempt != ask.attempt;
            if anew && !wish.takes_another_attempt() {
                return None;
            }
            if anew && matches!(wish.stage, Stage::Resolved | Stage::Abandoned) {
                wish.stage = Stage::Waiting;
            }
            (wish.attempt, wish.trace, wish.standing, wish.heard) = (ask.attempt, ask.trace, ask.standing, now);
            Some((wish.number, anew))
        });
        if let Some(known) = known.flatten() {
            return known;
        }
        self.last_number += 1;
        let number = knowledge::WishId(self.last_number);
        let (attempt, trace, standing) = (ask.attempt, ask.trace, ask.standing);
        let wish = Wish {
            number,
            attempt,
            trace,
            standing,
            stage: Stage::Waiting,
            waiting: None,
            begun: false,
            abandoned: None,
            held_by: None,
            heard: now,
        };
        // The caller has given one with another attempt up before (`overtaken`).
        self.remove(id);
        self.due.insert((wish.due(), id));
        self.by_id.insert(id, Box::new(wish));
        self.by_number.insert(number, id);
        (number, true)
    }

    /// The number of a wish that is given up because its caller has begun another attempt without a word on the last.
    pub(super) fn overtaken(&mut self, id: WishId, attempt: AttemptId) -> Option<knowledge::WishId> {
        let wish = self.by_id.get(&id)?;
        if wish.attempt == attempt || wish.takes_another_attempt() { None } else { self.remove(id) }
    }

    /// Holds the answer to a wish back; whoever waited before gets none.
    pub(super) fn hold_back(&mut self, now: Duration, id: WishId, patience: Duration, answer: Answer<actors::Ask<AwaitLeave>>) {
        let held_back = HeldBack { answer: Some(answer), until: clock::end_of_wait(now, patience.min(LONGEST_PATIENCE)) };
        self.change(id, |wish| wish.waiting = Some(held_back));
    }

    /// Whether there is no room for a wish that is not known yet.
    pub(super) fn is_full_for(&self, id: WishId) -> bool {
        self.by_id.len() >= MAX_WISHES && !self.by_id.contains_key(&id)
    }

    pub(super) fn get(&self, id: WishId) -> Option<&Wish> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn id_of(&self, number: knowledge::WishId) -> Option<WishId> {
        self.by_number.get(&number).copied()
    }

    /// What the core says of a wish.
    pub(super) fn told(&mut self, number: knowledge::WishId, verdict: Verdict) -> Option<WishId> {
        let id = self.id_of(number)?;
        let wish = self.by_id.get_mut(&id)?;
        wish.stage = match verdict {
            Verdict::Clear { duty, answer_by, until } => Stage::Cleared(Grant { for_all: duty != Duty::None, answer_by, until }),
            Verdict::Held(held) => {
                wish.held_by = held.entry.or(wish.held_by);
                Stage::Held(held)
            }
            Verdict::Wait => Stage::Waiting,
        };
        Some(id)
    }

    /// The attempt under way hangs while others are answered.
    pub(super) fn abandon(&mut self, number: knowledge::WishId) {
        if let Some(id) = self.id_of(number) {
            self.change(id, |wish| {
                wish.stage = Stage::Abandoned;
                wish.abandoned = Some(wish.attempt);
                wish.answer(Leave::Abandoned);
            });
        }
    }

    /// A stage has answered the attempt, or it has failed.
    pub(super) fn resolved(&mut self, id: WishId, attempt: AttemptId, reached: Option<contract::Stage>) -> Option<Resolved> {
        let wish = self.by_id.get_mut(&id).filter(|wish| wish.attempt == attempt)?;
        let over = match &wish.stage {
            Stage::Granted(grant) => reached.is_none_or(|reached| reached >= grant.until),
            Stage::Resolved if reached.is_some() => false,
            _ => return None,
        };
        if over {
            wish.stage = Stage::Resolved;
        }
        let not_begun = (!std::mem::replace(&mut wish.begun, true)).then_some(wish.trace);
        Some(Resolved { number: wish.number, not_begun, standing: wish.standing, over })
    }

    /// The attempt under way asks the registry from now on; its number and span.
    pub(super) fn started(&mut self, id: WishId, attempt: AttemptId) -> Option<(knowledge::WishId, TraceContext)> {
        let wish = self.by_id.get_mut(&id).filter(|wish| wish.is_granted(attempt))?;
        wish.begun = true;
        Some((wish.number, wish.trace))
    }

    /// Has leave from now on; whether on behalf of all.
    pub(super) fn grant(&mut self, id: WishId) -> Option<bool> {
        let wish = self.by_id.get_mut(&id)?;
        let Stage::Cleared(grant) = wish.stage else { return None };
        if wish.is_abandoned() {
            return None;
        }
        wish.stage = Stage::Granted(grant);
        wish.begun = false;
        Some(grant.for_all)
    }

    /// Answers whoever waits.
    pub(super) fn answer(&mut self, id: WishId, leave: Leave) {
        self.change(id, |wish| wish.answer(leave));
    }

    pub(super) fn waits(&self, id: WishId) -> bool {
        self.by_id.get(&id).is_some_and(|wish| wish.waiting.is_some())
    }

    /// Forgets a wish; its number.
    pub(super) fn remove(&mut self, id: WishId) -> Option<knowledge::WishId> {
        self.take(id).map(|wish| wish.number)
    }

    /// Gives a wish up to who asks for it.
    pub(super) fn take(&mut self, id: WishId) -> Option<Box<Wish>> {
        let wish = self.by_id.remove(&id)?;
        self.due.remove(&(wish.due(), id));
        self.by_number.remove(&wish.number);
        Some(wish)
    }

    /// Those whose patience is over.
    pub(super) fn impatient(&self, now: Duration) -> Vec<WishId> {
        self.due(now).filter(|id| self.waits(*id)).collect()
    }

    /// Those that nobody has asked for in a long time.
    pub(super) fn lapsed(&self, now: Duration) -> Vec<WishId> {
        self.due(now).filter(|id| !self.waits(*id)).collect()
    }

    /// When somebody's patience is over or a wish lapses next.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    fn due(&self, now: Duration) -> impl Iterator<Item = WishId> {
        self.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, id)| *id)
    }

    /// Changes a wish, if it is there.
    fn change<T>(&mut self, id: WishId, change: impl FnOnce(&mut Wish) -> T) -> Option<T> {
        let wish = self.by_id.get_mut(&id)?;
        let before = wish.due();
        let result = change(wish);
        let due = wish.due();
        if due != before {
            self.due.remove(&(before, id));
            self.due.insert((due, id));
        }
        Some(result)
    }

    /// Whoever answers now heard of its caller.
    pub(super) fn heard(&mut self, now: Duration, id: WishId) {
        self.change(id, |wish| wish.heard = now);
    }
}

impl Wish {
    /// When the patience of who waits is over, or it lapses.
    fn due(&self) -> Duration {
        self.waiting.as_ref().map_or(self.heard + LAPSES_AFTER, |waiting| waiting.until)
    }

    /// Whether its caller still goes on with an attempt that is to end.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned == Some(self.attempt)
    }

    fn is_granted(&self, attempt: AttemptId) -> bool {
        self.attempt == attempt && matches!(self.stage, Stage::Granted(_))
    }

    /// Between attempts another one may begin.
    fn takes_another_attempt(&self) -> bool {
        !matches!(self.stage, Stage::Granted(_))
    }

    pub(super) fn answer(&mut self, leave: Leave) {
        if let Some(answer) = self.waiting.take().and_then(|mut waiting| waiting.answer.take()) {
            // Whoever gave up waiting asks again, or its wish lapses.
            answer.give(Ok(leave));
        }
    }

    /// The answer to a caller whose patience is over, by what the node knows.
    pub(super) fn as_it_stands(&self, now: Duration, knowledge: &Knowledge) -> Leave {
        match &self.stage {
            Stage::Held(held) => Leave::Waiting { held: Some(knowledge.told(now, held.clone())) },
            Stage::Waiting | Stage::Cleared(_) => Leave::Waiting { held: None },
            Stage::Granted(grant) => {
                let released_by = self.held_by.and_then(|entry| knowledge.last_success_of(entry));
                grant.with_release(now, released_by)
            }
            Stage::Resolved => Grant::default().told(now),
            Stage::Abandoned => Leave::Abandoned,
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer.give(Ok(Leave::Waiting { held: None }));
        }
    }
}

impl Grant {
    pub(super) fn told(self, now: Duration) -> Leave {
        self.with_release(now, None)
    }

    fn with_release(self, now: Duration, released_by: Option<TraceContext>) -> Leave {
        let left = |by: Duration| u64::try_from(by.saturating_sub(now).as_millis()).unwrap_or(u64::MAX);
        Leave::Granted { for_all: self.for_all, answer_within_ms: self.answer_by.map(left), until: self.until, released_by }
    }
}
