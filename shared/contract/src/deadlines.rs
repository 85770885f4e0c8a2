//! The times that services and nodes expect of each other, in one table, with the relations that must hold between them.
//!
//! A time that only one file uses stands there. What waits for the bus is not fixed: it is awaited for twice as long as the bus usually
//! takes to answer, between a least and a most of this table, so that a slow bus does not count as a lost one.

use std::time::Duration;

/// The times of all nodes of a fleet. Agents of different versions share a fleet, so another value needs a look at its relations.
pub const DEADLINES: Deadlines = Deadlines {
    permit_lease: s(30),
    permit_renewed_every: s(10),
    permit_patience: s(10),
    clearance_lapses_after: s(30),
    clearance_asked_every: s(10),
    clearance_watched_every: s(10),
    max_wait: s(10),
    unanswered_after: s(2),
    silence_held_for: ms(2_500),
    served_lately: s(10),
    attempt_lease: s(15),
    attempt_lease_answer: AnswerWithin { least: ms(250), most: ms(750) },
    unconfirmed_for: s(4),
    bus_back_within: s(15),
    leader_lease: s(3),
    leader_lease_renewed_every: s(1),
    leader_lease_answer: AnswerWithin { least: s(1), most: s(2) },
    campaign: s(4),
    budget_permit_lease: s(3),
    budget_permit_renewed_every: s(1),
    leader_answer: AnswerWithin { least: ms(250), most: s(2) },
    leader_answer_counts: ms(2_500),
    leader_answer_accepted: s(5),
    budget_asked_again: s(5),
    budget_place_lapses_after: s(15),
    alone_after: s(15),
    leader_looked_for: s(8),
    alone_after_unusable_bus: ms(1_500),
    alive_every: s(10),
    alive_for: s(32),
    place_for: s(25),
    digest_every: s(5),
    known_for: s(600),
    registrar_lease: s(10),
    registrar_lease_renewed_every: s(3),
    registrar_lease_answer: s(2),
};

const _: () = assert!(DEADLINES.holds(), "a relation between deadlines is broken: the test of this file says which");

/// The least `throttle.max_wait`: with less, a pull would give up before a healthy tracker can answer.
pub const MAX_WAIT_LEAST: Duration = s(1);

/// How long an answer is awaited: twice the usual time, between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerWithin {
    /// On a quick bus.
    pub least: Duration,
    /// On a slow bus.
    pub most: Duration,
}

