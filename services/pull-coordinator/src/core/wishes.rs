//! Standing wishes: they go on, run after run, until the image is there, their time is over, or somebody ends them.

mod keeping;
mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Now;
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, OutcomeKind, PullOutcome, PullPolicy, WishStatus};
use contract::{FailureClass, TraceContext, WishId};
use image::{Platform, Reference};

use super::alarms::Alarm;
use super::bounds;
use super::coordinator::Coordinator;
use super::outcomes;
use super::request::{Stage, default_policy, milliseconds};
use super::step::{Effect, KeptWish, RequestId};
use super::words;

/// The most wishes of a node: more images than a node has room for.
const WISHES_MAX: usize = 1_000;
/// Runs of a wish begin at most this often, whatever the fleet says.
const RUN_EVERY_AT_LEAST: Duration = Duration::from_secs(1);
/// After how long a failed run is followed by the next if nobody says when: kubelet's first step.
const RUN_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Runs of wishes are requests like any other, with numbers of their own.
const FIRST_RUN: u64 = 1 << 63;

/// All wishes of a node.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    standing: BTreeMap<WishId, Wish>,
    /// Which wish a run is of.
    runs: BTreeMap<RequestId, WishId>,
    /// Which wish a caller waits for.
    callers: BTreeMap<RequestId, WishId>,
    last_run: u64,
    /// How often their writing has begun.
    writings: u64,
    /// They are not what was written last.
    changed: bool,
    /// They are being written.
    writing: bool,
    ended_unheard: AnswerCounts,
}

#[derive(Debug)]
struct Wish {
    ask: EnsureImage,
    since_ms: u64,
    until_ms: u64,
    /// The same on the monotonic clock.
    until: Duration,
    trace: TraceContext,
    /// The run under way.
    run: Option<RequestId>,
    began: Duration,
    tries: u64,
    /// How the last run ended, and when.
    last: Option<(PullOutcome, Duration)>,
    /// It is in what is being written, and in what was.
    in_writing: bool,
    written: bool,
    /// Callers to be told that it is written, and what else they are told.
    detached: Vec<(RequestId, String)>,
}

impl Wishes {
    /// A caller does not wait for its wish any more.
    pub(super) fn abandon(&mut self, caller: RequestId) {
        self.callers.remove(&caller);
    }

    /// The span of the standing pull that a run is of.
    pub(super) fn span_of_run(&self, run: RequestId) -> Option<TraceContext> {
        Some(self.standing.get(self.runs.get(&run)?)?.trace)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = (WishId, TraceContext)> {
        self.standing.iter().map(|(id, wish)| (*id, wish.trace))
    }

    /// Whether a caller waits for a standing pull, or for its being written.
    pub(super) fn is_awaited_by(&self, caller: RequestId) -> bool {
        let is_detached = |wish: &Wish| wish.detached.iter().any(|(detached, _)| *detached == caller);
        self.callers.contains_key(&caller) || self.standing.values().any(is_detached)
    }

    pub(super) fn stands(&self, wish: WishId) -> bool {
        self.standing.contains_key(&wish)
    }

    pub(super) fn assert_bounds(&self) {
        debug_assert!(self.standing.len() <= WISHES_MAX, "standing pulls are bounded");
        debug_assert!(self.callers.values().all(|wish| self.stands(*wish)), "callers wait for what stands");
        let runs = self.standing.iter().filter_map(|(wish, standing)| Some((standing.run?, wish)));
        debug_assert!(runs.clone().all(|(run, wish)| self.runs.get(&run) == Some(wish)), "a run is of its standing pull");
    }
}

/// For how long a wish stands, if it is one. What must never be pulled is not waited for.
pub(super) fn wait_of(ask: &EnsureImage) -> Option<Duration> {
    let stands = ask.policy != Some(PullPolicy::Never) && bounds::check_image(&ask.image).is_ok() && Reference::parse(&ask.image).is_ok();
    let readable = stands && ask.platform.as_deref().is_none_or(|platform| Platform::parse(platform).is_ok());
    ask.wait_ms.filter(|wait| *wait > 0 && readable).map(Duration::from_millis)
}

/// Whether a request is a run of a wish.
pub(super) fn is_run(id: RequestId) -> bool {
    id.0 >= FIRST_RUN
}

impl Coordinator {
    /// The wishes that stand, the oldest first.
    #[must_use]
    pub fn wishes(&self, now: Now) -> Vec<WishStatus> {
        let mut wishes: Vec<WishStatus> = self.wishes.standing.iter().map(|(id, wish)| self.wish_status(now, *id, wish)).collect();
        wishes.sort_by_key(|wish| (std::cmp::Reverse(wish.since_ms), wish.wish));
        wishes
    }

