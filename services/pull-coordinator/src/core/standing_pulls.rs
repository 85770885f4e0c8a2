//! Standing pulls: retried run after run until the image is present, their time is over, or they are cancelled.

mod persistence;
mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Now;
use contract::messages::pull_coordinator::{AnswerCounts, EnsureImage, OutcomeKind, PullOutcome, PullPolicy, StandingPullStatus};
use contract::{FailureClass, StandingPullId, TraceContext};
use image::{Platform, Reference};

use super::alarms::Alarm;
use super::bounds;
use super::coordinator::Coordinator;
use super::kubelet_messages;
use super::outcomes;
use super::request::{Stage, milliseconds, policy_of};
use super::step::{Effect, RequestId};

/// The most standing pulls of a node; no node has room for so many images.
const STANDING_PULLS_MAX: usize = 1_000;
/// Runs of a standing pull begin at most this often.
const RUN_EVERY_AT_LEAST: Duration = Duration::from_secs(1);
/// The pause after a failed run if the tracker names none: kubelet's first back-off step.
const RUN_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The first request id of a run. Runs are requests like any other, with ids above those of callers.
const FIRST_RUN: u64 = 1 << 63;

/// All standing pulls of a node.
#[derive(Debug, Default)]
pub(super) struct StandingPulls {
    standing: BTreeMap<StandingPullId, StandingPull>,
    /// Counts beginnings and ends.
    changes: u64,
    /// The standing pull of each run.
    runs: BTreeMap<RequestId, StandingPullId>,
    /// The standing pull that each caller waits for, and the caller's own time-out in milliseconds.
    callers: BTreeMap<RequestId, (StandingPullId, Option<u64>)>,
    last_run: u64,
    /// How many writes to disk have begun.
    writings: u64,
    /// When the last write began; before the first write, when the stored ones were loaded.
    written_at: Option<Now>,
    /// True if they differ from the last write.
    changed: bool,
    /// True while a write is under way.
    writing: bool,
    ended_without_caller: AnswerCounts,
}

#[derive(Debug)]
struct StandingPull {
    ask: EnsureImage,
    /// The time from its beginning to its end.
    whole: Duration,
    /// Its end on the monotonic clock: the wall clock may be set while it stands.
    until: Duration,
    trace: TraceContext,
    /// The run under way.
    run: Option<RequestId>,
    began: Duration,
    attempts: u64,
    /// How the last run ended, and when.
    last: Option<(PullOutcome, Duration)>,
    /// True if the write under way contains it.
    in_writing: bool,
    written: bool,
    /// Detached callers to answer once it is written, with the message of their answer.
    detached: Vec<(RequestId, String)>,
}

impl StandingPull {
    fn left(&self, now: Now) -> Duration {
        self.until.saturating_sub(now.monotonic)
    }

    /// For how long it has existed.
    fn age(&self, now: Now) -> Duration {
        self.whole.saturating_sub(self.left(now))
    }
}

impl StandingPulls {
    /// Removes an abandoned caller; its standing pull goes on.
    pub(super) fn abandon(&mut self, caller: RequestId) {
        self.callers.remove(&caller);
        self.remove_detached(caller);
    }

