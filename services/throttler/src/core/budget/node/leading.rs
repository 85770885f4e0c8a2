//! Leases of budgets that this node or another one leads.

use std::collections::VecDeque;
use std::time::Duration;

use contract::{DEADLINES, NodeName};
use lease::{Answer, Lease};

use super::stated_caps::StatedCaps;
use super::{Budget, Budgets, Lead, TERMS};
use crate::core::budget::leader::{Leader, Term};
use crate::core::budget::planted_bug::PlantedBug;
use crate::core::budget::rate::ReportedRate;
use crate::core::budget::step::Effect;

impl Budgets {
    pub(super) fn led_by(&mut self, now: Duration, owner: &str, leader: Option<(NodeName, u64)>, work: &mut VecDeque<Effect>) {
        if let Some(epoch) = self.epoch_led(owner) {
            // A later epoch ends this term. Anything else is this term or older: the client learns that this node leads.
            if leader.as_ref().is_some_and(|(_, theirs)| *theirs > epoch) {
                return self.lease_lost_to(now, owner, leader, work);
            }
            let me = Some((self.node.clone(), epoch));
            return self.client(now, owner, |client| client.led_by(now, me), work);
        }
        // The request for the lease is answered.
        if let Some(budget) = self.budgets.get_mut(owner) {
            budget.lease = Lease::new(TERMS);
        }
        self.client(now, owner, |client| client.led_by(now, leader), work);
    }

    pub(super) fn elected(&mut self, now: Duration, owner: String, term: Term, work: &mut VecDeque<Effect>, effects: &mut Vec<Effect>) {
        let answer = Answer::Held { epoch: term.epoch };
        let asked = term.until.saturating_sub(DEADLINES.leader_lease);
        if self.budgets.get(&owner).is_some_and(|budget| budget.lease.until().is_none()) {
            // A node that is a client of the budget leads, even if it has learned of another leader meanwhile. Its request counts from when
            // it was sent.
            drop(self.lease(asked.min(now), &owner, lease::Input::Acquire, &mut Vec::new()));
        }
        let is_new =
            self.lease(now, &owner, lease::Input::Answered { asked, answer }, effects).contains(&lease::Effect::Won { epoch: term.epoch });
        let holds = |budget: &&Budget| budget.epoch_held(now) == Some(term.epoch);
        let Some(Budget { client, .. }) = self.budgets.get(&owner).filter(|budget| is_new && holds(budget)) else {
            // A repeated message must not make the leader forget what nodes report only once, and a lease that came too late is over.
            return;
        };
        // If the record of an earlier leader was lost, the nodes that leader has answered remember it.
        let term = Term { first: term.first && !client.was_led(now), ..term };
        let mut stated_caps = StatedCaps::default();
        stated_caps.state(&self.node, self.policies.settings.caps());
        let policy = self.policy_of_leader(&owner, &stated_caps);
        let mut core = Leader::new(now, self.node.clone(), &owner, policy, term, self.planted_bug);
        let (reported, cause) = (ReportedRate::of(core.rate()), (core.cause(), now));
        let (silent, known) = self.silent();
        core.reserve(silent, known);
        if let Some(budget) = self.budgets.get_mut(&owner) {
            budget.lead = Some(Lead { core, used: now, reported, cause, stated_caps });
        }
        self.client(now, &owner, |client| client.elected(now, term.epoch), work);
    }

    /// Steps the lease of a budget and returns the effects of the lease for the caller.
    pub(super) fn lease(&mut self, now: Duration, owner: &str, input: lease::Input, effects: &mut Vec<Effect>) -> Vec<lease::Effect> {
        // A lease of a budget that this node has forgotten is not wanted any more.
        let mut unwanted = Lease::new(TERMS);
        let stepped = self.budgets.get_mut(owner).map_or(&mut unwanted, |budget| &mut budget.lease).step(now, input);
        let owner = || owner.to_owned();
        effects.extend(stepped.iter().filter_map(|effect| match *effect {
            lease::Effect::Take => Some(Effect::Campaign { owner: owner() }),
            lease::Effect::Renew { epoch } => Some(Effect::KeepLease { owner: owner(), epoch }),
            lease::Effect::Release { epoch } => Some(Effect::DropLease { owner: owner(), epoch, in_good_order: false }),
            lease::Effect::Won { .. } | lease::Effect::Lost { .. } => None,
        }));
        stepped
    }

    pub(super) fn lease_kept(&mut self, now: Duration, owner: &str, epoch: u64, until: Duration, effects: &mut Vec<Effect>) {
        let (asked, answer) = (until.saturating_sub(DEADLINES.leader_lease), Answer::Held { epoch });
        self.lease(now, owner, lease::Input::Answered { asked, answer }, effects);
    }

    pub(super) fn lease_unknown(&mut self, now: Duration, owner: &str, asked: Duration, effects: &mut Vec<Effect>) {
        self.lease(now, owner, lease::Input::Answered { asked, answer: Answer::Unknown }, effects);
    }

    pub(super) fn lease_lost(&mut self, now: Duration, owner: &str, epoch: u64, work: &mut VecDeque<Effect>) {
        if self.epoch_led(owner) == Some(epoch) && self.planted_bug != Some(PlantedBug::NoFence) {
            self.lease_lost_to(now, owner, None, work);
        }
    }

    pub(super) fn lease_lost_to(&mut self, now: Duration, owner: &str, leader: Option<(NodeName, u64)>, work: &mut VecDeque<Effect>) {
        let Some(budget) = self.budgets.get_mut(owner) else { return };
        (budget.used, budget.lease) = (now, Lease::new(TERMS));
        if let Some(lead) = budget.lead.take() {
            budget.client.remembered.learn(now, true, &lead.core.known(now));
        }
        work.extend(budget.client.led_by(now, leader));
    }

    /// Ends the terms whose leases are over, before anything else is done in their name.
    pub(super) fn step_down(&mut self, now: Duration, work: &mut VecDeque<Effect>) {
        if self.planted_bug == Some(PlantedBug::NoFence) {
            return;
        }
        let is_over = |budget: &Budget| budget.lead.as_ref().is_some_and(|lead| budget.epoch_held(now) != Some(lead.core.term.epoch));
        let over: Vec<String> = self.budgets.iter().filter(|(_, budget)| is_over(budget)).map(|(owner, _)| owner.clone()).collect();
        for owner in over {
            self.lease_lost_to(now, &owner, None, work);
        }
    }
}
