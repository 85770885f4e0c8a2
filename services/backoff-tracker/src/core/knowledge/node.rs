//! The state machine of one node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{LocalKey, SharedCounts};
use contract::{NodeName, Target};

use super::backoff_key::{BackoffKey, BackoffKeyId};
use super::exemptions::Exemptions;
use super::failed_keys::FailedKeys;
use super::fleet::Fleet;
use super::input::{Decision, Effect, Input, Reply};
use super::lease::{LeaseName, Leases, RequestId};
use super::lease_waits::LeaseWaits;
use super::openings::Openings;
use super::planted_bug::PlantedBug;
use super::recent_attempts::RecentAttempts;
use super::replica::Replica;
use super::report::Report;
use super::request::{Request, State};
use super::requests::{Fate, Requests};
use super::retry_pauses::RetryPauses;
use super::target::TargetKeys;
use super::unpublished::Unpublished;
use super::without_bus::WithoutBus;
use crate::core::delays::BackoffPolicy;

/// Requests of one node at the same time: 1,000 standing pulls and 1,000 others in the node's queue. One more is refused.
pub const MAX_REQUESTS: usize = 2_048;

/// The state machine of one node.
#[derive(Debug)]
pub struct Knowledge {
    pub(super) node: NodeName,
    pub(super) replica: Replica,
    pub(super) leases: Leases,
    pub(super) lease_waits: LeaseWaits,
    pub(super) failed_keys: FailedKeys,
    pub(super) retry_pauses: RetryPauses,
    pub(super) fleet: Fleet,
    /// Set while the node has no bus and uses its own rule.
    pub(super) without_bus: Option<WithoutBus>,
    pub(super) exemptions: Exemptions,
    pub(super) requests: Requests,
    pub(super) recent_attempts: RecentAttempts,
    pub(super) unpublished: Unpublished,
    pub(super) openings: Openings,
    /// Missed answers of the bus in a row, and when the first and the last of them were missed.
    pub(super) misses: u32,
    pub(super) missed_since: Duration,
    pub(super) missed_last: Duration,
    planted_bug: Option<PlantedBug>,
    pub(super) counts: SharedCounts,
    /// The requests that this step's inputs concern; empty between steps.
    pub(super) touched: BTreeSet<RequestId>,
    /// What the shell has to do after this step; empty between steps.
    pub(super) effects: Vec<Effect>,
}