    /// The span of the standing pull that a run is of.
    pub(super) fn span_of_run(&self, run: RequestId) -> Option<TraceContext> {
        Some(self.standing.get(self.runs.get(&run)?)?.trace)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = (StandingPullId, TraceContext)> {
        self.standing.iter().map(|(id, standing_pull)| (*id, standing_pull.trace))
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a caller waits for a standing pull, or for the write of one.
    pub(super) fn is_awaited_by(&self, caller: RequestId) -> bool {
        let is_detached = |standing_pull: &StandingPull| standing_pull.detached.iter().any(|(detached, _)| *detached == caller);
        self.callers.contains_key(&caller) || self.standing.values().any(is_detached)
    }

    pub(super) fn stands(&self, standing_pull: StandingPullId) -> bool {
        self.standing.contains_key(&standing_pull)
    }

    pub(super) fn assert_bounds(&self) {
        debug_assert!(self.standing.len() <= STANDING_PULLS_MAX, "standing pulls are bounded");
        debug_assert!(self.callers.values().all(|(standing_pull, _)| self.stands(*standing_pull)), "callers wait for what stands");
        let runs = self.standing.iter().filter_map(|(standing_pull, standing)| Some((standing.run?, standing_pull)));
        debug_assert!(runs.clone().all(|(run, standing_pull)| self.runs.get(&run) == Some(standing_pull)), "a run is of its standing pull");
    }
}

/// How long the standing pull of a request goes on; none: the request asks for no standing pull. A request with policy Never, or with an
/// image or platform that cannot be parsed, is answered at once instead.
pub(super) fn wait_of(ask: &EnsureImage) -> Option<Duration> {
    let stands = ask.policy != Some(PullPolicy::Never) && bounds::check_image(&ask.image).is_ok() && Reference::parse(&ask.image).is_ok();
    let readable = stands && ask.platform.as_deref().is_none_or(|platform| Platform::parse(platform).is_ok());
    ask.wait_ms.filter(|wait| *wait > 0 && readable).map(Duration::from_millis)
}

/// Whether a request is a run of a standing pull.
pub(super) fn is_run(id: RequestId) -> bool {
    id.0 >= FIRST_RUN
}

impl Coordinator {
    /// All standing pulls, the oldest first.
    #[must_use]
    pub fn standing_pulls(&self, now: Now) -> Vec<StandingPullStatus> {
        let mut standing_pulls: Vec<StandingPullStatus> =
            self.standing_pulls.standing.iter().map(|(id, standing_pull)| self.standing_pull_status(now, *id, standing_pull)).collect();
        standing_pulls.sort_by_key(|standing_pull| (std::cmp::Reverse(standing_pull.since_ms), standing_pull.standing_pull));
        standing_pulls
    }

    /// How many standing pulls there are.
    #[must_use]
    pub fn standing_count(&self) -> usize {
        self.standing_pulls.standing.len()
    }

    /// Begins a standing pull, or joins one.
    pub(super) fn begin_standing_pull(
        &mut self,
        now: Now,
        caller: RequestId,
        ask: EnsureImage,
        wait: Duration,
        trace: TraceContext,
        effects: &mut Vec<Effect>,
    ) {
        let asked = ask.standing_pull.unwrap_or_else(|| StandingPullId::random(&mut self.random));
        let id = if self.standing_pulls.standing.contains_key(&asked) { asked } else { self.same_detached(&ask).unwrap_or(asked) };
        let (detach, timeout_ms) = (ask.detach, ask.timeout_ms);
        let mut message = String::new();
        match self.standing_pulls.standing.get(&id) {
            Some(standing_pull) if id != asked => {
                let age = standing_pull.age(now);
                self.extend(id, now, wait, effects);
                let left = self.standing_pulls.standing.get(&id).map(|standing_pull| standing_pull.left(now)).unwrap_or_default();
                message = kubelet_messages::already_standing(age, left);
            }
            Some(standing_pull) if !is_same(&standing_pull.ask, &ask) => {
                let outcome = refusal(kubelet_messages::other_standing_pull(&standing_pull.ask.image), trace);
                return effects.push(Effect::Answer { request: caller, outcome });
            }
            Some(_) => {}
            None if self.standing_pulls.standing.len() >= STANDING_PULLS_MAX => {
                let outcome = refusal(kubelet_messages::too_many_standing_pulls(STANDING_PULLS_MAX), trace);
                return effects.push(Effect::Answer { request: caller, outcome });
            }
            None => {
                let ask = EnsureImage { standing_pull: Some(id), timeout_ms: None, ..ask };
                self.keep(id, ask, wait, now.monotonic.saturating_add(wait), trace);
                self.write_standing_pulls(now, effects);
                self.begin_run(now, id, effects);
            }
        }
        if !detach {
            self.standing_pulls.callers.insert(caller, (id, timeout_ms));
        } else if let Some(standing_pull) =
            self.standing_pulls.standing.get_mut(&id).filter(|standing_pull| !standing_pull.written && self.policy.writes_standing_pulls)
        {
            standing_pull.detached.push((caller, message));
            // If an earlier write failed, no write is under way that would answer the caller.
            self.standing_pulls.changed |= !standing_pull.in_writing;
            self.write_standing_pulls(now, effects);
        } else {
            effects.push(Effect::Answer { request: caller, outcome: stands(id, trace, message) });
        }
    }

    /// The detached standing pull of the same image, pod, platform and policy, which a detached pull joins. One that was begun by a waiting
    /// command is not joined, because that command cancels it when interrupted.
    fn same_detached(&self, ask: &EnsureImage) -> Option<StandingPullId> {
        let wanted = Reference::parse(&ask.image).ok().filter(|_| ask.detach)?;
        let is_same = |standing_pull: &StandingPull| {
            let other = &standing_pull.ask;
            other.detach
                && (&other.platform, &other.pod) == (&ask.platform, &ask.pod)
                && Reference::parse(&other.image).is_ok_and(|reference| {
                    reference.normalised() == wanted.normalised() && policy_of(other.policy, &reference) == policy_of(ask.policy, &wanted)
                })
        };
        let asks_newest = policy_of(ask.policy, &wanted) == PullPolicy::Always;
        let mut same = self
            .standing_pulls
            .standing
            .iter()
            .filter(|(_, standing_pull)| is_same(standing_pull) && !(asks_newest && self.is_resolved(standing_pull)));
        same.next().map(|(id, _)| *id)
    }

    /// Whether the run under way has resolved the tag, perhaps to an older digest.
    fn is_resolved(&self, standing_pull: &StandingPull) -> bool {
        let request = standing_pull.run.and_then(|run| self.requests.get(&run));
        request.is_some_and(|request| match request.stage {
            Stage::InFlight(flight) => self.flights.get(&flight).is_some_and(|flight| flight.resolved),
            Stage::Ending { .. } => true,
            _ => false,
        })
    }

    /// Extends a standing pull to `wait` from now, unless it already lasts longer.
    fn extend(&mut self, id: StandingPullId, now: Now, wait: Duration, effects: &mut Vec<Effect>) {
        let Some(standing_pull) = self.standing_pulls.standing.get_mut(&id) else { return };
        let until = now.monotonic.saturating_add(wait);
        if until <= standing_pull.until {
            return;
        }
        standing_pull.whole = standing_pull.whole.saturating_add(until - standing_pull.until);
        standing_pull.until = until;
        // While no run is under way the alarm is for the next run, which does not move.
        if standing_pull.run.is_some() {
            self.alarms.set(Alarm::StandingPull(id), until);
        }
        // A write under way has the shorter time.
        (standing_pull.written, standing_pull.in_writing) = (false, false);
        self.standing_pulls.changed = true;
        self.write_standing_pulls(now, effects);
    }

    fn keep(&mut self, id: StandingPullId, ask: EnsureImage, whole: Duration, until: Duration, trace: TraceContext) {
        let standing_pull = StandingPull {
            ask,
            whole,
            until,
            trace,
            run: None,
            began: Duration::ZERO,
            attempts: 0,
            last: None,
            in_writing: false,
            written: false,
            detached: Vec::new(),
        };
        self.standing_pulls.standing.insert(id, standing_pull);
        self.standing_pulls.changes += 1;
        self.standing_pulls.changed = true;
        self.alarms.set(Alarm::StandingPull(id), until);
    }

    /// Begins the next run, or ends the standing pull if its time is over.
    pub(super) fn standing_pull_due(&mut self, now: Now, id: StandingPullId, effects: &mut Vec<Effect>) {
        let Some(standing_pull) = self.standing_pulls.standing.get(&id) else { return };
        match standing_pull.run {
            None if now.monotonic < standing_pull.until => self.begin_run(now, id, effects),
            // The run has ended and its events are being recorded; its outcome decides.
            Some(run) if self.requests.get(&run).is_some_and(|request| matches!(request.stage, Stage::Ending { .. })) => {}
            _ => self.standing_pull_over(now, id, effects),
        }
    }

    fn begin_run(&mut self, now: Now, id: StandingPullId, effects: &mut Vec<Effect>) {
        self.standing_pulls.last_run += 1;
        let run = RequestId(FIRST_RUN + self.standing_pulls.last_run);
        let Some(standing_pull) = self.standing_pulls.standing.get_mut(&id) else { return };
        standing_pull.run = Some(run);
        standing_pull.began = now.monotonic;
        standing_pull.attempts += 1;
        let trace = standing_pull.trace.child(&mut self.random);
        let (ask, until) = (EnsureImage { wait_ms: None, standing_pull: None, ..standing_pull.ask.clone() }, standing_pull.until);
        self.alarms.set(Alarm::StandingPull(id), until);
        self.standing_pulls.runs.insert(run, id);
        self.asked(now, run, ask, trace, effects);
    }

    pub(super) fn run_ended(&mut self, now: Now, run: RequestId, outcome: PullOutcome, fleet_decides: bool, effects: &mut Vec<Effect>) {
        let Some(id) = self.standing_pulls.runs.remove(&run) else { return };
        let Some(standing_pull) = self.standing_pulls.standing.get_mut(&id) else { return };
        if matches!(outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present) {
            // The run knows only its own wait. The runs before it failed, and belong to the wait for the image.
            let waiting_ms = outcome.waiting_ms.max(milliseconds(standing_pull.age(now)).saturating_sub(outcome.duration_ms));
            return self.finish(now, id, PullOutcome { waiting_ms, ..outcome }, effects);
        }
        standing_pull.run = None;
        let next = match outcome.next_attempt_ms {
            // The next run requests clearance, and the tracker decides then.
            Some(_) if fleet_decides => standing_pull.began + RUN_EVERY_AT_LEAST,
            Some(left) => now.monotonic + Duration::from_millis(left).max(RUN_EVERY_AT_LEAST),
            None => now.monotonic + RUN_AGAIN_AFTER,
        };
        standing_pull.last = Some((outcome, now.monotonic));
        let (over, next) = (now.monotonic >= standing_pull.until, next.max(now.monotonic).min(standing_pull.until));
        if over {
            return self.standing_pull_over(now, id, effects);
        }
        self.alarms.set(Alarm::StandingPull(id), next);
    }

    fn standing_pull_over(&mut self, now: Now, id: StandingPullId, effects: &mut Vec<Effect>) {
        let Some(standing_pull) = self.standing_pulls.standing.get(&id) else { return };
        let status = self.standing_pull_status(now, id, standing_pull);
        let outcome = PullOutcome {
            timed_out: true,
            message: kubelet_messages::standing_pull_over(standing_pull.whole, &status.cause),
            class: Some(status.class.unwrap_or(FailureClass::Unknown)),
            next_attempt_ms: status.next_attempt_ms,
            learned_by: status.learned_by,
            learned_ms_ago: status.learned_ms_ago,
            learned_trace_id: status.learned_trace_id,
            ..refusal(String::new(), standing_pull.trace)
        };
        self.end_run(now, id, effects);
        self.finish(now, id, outcome, effects);
    }

    pub(super) fn standing_pull_cancelled(&mut self, now: Now, id: StandingPullId, by: &str, effects: &mut Vec<Effect>) {
        let Some(standing_pull) = self.standing_pulls.standing.get(&id) else { return };
        let outcome = refusal(kubelet_messages::standing_pull_cancelled(&standing_pull.ask.image, by), standing_pull.trace);
        self.end_run(now, id, effects);
        self.finish(now, id, outcome, effects);
    }

    /// Ends the run under way; its flight goes on if it has other callers.
    fn end_run(&mut self, now: Now, id: StandingPullId, effects: &mut Vec<Effect>) {
        let Some(run) = self.standing_pulls.standing.get_mut(&id).and_then(|standing_pull| standing_pull.run.take()) else { return };
        self.standing_pulls.runs.remove(&run);
        self.time_over(now, run, effects);
    }

    fn finish(&mut self, now: Now, id: StandingPullId, outcome: PullOutcome, effects: &mut Vec<Effect>) {
        let Some(standing_pull) = self.standing_pulls.standing.remove(&id) else { return };
        self.standing_pulls.changes += 1;
        self.alarms.clear(Alarm::StandingPull(id));
        let waiting: Vec<RequestId> =
            self.standing_pulls.callers.iter().filter(|(_, (other, _))| *other == id).map(|(caller, _)| *caller).collect();
        if waiting.is_empty() && standing_pull.detached.is_empty() {
            self.standing_pulls.ended_without_caller.count(&outcome);
        }
        for request in waiting.into_iter().chain(standing_pull.detached.into_iter().map(|(request, _)| request)) {
            self.standing_pulls.callers.remove(&request);
            effects.push(Effect::Answer { request, outcome: PullOutcome { standing_pull: Some(id), ..outcome.clone() } });
        }
        self.standing_pulls.changed = true;
        self.write_standing_pulls(now, effects);
    }

    /// Answers a caller whose time-out is over; the standing pull goes on.
    pub(super) fn leave_standing_pull(&mut self, caller: RequestId, effects: &mut Vec<Effect>) {
        let Some((id, timeout_ms)) = self.standing_pulls.callers.remove(&caller) else { return self.leave_write(caller, effects) };
        let Some(standing_pull) = self.standing_pulls.standing.get(&id) else { return };
        let outcome =
            PullOutcome { standing_pull: Some(id), trace_id: standing_pull.trace.trace_id_hex(), ..outcomes::time_over(timeout_ms) };
        effects.push(Effect::Answer { request: caller, outcome });
    }

    /// How standing pulls without a waiting caller ended.
    #[must_use]
    pub fn ended_without_caller(&self) -> AnswerCounts {
        self.standing_pulls.ended_without_caller
    }
}

/// Whether two requests with the same id ask for the same image, platform and pod.
fn is_same(one: &EnsureImage, other: &EnsureImage) -> bool {
    (&one.image, &one.platform, &one.pod) == (&other.image, &other.platform, &other.pod)
}

fn refusal(message: String, trace: TraceContext) -> PullOutcome {
    PullOutcome { message, class: Some(FailureClass::NodeLocal), trace_id: trace.trace_id_hex(), ..PullOutcome::default() }
}

fn stands(standing_pull: StandingPullId, trace: TraceContext, message: String) -> PullOutcome {
    PullOutcome { stands: true, standing_pull: Some(standing_pull), message, trace_id: trace.trace_id_hex(), ..PullOutcome::default() }
}
