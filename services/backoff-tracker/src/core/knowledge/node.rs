//! The state machine of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::BackoffKey;
use contract::{AttemptId, FailureClass, NodeName};

use super::entry::{Binding, Entry, Eyes};
use super::fault::Fault;
use super::fleet::Fleet;
use super::input::{Effect, Held, Input, LeaseAnswer, Outcome, Verdict};
use super::lease::{LeaseName, Leases, MISSES_TO_GONE, WishId};
use super::replica::{Replica, ReplicaCounts};
use super::report::{Finding, Report, Trouble};
use super::target::{Aim, Failure};
use super::topic::{Topic, TopicId};
use super::wish::{Going, OwnFailure, State, Wish};
use super::{QUIET_AFTER, UNANSWERED_AFTER};
use crate::core::delays::{BackoffPolicy, Delays};

/// Wishes of one node at once: more pods than a node can have. One more is refused.
pub const MAX_WISHES: usize = 1_000;
/// Leases remembered before those that ran out are forgotten.
const LEASES_REMEMBERED: usize = 4_096;
/// A success is not told again while one is known that is younger than this, unless it changes something.
const TOLD_LATELY: Duration = Duration::from_secs(QUIET_AFTER.as_secs() / 3);

/// What happened so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnowledgeCounts {
    /// What the replica's bounds did.
    pub replica: ReplicaCounts,
    /// Wishes now.
    pub wishes: u64,
    /// Wishes refused for want of room.
    pub refused_total: u64,
    /// Results of attempts that came after their lease had run out, dropped.
    pub late_results_total: u64,
    /// Answers of the bus that did not come in time.
    pub bus_misses_total: u64,
    /// Failures kept to itself by a node that others contradicted.
    pub kept_to_itself_total: u64,
}

/// What one node knows, wants and does.
#[derive(Debug)]
pub struct Knowledge {
    pub(super) node: NodeName,
    pub(super) replica: Replica,
    pub(super) leases: Leases,
    pub(super) local: Delays<BackoffKey>,
    pub(super) fleet: Fleet,
    /// No bus: every node for itself.
    pub(super) alone: bool,
    wishes: BTreeMap<WishId, Wish>,
    misses: u32,
    fault: Option<Fault>,
    counts: KnowledgeCounts,
}

impl Knowledge {
    /// Knows nothing and wants nothing. The policy is that of the local rule.
    #[must_use]
    pub fn new(node: NodeName, policy: BackoffPolicy) -> Self {
        Self {
            node,
            replica: Replica::default(),
            leases: Leases::default(),
            local: Delays::new(policy),
            fleet: Fleet::default(),
            alone: false,
            wishes: BTreeMap::new(),
            misses: 0,
            fault: None,
            counts: KnowledgeCounts::default(),
        }
    }

