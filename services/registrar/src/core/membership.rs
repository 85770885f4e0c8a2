//! Decides when an agent reports, which digests it accepts, and when it campaigns for, keeps and gives up the registrar's lease.

use std::time::Duration;

use clock::Random;
use contract::messages::registrar::{FleetDigest, FleetSeen, Place, ReportAlive};
use contract::{DEADLINES, NodeName, version};
use lease::{Answer, Lease, Terms};

use super::roster::{self, Roster};
use super::step::{Call, Counts, Effect, Input, Looked, Member, Reply};

/// The times of the registrar's lease.
const TERMS: Terms = Terms {
    term: DEADLINES.registrar_lease,
    renew_every: DEADLINES.registrar_lease_renewed_every,
    renew_again: Duration::from_secs(1),
    answer_within: DEADLINES.registrar_lease_answer,
};
/// When the lease is free, agents ask for it at random times within this span.
const TRY_WITHIN: Duration = Duration::from_secs(1);
/// All nodes look up the holder of the lease when a registrar is new. The look-ups of N nodes are spread over N times this, so that a
/// server gets 200 per second.
const LOOK_SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// The most time over which look-ups are spread: the time until the next digest.
const LOOK_WITHIN: Duration = DEADLINES.digest_every;
/// The shortest pause between look-ups that digests of a node without the lease cause.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// An unchanged state is sent to the node's services again after this, in case an earlier message was lost.
const REPEAT_AFTER: Duration = DEADLINES.digest_every.saturating_mul(3);
/// The share by which intervals vary, so that agents that were started together do not report together.
const JITTER: f64 = 0.1;

/// The state of one agent.
#[derive(Debug)]
pub struct Membership {
    member: Member,
    random: Random,
    report_at: Duration,
    try_at: Option<Duration>,
    pub(super) lease: Lease,
    pub(super) leading: Option<Leading>,
    pub(super) has_left: bool,
    /// The holder of the lease by the last look-up.
    holder: Option<NodeName>,
    look_at: Option<Duration>,
    is_looking: bool,
    /// When a look-up last showed that a digest's publisher does not hold the lease.
    last_vain_lookup: Option<Duration>,
    /// The last digest of a publisher that is not known to hold the lease.
    unverified: Option<(NodeName, FleetDigest)>,
    place: Place,
    /// When the registrar gave the place.
    placed_at: Option<Duration>,
    digest: Option<FleetDigest>,
    /// The fleet's state that was last sent to the node's services, and when.
    last_sent: Option<(FleetSeen, Duration)>,
    counts: Counts,
}

/// The state of an agent while it is the registrar.
#[derive(Debug)]
pub(super) struct Leading {
    publish_at: Duration,
    pub(super) roster: Roster,
    /// The newest version that all nodes read; until all nodes are known, the version in the last digest.
    version: Option<u32>,
    /// How many nodes do not read `version`.
    incompatible: u64,
}

impl Membership {
    /// An agent that has just started; it reports at once. `random` spreads the nodes' actions.
    #[must_use]
    pub fn new(member: Member, random: Random, now: Duration) -> Self {
        Self {
            member,
            random,
            report_at: now,
            try_at: None,
            lease: Lease::new(TERMS),
            leading: None,
            has_left: false,
            holder: None,
            // Look up the holder at once, so that the present registrar is known before its first digest.
            look_at: Some(now),
            is_looking: false,
            last_vain_lookup: None,
            unverified: None,
            place: Place::default(),
            placed_at: None,
            digest: None,
            last_sent: None,
            counts: Counts::default(),
        }
    }

