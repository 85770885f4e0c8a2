//! What an agent does to be known and to know how the fleet stands, and to be its registrar when nobody else is: decides, does nothing.

use std::time::Duration;

use clock::Random;
use contract::messages::registrar::{ALIVE_EVERY_MS, DIGEST_EVERY_MS, FleetDigest, FleetSeen, PLACE_FOR_MS, Place, ReportAlive};
use contract::{NodeName, version};
use lease::{Answer, Lease, Terms};

use super::roster::{self, Roster};
use super::step::{Call, Counts, Effect, Input, Looked, Member, Reply};

/// How long the lease of the registrar lasts without renewal: long enough for a server that restarts, short beside `ALIVE_FOR_MS`.
pub const LEASE_FOR: Duration = Duration::from_secs(10);
/// Longer than a server takes that is at all well; then it counts as not answering.
pub const BUCKET_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Renewed so often, there is room for two renewals that fail.
const TERMS: Terms = Terms {
    term: LEASE_FOR,
    renew_every: Duration::from_secs(3),
    renew_again: Duration::from_secs(1),
    answer_within: BUCKET_ANSWERS_WITHIN,
};
/// When the lease is free, agents ask for it spread over so long.
const TRY_WITHIN: Duration = Duration::from_secs(1);
/// Who holds the lease is looked up by all nodes when a registrar is new: spread so that a server is asked 200 times a second...
const LOOK_SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// ... but within the time until its next digest.
const LOOK_WITHIN: Duration = DIGEST_EVERY;
/// How often digests of a node without the lease make others look at most.
const LOOKS_APART: Duration = Duration::from_secs(5);

const ALIVE_EVERY: Duration = Duration::from_millis(ALIVE_EVERY_MS);
const DIGEST_EVERY: Duration = Duration::from_millis(DIGEST_EVERY_MS);
const PLACE_FOR: Duration = Duration::from_millis(PLACE_FOR_MS);
/// The node's services are told again what they were told already, should they have missed what it speaks of.
const TELL_AGAIN_AFTER: Duration = DIGEST_EVERY.saturating_mul(3);
/// Agents that were started together do not report together.
const JITTER: f64 = 0.1;

/// An agent among others.
#[derive(Debug)]
pub struct Membership {
    member: Member,
    random: Random,
    report_at: Duration,
    try_at: Option<Duration>,
    pub(super) lease: Lease,
    pub(super) leading: Option<Leading>,
    pub(super) has_left: bool,
    /// Who holds the lease, as the server said last.
    holder: Option<NodeName>,
    look_at: Option<Duration>,
    is_looking: bool,
    /// When it was last found that somebody had spoken who does not hold it.
    looked_in_vain: Option<Duration>,
    /// The last digest of somebody who is not known to hold the lease.
    unproven: Option<(NodeName, FleetDigest)>,
    place: Place,
    /// When the registrar gave it.
    placed_at: Option<Duration>,
    digest: Option<FleetDigest>,
    /// What the node's services know, and since when.
    told: Option<(FleetSeen, Duration)>,
    counts: Counts,
}

/// As long as this agent is the registrar.
#[derive(Debug)]
pub(super) struct Leading {
    publish_at: Duration,
    pub(super) roster: Roster,
    /// The version that its nodes have in common, until it knows them the one that was said before.
    version: Option<u32>,
    /// How many do not read it.
    apart: u64,
}

