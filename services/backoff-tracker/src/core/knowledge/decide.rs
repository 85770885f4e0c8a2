//! Decides on requests for clearance.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;
use contract::{Stage, View};

use super::backoff_key::{BackoffKey, BackoffKeyId, may_be_overload};
use super::entry::{Binding, Entry, PROBE_DEADLINE, UNCONFIRMED_FOR};
use super::input::{Decision, Duty, Effect, Refusal};
use super::lease::{LeaseName, RequestId, Standing};
use super::node::Knowledge;
use super::planted_bug::PlantedBug;
use super::report::Finding;
use super::request::{Request, RunningAttempt, State};
use super::target::TargetKeys;
use super::without_bus::{BACK_WITHIN, WithoutBus};
use super::{QUIET_AFTER, RESOLVED_LATELY, UNANSWERED_AFTER};
use crate::core::floor::{Floor, OwnFailure};

/// How many resolutions of one image, or of one silent registry, may be without an answer at the same time.
const LEASES_AT_ONCE: u8 = 3;
/// How long a node that has reported an entry lets other nodes probe first, if they want it.
const REPORTERS_SIT_BACK: Duration = Duration::from_secs(1);
/// A success releases an attempt that failed after it, if the success is not older than this. A newer success always does.
const RELEASES_FOR: Duration = Duration::from_secs(10);
/// How long the node whose probe failed last lets others make the next one.
const LAST_PROBER_SITS_BACK: Duration = Duration::from_secs(2);

/// Whether a request has the lease that it needs.
enum Clearance {
    /// It has the lease, or needs none.
    Given,
    /// It may ask for the lease at this time.
    Until(Duration),
    /// Another node holds it. The request waits for a report on this key, until then.
    HeldByAnother(BackoffKeyId, Duration),
}

impl Knowledge {
    /// Decides, asks for leases and changes the state of the request.
    pub(super) fn decide(&mut self, now: Duration, id: RequestId, request: &mut Request, effects: &mut Vec<Effect>) -> Decision {
        request.awaits = None;
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        // If the bus has not answered this request, the request is decided as without a bus.
        let unanswered = std::mem::take(&mut request.unanswered).then_some(WithoutBus { since: now, lost: self.missed_since });
        let without_bus = self.without_bus.or(unanswered);
        if let Some(refusal) =
            without_bus.filter(|_| !exempt).and_then(|without_bus| self.still_held(now, without_bus, &request.target_keys))
        {
            request.state = State::Delayed;
            request.wake = Some(refusal.next_attempt);
            return Decision::Refused(refusal);
        }
        if exempt || without_bus.is_some() {
            let running = RunningAttempt { by_own_rule: true, ..RunningAttempt::by_clearance(Duty::None) };
            return self.by_local_rule(now, request, &[]).unwrap_or_else(|| self.grant(now, id, request, running));
        }
        if let Some((until, failure)) = self.retry_pauses.until(now, request.target_keys.owner, &request.key) {
            request.state = State::Delayed;
            request.wake = Some(until);
            // A short pause delays the request and does not refuse it.
            return Decision::Refused(Refusal {
                unconfirmed: until <= now + UNCONFIRMED_FOR,
                ..self.refusal_by_own_rule(now, &failure, until)
            });
        }
        let binding = self.binding(now, &request.target_keys);
        if let Some(entry) = not_due(now, &binding) {
            self.lease_waits.pause(now, &request.target_keys.ids);
            request.state = State::Delayed;
            request.wake = Some(entry.next_attempt);
            return Decision::Refused(refusal_by(now, entry));
        }
        if let Some(decision) = self.by_local_rule(now, request, &binding) {
            return decision;
        }
        let quiet = self.quiet(now, request);
        if binding.is_empty() && quiet.is_some() && self.requests.is_behind(id, request.target_keys.endpoint) {
            // The node did not use its lead lease in time, so nodes that asked before it have their slots first.
            return self.wait(now, id, request, Some(request.target_keys.endpoint), now + PROBE_DEADLINE);
        }
        let (duty, clearance) = match binding.first() {
            Some(entry) => (Duty::Probe(entry.backoff_key.id()), self.probe(now, id, entry, &binding, self.others_first(request), effects)),
            None if self.resolved_lately(now, request) => (Duty::None, Clearance::Given),
            None => {
                (Duty::Lead, self.one_of_three(now, id, request.target_keys.image, LeaseName::Lead, self.others_first(request), effects))
            }
        };
        let awaits = match (&clearance, duty) {
            (Clearance::Given, _) => quiet.map(|_| request.target_keys.endpoint),
            (Clearance::Until(_), Duty::Lead) if quiet.is_some() => Some(request.target_keys.endpoint),
            (_, Duty::Lead) => Some(request.target_keys.image),
            (_, Duty::Probe(backoff_key)) => Some(backoff_key),
            (_, Duty::None) => None,
        };
        let clearance = match clearance {
            Clearance::Given if quiet.is_some() => {
                self.one_of_three(now, id, request.target_keys.endpoint, LeaseName::Slot, Duration::ZERO, effects)
            }
            Clearance::Given if duty == Duty::None => self.in_its_turn(now, request),
            clearance => clearance,
        };
        let until =
            binding.iter().map(|entry| entry.backoff_key.about().stage()).chain(quiet).max().unwrap_or_default().max(Stage::Manifest);
        let wake = match clearance {
            Clearance::Given => return self.grant(now, id, request, RunningAttempt { until, ..RunningAttempt::by_clearance(duty) }),
            Clearance::Until(wake) => wake,
            Clearance::HeldByAnother(backoff_key, wake) => match self.waits_until(now, request, backoff_key, quiet) {
                ends if ends <= now => {
                    return self.grant(now, id, request, RunningAttempt { by_own_rule: true, ..RunningAttempt::by_clearance(Duty::None) });
                }
                ends => wake.min(ends),
            },
        };
        self.wait(now, id, request, awaits, wake)
    }