impl Knowledge {
    /// A node without reports and requests. The policy is that of the own rule, which alone decides as long as there are none.
    #[must_use]
    pub fn new(node: NodeName, policy: BackoffPolicy) -> Self {
        Self {
            replica: Replica::new(node.clone()),
            node,
            leases: Leases::default(),
            lease_waits: LeaseWaits::default(),
            failed_keys: FailedKeys::new(policy),
            retry_pauses: RetryPauses::default(),
            fleet: Fleet::default(),
            without_bus: None,
            exemptions: Exemptions::default(),
            requests: Requests::default(),
            recent_attempts: RecentAttempts::default(),
            unpublished: Unpublished::default(),
            openings: Openings::default(),
            misses: 0,
            missed_since: Duration::ZERO,
            missed_last: Duration::ZERO,
            planted_bug: None,
            counts: SharedCounts::default(),
            touched: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// With a planted bug, for tests only.
    #[must_use]
    pub fn with_planted_bug(mut self, planted_bug: PlantedBug) -> Self {
        self.planted_bug = Some(planted_bug);
        self
    }

    /// Takes one input and returns its effects.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        self.step_all(now, [input])
    }

    /// Takes several inputs of the same moment and returns their effects.
    pub fn step_all(&mut self, now: Duration, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
        inputs.into_iter().for_each(|input| self.take(now, input));
        self.look_at_all(now)
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.requests.next_wake().into_iter().chain(self.unpublished.next_wake()).min()
    }

    /// A back-off key that there are reports of.
    #[must_use]
    pub fn backoff_key(&self, id: BackoffKeyId) -> Option<Arc<BackoffKey>> {
        self.replica.backoff_key(id)
    }

    /// Whether a request is known here.
    #[must_use]
    pub fn has_request(&self, request: RequestId) -> bool {
        self.requests.contains(request)
    }

    /// Whether the node uses its own rule because it has no bus.
    #[must_use]
    pub fn is_without_bus(&self) -> bool {
        self.without_bus.is_some()
    }

    /// The reports of this node that others may still need, with the date of each on this node's clock.
    #[must_use]
    pub fn own_reports(&self) -> Vec<(Arc<Report>, Duration)> {
        self.replica.own_reports()
    }

    pub(super) fn target_keys(&self, mut target: Target) -> TargetKeys {
        if self.has(PlantedBug::LoginsIgnored) {
            target.fingerprint.clear();
        }
        TargetKeys::new(target)
    }

    pub(crate) fn has(&self, planted_bug: PlantedBug) -> bool {
        self.planted_bug == Some(planted_bug)
    }

    /// Takes the input in, and touches the requests to look at.
    fn take(&mut self, now: Duration, input: Input) {
        match input {
            Input::Check(check) => {
                let answer = self.check(now, check);
                self.effects.push(Effect::Reply(Reply::Checked(answer)));
            }
            Input::PullEnded(report) => {
                let reported = self.pull_ended(now, report);
                self.effects.push(Effect::Reply(Reply::Reported(reported)));
            }
            Input::Clear(what) => {
                let (cleared, clearing) = self.clear(now, &what);
                self.effects.push(Effect::Reply(Reply::Cleared { cleared, clearing }));
            }
            Input::Request { request, key, target } => self.ask(now, request, key, self.target_keys(target)),
            Input::LocalKeys { request, key, other_keys } => {
                let changed = self.requests.change(request, |request| request.set_keys(key, other_keys));
                self.touched.extend(changed.filter(|changed| *changed).map(|_| request));
            }
            Input::Withdraw(request) => {
                self.give_back(now, request, |_| true);
                self.requests.remove(request);
            }
            Input::AttemptPlanned { request, attempt, trace } => {
                self.requests.change(request, |request| request.attempt_planned(attempt, trace));
            }
            Input::AttemptStarted { request, attempt, trace } => {
                self.requests.change(request, |request| request.attempt_started(now, attempt, trace));
            }
            Input::AttemptResolved { request, attempt, outcome } => self.resolved(now, request, attempt, outcome),
            Input::ReportReceived { report, age } => self.report_received(now, report, age),
            Input::ReportStored(backoff_key) => self.own_is_stored(now, backoff_key),
            Input::BusAnswered { asked } => self.leases.answered(now, asked),
            Input::Lease(name, answer) => self.lease(now, name, answer),
            Input::LeaseTaken { name, holder, left } => self.lease_taken(now, name, holder, left),
            Input::LeaseFreed(name) => self.lease_freed(now, name),
            Input::Fleet { alive, rank, in_zone } => {
                self.fleet = Fleet { alive: alive.max(1), rank, in_zone: Some(in_zone.unwrap_or(alive).max(1)) };
            }
            Input::Cleared { image, backoff_keys, age } => self.cleared(now, image.as_deref(), backoff_keys, age),
            Input::Pause { registry, left, by } => {
                self.exemptions.pause(now, registry, left, by);
                self.touched.extend(self.requests.ids());
            }
            Input::Observe(observes) => {
                self.exemptions.observes = observes;
                self.touched.extend(self.requests.ids());
            }
            Input::BusLost => self.bus_lost(now),
            Input::NoLeases => self.no_leases(now),
            Input::BusBack => self.bus_back(),
            Input::CaughtUp => self.caught_up(now),
            Input::Tick => self.tick(now),
        }
    }

    fn ask(&mut self, now: Duration, id: RequestId, key: LocalKey, target_keys: TargetKeys) {
        if self.requests.len() >= MAX_REQUESTS && !self.requests.contains(id) {
            self.counts.no_room_total += 1;
            let refusal = self.no_room(now);
            self.effects.push(Effect::Answer(id, Decision::Refused(refusal)));
            return;
        }
        self.requests.add(id, Request::new(key, target_keys));
        self.touched.insert(id);
    }

    /// Touches the requests that a back-off key concerns.
    pub(super) fn touch(&mut self, backoff_key: BackoffKeyId) {
        self.touched.extend(self.requests.touching(backoff_key));
    }

    fn tick(&mut self, now: Duration) {
        let (unanswered, missed): (Vec<_>, Vec<_>) = self.leases.give_up(now).into_iter().unzip();
        self.effects.extend(unanswered.into_iter().map(Effect::ReleaseLease));
        self.publish_unpublished(now);
        self.touched.extend(self.requests.due(now));
        self.answers_missed(now, missed);
    }

    /// Looks at the touched requests, and at those that have become the next to have a lease. Returns the effects of the step.
    fn look_at_all(&mut self, now: Duration) -> Vec<Effect> {
        for request in std::mem::take(&mut self.touched) {
            self.look(now, request);
        }
        while let Some(request) = self.requests.take_now_first() {
            self.look(now, request);
        }
        self.assert_invariants();
        std::mem::take(&mut self.effects)
    }

    fn look(&mut self, now: Duration, id: RequestId) {
        self.with_request(id, |knowledge, request| {
            if knowledge.has_lapsed(now, request) {
                // Until the permit comes no caller waits for the answer, and a request without a waiting caller must not take a lease.
                knowledge.give_back(now, id, |_| true);
                knowledge.abandon(id);
                return Fate::Ends;
            }
            if matches!(request.state, State::RunningAttempt(_)) {
                knowledge.abandon_if_hanging(now, id, request);
                knowledge.watch(now, request);
            } else {
                let decision = knowledge.decide(now, id, request);
                if let Decision::Refused(_) = decision {
                    knowledge.give_back(now, id, |_| true);
                }
                answer_if_changed(id, request, decision, &mut knowledge.effects);
            }
            Fate::Stays
        });
    }

    pub(super) fn abandon(&mut self, id: RequestId) {
        self.counts.abandoned_total += 1;
        self.effects.push(Effect::Abandon(id));
    }

    pub(super) fn give_back(&mut self, now: Duration, id: RequestId, which: impl Fn(LeaseName) -> bool) {
        self.effects.extend(self.leases.drop_of(now, id, which).into_iter().map(Effect::ReleaseLease));
    }
}

/// Answers a request if the decision differs from the last one, apart from its age.
fn answer_if_changed(id: RequestId, request: &mut Request, decision: Decision, effects: &mut Vec<Effect>) {
    let same = match (&request.last_decision, &decision) {
        (Some(Decision::Refused(last)), Decision::Refused(refusal)) => {
            last.next_attempt == refusal.next_attempt && last.learned_by == refusal.learned_by && last.cause == refusal.cause
        }
        (Some(last), decision) => last == decision,
        (None, _) => false,
    };
    if !same {
        request.last_decision = Some(decision.clone());
        effects.push(Effect::Answer(id, decision));
    }
}
