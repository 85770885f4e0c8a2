//! Decides on requests for clearance.

use std::time::Duration;

use contract::{DEADLINES, Stage};

use super::backoff_key::BackoffKeyId;
use super::binding::not_due;
use super::clearance_leases::Clearance;
use super::entry::Entry;
use super::fleet::purpose;
use super::input::{Decision, Duty, Refusal};
use super::lease::{LeaseName, RequestId};
use super::node::Knowledge;
use super::refusal::refusal_by;
use super::request::{Request, RunningAttempt, State};
use super::without_bus::WithoutBus;
use super::{QUIET_AFTER, RESOLVED_LATELY};

impl Knowledge {
    /// Decides, asks for leases and changes the state of the request.
    pub(super) fn decide(&mut self, now: Duration, id: RequestId, request: &mut Request) -> Decision {
        request.awaits = None;
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        // If the bus has not answered this request, the request is decided as without a bus.
        let unanswered = std::mem::take(&mut request.unanswered).then_some(WithoutBus { since: now, lost: self.missed_since });
        let without_bus = self.without_bus.or(unanswered);
        if let Some(refusal) =
            without_bus.filter(|_| !exempt).and_then(|without_bus| self.still_held(now, without_bus, &request.target_keys))
        {
            return request.refuse(refusal);
        }
        let pause = self.retry_pause(now, request.target_keys.owner, &request.key);
        if let Some((until, failure)) = pause.filter(|_| !exempt) {
            // A short pause delays the request and does not refuse it.
            let unconfirmed = until <= now + DEADLINES.unconfirmed_for;
            return request.refuse(Refusal { unconfirmed, ..self.refusal_by_own_rule(now, &failure, until) });
        }
        if exempt || without_bus.is_some() {
            let running = RunningAttempt { by_own_rule: true, ..RunningAttempt::default() };
            return self.by_own_rule(now, request, &[]).unwrap_or_else(|| self.grant(now, id, request, running));
        }
        let binding = self.binding(now, &request.target_keys);
        if let Some(entry) = not_due(now, &binding) {
            self.lease_waits.pause(now, &request.target_keys.ids);
            return request.refuse(refusal_by(now, entry));
        }
        if let Some(decision) = self.by_own_rule(now, request, &binding) {
            return decision;
        }
        let quiet = self.quiet(now, request);
        if binding.is_empty() && quiet.is_some() && self.requests.is_behind(id, request.target_keys.endpoint) {
            // The node did not use its lead lease in time, so nodes that asked before it have their slots first.
            return self.wait(now, id, request, Some(request.target_keys.endpoint), now + DEADLINES.attempt_lease);
        }
        self.by_lease(now, id, request, &binding, quiet)
    }