    /// The request waits until then, or for a lease about a key. If another request of this node waits for the same lease, that one has the lease
    /// first, and this one is looked at when the other does not wait any more.
    fn wait(&self, now: Duration, id: RequestId, request: &mut Request, awaits: Option<BackoffKeyId>, wake: Duration) -> Decision {
        if !matches!(request.state, State::Released { .. }) {
            request.state = State::Delayed;
        }
        request.awaits = awaits;
        let is_behind = awaits.is_some_and(|backoff_key| self.requests.is_behind(id, backoff_key));
        request.wake = Some(if is_behind { wake.max(now + PROBE_DEADLINE) } else { wake });
        Decision::Wait
    }

    /// True if a pull that was granted clearance still waits for its permit, and an entry that binds it was opened since. It then asks again, so
    /// that one node makes the next attempt for all. Three cases keep their clearance: a prober, because it asks for all and a lying node could
    /// otherwise end each probe; a node that has just missed an answer of the bus, because it goes by its own rule, for `BACK_WITHIN`; and any
    /// pull if the entry is unconfirmed. A pull that goes by its own rule for another reason keeps it for `BACK_WITHIN` if the next attempt is due.
    pub(super) fn has_lapsed(&self, now: Duration, request: &Request) -> bool {
        let State::RunningAttempt(RunningAttempt { attempt: None, duty: Duty::None | Duty::Lead, begun, by_own_rule, .. }) = &request.state
        else {
            return false;
        };
        let unanswered = self.misses > 0 && now < self.missed_last + BACK_WITHIN;
        let bound = !unanswered && !self.is_without_bus() && !self.is_exempt(now, &request.target_keys.target.view);
        let (binding, keeps) = (self.binding(now, &request.target_keys), *by_own_rule && now < *begun + BACK_WITHIN);
        let fails = |entry: &Entry| !entry.is_unconfirmed();
        bound && if keeps { not_due(now, &binding).is_some_and(fails) } else { binding.iter().any(fails) }
    }

    /// The entries that refuse this node an attempt at the image.
    pub(super) fn binding(&self, now: Duration, target_keys: &TargetKeys) -> Vec<Entry> {
        let mut binding: Vec<Entry> =
            target_keys.ids.iter().filter_map(|backoff_key| self.entry(now, *backoff_key)).filter(binds).collect();
        if !self.has(PlantedBug::TrustsEveryReporter) {
            wait_for_confirmation(&mut binding);
        }
        binding
    }

    /// True if other nodes' reports refuse nothing of this view here.
    pub(super) fn is_exempt(&self, now: Duration, view: &View) -> bool {
        self.exemptions.holds(now, view)
    }

