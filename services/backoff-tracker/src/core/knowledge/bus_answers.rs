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

    /// The bus has answered a request for a lease; returns the requests that this touches.
    pub(super) fn lease(&mut self, now: Duration, name: LeaseName, answer: LeaseAnswer) -> Vec<RequestId> {
        // A late answer counts as missed, because its request went ahead without it.
        if self.leases.asker(name).is_some() {
            self.misses = 0;
        }
        match answer {
            LeaseAnswer::Won => match self.leases.won(now, name) {
                Some(request) if self.requests.contains(request) => vec![request],
                asked => {
                    self.effects.push(Effect::ReleaseLease(name));
                    if asked.is_none() {
                        return vec![];
                    }
                    // Other requests of this node may need it.
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

    /// A node holds a lease; returns the request that waits for it first.
    pub(super) fn lease_taken(&mut self, now: Duration, name: LeaseName, holder: &NodeName, left: Duration) -> Vec<RequestId> {
        if *holder != self.node {
            self.leases.taken(now, name, left);
        }
        self.requests_of_lease(name)
    }

    /// A lease was released or has expired; returns the request that waits for it first.
    pub(super) fn lease_freed(&mut self, now: Duration, name: LeaseName) -> Vec<RequestId> {
        self.leases.freed(now, name);
        self.requests_of_lease(name)
    }

    /// The request that waits for a lease first.
    fn requests_of_lease(&self, name: LeaseName) -> Vec<RequestId> {
        self.requests.first_in_queue(name.backoff_key()).into_iter().collect()
    }

    /// The bus has not answered these requests in time: each is decided as without a bus. After `MISSES_UNTIL_LOST` misses in a row the
    /// bus counts as lost. Returns the requests that this touches.
    pub(super) fn answers_missed(&mut self, now: Duration, mut missed: Vec<RequestId>) -> Vec<RequestId> {
        if missed.is_empty() {
            return missed;
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
            missed.extend(self.set_without_bus(Some(WithoutBus { since: now, lost: self.missed_since })));
        }
        missed
    }

    /// The bus cannot be reached; returns the requests that this touches.
    pub(super) fn bus_lost(&mut self, now: Duration) -> Vec<RequestId> {
        self.unpublished.bus_lost();
        self.no_leases(now)
    }

    /// The bus grants no leases; returns the requests that this touches.
    pub(super) fn no_leases(&mut self, now: Duration) -> Vec<RequestId> {
        self.set_without_bus(Some(WithoutBus { since: now, lost: now }))
    }

    /// The bus can be reached again; returns the requests that this touches.
    pub(super) fn bus_back(&mut self) -> Vec<RequestId> {
        self.unpublished.bus_back();
        self.set_without_bus(None)
    }

    fn set_without_bus(&mut self, without_bus: Option<WithoutBus>) -> Vec<RequestId> {
        self.without_bus = without_bus.map(|without_bus| self.without_bus.unwrap_or(without_bus));
        self.lease_waits.start_again();
        self.misses = 0;
        self.requests.ids()
    }
}
