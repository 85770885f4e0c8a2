//! Leases of budgets that this node or another one leads.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{DEADLINES, NodeName};
use lease::{Answer, Lease};

use super::stated_caps::StatedCaps;
use super::{Budgets, Lead, TERMS};
use crate::core::budget::client::BudgetClient;
use crate::core::budget::leader::{Leader, Term};
use crate::core::budget::planted_bug::PlantedBug;
use crate::core::budget::rate::ReportedRate;
use crate::core::budget::step::Effect;

impl Budgets {
    pub(super) fn led_by(&mut self, now: Duration, owner: &str, leader: Option<(NodeName, u64)>, work: &mut VecDeque<Effect>) {
        if let Some(epoch) = self.leads.get(owner).map(|lead| lead.core.term.epoch) {
            // A later epoch ends this term. Anything else is this term or older: the client learns that this node leads.
            if leader.as_ref().is_some_and(|(_, theirs)| *theirs > epoch) {
                return self.lease_lost_to(now, owner, leader, work);
            }
            let me = Some((self.node.clone(), epoch));
            return self.client(now, owner, |client| client.led_by(now, me), work);
        }
        // The request for the lease is answered.
        self.leases.remove(owner);
        self.client(now, owner, |client| client.led_by(now, leader), work);
    }

    pub(super) fn elected(&mut self, now: Duration, owner: String, term: Term, work: &mut VecDeque<Effect>, effects: &mut Vec<Effect>) {
        let answer = Answer::Held { epoch: term.epoch };
        let asked = term.until.saturating_sub(DEADLINES.leader_lease);
        let is_held = self.leases.get(&owner).is_some_and(|lease| lease.until().is_some());
        if self.clients.contains_key(&owner) && !is_held {
            // A node that is a client of the budget leads, even if it has learned of another leader meanwhile. Its request counts from when
            // it was sent.
            drop(self.lease(asked.min(now), &owner, lease::Input::Acquire, &mut Vec::new()));
        }
        let is_new =
            self.lease(now, &owner, lease::Input::Answered { asked, answer }, effects).contains(&lease::Effect::Won { epoch: term.epoch });
        let holds = self.leases.get(&owner).is_some_and(|lease| lease.epoch(now) == Some(term.epoch));
        let Some((_, client)) = self.clients.get(&owner).filter(|_| is_new && holds) else {
            // A repeated message must not make the leader forget what nodes report only once, and a lease that came too late is over.
            return;
        };
        // If the record of an earlier leader was lost, the nodes that leader has answered remember it.
        let term = Term { first: term.first && !client.was_led(now), ..term };
        let mut core = Leader::new(now, self.node.clone(), &owner, self.policy_of_leader(&owner), term, self.planted_bug);
        let (reported, cause) = (ReportedRate::of(core.rate()), (core.cause(), now));
        let (silent, known) = self.silent();
        core.reserve(silent, known);
        let mut stated_caps = StatedCaps::default();
        stated_caps.state(&self.node, self.policies.settings.caps());
        self.leads.insert(owner.clone(), Lead { core, used: now, reported, cause, stated_caps });
        self.client(now, &owner, |client| client.elected(now, term.epoch), work);
    }

    /// Steps the lease of a budget and returns the effects of the lease for the caller.
    pub(super) fn lease(&mut self, now: Duration, owner: &str, input: lease::Input, effects: &mut Vec<Effect>) -> Vec<lease::Effect> {
        let mut lease = self.leases.remove(owner).unwrap_or_else(|| Lease::new(TERMS));
        let stepped = lease.step(now, input);
        let is_wanted = lease.until().is_some() || lease.answer_due().is_some();
        if is_wanted && self.clients.contains_key(owner) {
            self.leases.insert(owner.to_owned(), lease);
        }
        let owner = || owner.to_owned();
        effects.extend(stepped.iter().filter_map(|effect| match *effect {
            lease::Effect::Take => Some(Effect::Campaign { owner: owner() }),
            lease::Effect::Renew { epoch } => Some(Effect::KeepLease { owner: owner(), epoch }),
            lease::Effect::Release { epoch } => Some(Effect::DropLease { owner: owner(), epoch, in_good_order: false }),
            lease::Effect::Won { .. } | lease::Effect::Lost { .. } => None,
        }));
        stepped
    }

    pub(super) fn lease_kept(&mut self, now: Duration, owner: String, epoch: u64, until: Duration, effects: &mut Vec<Effect>) {
        let (asked, answer) = (until.saturating_sub(DEADLINES.leader_lease), Answer::Held { epoch });
        self.lease(now, &owner, lease::Input::Answered { asked, answer }, effects);
        let kept = self.leases.get(&owner).filter(|lease| lease.epoch(now) == Some(epoch)).and_then(Lease::until);
        let lead = self.leads.get_mut(&owner).filter(|lead| lead.core.term.epoch == epoch);
        if let Some((lead, until)) = lead.zip(kept) {
            lead.core.term.until = until;
        }
    }

    pub(super) fn lease_unknown(&mut self, now: Duration, owner: &str, asked: Duration) {
        if let Some(lease) = self.leases.get_mut(owner) {
            lease.step(now, lease::Input::Answered { asked, answer: Answer::Unknown });
        }
    }

    pub(super) fn lease_lost(&mut self, now: Duration, owner: &str, epoch: u64, work: &mut VecDeque<Effect>) {
        if self.leads.get(owner).is_some_and(|lead| lead.core.term.epoch == epoch) && self.planted_bug != Some(PlantedBug::NoFence) {
            self.lease_lost_to(now, owner, None, work);
        }
    }

    pub(super) fn lease_lost_to(&mut self, now: Duration, owner: &str, leader: Option<(NodeName, u64)>, work: &mut VecDeque<Effect>) {
        self.leases.remove(owner);
        let known = self.leads.remove(owner).map(|lead| lead.core.known(now)).unwrap_or_default();
        let ended = |client: &mut BudgetClient| {
            client.remembered.learn(now, now, &known);
            client.led_by(now, leader)
        };
        self.client(now, owner, ended, work);
    }

    /// Ends the terms whose leases are over, before anything else is done in their name.
    pub(super) fn step_down(&mut self, now: Duration, work: &mut VecDeque<Effect>) {
        let over: Vec<String> = self.leads.iter().filter(|(_, lead)| !lead.core.leads(now)).map(|(owner, _)| owner.clone()).collect();
        for owner in over {
            self.lease_lost_to(now, &owner, None, work);
        }
    }
}
