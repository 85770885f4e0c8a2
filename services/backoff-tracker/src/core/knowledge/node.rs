//! The state machine of one node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::{BackoffCounts, LocalKey};
use contract::{FailureClass, NodeName, Stage, Target};

use super::UNANSWERED_AFTER;
use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::entry::{Binding, Entry, Viewpoint};
use super::exemptions::Exemptions;
use super::fleet::Fleet;
use super::input::{Decision, Duty, Effect, Input, LeaseAnswer, Refusal};
use super::lease::{LeaseName, Leases, MISSES_TO_GONE, RequestId};
use super::lease_waits::LeaseWaits;
use super::openings::Openings;
use super::planted_bug::PlantedBug;
use super::recent_attempts::RecentAttempts;
use super::replica::{Replica, ReplicaCounts};
use super::report::{FailureDetails, Finding, Report};
use super::request::{Going, Request, State};
use super::requests::{Fate, Requests};
use super::retry_pauses::RetryPauses;
use super::target::Aim;
use super::unpublished::Unpublished;
use super::without_bus::{BACK_WITHIN, WithoutBus};
use crate::core::Tracker;
use crate::core::delays::BackoffPolicy;
use crate::core::floor::Floors;

/// An attempt without an answer for this long hangs, if other nodes had one meanwhile. A slow registry answers within it.
const HANGS_AFTER: Duration = Duration::from_secs(5);
/// Requests of one node at once: a thousand standing pulls, and a thousand others in the node's queue. One more is refused.
pub const MAX_REQUESTS: usize = 2_048;
/// Counts since start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnowledgeCounts {
    /// What the replica's bounds did.
    pub replica: ReplicaCounts,
    /// Requests now.
    pub requests: u64,
    /// Requests refused because there was no room.
    pub refused_total: u64,
    /// Failures of attempts that came after their lease had run out, dropped.
    pub late_results_total: u64,
    /// Answers of the bus that did not come in time.
    pub bus_misses_total: u64,
    /// Failures kept to itself by a node that others contradicted.
    pub kept_to_itself_total: u64,
    /// Requests refused because of other nodes' reports.
    pub refused_by_shared_total: u64,
    /// Requests that would have been, but for a pause or because this node only observes.
    pub observed_total: u64,
    /// Clears that were news.
    pub cleared_total: u64,
}

/// The state machine of one node.
#[derive(Debug)]
pub struct Knowledge {
    pub(super) node: NodeName,
    pub(super) replica: Replica,
    pub(super) leases: Leases,
    pub(super) lease_waits: LeaseWaits,
    pub(super) local: Tracker,
    pub(super) floors: Floors,
    pub(super) retry_pauses: RetryPauses,
    pub(super) fleet: Fleet,
    /// No bus: every node for itself.
    pub(super) alone: Option<WithoutBus>,
    pub(super) exemptions: Exemptions,
    pub(super) requests: Requests,
    pub(super) recent_attempts: RecentAttempts,
    pub(super) unpublished: Unpublished,
    pub(super) openings: Openings,
    /// Answers of the bus that did not come, one after the other, and when the first and the last of them were missed.
    pub(super) misses: u32,
    missed_since: Duration,
    pub(super) missed_last: Duration,
    planted_bug: Option<PlantedBug>,
    pub(super) counts: KnowledgeCounts,
}

impl Knowledge {
    /// Knows nothing and wants nothing. The policy is that of the local rule.
    #[must_use]
    pub fn new(node: NodeName, policy: BackoffPolicy) -> Self {
        Self {
            node,
            replica: Replica::default(),
            leases: Leases::default(),
            lease_waits: LeaseWaits::default(),
            local: Tracker::new(policy),
            floors: Floors::new(policy),
            retry_pauses: RetryPauses::default(),
            fleet: Fleet::default(),
            alone: None,
            exemptions: Exemptions::default(),
            requests: Requests::default(),
            recent_attempts: RecentAttempts::default(),
            unpublished: Unpublished::default(),
            openings: Openings::default(),
            misses: 0,
            missed_since: Duration::ZERO,
            missed_last: Duration::ZERO,
            planted_bug: None,
            counts: KnowledgeCounts::default(),
        }
    }

    /// With a rule broken on purpose, for tests of tests.
    #[must_use]
    pub fn with_planted_bug(mut self, planted_bug: PlantedBug) -> Self {
        self.planted_bug = Some(planted_bug);
        self
    }