    /// How long the node's own rule refuses a key; none if an entry of the fleet decides about its failure.
    pub(super) fn held_here(&self, now: Duration, key: &LocalKey, binding: &[Entry]) -> Option<Duration> {
        let left = self.local.held(now, key)?;
        let decided = |backoff_key: &Arc<BackoffKey>| binding.iter().any(|entry| entry.backoff_key.id() == backoff_key.id());
        let by_fleet = self.local.cause(key).is_some_and(|cause| cause.backoff_keys.iter().any(decided));
        (!by_fleet).then_some(left)
    }

    /// Kubelet's rule for failures that only this node knows; none if it allows an attempt.
    fn by_local_rule(&self, now: Duration, request: &mut Request, binding: &[Entry]) -> Option<Decision> {
        if self.has(PlantedBug::OwnRuleIgnored) {
            return None;
        }
        request.choose_key(|key| self.held_here(now, key, binding));
        let left = self.held_here(now, &request.key, binding)?;
        request.state = State::Fresh;
        request.wake = Some(now + left);
        Some(Decision::Refused(self.refusal_by_own_rule(now, &self.local.failure_of(now, &request.key), now + left)))
    }

    /// A refusal by this node's own back-off.
    fn refusal_by_own_rule(&self, now: Duration, failure: &OwnFailure, next_attempt: Duration) -> Refusal {
        Refusal {
            class: failure.class,
            cause: failure.cause.clone(),
            learned_by: self.node.clone(),
            learned_ago: now.saturating_sub(failure.at),
            trace: failure.trace.filter(|_| !self.has(PlantedBug::AttemptsUnnamed)),
            next_attempt,
            unconfirmed: false,
            entry: None,
        }
    }

    /// Grants clearance. Nothing else does.
    fn grant(&mut self, now: Duration, id: RequestId, request: &mut Request, running: RunningAttempt) -> Decision {
        let deadline = self.leases.runs_out(now, id);
        let elected = running.duty != Duty::None || deadline.is_some();
        let released = self.is_released(now, request);
        // Without a bus the node's own rule is kubelet's, counted from when the image began to fail for any node.
        let without_fleet = self.is_without_bus() || self.is_exempt(now, &request.target_keys.target.view);
        if let Some(refusal) = self.under_the_floor(now, request).filter(|_| !elected && !released && !without_fleet) {
            request.state = State::Delayed;
            request.wake = Some(refusal.next_attempt);
            return Decision::Refused(refusal);
        }
        self.lease_waits.forget(&request.target_keys.ids);
        let steps = request.target_keys.ids.iter().filter_map(|backoff_key| self.entry(now, *backoff_key)).map(|entry| {
            // An entry that does not refuse all nodes yet is the same first failure, seen by one more node.
            let step = if entry.binding == Binding::Everybody { entry.step + 1 } else { entry.step };
            (entry.backoff_key.id(), step)
        });
        let (duty, until) = (running.duty, running.until);
        let running = RunningAttempt { begun: now, deadline, exempt: elected || released, steps: steps.collect(), ..running };
        request.wake = Some(now + UNANSWERED_AFTER);
        request.state = State::RunningAttempt(running);
        Decision::Granted { duty, answer_by: deadline, until }
    }

    /// The refusal by the floor, whatever other nodes report, until it allows one of the request's keys.
    fn under_the_floor(&self, now: Duration, request: &Request) -> Option<Refusal> {
        if self.has(PlantedBug::OwnRuleIgnored) {
            return None;
        }
        let floors: Option<Vec<_>> = request.keys().map(|key| self.floors.under(now, key)).collect();
        let (left, floor) = floors?.into_iter().min_by_key(|(left, _)| *left)?;
        Some(self.refusal_by_own_rule(now, &floor.failure, now + left))
    }

    /// True if another attempt succeeded for a back-off key that this pull failed by: after the failure, or at most `RELEASES_FOR` ago. In the second
    /// case the success must not be older than the failed attempt, unless the class may mean overload.
    fn is_released(&self, now: Duration, request: &Request) -> bool {
        let since = |floor: &Floor| if may_be_overload(floor.failure.class) { Duration::ZERO } else { floor.began };
        let answers = |floor: &Floor, backoff_key: &BackoffKeyId| {
            let answered = self.replica.succeeded_at(*backoff_key);
            answered.is_some_and(|at| at > floor.failure.at || at >= since(floor) && now <= at + RELEASES_FOR)
        };
        let failed = |key| self.floors.under(now, key);
        request.keys().filter_map(failed).any(|(_, floor)| floor.backoff_keys.iter().any(|backoff_key| answers(floor, backoff_key)))
    }