/// The times that services and nodes expect of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// How long a node's own permit lasts without a renewal, and a place in its queue without a repeated request: long enough for a holder
    /// that stalls for seconds, short enough that a dead holder's slot is soon free.
    pub permit_lease: Duration,
    /// How often a pull renews its permit.
    pub permit_renewed_every: Duration,
    /// The throttler answers `queued` after this long; then it is asked again.
    pub permit_patience: Duration,
    /// A request for clearance that is not repeated for this long is withdrawn, because its caller died.
    pub clearance_lapses_after: Duration,
    /// The tracker answers a request for clearance within this time, even if nothing has changed; then it is asked again.
    pub clearance_asked_every: Duration,
    /// How often a running attempt asks whether it was abandoned.
    pub clearance_watched_every: Duration,
    /// How long a caller without a standing pull waits for the fleet (`throttle.max_wait`).
    pub max_wait: Duration,
    /// A resolution without an answer for this long is reported.
    pub unanswered_after: Duration,
    /// How long a budget leader holds pulls back from a registry that has fallen silent. By then the back-off trackers know of it. A
    /// registry whose answers are seen only when its pulls end is held up no longer than this.
    pub silence_held_for: Duration,
    /// A registry that has served any node within this time is not down: it serves some requests, and its budget slows down. After a longer
    /// time without a success, the budget finds its rate anew with the first answer, because what it had found is out of date.
    pub served_lately: Duration,
    /// The term of the lease of a probe, a lead or a slot. It is never renewed.
    pub attempt_lease: Duration,
    /// The bus's answer about such a lease. On a slower bus a node uses its own rule: if leases, permits and reports take 1 s or more each,
    /// waiting takes longer than kubelet's rule.
    pub attempt_lease_answer: AnswerWithin,
    /// How long a failure that a single node reports delays nodes without a bus, on which no lease decides who attempts next; and the longest
    /// pause of a node's own after a failure that may be chance, for which a pull waits instead of being refused.
    pub unconfirmed_for: Duration,
    /// If a lost bus is back within this time, what was known before still counts.
    pub bus_back_within: Duration,
    /// The term of a budget leader's lease.
    pub leader_lease: Duration,
    /// How often a budget leader renews its lease.
    pub leader_lease_renewed_every: Duration,
    /// The answer of the bucket of leaders. A renewal counts for its whole term, however late it is answered.
    pub leader_lease_answer: AnswerWithin,
    /// How long it may take to find a budget's leader, or to become it: up to four answers of the bucket in sequence. A lease that is won
    /// counts from when it was asked for, which comes last.
    pub campaign: Duration,
    /// How long a fleet permit lasts without a renewal. A new leader learns for as long which permits are held.
    pub budget_permit_lease: Duration,
    /// How often fleet permits are renewed.
    pub budget_permit_renewed_every: Duration,
    /// A budget leader's answer; then the request is repeated.
    pub leader_answer: AnswerWithin,
    /// The longest time after which a leader's answer counts: half a second of a permit's lease is left to renew it.
    pub leader_answer_counts: Duration,
    /// How late an answer may come. A late answer grants nothing, but it shows that the leader is not lost.
    pub leader_answer_accepted: Duration,
    /// A waiting node asks its leader again at least this often, because messages may be lost.
    pub budget_asked_again: Duration,
    /// How long a place in a budget's queue lasts if the request is not repeated.
    pub budget_place_lapses_after: Duration,
    /// After this long without a leader, a node continues with its share of the budget.
    pub alone_after: Duration,
    /// How long a node that went alone, or that has just found the bus, looks for a leader before it goes alone again.
    pub leader_looked_for: Duration,
    /// As `alone_after` if the bus was never there or cannot hold leases: long enough for a bus that is being connected to, and less than
    /// the 2 s that a pull may wait for such a bus.
    pub alone_after_unusable_bus: Duration,
    /// How often an agent reports that it is alive: as often as a kubelet renews its lease.
    pub alive_every: Duration,
    /// An agent that was not seen for this long is not alive any more.
    pub alive_for: Duration,
    /// How long an agent uses the place that it was given. The number of live nodes changes sooner, and is in the digests.
    pub place_for: Duration,
    /// How often the registrar publishes its digest. An agent without a rank reports as often.
    pub digest_every: Duration,
    /// An agent that was not seen for this long is forgotten.
    pub known_for: Duration,
    /// The term of the registrar's lease: long enough for a server's restart.
    pub registrar_lease: Duration,
    /// How often the registrar renews its lease.
    pub registrar_lease_renewed_every: Duration,
    /// How long the bucket may take to answer the registrar; a healthy server takes less.
    pub registrar_lease_answer: Duration,
}

/// A time that must not be longer than another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// What holds because of it.
    pub because: &'static str,
    /// The shorter time.
    pub shorter: Duration,
    /// The longer time.
    pub longer: Duration,
}