    /// A caller wants an image for as long as it takes.
    pub(super) fn wished(
        &mut self,
        now: Now,
        caller: RequestId,
        ask: EnsureImage,
        wait: Duration,
        trace: TraceContext,
        effects: &mut Vec<Effect>,
    ) {
        let asked = ask.wish.unwrap_or_else(|| WishId::random(&mut self.random));
        let id = if self.wishes.standing.contains_key(&asked) { asked } else { self.same_detached(&ask).unwrap_or(asked) };
        let detach = ask.detach;
        let mut message = String::new();
        match self.wishes.standing.get(&id) {
            Some(wish) if id != asked => {
                let since = Duration::from_millis(now.wall_ms().saturating_sub(wish.since_ms));
                self.extend(id, now, wait, effects);
                let left = self.wishes.standing.get(&id).map(|wish| wish.until.saturating_sub(now.monotonic)).unwrap_or_default();
                message = words::already_standing(since, left);
            }
            Some(wish) if !is_same(&wish.ask, &ask) => {
                let outcome = refusal(words::other_wish(&wish.ask.image), trace);
                return effects.push(Effect::Answer { request: caller, outcome });
            }
            Some(_) => {}
            None if self.wishes.standing.len() >= WISHES_MAX => {
                let outcome = refusal(words::too_many_wishes(WISHES_MAX), trace);
                return effects.push(Effect::Answer { request: caller, outcome });
            }
            None => {
                let ask = EnsureImage { wish: Some(id), timeout_ms: None, ..ask };
                let until_ms = now.wall_ms().saturating_add(milliseconds(wait));
                let kept = KeptWish { wish: id, ask, since_ms: now.wall_ms(), until_ms };
                self.keep(kept, now.monotonic.saturating_add(wait), trace);
                self.write_wishes(effects);
                self.begin_run(now, id, effects);
            }
        }
        if !detach {
            self.wishes.callers.insert(caller, id);
        } else if let Some(wish) = self.wishes.standing.get_mut(&id).filter(|wish| !wish.written && self.policy.writes_wishes) {
            wish.detached.push((caller, message));
        } else {
            effects.push(Effect::Answer { request: caller, outcome: stands(id, trace, message) });
        }
    }

    /// The standing pull that a detached pull of the same image, pod, platform and policy joins. Only one that nobody waits for with a
    /// command of its own: such a command cancels its own standing pull when it is interrupted.
    fn same_detached(&self, ask: &EnsureImage) -> Option<WishId> {
        let wanted = Reference::parse(&ask.image).ok().filter(|_| ask.detach)?;
        let is_same = |wish: &Wish| {
            let other = &wish.ask;
            other.detach
                && (&other.platform, &other.pod) == (&ask.platform, &ask.pod)
                && Reference::parse(&other.image).is_ok_and(|reference| {
                    reference.normalised() == wanted.normalised() && policy_of(other, &reference) == policy_of(ask, &wanted)
                })
        };
        let asks_newest = policy_of(ask, &wanted) == PullPolicy::Always;
        let mut same = self.wishes.standing.iter().filter(|(_, wish)| is_same(wish) && !(asks_newest && self.is_resolved(wish)));
        same.next().map(|(id, _)| *id)
    }