    /// Asks for the probe lease once every entry that refuses this request is due. Nodes that reported none of these entries probe first.
    fn probe(
        &mut self,
        now: Duration,
        id: RequestId,
        entry: &Entry,
        binding: &[Entry],
        not_before: Duration,
        effects: &mut Vec<Effect>,
    ) -> Clearance {
        let due = binding.iter().map(|entry| entry.next_attempt).max().unwrap_or_default();
        let sits_back = binding.iter().map(|entry| self.sits_back(entry)).max().unwrap_or_default();
        let turn = self.fleet.turn(&self.node, purpose(entry.backoff_key.id(), entry.step));
        let name = LeaseName::Probe(entry.backoff_key.id(), entry.epoch());
        let standing = self.want(now, id, name, (due + sits_back + turn).max(not_before), turn, effects);
        match standing {
            Standing::Held => Clearance::Given,
            Standing::Ask(overdue) | Standing::Asked(overdue) => Clearance::Until(overdue),
            Standing::Wait(until) => Clearance::HeldByAnother(entry.backoff_key.id(), until),
        }
    }

    /// Until when this node waits while another holds a lease about `backoff_key`. An answered manifest does not show that blobs are
    /// answered.
    fn waits_until(&mut self, now: Duration, request: &Request, backoff_key: BackoffKeyId, quiet: Option<Stage>) -> Duration {
        let backoff_key =
            if backoff_key == request.target_keys.endpoint && quiet == Some(Stage::Blob) { request.target_keys.blobs } else { backoff_key };
        let entries = request.target_keys.ids.iter().filter_map(|backoff_key| self.entry(now, *backoff_key));
        let failures: Vec<_> =
            entries.flat_map(|entry| [Some((entry.failed_at, entry.newest.reporter.clone())), entry.before]).flatten().collect();
        self.lease_waits.until(now, backoff_key, self.replica.succeeded_at(backoff_key), &failures)
    }

    /// How long this node lets others probe an entry first.
    fn sits_back(&self, entry: &Entry) -> Duration {
        match (entry.mine, entry.newest.reporter == self.node) {
            (_, true) => LAST_PROBER_SITS_BACK,
            (true, false) => REPORTERS_SIT_BACK,
            (false, false) => Duration::ZERO,
        }
    }

    /// Asks for one of three leases. The next one is asked for only when the one before has been held for `UNANSWERED_AFTER`. Several
    /// leases of one node show no more than one does, so a node that holds one lets others take the next for twice that time.
    fn one_of_three(
        &mut self,
        now: Duration,
        id: RequestId,
        backoff_key: BackoffKeyId,
        name: fn(BackoffKeyId, u8) -> LeaseName,
        mut not_before: Duration,
        effects: &mut Vec<Effect>,
    ) -> Clearance {
        let turn = self.fleet.turn(&self.node, purpose(backoff_key, 0));
        let mut wake = Duration::MAX;
        let mut others_first = Duration::ZERO;
        for number in 0..LEASES_AT_ONCE {
            let name = name(backoff_key, number);
            let standing = self.want(now, id, name, not_before, turn, effects);
            match standing {
                Standing::Held => return Clearance::Given,
                Standing::Ask(overdue) | Standing::Asked(overdue) => return Clearance::Until(overdue),
                Standing::Wait(until) => wake = wake.min(until),
            }
            match self.leases.taken_at(name) {
                Some(taken) => {
                    if self.leases.is_mine(now, name) {
                        others_first = UNANSWERED_AFTER * u32::from(LEASES_AT_ONCE - 1);
                    }
                    not_before = taken + UNANSWERED_AFTER + others_first + turn;
                }
                None => break,
            }
        }
        Clearance::HeldByAnother(backoff_key, wake)
    }