    /// Refuses nothing because of other nodes' reports, and only counts what it would have refused.
    #[must_use]
    pub fn observing(mut self) -> Self {
        self.exemptions.observe = true;
        self
    }

    /// Takes one input and returns its effects.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        self.step_all(now, [input])
    }

    /// Takes several inputs of the same moment and returns their effects.
    pub fn step_all(&mut self, now: Duration, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
        let (mut effects, mut touched) = (Vec::new(), BTreeSet::new());
        for input in inputs {
            touched.extend(self.take(now, input, &mut effects));
        }
        self.look_at_all(now, touched, &mut effects);
        self.assert_invariants();
        effects
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.requests.next_wake().into_iter().chain(self.unpublished.next_wake()).min()
    }

    /// The entries of all keys that fail, for lists.
    #[must_use]
    pub fn entries(&self, now: Duration) -> Vec<Entry> {
        self.replica.backoff_keys().filter_map(|backoff_key| self.entry(now, backoff_key)).collect()
    }

    /// How many entries refuse this node.
    #[must_use]
    pub fn binding_count(&self, now: Duration) -> usize {
        if self.is_without_bus() {
            return 0;
        }
        let holds = |entry: &Entry| entry.binding == Binding::Everybody && !self.exemptions.holds(now, entry.backoff_key.view());
        self.entries(now).iter().filter(|entry| holds(entry)).count()
    }

    /// A back-off key that there are reports of.
    #[must_use]
    pub fn backoff_key(&self, id: BackoffKeyId) -> Option<Arc<BackoffKey>> {
        self.replica.backoff_key(id)
    }

    /// How long an answer of the bus is waited for: longer if the bus is slow.
    #[must_use]
    pub fn bus_answers_within(&self) -> Duration {
        self.leases.answer_within()
    }

    /// Answers of the bus that did not come, one after the other.
    pub(super) fn misses(&self) -> u32 {
        self.misses
    }

    /// Whether a request is known here.
    #[must_use]
    pub fn wants(&self, request: RequestId) -> bool {
        self.requests.contains(request)
    }

    /// The node's own counts.
    #[must_use]
    pub fn own_counts(&self, now: Now) -> BackoffCounts {
        self.local.counts(now)
    }

    /// Whether the node goes by its own rule, for want of a bus.
    #[must_use]
    pub fn is_without_bus(&self) -> bool {
        self.alone.is_some()
    }

    /// The reports of this node that others may still need, with the age of each.
    #[must_use]
    pub fn own_reports(&self, now: Duration) -> Vec<(Arc<Report>, Duration)> {
        self.replica.reports_of(&self.node).into_iter().map(|(report, date)| (report, now.saturating_sub(date))).collect()
    }

    /// Counts since start.
    #[must_use]
    pub fn counts(&self) -> KnowledgeCounts {
        KnowledgeCounts { replica: self.replica.counts(), requests: self.requests.len() as u64, ..self.counts }
    }

    pub(super) fn entry(&self, now: Duration, backoff_key: BackoffKeyId) -> Option<Entry> {
        self.replica.entry(backoff_key, self.viewpoint(now))
    }

    pub(super) fn viewpoint(&self, now: Duration) -> Viewpoint<'_> {
        let credulous = self.has(PlantedBug::BelievesAnybody);
        let said = |nodes: usize| if self.fleet.in_zone.is_some() { nodes.max(1) } else { usize::MAX };
        let (alive, alive_in_zone) = (said(self.fleet.alive), said(self.fleet.in_zone.unwrap_or_default()));
        let endless = self.has(PlantedBug::StepsGrow);
        Viewpoint { node: &self.node, now, alive_in_zone, alive, credulous, endless }
    }

    /// A target with its back-off keys.
    pub(super) fn aim(&self, mut target: Target) -> Aim {
        if self.has(PlantedBug::LoginsIgnored) {
            target.fingerprint.clear();
        }
        Aim::new(target)
    }

    pub(crate) fn has(&self, planted_bug: PlantedBug) -> bool {
        self.planted_bug == Some(planted_bug)
    }

    /// Takes the input in; returns the requests that it touches.
    fn take(&mut self, now: Duration, input: Input, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        match input {
            Input::Request { request, key, target } => self.ask(now, request, key, self.aim(target), effects),
            Input::LocalKeys { request, key, other_keys } => {
                let changed = self.requests.change(request, |request| request.set_keys(key, other_keys));
                if changed == Some(true) { vec![request] } else { vec![] }
            }
            Input::Withdraw(request) => {
                self.give_back(now, request, |_| true, effects);
                self.requests.remove(request);
                vec![]
            }
            Input::AttemptPlanned { request, attempt, trace } => {
                self.requests.change(request, |request| request.attempt_planned(attempt, trace));
                vec![]
            }
            Input::AttemptStarted { request, attempt, trace } => {
                self.requests.change(request, |request| request.attempt_started(now, attempt, trace));
                vec![]
            }
            Input::AttemptResolved { request, attempt, outcome } => self.resolved(now, request, attempt, outcome, effects),
            Input::ReportReceived { report, age } => self.heard(now, report, age, effects),
            Input::ReportStored(backoff_key) => {
                self.own_is_stored(now, backoff_key, effects);
                vec![]
            }
            Input::BusAnswered { asked } => {
                self.leases.answered(now, asked);
                vec![]
            }
            Input::Lease(name, answer) => self.lease(now, name, answer, effects),
            Input::LeaseTaken { name, holder, left } => {
                if holder != self.node {
                    self.leases.taken(now, name, left);
                }
                self.requests_of_lease(name)
            }
            Input::LeaseFreed(name) => {
                self.leases.freed(now, name);
                self.requests_of_lease(name)
            }
            Input::Fleet { alive, rank } => {
                self.fleet = Fleet { alive: alive.max(1), rank, in_zone: Some(alive.max(1)) };
                vec![]
            }
            Input::Zone(alive) => {
                self.fleet.in_zone = Some(alive.max(1));
                vec![]
            }
            Input::Cleared { image, backoff_keys, age } => self.cleared(now, image.as_deref(), backoff_keys, age),
            Input::Pause { registry, left, by } => {
                self.exemptions.pause(now, registry, left, by);
                self.requests.ids()
            }
            Input::Observe(fleet_observes) => {
                self.exemptions.fleet_observes = fleet_observes;
                self.requests.ids()
            }
            Input::BusGone => {
                self.unpublished.bus_is_gone();
                self.set_without_bus(Some(WithoutBus { since: now, lost: now }))
            }
            Input::NoLeases => self.set_without_bus(Some(WithoutBus { since: now, lost: now })),
            Input::BusBack => {
                self.unpublished.bus_is_back();
                self.set_without_bus(None)
            }
            Input::CaughtUp => {
                self.caught_up(now);
                vec![]
            }
            Input::Tick => self.tick(now, effects),
        }
    }

    fn ask(&mut self, now: Duration, id: RequestId, key: LocalKey, aim: Aim, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        if self.requests.len() >= MAX_REQUESTS && !self.requests.contains(id) {
            self.counts.refused_total += 1;
            effects.push(Effect::Answer(id, Decision::Refused(self.no_room(now))));
            return vec![];
        }
        self.requests.add(id, Request::new(key, aim));
        vec![id]
    }

    /// The refusal of one request too many.
    #[must_use]
    pub fn no_room(&self, now: Duration) -> Refusal {
        Refusal {
            class: FailureClass::NodeLocal,
            cause: format!("{MAX_REQUESTS} images are wanted on this node already: wait for some of them, or cancel them"),
            learned_by: self.node.clone(),
            learned_ago: Duration::ZERO,
            trace: None,
            next_attempt: now + BackoffPolicy::default().initial,
            unconfirmed: false,
            entry: None,
        }
    }

    fn heard(&mut self, now: Duration, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let (backoff_key, succeeded) = (report.backoff_key.id(), report.finding == Finding::Succeeded);
        let answered_at = now.saturating_sub(age);
        // This success makes a node that failed distrusted, but that node may have failed as all did: it tries once more.
        let released = if succeeded { self.released_by(now, backoff_key, answered_at) } else { BTreeSet::new() };
        if succeeded && self.has(PlantedBug::SuccessIgnored) || !self.replica.receive(now, Arc::clone(&report), age) {
            return vec![];
        }
        self.other_is_stored(now, &report);
        if succeeded {
            self.release(released);
            self.abandon_hanging(now, backoff_key, answered_at, effects);
        }
        self.requests.touching(backoff_key)
    }

    /// An attempt that hangs while others are answered was asked of a registry that is gone. It is begun anew, once, when it has hung for
    /// [`HANGS_AFTER`]; not where nothing is done by what others say. An answer from before it began says nothing: a node that joins reads
    /// old ones.
    fn abandon_hanging(&mut self, now: Duration, backoff_key: BackoffKeyId, answered_at: Duration, effects: &mut Vec<Effect>) {
        let waits_for = |request: &Request| match request.going_stage() {
            Some(Stage::Blob) => request.aim.blobs == backoff_key,
            _ => request.aim.endpoint == backoff_key,
        };
        for id in self.requests.touching(backoff_key) {
            let hangs = |request: &Request| {
                let exempt = self.exemptions.holds(now, &request.aim.target.view);
                let silent = |going: &Going| going.reported_unanswered && answered_at >= going.begun;
                !request.abandoned && waits_for(request) && !exempt && matches!(&request.state, State::Going(going) if silent(going))
            };
            if self.requests.get(id).is_some_and(hangs) {
                self.with_request(id, |knowledge, request| {
                    if let State::Going(going) = &mut request.state {
                        going.others_answered = true;
                        request.wake = Some(going.begun + HANGS_AFTER);
                    }
                    knowledge.abandon_if_hanging(now, id, request, effects);
                    ((), Fate::Stays)
                });
            }
        }
    }

    fn abandon_if_hanging(&mut self, now: Duration, id: RequestId, request: &mut Request, effects: &mut Vec<Effect>) {
        let State::Going(Going { others_answered: true, attempt, begun, .. }) = &request.state else { return };
        if now < *begun + HANGS_AFTER {
            return;
        }
        attempt.iter().for_each(|(attempt, _)| self.recent_attempts.abandoned(*attempt, &request.aim));
        request.state = State::Fresh;
        request.told = None;
        request.abandoned = true;
        effects.push(Effect::Abandon(id));
        effects.extend(self.leases.drop_of(now, id, |_| true).into_iter().map(Effect::ReleaseLease));
    }

    /// Ends the local rule's delay of pulls that failed by this key, because another node has shown that it is in order.
    pub(super) fn cause_is_gone(&mut self, now: Duration, backoff_key: BackoffKeyId) {
        let released = self.released_by(now, backoff_key, now);
        self.release(released);
    }

    /// The local keys that failed by a back-off key before it was answered, unless this node is distrusted for it.
    fn released_by(&self, now: Duration, backoff_key: BackoffKeyId, answered_at: Duration) -> BTreeSet<LocalKey> {
        let released = self.local.failed_by(backoff_key).into_iter().filter(|(_, cause)| {
            let distrusted = self.replica.is_distrusted(now, &self.node, cause.backoff_keys.iter().find(|own| own.id() == backoff_key));
            !distrusted && cause.at < answered_at
        });
        released.map(|(key, _)| key).collect()
    }

    fn release(&mut self, released: BTreeSet<LocalKey>) {
        if released.is_empty() {
            return;
        }
        released.iter().for_each(|key| self.local.clear(key));
        let waits = |request: &Request| matches!(request.state, State::Fresh) && request.keys().any(|key| released.contains(key));
        let waiting: Vec<RequestId> = self.requests.iter().filter(|(_, request)| waits(request)).map(|(id, _)| id).collect();
        for id in waiting {
            self.requests.change(id, |request| request.state = State::Delayed);
        }
    }

    fn lease(&mut self, now: Duration, name: LeaseName, answer: LeaseAnswer, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        // An answer that comes too late is as good as none: its request went ahead without.
        if self.leases.asker(name).is_some() {
            self.misses = 0;
        }
        match answer {
            LeaseAnswer::Won => match self.leases.won(now, name) {
                Some(request) if self.requests.contains(request) => vec![request],
                asked => {
                    effects.push(Effect::ReleaseLease(name));
                    if asked.is_none() {
                        return vec![];
                    }
                    // Others of this node may want it.
                    self.leases.give_up_mine(now, name);
                    self.requests_of_lease(name)
                }
            },
            LeaseAnswer::Lost(left) => {
                let asker = self.leases.asker(name);
                self.leases.taken(now, name, left);
                asker.into_iter().chain(self.requests_of_lease(name)).collect()
            }
        }
    }

    fn set_without_bus(&mut self, alone: Option<WithoutBus>) -> Vec<RequestId> {
        self.alone = alone.map(|alone| self.alone.unwrap_or(alone));
        self.lease_waits.start_again();
        self.misses = 0;
        self.requests.ids()
    }

    fn tick(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Vec<RequestId> {
        let missed = self.leases.give_up(now);
        let mut due: BTreeSet<RequestId> = self.publish_unpublished(now, effects).into_iter().collect();
        due.extend(self.requests.due(now));
        if !missed.is_empty() {
            self.counts.bus_misses_total += missed.len() as u64;
            if self.misses == 0 {
                self.missed_since = now;
            }
            self.misses += 1;
            self.missed_last = now;
            if self.misses >= MISSES_TO_GONE {
                due.extend(self.set_without_bus(Some(WithoutBus { since: now, lost: self.missed_since })));
            }
        }
        for id in missed {
            self.requests.change(id, |request| request.unanswered = true);
            due.insert(id);
        }
        due.into_iter().collect()
    }

    /// Looks at the requests that an input concerns, and at those that have become the next to have a lease.
    pub(super) fn look_at_all(&mut self, now: Duration, touched: impl IntoIterator<Item = RequestId>, effects: &mut Vec<Effect>) {
        for request in touched {
            self.look(now, request, effects);
        }
        while let Some(request) = self.requests.take_now_first() {
            self.look(now, request, effects);
        }
    }

    fn look(&mut self, now: Duration, id: RequestId, effects: &mut Vec<Effect>) {
        self.with_request(id, |knowledge, request| {
            if knowledge.has_lapsed(now, request) {
                // Until its turn at the registry comes no caller waits for the answer, and a request that nobody waits for must not take a lease.
                knowledge.give_back(now, id, |_| true, effects);
                effects.push(Effect::Abandon(id));
                return ((), Fate::Ends);
            }
            if matches!(request.state, State::Going(_)) {
                knowledge.abandon_if_hanging(now, id, request, effects);
                knowledge.watch(now, request, effects);
            } else {
                let decision = knowledge.decide(now, id, request, effects);
                if let Decision::Refused(_) = decision {
                    knowledge.give_back(now, id, |_| true, effects);
                }
                tell(id, request, decision, effects);
            }
            ((), Fate::Stays)
        });
    }

    /// Reports an attempt without an answer, once.
    fn watch(&mut self, now: Duration, request: &mut Request, effects: &mut Vec<Effect>) {
        let State::Going(going) = &mut request.state else { return };
        if going.attempt.is_none() {
            // It waits in a queue of this node, so it says nothing of the registry. See `has_lapsed`.
            if going.deadline.is_some_and(|deadline| now >= deadline) {
                // Others may ask for all in its place.
                (going.duty, going.deadline) = (Duty::None, None);
            }
            let outdated = going.by_own_rule.then_some(going.begun + BACK_WITHIN).filter(|at| now < *at);
            request.wake = outdated.into_iter().chain(going.deadline).min();
            return;
        }
        let late_at = going.begun + UNANSWERED_AFTER;
        request.wake = match going.reported_unanswered {
            false => (now < late_at).then_some(late_at),
            true => going.others_answered.then_some(going.begun + HANGS_AFTER),
        };
        if going.reported_unanswered || now < late_at {
            return;
        }
        going.reported_unanswered = true;
        let stage = going.stage();
        let endpoint = request.aim.stage_backoff_key(stage);
        let answered_since = self.replica.succeeded_at(endpoint.id()).is_some_and(|at| at >= going.begun);
        if let (Some(_), false) = (going.attempt, answered_since) {
            let of = if stage == Stage::Blob { "no blob" } else { "no answer" };
            let message = format!("{of} from {} for {} s", request.aim.target.endpoint, UNANSWERED_AFTER.as_secs());
            let details = FailureDetails { message, step: going.step_of(endpoint.id()), ..FailureDetails::default() }.bounded();
            self.publish(now, going, endpoint, Finding::Unanswered(details), effects);
        }
    }

    pub(super) fn give_back(&mut self, now: Duration, id: RequestId, which: impl Fn(LeaseName) -> bool, effects: &mut Vec<Effect>) {
        effects.extend(self.leases.drop_of(now, id, which).into_iter().map(Effect::ReleaseLease));
    }

    /// The request that waits for a lease first.
    fn requests_of_lease(&self, name: LeaseName) -> Vec<RequestId> {
        self.requests.first_in_queue(name.backoff_key()).into_iter().collect()
    }
}

/// Answers a request if the decision differs from the last one, apart from its age.
fn tell(id: RequestId, request: &mut Request, decision: Decision, effects: &mut Vec<Effect>) {
    let known = match (&request.told, &decision) {
        (Some(Decision::Refused(told)), Decision::Refused(held)) => {
            told.next_attempt == held.next_attempt && told.learned_by == held.learned_by && told.cause == held.cause
        }
        (Some(told), decision) => told == decision,
        (None, _) => false,
    };
    if !known {
        request.told = Some(decision.clone());
        effects.push(Effect::Answer(id, decision));
    }
}