    /// Whether its run under way may bring a digest that the tag had before now.
    fn is_resolved(&self, wish: &Wish) -> bool {
        let request = wish.run.and_then(|run| self.requests.get(&run));
        request.is_some_and(|request| match request.stage {
            Stage::Flying(flight) => self.flights.get(&flight).is_some_and(|flight| flight.resolved),
            Stage::Ending { .. } => true,
            _ => false,
        })
    }

    /// Lets a standing pull stand for `wait` from now on, unless it stands for longer.
    fn extend(&mut self, id: WishId, now: Now, wait: Duration, effects: &mut Vec<Effect>) {
        let Some(wish) = self.wishes.standing.get_mut(&id) else { return };
        let until = now.monotonic.saturating_add(wait);
        if until <= wish.until {
            return;
        }
        wish.until = until;
        wish.until_ms = now.wall_ms().saturating_add(milliseconds(wait));
        // The next run, if one is planned, is not due later for it.
        if wish.run.is_some() {
            self.alarms.set(Alarm::Wish(id), until);
        }
        // What is being written now has the shorter time.
        (wish.written, wish.in_writing) = (false, false);
        self.wishes.changed = true;
        self.write_wishes(effects);
    }

    fn keep(&mut self, kept: KeptWish, until: Duration, trace: TraceContext) {
        let KeptWish { wish: id, ask, since_ms, until_ms } = kept;
        let wish = Wish {
            ask,
            since_ms,
            until_ms,
            until,
            trace,
            run: None,
            began: Duration::ZERO,
            tries: 0,
            last: None,
            in_writing: false,
            written: false,
            detached: Vec::new(),
        };
        self.wishes.standing.insert(id, wish);
        self.wishes.changed = true;
        self.alarms.set(Alarm::Wish(id), until);
    }

    /// A wish's next run is due, or its time is over.
    pub(super) fn wish_due(&mut self, now: Now, id: WishId, effects: &mut Vec<Effect>) {
        let Some(wish) = self.wishes.standing.get(&id) else { return };
        match wish.run {
            None if now.monotonic < wish.until => self.begin_run(now, id, effects),
            // How the run ended is being recorded: it decides.
            Some(run) if self.requests.get(&run).is_some_and(|request| matches!(request.stage, Stage::Ending { .. })) => {}
            _ => self.wish_over(now, id, effects),
        }
    }

    fn begin_run(&mut self, now: Now, id: WishId, effects: &mut Vec<Effect>) {
        self.wishes.last_run += 1;
        let run = RequestId(FIRST_RUN + self.wishes.last_run);
        let Some(wish) = self.wishes.standing.get_mut(&id) else { return };
        wish.run = Some(run);
        wish.began = now.monotonic;
        wish.tries += 1;
        let trace = wish.trace.child(&mut self.random);
        let (ask, until) = (EnsureImage { wait_ms: None, wish: None, ..wish.ask.clone() }, wish.until);
        self.alarms.set(Alarm::Wish(id), until);
        self.wishes.runs.insert(run, id);
        self.asked(now, run, ask, trace, effects);
    }

    pub(super) fn run_ended(&mut self, now: Now, run: RequestId, outcome: PullOutcome, fleet_decides: bool, effects: &mut Vec<Effect>) {
        let Some(id) = self.wishes.runs.remove(&run) else { return };
        if matches!(outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present) {
            return self.finish(id, outcome, effects);
        }
        let Some(wish) = self.wishes.standing.get_mut(&id) else { return };
        wish.run = None;
        let next = match outcome.next_try_ms {
            // The tracker has answered the report, and says when if it is asked for leave.
            Some(_) if fleet_decides => wish.began + RUN_EVERY_AT_LEAST,
            Some(left) => now.monotonic + Duration::from_millis(left).max(RUN_EVERY_AT_LEAST),
            None => now.monotonic + RUN_AGAIN_AFTER,
        };
        wish.last = Some((outcome, now.monotonic));
        let (over, next) = (now.monotonic >= wish.until, next.max(now.monotonic).min(wish.until));
        if over {
            return self.wish_over(now, id, effects);
        }
        self.alarms.set(Alarm::Wish(id), next);
    }