impl Deadlines {
    /// The same with `throttle.max_wait` of a node's settings. Less than [`MAX_WAIT_LEAST`] counts as that.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: max_wait.max(MAX_WAIT_LEAST), ..self }
    }

    /// Everything that must hold.
    #[must_use]
    pub const fn relations(&self) -> [Relation; 25] {
        // A leader dies when a waiting node has just been answered: the node asks again, misses three answers, and then finds or becomes
        // the next leader.
        let leader_replaced = sum(&[self.budget_asked_again, times(self.leader_answer.least, 3), self.leader_lease, self.campaign]);
        [
            relation("two renewals of a node's own permit may be lost", times(self.permit_renewed_every, 3), self.permit_lease),
            relation("two requests for a node's own permit may be lost", times(self.permit_patience, 3), self.permit_lease),
            relation("two requests for clearance may be lost", times(self.clearance_asked_every, 3), self.clearance_lapses_after),
            relation("two looks at a granted clearance may be lost", times(self.clearance_watched_every, 3), self.clearance_lapses_after),
            relation("the tracker has asked the bus before a caller gives up", self.attempt_lease_answer.most, self.max_wait),
            relation("a failure is reported before its lease is over", times(self.unanswered_after, 2), self.attempt_lease),
            relation(
                "a silent registry is reported before its budget lets pulls begin again",
                self.unanswered_after,
                self.silence_held_for,
            ),
            relation("a silent registry is asked again while it may still be one that serves", self.silence_held_for, self.served_lately),
            relation("an attempt begins well before its lease is over", times(self.attempt_lease_answer.most, 3), self.attempt_lease),
            relation("a node goes alone no sooner than known entries cease to count", self.bus_back_within, self.alone_after),
            relation("two renewals of a budget leader may be lost", times(self.leader_lease_renewed_every, 3), self.leader_lease),
            relation("a lease that is won late is still held", self.leader_lease_answer.most, self.leader_lease),
            relation("a campaign has time for four answers of a quick bus", times(self.leader_lease_answer.least, 4), self.campaign),
            relation("two renewals of a fleet permit may be lost", times(self.budget_permit_renewed_every, 3), self.budget_permit_lease),
            relation("a permit that is granted late is renewed in time", self.leader_answer_counts, self.budget_permit_lease),
            relation("an answer that is awaited counts", self.leader_answer.most, self.leader_answer_counts),
            relation("an answer that counts is accepted", self.leader_answer_counts, self.leader_answer_accepted),
            relation("a waiting node keeps its place in the queue", times(self.budget_asked_again, 3), self.budget_place_lapses_after),
            relation("a dead leader is replaced before nodes go alone", leader_replaced, self.alone_after),
            relation("a dead leader's lease ends while nodes look for the next", times(self.leader_lease, 2), self.leader_looked_for),
            relation("a node looks for a leader no longer than it waits for one", self.leader_looked_for, self.alone_after),
            relation("two reports that a node is alive may be lost", times(self.alive_every, 3), self.alive_for),
            relation("a node asks for its place before it is outdated", times(self.alive_every, 2), self.place_for),
            relation("two renewals of the registrar may be lost", times(self.registrar_lease_renewed_every, 3), self.registrar_lease),
            relation(
                "the fleet learns of a new registrar before nodes seem dead",
                sum(&[self.registrar_lease, self.digest_every]),
                self.alive_for,
            ),
        ]
    }

    const fn holds(&self) -> bool {
        let (relations, mut number) = (self.relations(), 0);
        while number < relations.len() {
            if relations[number].shorter.as_nanos() > relations[number].longer.as_nanos() {
                return false;
            }
            number += 1;
        }
        true
    }
}

const fn relation(because: &'static str, shorter: Duration, longer: Duration) -> Relation {
    Relation { because, shorter, longer }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn times(duration: Duration, count: u32) -> Duration {
    duration.saturating_mul(count)
}

const fn sum(durations: &[Duration]) -> Duration {
    let (mut sum, mut number) = (Duration::ZERO, 0);
    while number < durations.len() {
        sum = sum.saturating_add(durations[number]);
        number += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn broken(deadlines: &Deadlines) -> Vec<&'static str> {
        deadlines.relations().iter().filter(|relation| relation.shorter > relation.longer).map(|relation| relation.because).collect()
    }

    #[test]
    fn all_relations_hold_and_differ() {
        assert_eq!(broken(&DEADLINES), [""; 0]);
        let mut reasons: Vec<_> = DEADLINES.relations().iter().map(|relation| relation.because).collect();
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), DEADLINES.relations().len());
    }

    #[test]
    fn a_time_that_breaks_a_relation_is_found() {
        let table = [
            (Deadlines { permit_renewed_every: s(11), ..DEADLINES }, "two renewals of a node's own permit may be lost"),
            (
                Deadlines { silence_held_for: ms(1_999), ..DEADLINES },
                "a silent registry is reported before its budget lets pulls begin again",
            ),
            (Deadlines { served_lately: s(2), ..DEADLINES }, "a silent registry is asked again while it may still be one that serves"),
            (Deadlines { max_wait: ms(700), ..DEADLINES }, "the tracker has asked the bus before a caller gives up"),
            (Deadlines { campaign: s(7), ..DEADLINES }, "a dead leader is replaced before nodes go alone"),
            (Deadlines { alive_for: s(29), ..DEADLINES }, "two reports that a node is alive may be lost"),
            (Deadlines { budget_asked_again: ms(5_001), ..DEADLINES }, "a waiting node keeps its place in the queue"),
        ];
        for (deadlines, because) in table {
            assert!(!deadlines.holds() && broken(&deadlines) == [because], "{because}: {:?}", broken(&deadlines));
        }
    }

    proptest! {
        #[test]
        fn all_relations_hold_whatever_wait_a_user_sets(milliseconds in prop_oneof![0..2_000_u64, 0..=3_600_000_u64]) {
            prop_assert_eq!(broken(&DEADLINES.with_max_wait(ms(milliseconds))), [""; 0]);
        }
    }
}
