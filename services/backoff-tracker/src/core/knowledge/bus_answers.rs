//! What the bus answers about leases, and what follows if it does not answer in time or is lost.

use std::time::Duration;

use contract::NodeName;

use super::input::{Effect, LeaseAnswer};
use super::lease::{LeaseName, MISSES_UNTIL_LOST, RequestId};
use super::node::Knowledge;
use super::without_bus::WithoutBus;

impl Knowledge {
    /// How long to wait for an answer of the bus; longer if the bus is slow.
    #[must_use]
    pub fn bus_answers_within(&self) -> Duration {
        self.leases.answer_within()
    }

    /// The bus has answered a request for a lease.
    pub(super) fn lease(&mut self, now: Duration, name: LeaseName, answer: LeaseAnswer) {
        // A late answer counts as missed, because its request went ahead without it.
        if self.leases.asker(name).is_some() {
            self.misses = 0;
        }
        match answer {
            LeaseAnswer::Won => match self.leases.won(now, name) {
                Some(request) if self.requests.contains(request) => self.touched.extend([request]),
                asked => {
                    self.effects.push(Effect::ReleaseLease(name));
                    if asked.is_some() {
                        // Other requests of this node may need it.
                        self.leases.give_up_mine(now, name);
                        self.touch_waiting_for(name);
                    }
                }
            },
            LeaseAnswer::Lost(left) => {
                self.touched.extend(self.leases.asker(name));
                self.leases.taken(now, name, left, None);
                self.touch_waiting_for(name);
            }
        }
    }

    /// A node holds a lease.
    pub(super) fn lease_taken(&mut self, now: Duration, name: LeaseName, holder: NodeName, left: Duration) {
        if holder != self.node {
            self.leases.taken(now, name, left, Some(holder));
        }
        self.touch_waiting_for(name);
    }

    /// A lease was released or has expired.
    pub(super) fn lease_freed(&mut self, now: Duration, name: LeaseName) {
        self.leases.freed(now, name);
        self.touch_waiting_for(name);
    }

    /// Touches the request that waits for a lease first.
    fn touch_waiting_for(&mut self, name: LeaseName) {
        self.touched.extend(self.requests.first_in_queue(name.backoff_key()));
    }

    /// The bus has not answered these requests in time: each is decided as without a bus. After `MISSES_UNTIL_LOST` misses in a row the
    /// bus counts as lost.
    pub(super) fn answers_missed(&mut self, now: Duration, missed: Vec<RequestId>) {
        if missed.is_empty() {
            return;
        }
        self.counts.bus_misses_total += missed.len() as u64;
        if self.misses == 0 {
            self.missed_since = now;
        }
        self.misses += 1;
        self.missed_last = now;
        for id in &missed {
            self.requests.change(*id, |request| request.unanswered = true);
        }
        if self.misses >= MISSES_UNTIL_LOST {
            self.set_without_bus(Some(WithoutBus { since: now, lost: self.missed_since }));
        }
        self.touched.extend(missed);
    }

    pub(super) fn bus_lost(&mut self, now: Duration) {
        self.unpublished.bus_lost();
        self.no_leases(now);
    }

    pub(super) fn no_leases(&mut self, now: Duration) {
        self.set_without_bus(Some(WithoutBus { since: now, lost: now }));
    }

    pub(super) fn bus_back(&mut self) {
        self.unpublished.bus_back();
        self.set_without_bus(None);
    }

    fn set_without_bus(&mut self, without_bus: Option<WithoutBus>) {
        self.without_bus = without_bus.map(|without_bus| self.without_bus.unwrap_or(without_bus));
        self.lease_waits.start_again();
        self.misses = 0;
        self.touched.extend(self.requests.ids());
    }
}