    fn wish_over(&mut self, now: Now, id: WishId, effects: &mut Vec<Effect>) {
        let Some(wish) = self.wishes.standing.get(&id) else { return };
        let status = self.wish_status(now, id, wish);
        let limit = Duration::from_millis(wish.until_ms.saturating_sub(wish.since_ms));
        let outcome = PullOutcome {
            timed_out: true,
            message: words::wish_over(limit, &status.cause),
            class: Some(status.class.unwrap_or(FailureClass::Unknown)),
            next_try_ms: status.next_try_ms,
            learned_by: status.learned_by,
            learned_ms_ago: status.learned_ms_ago,
            learned_trace_id: status.learned_trace_id,
            ..refusal(String::new(), wish.trace)
        };
        self.end_run(now, id, effects);
        self.finish(id, outcome, effects);
    }

    pub(super) fn wish_cancelled(&mut self, now: Now, id: WishId, by: &str, effects: &mut Vec<Effect>) {
        let Some(wish) = self.wishes.standing.get(&id) else { return };
        let outcome = refusal(words::wish_cancelled(&wish.ask.image, by), wish.trace);
        self.end_run(now, id, effects);
        self.finish(id, outcome, effects);
    }

    /// The run is nobody's any more; a flight that others want goes on.
    fn end_run(&mut self, now: Now, id: WishId, effects: &mut Vec<Effect>) {
        let Some(run) = self.wishes.standing.get_mut(&id).and_then(|wish| wish.run.take()) else { return };
        self.wishes.runs.remove(&run);
        self.time_over(now, run, effects);
    }

    fn finish(&mut self, id: WishId, outcome: PullOutcome, effects: &mut Vec<Effect>) {
        let Some(wish) = self.wishes.standing.remove(&id) else { return };
        self.alarms.clear(Alarm::Wish(id));
        let waiting: Vec<RequestId> = self.wishes.callers.iter().filter(|(_, other)| **other == id).map(|(caller, _)| *caller).collect();
        if waiting.is_empty() && wish.detached.is_empty() {
            self.wishes.ended_unheard.count(&outcome);
        }
        for request in waiting.into_iter().chain(wish.detached.into_iter().map(|(request, _)| request)) {
            self.wishes.callers.remove(&request);
            effects.push(Effect::Answer { request, outcome: PullOutcome { wish: Some(id), ..outcome.clone() } });
        }
        self.wishes.changed = true;
        self.write_wishes(effects);
    }

    /// One who waits for a wish does not want to wait any longer. The wish stands.
    pub(super) fn caller_left(&mut self, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some(id) = self.wishes.callers.remove(&caller) else { return };
        let Some(wish) = self.wishes.standing.get(&id) else { return };
        let outcome = PullOutcome { wish: Some(id), trace_id: wish.trace.trace_id_hex(), ..outcomes::time_over(&wish.ask) };
        effects.push(Effect::Answer { request: caller, outcome });
    }

    /// How the wishes ended that nobody waited for any more.
    #[must_use]
    pub fn ended_unheard(&self) -> AnswerCounts {
        self.wishes.ended_unheard
    }
}

fn policy_of(ask: &EnsureImage, reference: &Reference) -> PullPolicy {
    ask.policy.unwrap_or_else(|| default_policy(reference))
}

/// Whether two asks of one id are the same wish.
fn is_same(one: &EnsureImage, other: &EnsureImage) -> bool {
    (&one.image, &one.platform, &one.pod) == (&other.image, &other.platform, &other.pod)
}

fn refusal(message: String, trace: TraceContext) -> PullOutcome {
    PullOutcome { message, class: Some(FailureClass::NodeLocal), trace_id: trace.trace_id_hex(), ..PullOutcome::default() }
}

fn stands(wish: WishId, trace: TraceContext, message: String) -> PullOutcome {
    PullOutcome { stands: true, wish: Some(wish), message, trace_id: trace.trace_id_hex(), ..PullOutcome::default() }
}