impl Membership {
    /// An agent that was just started, and reports at once. `random` spreads what must not happen on all nodes together.
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
            // Who leads already is known before the first digest.
            look_at: Some(now),
            is_looking: false,
            looked_in_vain: None,
            unproven: None,
            place: Place::default(),
            placed_at: None,
            digest: None,
            told: None,
            counts: Counts::default(),
        }
    }

    /// Takes one input and says what follows from it.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if input != Input::Leave {
            self.let_lease_end(now, &mut effects);
        }
        match input {
            Input::Tick => {}
            Input::Called(call) => effects.push(Effect::Reply(self.reply(now, &call))),
            Input::Reported(Some(place)) => {
                (self.place, self.placed_at) = (place, Some(now));
                self.tell_news(now, &mut effects);
                if place.rank.is_none() {
                    self.report_again(now);
                }
            }
            Input::Reported(None) => self.miss(now),
            Input::Asked(asked, answer) => self.hear_of_lease(now, asked, answer, &mut effects),
            Input::Looked(began, looked) => self.see_holder(now, began, looked, &mut effects),
            Input::DigestHeard(from, digest) => self.see_digest(now, from, digest, &mut effects),
            Input::Leave => self.leave(now, &mut effects),
        }
        if !self.has_left {
            self.let_time_work(now, &mut effects);
        }
        self.assert_invariants(now);
        effects
    }

    /// When the next tick has something to do; none once the agent has left.
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

    /// What is counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (known, beyond_room_total) = self.leading.as_ref().map(|leading| leading.roster.counts()).unwrap_or_default();
        let in_common = self.digest.as_ref().and_then(|digest| digest.version);
        let writes_version = version::to_write(&self.member.reads_versions, in_common);
        let apart = self.leading.as_ref().map_or(0, |leading| leading.apart);
        let is_registrar = self.leading.is_some();
        Counts { place: self.place, is_registrar, known, beyond_room_total, writes_version, apart, ..self.counts }
    }

    /// Answers as the registrar, if this agent is it at this very time.
    fn reply(&mut self, now: Duration, call: &Call) -> Reply {
        let leading = self.leading.as_mut().filter(|_| self.lease.epoch(now).is_some());
        let Some(Leading { roster, .. }) = leading else { return Reply::NotRegistrar };
        match call {
            Call::Alive(report) => Reply::Place(roster.hear(now, report)),
            Call::List => Reply::Nodes(roster.list(now)),
        }
    }

    /// Tells the node's services how the fleet stands, unless they know.
    fn tell_news(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let known =
            |(seen, at): &(FleetSeen, Duration)| seen.place == self.place && seen.digest == self.digest && now < *at + TELL_AGAIN_AFTER;
        if !self.told.as_ref().is_some_and(known) {
            let seen = FleetSeen { place: self.place, digest: self.digest.clone() };
            self.told = Some((seen.clone(), now));
            effects.push(Effect::Tell(seen));
        }
    }

    fn report(&self, leaves: bool) -> ReportAlive {
        let Member { node, instance, zone, reads_versions } = self.member.clone();
        ReportAlive { node, instance, zone, reads_versions, leaves }
    }

    /// Nobody answered. After the first digest, the lease is asked for when digests stay away.
    fn miss(&mut self, now: Duration) {
        self.counts.unanswered_total += 1;
        self.report_again(now);
        if self.digest.is_none() && self.leading.is_none() && self.try_at.is_none() {
            // A fleet that begins needs its first registrar at once, and asking costs little.
            self.try_at = Some(now);
        }
    }

    /// Nobody has answered, or a registrar that does not know all yet.
    fn report_again(&mut self, now: Duration) {
        self.report_at = self.report_at.min(now + self.jittered(DIGEST_EVERY));
    }

    /// One step of the lease, and what it makes of this agent.
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

    /// The bus has answered, or not.
    fn hear_of_lease(&mut self, now: Duration, asked: Duration, answer: Answer, effects: &mut Vec<Effect>) {
        self.lease(now, lease::Input::Answered { asked, answer }, effects);
        match answer {
            Answer::Held { .. } => {}
            Answer::Taken => self.await_digests(now),
            Answer::Unknown if self.leading.is_none() => self.try_at = Some(now + self.jittered(DIGEST_EVERY)),
            Answer::Unknown => {}
        }
    }

    /// Who could not renew it leads no more, and asks for it as all others do.
    fn let_lease_end(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let led = self.leading.is_some();
        self.lease(now, lease::Input::Tick, effects);
        if led && self.leading.is_none() {
            self.try_at = Some(now + self.within(TRY_WITHIN));
        }
    }

    fn lead(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let inherited = self.digest.as_ref().map(|digest| digest.alive.clone()).unwrap_or_default();
        let version = self.digest.as_ref().and_then(|digest| digest.version);
        self.leading = Some(Leading { publish_at: now, roster: Roster::new(now, inherited), version, apart: 0 });
        self.holder = Some(self.member.node.clone());
        self.counts.elected_total += 1;
        // The own report is the first that it hears.
        self.report_at = now;
        effects.push(Effect::Lead);
    }

    /// Somebody leads: when no digest comes for as long as the lease lasts, it is asked for.
    fn await_digests(&mut self, now: Duration) {
        self.try_at = Some(now + LEASE_FOR + self.within(TRY_WITHIN));
    }

    fn see_holder(&mut self, now: Duration, began: Duration, looked: Looked, effects: &mut Vec<Effect>) {
        self.is_looking = false;
        let unproven = self.unproven.take();
        // What the server answered to oneself since then is newer.
        let is_late = self.lease.until().is_some_and(|until| until > began + LEASE_FOR);
        match looked {
            Looked::Unknown => return,
            _ if is_late => return,
            Looked::Nobody => {
                self.holder = None;
                if self.digest.is_some() || unproven.is_some() {
                    self.try_at = Some(now + self.within(TRY_WITHIN));
                }
            }
            Looked::Holder(holder) => {
                if holder != self.member.node {
                    self.await_digests(now);
                    if self.leading.is_some() {
                        self.hear_of_lease(now, began, Answer::Taken, effects);
                    }
                }
                self.holder = Some(holder);
            }
        }
        match unproven {
            Some((from, digest)) if self.holder.as_ref() == Some(&from) => self.believe(now, digest, effects),
            Some(_) => {
                self.counts.digests_refused_total += 1;
                self.looked_in_vain = Some(now);
            }
            None => {}
        }
    }

    /// Only the holder of the lease speaks for the fleet. Who is not known as that may have become it: the server knows.
    fn see_digest(&mut self, now: Duration, from: NodeName, digest: FleetDigest, effects: &mut Vec<Effect>) {
        if self.holder.as_ref() == Some(&from) {
            return self.believe(now, digest, effects);
        }
        if self.unproven.replace((from, digest)).is_some() {
            self.counts.digests_refused_total += 1;
        }
        if self.look_at.is_none() && !self.is_looking {
            let alive = u32::try_from(self.place.alive).unwrap_or(u32::MAX);
            let look_at = now + self.within(LOOK_SPREAD_OF_ONE.saturating_mul(alive).min(LOOK_WITHIN));
            self.look_at = Some(self.looked_in_vain.map_or(look_at, |looked| look_at.max(looked + LOOKS_APART)));
            if self.try_at.is_some_and(|at| at <= now + TRY_WITHIN) {
                // The quicker one leads.
                self.await_digests(now);
            }
        }
    }

    fn believe(&mut self, now: Duration, digest: FleetDigest, effects: &mut Vec<Effect>) {
        if digest.leaves {
            self.holder = None;
            self.try_at = Some(now + self.within(TRY_WITHIN));
            return;
        }
        self.await_digests(now);
        let apart = digest.version.filter(|version| !self.member.reads_versions.contains(version));
        if let Some(version) = apart.filter(|_| !self.counts.is_apart) {
            effects.push(Effect::SayApart(version));
        }
        self.counts.is_apart = apart.is_some();
        if let Some((alive, in_zone)) = roster::alive_as_said(&digest, &self.member.zone) {
            (self.place.alive, self.place.alive_in_zone) = (alive, in_zone);
        }
        self.digest = Some(digest);
        self.tell_news(now, effects);
    }

    fn leave(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        self.has_left = true;
        effects.push(Effect::Report(self.report(true)));
        let led = self.leading.is_some();
        self.lease(now, lease::Input::Release, effects);
        if led {
            let farewell = FleetDigest { leaves: true, ..FleetDigest::default() };
            effects.push(Effect::Publish(farewell));
        }
    }

    fn let_time_work(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.report_at <= now {
            self.report_at = now + self.jittered(ALIVE_EVERY);
            let placed = self.place.rank.is_some() && self.placed_at.is_some_and(|at| now < at + PLACE_FOR);
            let report = self.report(false);
            effects.push(if placed { Effect::Mention(report) } else { Effect::Report(report) });
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
            leading.publish_at = now + DIGEST_EVERY;
            let alive = leading.roster.alive(now);
            if let Some((version, apart)) = leading.roster.version(now) {
                (leading.version, leading.apart) = (Some(version), apart);
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