    fn want(
        &mut self,
        now: Duration,
        id: RequestId,
        name: LeaseName,
        not_before: Duration,
        turn: Duration,
        effects: &mut Vec<Effect>,
    ) -> Standing {
        if self.has(PlantedBug::LeasesIgnored) {
            return Standing::Held;
        }
        let standing = self.leases.want(now, name, id, not_before, turn);
        if matches!(standing, Standing::Ask(_)) {
            effects.push(Effect::AcquireLease(name, PROBE_DEADLINE));
        }
        standing
    }

    /// A request that has waited continues in its turn, so that all nodes together stay within the budget; any other continues at once.
    fn in_its_turn(&self, now: Duration, request: &mut Request) -> Clearance {
        if request.waits() {
            let at = now + self.fleet.release(&self.node, purpose(request.target_keys.image, 1));
            request.state = State::Released { at };
        }
        match request.state {
            State::Released { at } if now < at => Clearance::Until(at),
            _ => Clearance::Given,
        }
    }

    /// A node whose last attempt failed lets others lead first if the registry has answered any node, because the node itself may be the
    /// cause.
    fn others_first(&self, request: &Request) -> Duration {
        let fails = |backoff_key: &BackoffKeyId| {
            self.replica.last_report(*backoff_key, &self.node).is_some_and(|own| matches!(own.finding, Finding::Failed(_)))
        };
        match self.replica.succeeded_at(request.target_keys.endpoint) {
            Some(answered) if request.target_keys.ids.iter().any(fails) => answered + REPORTERS_SIT_BACK,
            _ => Duration::ZERO,
        }
    }

    fn resolved_lately(&self, now: Duration, request: &Request) -> bool {
        self.replica.succeeded_at(request.target_keys.image).is_some_and(|at| now < at + RESOLVED_LATELY)
    }

    /// The last stage that this pull needs and that has answered no node lately, as far as is known. If another node pulled the image
    /// without a blob, this one may need none either.
    fn quiet(&self, now: Duration, request: &Request) -> Option<Stage> {
        let lately = |backoff_key, within| self.replica.succeeded_at(backoff_key).is_some_and(|at| now < at + within);
        let target_keys = &request.target_keys;
        if target_keys.target.shows_blobs && !lately(target_keys.blobs, QUIET_AFTER) && !lately(target_keys.content, RESOLVED_LATELY) {
            return Some(Stage::Blob);
        }
        (!lately(target_keys.endpoint, QUIET_AFTER)).then_some(Stage::Manifest)
    }
}

fn binds(entry: &Entry) -> bool {
    entry.binding == Binding::Everybody
}

/// Limits how long one unconfirmed reporter delays a request: [`UNCONFIRMED_FOR`] in all, for any number of reports.
fn wait_for_confirmation(binding: &mut [Entry]) {
    let unconfirmed_by = |entry: &Entry| entry.is_unconfirmed().then(|| (entry.newest.reporter.clone(), entry.failures_received_since));
    let first: Vec<_> = binding.iter().filter_map(unconfirmed_by).collect();
    for entry in binding.iter_mut() {
        let of_same = first.iter().filter(|(reporter, _)| unconfirmed_by(entry).is_some_and(|(own, _)| own == *reporter));
        if let Some(since) = of_same.map(|(_, since)| *since).min() {
            entry.next_attempt = entry.next_attempt.min(since + UNCONFIRMED_FOR);
        }
    }
}

/// Of the entries that refuse a request, the one that does so the longest.
pub(super) fn not_due(now: Duration, binding: &[Entry]) -> Option<&Entry> {
    binding.iter().filter(|entry| now < entry.next_attempt).max_by_key(|entry| entry.next_attempt)
}

pub(super) fn refusal_by(now: Duration, entry: &Entry) -> Refusal {
    Refusal {
        class: entry.backoff_key.class(),
        cause: entry.newest.finding.details().map(|details| details.message.clone()).unwrap_or_default(),
        learned_by: entry.newest.reporter.clone(),
        learned_ago: now.saturating_sub(entry.failed_at),
        trace: entry.newest.trace,
        next_attempt: entry.next_attempt,
        unconfirmed: entry.is_unconfirmed(),
        entry: Some(entry.backoff_key.id()),
    }
}

/// A number for each key and step, from which a node's turn is derived.
pub(super) fn purpose(backoff_key: BackoffKeyId, step: u32) -> u128 {
    backoff_key.0.wrapping_add(u128::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}