    /// With a rule broken on purpose, for tests of tests.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// One thing happened; what follows from it.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let touched = self.take(now, input, &mut effects);
        for wish in touched {
            self.look(now, wish, &mut effects);
        }
        effects
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.wishes.values().filter_map(|wish| wish.wake).min()
    }

    /// The entries of all topics that anybody says fail, for lists.
    #[must_use]
    pub fn entries(&self, now: Duration) -> Vec<Entry> {
        self.replica.topics().filter_map(|topic| self.entry(now, topic)).collect()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> KnowledgeCounts {
        KnowledgeCounts { replica: self.replica.counts(), wishes: self.wishes.len() as u64, ..self.counts }
    }

    pub(super) fn entry(&self, now: Duration, topic: TopicId) -> Option<Entry> {
        let credulous = self.has(Fault::BelievesAnybody);
        self.replica.entry(topic, Eyes { node: &self.node, now, alive: self.fleet.alive.max(1), credulous })
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Takes the input in; returns the wishes that it touches.
    fn take(&mut self, now: Duration, input: Input, effects: &mut Vec<Effect>) -> Vec<WishId> {
        match input {
            Input::Ask { wish, key, target } => self.ask(now, wish, key, Aim::new(target), effects),
            Input::Withdraw(wish) => {
                self.give_back(now, wish, |_| true, effects);
                self.wishes.remove(&wish);
                vec![]
            }
            Input::Begun { wish, attempt, trace } => {
                if let Some(Wish { state: State::Going(going), .. }) = self.wishes.get_mut(&wish) {
                    going.attempt = Some((attempt, trace));
                }
                vec![]
            }
            Input::Resolved { wish, attempt, outcome } => self.resolved(now, wish, attempt, outcome, effects),
            Input::Heard { report, age } => self.heard(now, report, age, effects),
            Input::Lease(name, answer) => self.lease(now, name, answer, effects),
            Input::LeaseTaken { name, holder, left } => {
                if holder != self.node {
                    self.leases.taken(now, name, left);
                }
                self.wishes_of_lease(name)
            }
            Input::LeaseFreed(name) => {
                self.leases.freed(now, name);
                self.wishes_of_lease(name)
            }
            Input::Fleet { alive, rank } => {
                self.fleet = Fleet { alive: alive.max(1), rank };
                vec![]
            }
            Input::BusGone => self.set_alone(true),
            Input::BusBack => self.set_alone(false),
            Input::Tick => self.tick(now),
        }
    }

    fn ask(&mut self, now: Duration, id: WishId, key: BackoffKey, aim: Aim, effects: &mut Vec<Effect>) -> Vec<WishId> {
        if self.wishes.len() >= MAX_WISHES && !self.wishes.contains_key(&id) {
            self.counts.refused_total += 1;
            effects.push(Effect::Tell(id, Verdict::Held(self.no_room(now))));
            return vec![];
        }
        self.wishes.entry(id).or_insert_with(|| Wish::new(key, aim));
        vec![id]
    }

    fn no_room(&self, now: Duration) -> Held {
        Held {
            class: FailureClass::NodeLocal,
            cause: format!("{MAX_WISHES} images are wanted on this node already: wait for some of them, or cancel them"),
            learned_by: self.node.clone(),
            learned_ago: Duration::ZERO,
            trace: None,
            next_try: now + BackoffPolicy::default().initial,
        }
    }

    fn heard(&mut self, now: Duration, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let (topic, succeeded) = (report.topic.id(), report.finding == Finding::Succeeded);
        if succeeded && self.has(Fault::SuccessIgnored) || !self.replica.hear(now, report, age) {
            return vec![];
        }
        if succeeded {
            self.cause_is_gone(now, topic);
            self.abandon_hanging(now, topic, effects);
        }
        self.wishes_touching(topic)
    }

    /// An attempt that hangs while others are answered was asked of a registry that is gone. It is begun anew, once.
    fn abandon_hanging(&mut self, now: Duration, topic: TopicId, effects: &mut Vec<Effect>) {
        for (id, wish) in self.wishes.iter_mut().filter(|(_, wish)| wish.aim.endpoint.id() == topic && !wish.abandoned) {
            if matches!(&wish.state, State::Going(going) if going.told_unanswered) {
                wish.state = State::Fresh;
                wish.told = None;
                wish.abandoned = true;
                effects.push(Effect::Abandon(*id));
                effects.extend(self.leases.drop_of(now, *id, |_| true).into_iter().map(Effect::ReleaseLease));
            }
        }
    }

    /// The local rule ends where another has shown that what this node failed by is in order, unless this node is known to be
    /// the one at fault.
    fn cause_is_gone(&mut self, now: Duration, topic: TopicId) {
        for wish in self.wishes.values_mut().filter(|wish| matches!(wish.state, State::Fresh | State::Held)) {
            let Some(failed) = wish.failed.as_ref().filter(|failed| failed.topics.contains(&topic)) else { continue };
            let at_fault = self.replica.at_fault(now, &self.node, wish.aim.topics.iter().find(|own| own.id() == topic));
            if !at_fault && failed.at < now && self.local.held(&wish.key, now).is_some() {
                self.local.clear(&wish.key);
                wish.state = State::Held;
            }
        }
    }

    fn lease(&mut self, now: Duration, name: LeaseName, answer: LeaseAnswer, effects: &mut Vec<Effect>) -> Vec<WishId> {
        self.misses = 0;
        match answer {
            LeaseAnswer::Won => match self.leases.won(now, name).filter(|wish| self.wishes.contains_key(wish)) {
                Some(wish) => vec![wish],
                None => {
                    effects.push(Effect::ReleaseLease(name));
                    vec![]
                }
            },
            LeaseAnswer::Lost(left) => {
                self.leases.taken(now, name, left);
                self.wishes_of_lease(name)
            }
        }
    }

    fn set_alone(&mut self, alone: bool) -> Vec<WishId> {
        self.alone = alone;
        self.misses = 0;
        self.wishes.keys().copied().collect()
    }

    fn tick(&mut self, now: Duration) -> Vec<WishId> {
        let missed = self.leases.give_up(now);
        let mut due: BTreeSet<WishId> =
            self.wishes.iter().filter(|(_, wish)| wish.wake.is_some_and(|wake| wake <= now)).map(|(id, _)| *id).collect();
        if !missed.is_empty() {
            self.counts.bus_misses_total += missed.len() as u64;
            self.misses += 1;
            if self.misses >= MISSES_TO_GONE {
                due.extend(self.set_alone(true));
            }
        }
        if self.leases.len() > LEASES_REMEMBERED {
            self.leases.collect_garbage(now);
        }
        for id in missed {
            if let Some(wish) = self.wishes.get_mut(&id) {
                wish.unanswered = true;
            }
            due.insert(id);
        }
        due.into_iter().collect()
    }

    fn look(&mut self, now: Duration, id: WishId, effects: &mut Vec<Effect>) {
        let Some(mut wish) = self.wishes.remove(&id) else { return };
        if matches!(wish.state, State::Going(_)) {
            self.watch(now, &mut wish, effects);
        } else {
            let verdict = self.decide(now, id, &mut wish, effects);
            if let Verdict::Held(_) = verdict {
                self.give_back(now, id, |_| true, effects);
            }
            tell(id, &mut wish, verdict, effects);
        }
        self.wishes.insert(id, wish);
    }

    /// An attempt without an answer is told of, once.
    fn watch(&mut self, now: Duration, wish: &mut Wish, effects: &mut Vec<Effect>) {
        let State::Going(going) = &mut wish.state else { return };
        let late_at = going.begun + UNANSWERED_AFTER;
        wish.wake = (!going.told_unanswered && now < late_at).then_some(late_at);
        if going.told_unanswered || now < late_at {
            return;
        }
        going.told_unanswered = true;
        let endpoint = Arc::clone(&wish.aim.endpoint);
        let answered_since = self.replica.succeeded_at(endpoint.id()).is_some_and(|at| at >= going.begun);
        if let (Some(_), false) = (going.attempt, answered_since) {
            let message = format!("no answer from {} for {} s", wish.aim.target.endpoint, UNANSWERED_AFTER.as_secs());
            let trouble = Trouble { message, step: going.step_of(endpoint.id()), ..Trouble::default() }.bounded();
            self.publish(now, going, endpoint, Finding::Unanswered(trouble), effects);
        }
    }

    fn resolved(&mut self, now: Duration, id: WishId, attempt: AttemptId, outcome: Outcome, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let current = |wish: &Wish| matches!(&wish.state, State::Going(going) if going.attempt.is_some_and(|(begun, _)| begun == attempt));
        if !self.wishes.get(&id).is_some_and(current) {
            return vec![];
        }
        let Some(mut wish) = self.wishes.remove(&id) else { return vec![] };
        let State::Going(going) = std::mem::replace(&mut wish.state, State::Fresh) else { return vec![] };
        wish.told = None;
        wish.wake = None;
        let late = going.deadline.is_some_and(|deadline| now > deadline);
        self.counts.late_results_total += u64::from(late);
        let mut touched = BTreeSet::new();
        match outcome {
            Outcome::Resolved => {
                self.local.clear(&wish.key);
                if !late {
                    touched = self.succeeded(now, &wish.aim, &going, effects);
                }
                self.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)), effects);
            }
            Outcome::Failed(failure) => {
                touched = self.failed(now, &mut wish, &going, failure, late, effects);
                let binding = wish.failed.as_ref().is_some_and(|failed| self.binds(now, failed));
                self.give_back(now, id, |name| matches!(name, LeaseName::Slot(..)) || !binding, effects);
                self.wishes.insert(id, wish);
                touched.insert(id);
            }
        }
        touched.into_iter().collect()
    }

    /// Tells what is new of a success, and no more: 1,000 nodes that succeed are not 1,000 messages.
    fn succeeded(&mut self, now: Duration, aim: &Aim, going: &Going, effects: &mut Vec<Effect>) -> BTreeSet<WishId> {
        let mut touched = BTreeSet::new();
        let any_repository_fails = self.replica.fails_in(aim.image.view_id(), FailureClass::RegistryUnavailable);
        // The narrowest first: who hears that the registry is back knows then that the image is resolved, and asks for no lead.
        for topic in aim.topics.iter().rev() {
            let watched = topic.id() == aim.endpoint.id()
                || topic.id() == aim.image.id()
                || (any_repository_fails && topic.class() == FailureClass::RegistryUnavailable);
            touched.extend(self.tell_success(now, topic, watched, going, effects));
        }
        touched
    }

    fn tell_success(&mut self, now: Duration, topic: &Arc<Topic>, watched: bool, going: &Going, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let known = self.replica.succeeded_at(topic.id());
        let stale = known.is_none_or(|at| at + TOLD_LATELY <= now);
        let own_doubt = self.replica.word(topic.id(), &self.node).is_some_and(|word| word.finding.trouble().is_some());
        if !(own_doubt || self.replica.is_doubted(topic.id()) || (watched && stale)) {
            return vec![];
        }
        self.publish(now, going, Arc::clone(topic), Finding::Succeeded, effects);
        self.cause_is_gone(now, topic.id());
        self.wishes_touching(topic.id())
    }

    fn failed(
        &mut self,
        now: Duration,
        wish: &mut Wish,
        going: &Going,
        failure: Failure,
        late: bool,
        effects: &mut Vec<Effect>,
    ) -> BTreeSet<WishId> {
        let mut touched = BTreeSet::new();
        let topics = wish.aim.topics_of(&failure);
        let reachable = failure.shows_reachable();
        let trace = going.attempt.and_then(|(_, trace)| trace);
        for topic in topics.iter().filter(|_| !late) {
            if self.replica.at_fault(now, &self.node, Some(topic)) {
                self.counts.kept_to_itself_total += 1;
                continue;
            }
            let trouble = Trouble {
                message: failure.cause.clone(),
                step: going.step_of(topic.id()),
                retry_after: failure.retry_after,
                repository: wish.aim.target.repository.clone(),
            };
            self.publish(now, going, Arc::clone(topic), Finding::Failed(trouble.bounded()), effects);
            touched.extend(self.wishes_touching(topic.id()));
        }
        if reachable && !late {
            let endpoint = Arc::clone(&wish.aim.endpoint);
            touched.extend(self.tell_success(now, &endpoint, true, going, effects));
        }
        wish.failed = Some(OwnFailure {
            class: failure.class,
            cause: failure.cause,
            at: now,
            trace,
            topics: topics.iter().map(|topic| topic.id()).collect(),
        });
        if !wish.failed.as_ref().is_some_and(|failed| self.binds(now, failed)) {
            self.local.next(wish.key.clone(), now);
        }
        touched
    }

    /// Whether the fleet goes by this failure; else the local rule does.
    fn binds(&self, now: Duration, failed: &OwnFailure) -> bool {
        let shared = |topic: &TopicId| self.entry(now, *topic).is_some_and(|entry| entry.mine && entry.binding == Binding::Everybody);
        !self.alone && failed.topics.iter().any(shared)
    }

    /// Says something under this node's name. A failure is as old as its attempt.
    fn publish(&mut self, now: Duration, going: &Going, topic: Arc<Topic>, finding: Finding, effects: &mut Vec<Effect>) {
        let Some((attempt, trace)) = going.attempt else { return };
        let age = if finding == Finding::Succeeded { Duration::ZERO } else { now.saturating_sub(going.begun) };
        let report = Arc::new(Report { reporter: self.node.clone(), topic, attempt, trace, finding });
        self.replica.hear(now, Arc::clone(&report), age);
        effects.push(Effect::Publish(report, age));
    }

    fn give_back(&mut self, now: Duration, id: WishId, which: impl Fn(LeaseName) -> bool, effects: &mut Vec<Effect>) {
        effects.extend(self.leases.drop_of(now, id, which).into_iter().map(Effect::ReleaseLease));
    }

    fn wishes_touching(&self, topic: TopicId) -> Vec<WishId> {
        self.wishes.iter().filter(|(_, wish)| wish.aim.touches(topic)).map(|(id, _)| *id).collect()
    }

    fn wishes_of_lease(&self, name: LeaseName) -> Vec<WishId> {
        let (LeaseName::Probe(topic, _) | LeaseName::Lead(topic, _) | LeaseName::Slot(topic, _)) = name;
        self.wishes_touching(topic)
    }
}

impl Going {
    fn step_of(&self, topic: TopicId) -> u32 {
        self.steps.get(&topic).copied().unwrap_or(1)
    }
}

/// Tells a verdict if it is another than the last, apart from how long ago it was learned.
fn tell(id: WishId, wish: &mut Wish, verdict: Verdict, effects: &mut Vec<Effect>) {
    let known = match (&wish.told, &verdict) {
        (Some(Verdict::Held(told)), Verdict::Held(held)) => {
            told.next_try == held.next_try && told.learned_by == held.learned_by && told.cause == held.cause
        }
        (Some(told), verdict) => told == verdict,
        (None, _) => false,
    };
    if !known {
        wish.told = Some(verdict.clone());
        effects.push(Effect::Tell(id, verdict));
    }
}