    /// Takes one input and returns its effects.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if input != Input::Leave {
            self.expire_lease(now, &mut effects);
        }
        match input {
            Input::Tick => {}
            Input::Called(call) => effects.push(Effect::Reply(self.reply(now, &call))),
            Input::Reported(Some(place)) => {
                (self.place, self.placed_at) = (place, Some(now));
                self.send_if_changed(now, &mut effects);
                if place.rank.is_none() {
                    self.report_again(now);
                }
            }
            Input::Reported(None) => self.report_unanswered(now),
            Input::Asked(asked, answer) => self.lease_answered(now, asked, answer, &mut effects),
            Input::Looked(began, looked) => self.see_holder(now, began, looked, &mut effects),
            Input::DigestReceived(from, digest) => self.see_digest(now, from, digest, &mut effects),
            Input::Leave => self.leave(now, &mut effects),
        }
        if !self.has_left {
            self.run_due(now, &mut effects);
        }
        self.assert_invariants(now);
        effects
    }

    /// When [`Input::Tick`] is due; none once the agent has left.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        if self.has_left {
            return None;
        }
        let publishing = self.leading.as_ref().map(|leading| leading.publish_at);
        let answered = self.lease.answer_due().unwrap_or_default();
        let trying = self.try_at.filter(|_| self.leading.is_none()).map(|at| at.max(answered));
        let looking = self.look_at.filter(|_| !self.is_looking);
        [Some(self.report_at), trying, looking, publishing, self.lease.next_due()].into_iter().flatten().min()
    }

    /// The counters and the present state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (known, beyond_room_total) = self.leading.as_ref().map(|leading| leading.roster.counts()).unwrap_or_default();
        let in_common = self.digest.as_ref().and_then(|digest| digest.version);
        let writes_version = version::to_write(&self.member.reads_versions, in_common);
        let incompatible = self.leading.as_ref().map_or(0, |leading| leading.incompatible);
        let is_registrar = self.leading.is_some();
        Counts { place: self.place, is_registrar, known, beyond_room_total, writes_version, incompatible, ..self.counts }
    }

    /// Answers as the registrar, if this agent holds the lease now.
    fn reply(&mut self, now: Duration, call: &Call) -> Reply {
        let leading = self.leading.as_mut().filter(|_| self.lease.epoch(now).is_some());
        let Some(Leading { roster, .. }) = leading else { return Reply::NotRegistrar };
        match call {
            Call::Alive(report) => Reply::Place(roster.record(now, report)),
            Call::List => Reply::Nodes(roster.list(now)),
        }
    }

    /// Sends the fleet's state to the node's services, unless the same was sent a short while ago.
    fn send_if_changed(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let known = |(seen, at): &(FleetSeen, Duration)| seen.place == self.place && seen.digest == self.digest && now < *at + REPEAT_AFTER;
        if !self.last_sent.as_ref().is_some_and(known) {
            let seen = FleetSeen { place: self.place, digest: self.digest.clone() };
            self.last_sent = Some((seen.clone(), now));
            effects.push(Effect::SendFleet(seen));
        }
    }

    fn report(&self, leaves: bool) -> ReportAlive {
        let Member { node, instance, zone, reads_versions } = self.member.clone();
        ReportAlive { node, instance, zone, reads_versions, leaves }
    }

    /// A report was not answered. Before the first digest the agent asks for the lease at once; later it does when digests are missing.
    fn report_unanswered(&mut self, now: Duration) {
        self.counts.unanswered_total += 1;
        self.report_again(now);
        if self.digest.is_none() && self.leading.is_none() && self.try_at.is_none() {
            // A new fleet needs its first registrar at once, and asking is cheap.
            self.try_at = Some(now);
        }
    }

    /// Reports again soon: the report was not answered, or the registrar does not know all nodes yet.
    fn report_again(&mut self, now: Duration) {
        self.report_at = self.report_at.min(now + self.jittered(DEADLINES.digest_every));
    }

    /// Feeds the lease's state machine and follows its effects.
    fn lease(&mut self, now: Duration, input: lease::Input, effects: &mut Vec<Effect>) {
        for effect in self.lease.step(now, input) {
            match effect {
                lease::Effect::Take => effects.push(Effect::TryLease),
                lease::Effect::Renew { epoch } => effects.push(Effect::Renew(epoch)),
                lease::Effect::Release { epoch } => effects.push(Effect::GiveBack(epoch)),
                lease::Effect::Won { .. } => self.lead(now, effects),
                lease::Effect::Lost { .. } => {
                    self.leading = None;
                    effects.push(Effect::StepDown);
                }
            }
        }
    }

    /// The bus has answered a request for the lease, or has failed to.
    fn lease_answered(&mut self, now: Duration, asked: Duration, answer: Answer, effects: &mut Vec<Effect>) {
        self.lease(now, lease::Input::Answered { asked, answer }, effects);
        match answer {
            Answer::Held { .. } if self.leading.is_some() || self.try_at.is_some() => {}
            Answer::Taken => self.await_digests(now),
            Answer::Unknown if self.leading.is_some() => {}
            // No answer, or one that came too late for the lease to count.
            Answer::Held { .. } | Answer::Unknown => self.try_at = Some(now + self.jittered(DEADLINES.digest_every)),
        }
    }

    /// Ends an expired lease; the agent then asks for it again as all others do.
    fn expire_lease(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let led = self.leading.is_some();
        self.lease(now, lease::Input::Tick, effects);
        if led && self.leading.is_none() {
            self.try_at = Some(now + self.within(TRY_WITHIN));
        }
    }

    fn lead(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let inherited = self.digest.as_ref().map(|digest| digest.alive.clone()).unwrap_or_default();
        let version = self.digest.as_ref().and_then(|digest| digest.version);
        self.leading = Some(Leading { publish_at: now, roster: Roster::new(now, inherited), version, incompatible: 0 });
        self.holder = Some(self.member.node.clone());
        self.counts.elected_total += 1;
        // The registrar's own report comes first.
        self.report_at = now;
        effects.push(Effect::Lead);
    }

    /// Another agent is registrar. If no digest comes for the lease's term, this agent asks for the lease.
    fn await_digests(&mut self, now: Duration) {
        self.try_at = Some(now + DEADLINES.registrar_lease + self.within(TRY_WITHIN));
    }

    fn see_holder(&mut self, now: Duration, began: Duration, looked: Looked, effects: &mut Vec<Effect>) {
        self.is_looking = false;
        let unverified = self.unverified.take();
        // A later answer to this agent's own renewal is newer.
        let is_late = self.lease.until().is_some_and(|until| until > began + DEADLINES.registrar_lease);
        match looked {
            Looked::Unknown => return,
            _ if is_late => return,
            Looked::Nobody => {
                self.holder = None;
                if self.digest.is_some() || unverified.is_some() {
                    self.try_at = Some(now + self.within(TRY_WITHIN));
                }
            }
            Looked::Holder(holder) => {
                if holder != self.member.node {
                    self.await_digests(now);
                    if self.leading.is_some() {
                        self.lease_answered(now, began, Answer::Taken, effects);
                    }
                }
                self.holder = Some(holder);
            }
        }
        match unverified {
            Some((from, digest)) if self.holder.as_ref() == Some(&from) => self.accept_digest(now, digest, effects),
            Some(_) => {
                self.counts.digests_refused_total += 1;
                self.last_vain_lookup = Some(now);
            }
            None => {}
        }
    }

    /// Accepts a digest of the lease's holder. For any other publisher the holder is looked up, because it may have changed.
    fn see_digest(&mut self, now: Duration, from: NodeName, digest: FleetDigest, effects: &mut Vec<Effect>) {
        if self.holder.as_ref() == Some(&from) {
            return self.accept_digest(now, digest, effects);
        }
        if self.unverified.replace((from, digest)).is_some() {
            self.counts.digests_refused_total += 1;
        }
        if self.look_at.is_none() && !self.is_looking {
            let alive = u32::try_from(self.place.alive).unwrap_or(u32::MAX);
            let look_at = now + self.within(LOOK_SPREAD_OF_ONE.saturating_mul(alive).min(LOOK_WITHIN));
            self.look_at = Some(self.last_vain_lookup.map_or(look_at, |looked| look_at.max(looked + LOOK_PAUSE)));
            if self.try_at.is_some_and(|at| at <= now + TRY_WITHIN) {
                // Another agent was quicker.
                self.await_digests(now);
            }
        }
    }

    fn accept_digest(&mut self, now: Duration, digest: FleetDigest, effects: &mut Vec<Effect>) {
        if digest.leaves {
            self.holder = None;
            self.try_at = Some(now + self.within(TRY_WITHIN));
            return;
        }
        self.await_digests(now);
        let incompatible = digest.version.filter(|version| !self.member.reads_versions.contains(version));
        if let Some(version) = incompatible.filter(|_| !self.counts.reads_no_common_version) {
            effects.push(Effect::LogUnreadableVersion(version));
        }
        self.counts.reads_no_common_version = incompatible.is_some();
        if let Some((alive, in_zone)) = roster::alive_in_digest(&digest, &self.member.zone) {
            (self.place.alive, self.place.alive_in_zone) = (alive, in_zone);
        }
        self.digest = Some(digest);
        self.send_if_changed(now, effects);
    }

    fn leave(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        self.has_left = true;
        let led = self.leading.is_some();
        self.lease(now, lease::Input::Release, effects);
        if led {
            // Its roster ends with it, so it has no registrar to report to.
            effects.push(Effect::Publish(FleetDigest { leaves: true, ..FleetDigest::default() }));
        } else {
            effects.push(Effect::Report(self.report(true)));
        }
    }

    fn run_due(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.report_at <= now {
            self.report_at = now + self.jittered(DEADLINES.alive_every);
            let placed = self.place.rank.is_some() && self.placed_at.is_some_and(|at| now < at + DEADLINES.place_for);
            let report = self.report(false);
            effects.push(if placed { Effect::Notify(report) } else { Effect::Report(report) });
        }
        let is_asked = self.lease.answer_due().is_some_and(|due| now < due);
        if !is_asked && self.try_at.is_some_and(|at| at <= now) {
            self.try_at = None;
            self.lease(now, lease::Input::Acquire, effects);
        }
        if !self.is_looking && self.look_at.is_some_and(|at| at <= now) {
            (self.look_at, self.is_looking) = (None, true);
            effects.push(Effect::Look);
        }
        let Some(leading) = &mut self.leading else { return };
        if leading.publish_at <= now {
            leading.publish_at = now + DEADLINES.digest_every;
            let alive = leading.roster.alive(now);
            if let Some((version, incompatible)) = leading.roster.version(now) {
                (leading.version, leading.incompatible) = (Some(version), incompatible);
            }
            effects.push(Effect::Publish(FleetDigest { alive, version: leading.version, ..FleetDigest::default() }));
        }
    }

    fn jittered(&mut self, span: Duration) -> Duration {
        span.mul_f64(1.0 - JITTER + 2.0 * JITTER * self.random.fraction())
    }

    fn within(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.random.fraction())
    }
}
