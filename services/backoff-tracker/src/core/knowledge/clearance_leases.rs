//! The leases that a request needs for its clearance: lead, probe and slot.

use std::time::Duration;

use contract::{DEADLINES, Stage};

use super::backoff_key::BackoffKeyId;
use super::entry::Entry;
use super::fleet::purpose;
use super::input::Effect;
use super::lease::{LeaseName, RequestId, Standing};
use super::node::Knowledge;
use super::planted_bug::PlantedBug;
use super::report::Finding;
use super::request::Request;

/// How many resolutions of one image, or of one silent registry, may be without an answer at the same time.
const LEASES_AT_ONCE: u8 = 3;
/// How long a node that has reported an entry lets other nodes probe first, if they want it.
const REPORTERS_SIT_BACK: Duration = Duration::from_secs(1);
/// How long the node whose probe failed last lets others make the next one.
const LAST_PROBER_SITS_BACK: Duration = Duration::from_secs(2);

/// Whether a request has the lease that it needs.
pub(super) enum Clearance {
    /// It has the lease, or needs none.
    Given,
    /// It may ask for the lease at this time.
    Until(Duration),
    /// Another node holds it. The request waits for a report on this key, until then.
    HeldByAnother(BackoffKeyId, Duration),
}

impl Knowledge {
    /// Asks for the probe lease once every entry that refuses this request is due. Nodes that do not fail themselves probe first, also
    /// after another node has released the lease.
    pub(super) fn probe(&mut self, now: Duration, id: RequestId, request: &mut Request, entry: &Entry, binding: &[Entry]) -> Clearance {
        let due = binding.iter().map(|entry| entry.next_attempt).max().unwrap_or_default();
        let is_unconfirmed = binding.iter().any(Entry::is_unconfirmed);
        let due = if is_unconfirmed { due.max(*request.unconfirmed_since.get_or_insert(now)) } else { due };
        let by_another_cause = !binding.iter().any(|entry| entry.mine) && self.fails_itself(request);
        let least = if by_another_cause { REPORTERS_SIT_BACK } else { Duration::ZERO };
        let sits_back = binding.iter().map(|entry| self.sits_back(entry)).fold(least, Duration::max);
        let turn = sits_back + self.fleet.turn(&self.node, purpose(entry.backoff_key.id(), entry.step));
        let name = LeaseName::Probe(entry.backoff_key.id(), entry.epoch());
        let standing = self.want(now, id, name, (due + turn).max(self.others_first(request)), turn);
        match standing {
            Standing::Held => Clearance::Given,
            Standing::Ask(overdue) | Standing::Asked(overdue) => Clearance::Until(overdue),
            Standing::Wait(until) => Clearance::HeldByAnother(entry.backoff_key.id(), until),
        }
    }

    /// How long this node lets others probe an entry first.
    fn sits_back(&self, entry: &Entry) -> Duration {
        match (entry.mine, entry.last_for_all.reporter == self.node) {
            (_, true) => LAST_PROBER_SITS_BACK,
            // If half of all nodes have reported it, none of them is the cause.
            (true, false) if entry.reporters < self.fleet.alive.div_ceil(2) => REPORTERS_SIT_BACK,
            (_, false) => Duration::ZERO,
        }
    }

    /// Asks for one of three leases. The next one is asked for only when the one before has been held for `DEADLINES.unanswered_after`.
    /// Several leases of one node show no more than one does, so a node that holds one lets others take the next for twice that time.
    pub(super) fn one_of_three(
        &mut self,
        now: Duration,
        id: RequestId,
        backoff_key: BackoffKeyId,
        name: fn(BackoffKeyId, u8) -> LeaseName,
        mut not_before: Duration,
    ) -> Clearance {
        let turn = self.fleet.turn(&self.node, purpose(backoff_key, 0));
        let mut wake = Duration::MAX;
        let mut others_first = Duration::ZERO;
        for number in 0..LEASES_AT_ONCE {
            let name = name(backoff_key, number);
            let standing = self.want(now, id, name, not_before, turn);
            match standing {
                Standing::Held => return Clearance::Given,
                Standing::Ask(overdue) | Standing::Asked(overdue) => return Clearance::Until(overdue),
                Standing::Wait(until) => wake = wake.min(until),
            }
            match self.leases.taken_at(name) {
                Some(taken) => {
                    if self.leases.is_mine(now, name) {
                        others_first = DEADLINES.unanswered_after * u32::from(LEASES_AT_ONCE - 1);
                    }
                    not_before = taken + DEADLINES.unanswered_after + others_first + turn;
                }
                None => break,
            }
        }
        Clearance::HeldByAnother(backoff_key, wake)
    }

    fn want(&mut self, now: Duration, id: RequestId, name: LeaseName, not_before: Duration, turn: Duration) -> Standing {
        if self.has(PlantedBug::LeasesIgnored) {
            return Standing::Held;
        }
        let standing = self.leases.want(now, name, id, not_before, turn);
        if matches!(standing, Standing::Ask(_)) {
            self.effects.push(Effect::AcquireLease(name));
        }
        standing
    }

    /// The registry has answered the attempt of a request that held a slot. The slot passes to the request of this node that waits for it
    /// the longest, without a message. Other nodes take a slot held for `DEADLINES.unanswered_after` for one without an answer, so after
    /// that it is released instead. Returns the request that has it now.
    pub(super) fn pass_slot_on(&mut self, now: Duration, id: RequestId, registry: BackoffKeyId) -> Option<RequestId> {
        // Until it has its lead lease, a request cannot use a slot.
        let next = self.requests.first_in_queue(registry).filter(|next| self.leases.runs_out(now, *next).is_some())?;
        self.leases.pass_on(now, id, next, DEADLINES.unanswered_after, |name| matches!(name, LeaseName::Slot(..))).then_some(next)
    }

    /// A node whose last attempt failed lets others lead first if the registry has answered any node, because the node itself may be the
    /// cause.
    pub(super) fn others_first(&self, request: &Request) -> Duration {
        match self.replica.succeeded_at(request.target_keys.endpoint) {
            Some(answered) if self.fails_itself(request) => answered + REPORTERS_SIT_BACK,
            _ => Duration::ZERO,
        }
    }

    /// Whether this node's last attempt at any key of the request failed.
    fn fails_itself(&self, request: &Request) -> bool {
        let fails = |backoff_key: &BackoffKeyId| {
            self.replica.own_report(*backoff_key).is_some_and(|own| matches!(own.report.finding, Finding::Failed(_)))
        };
        request.target_keys.ids.iter().any(fails)
    }

    /// Until when this node waits while another holds a lease about `backoff_key`. An answered manifest does not show that blobs are
    /// answered.
    pub(super) fn waits_until(&mut self, now: Duration, request: &Request, backoff_key: BackoffKeyId, quiet: Option<Stage>) -> Duration {
        let backoff_key =
            if backoff_key == request.target_keys.endpoint && quiet == Some(Stage::Blob) { request.target_keys.blobs } else { backoff_key };
        let entries = self.entries_of(now, &request.target_keys);
        let failures = entries.flat_map(|entry| [Some((entry.failed_at, entry.newest.reporter.clone())), entry.before]).flatten();
        let results: Vec<_> = failures.chain(self.replica.newest_successes(backoff_key)).collect();
        self.lease_waits.until(now, backoff_key, &results)
    }
}