    /// No rule refuses the request: it is granted once it has the leases that it needs. If other nodes hold them for too long, it is
    /// granted by this node's own rule.
    fn by_lease(&mut self, now: Duration, id: RequestId, request: &mut Request, binding: &[Entry], quiet: Option<Stage>) -> Decision {
        let (duty, clearance) = match binding.first() {
            Some(entry) => (Duty::Probe(entry.backoff_key.id()), self.probe(now, id, request, entry, binding)),
            None if self.resolved_lately(now, request) => (Duty::None, Clearance::Given),
            None => (Duty::Lead, self.one_of_three(now, id, request.target_keys.image, LeaseName::Lead, self.others_first(request))),
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
                self.one_of_three(now, id, request.target_keys.endpoint, LeaseName::Slot, Duration::ZERO)
            }
            Clearance::Given if duty == Duty::None => self.in_its_turn(now, request),
            clearance => clearance,
        };
        let until =
            binding.iter().map(|entry| entry.backoff_key.in_view().stage()).chain(quiet).max().unwrap_or_default().max(Stage::Manifest);
        let wake = match clearance {
            Clearance::Given => return self.grant(now, id, request, RunningAttempt { duty, until, ..RunningAttempt::default() }),
            Clearance::Until(wake) => wake,
            Clearance::HeldByAnother(backoff_key, wake) => match self.waits_until(now, request, backoff_key, quiet) {
                ends if ends <= now => {
                    return self.grant(now, id, request, RunningAttempt { by_own_rule: true, ..RunningAttempt::default() });
                }
                ends => wake.min(ends),
            },
        };
        let waits = self.wait(now, id, request, awaits, wake);
        // The caller learns which failure is being confirmed. A refused request keeps no lease, so one that has a lease is not refused.
        let has_lease = self.leases.runs_out(now, id).is_some();
        match binding.first().filter(|entry| entry.is_unconfirmed() && !has_lease) {
            Some(entry) => Decision::Refused(refusal_by(now, entry)),
            None => waits,
        }
    }

    /// The request waits until then, or for a lease about a key. If another request of this node waits for the same lease, it gets the
    /// lease first, and this one is decided when the other one no longer waits.
    fn wait(&self, now: Duration, id: RequestId, request: &mut Request, awaits: Option<BackoffKeyId>, wake: Duration) -> Decision {
        if !matches!(request.state, State::Released { .. }) {
            request.state = State::Delayed;
        }
        request.awaits = awaits;
        let is_behind = awaits.is_some_and(|backoff_key| self.requests.is_behind(id, backoff_key));
        request.wake = Some(if is_behind { wake.max(now + DEADLINES.attempt_lease) } else { wake });
        Decision::Wait
    }

    /// True if a pull that was granted clearance still waits for its permit, and an entry that binds it was opened since. It then asks
    /// again, so that one node makes the next attempt for all. Three cases keep their clearance: a prober, because it asks for all and a
    /// lying node could otherwise end each probe; a node that has just missed an answer of the bus, because it goes by its own rule, for
    /// `DEADLINES.bus_back_within`; and any pull if the entry is unconfirmed. A pull that goes by its own rule for another reason keeps it
    /// for `DEADLINES.bus_back_within` if the next attempt is due. A `Retry-After` or a long pause of its own that this node has received
    /// since ends the clearance of any pull but a prober's.
    pub(super) fn has_lapsed(&self, now: Duration, request: &Request) -> bool {
        let State::RunningAttempt(RunningAttempt { attempt: None, duty: Duty::None | Duty::Lead, begun, by_own_rule, .. }) = &request.state
        else {
            return false;
        };
        let exempt = self.is_exempt(now, &request.target_keys.target.view);
        // A short pause only delays a request, see `decide`.
        let pause = self.retry_pause(now, request.target_keys.owner, &request.key);
        if pause.is_some_and(|(until, _)| !exempt && until > now + DEADLINES.unconfirmed_for) {
            return true;
        }
        let unanswered = self.misses > 0 && now < self.missed_last + DEADLINES.bus_back_within;
        let bound = !unanswered && !self.is_without_bus() && !exempt;
        let (binding, keeps) = (self.binding(now, &request.target_keys), *by_own_rule && now < *begun + DEADLINES.bus_back_within);
        let fails = |entry: &Entry| !entry.is_unconfirmed();
        bound && if keeps { not_due(now, &binding).is_some_and(fails) } else { binding.iter().any(fails) }
    }

    /// Grants clearance. Nothing else does.
    fn grant(&mut self, now: Duration, id: RequestId, request: &mut Request, running: RunningAttempt) -> Decision {
        let deadline = self.leases.runs_out(now, id);
        let elected = running.duty != Duty::None || deadline.is_some();
        let released = self.is_released(now, request);
        // Without a bus the node's own rule is kubelet's, counted from when the image began to fail for any node.
        let without_fleet = self.is_without_bus() || self.is_exempt(now, &request.target_keys.target.view);
        if let Some(refusal) = self.under_the_floor(now, request).filter(|_| !elected && !released && !without_fleet) {
            return request.refuse(refusal);
        }
        self.lease_waits.forget(&request.target_keys.ids);
        let steps = self.entries_of(now, &request.target_keys).map(|entry| {
            // An entry that few nodes report is the same first failure, seen by one more node.
            let is_confirmed = entry.refuses_all && !entry.is_unconfirmed();
            let step = if is_confirmed { entry.step + 1 } else { entry.step };
            (entry.backoff_key.id(), step)
        });
        let (duty, until) = (running.duty, running.until);
        let (for_all, exempt) = (elected, elected || released);
        let running = RunningAttempt { begun: now, deadline, for_all, exempt, steps: steps.collect(), ..running };
        request.wake = Some(now + DEADLINES.unanswered_after);
        request.unconfirmed_since = None;
        request.state = State::RunningAttempt(running);
        Decision::Granted { duty, answer_by: deadline, until }
    }

    /// A request that has waited continues in its turn, so that all nodes together stay within the budget; any other continues at once.
    fn in_its_turn(&self, now: Duration, request: &mut Request) -> Clearance {
        if matches!(request.state, State::Delayed) {
            let at = now + self.fleet.release(&self.node, purpose(request.target_keys.image, 1));
            request.state = State::Released { at };
        }
        match request.state {
            State::Released { at } if now < at => Clearance::Until(at),
            _ => Clearance::Given,
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
