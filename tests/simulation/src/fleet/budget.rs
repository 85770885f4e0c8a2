//! The fleet's budget: nodes ask its leader, which is one of them, for every permit.

use std::time::Duration;

use clock::Now;
use contract::messages::throttler::RegistryLimit;
use contract::{DEADLINES, NodeName, PermitId};
use throttler::core::budget::{Effect, Input, Term};

use super::{Event, Simulation};
use crate::bus::{Broadcast, CampaignResult, PeerMessage, ToServer};

/// The only budget: there is one registry and no login.
const OWNER: &str = "registry.example/anonymous";

/// What a pull has shown of the registry: its limits, and whether it could serve the request.
pub(super) type PullFeedback = (Vec<RegistryLimit>, Option<bool>);

/// The resolution of a timer: a due event is handled at most once in this time.
const TIMER: Duration = Duration::from_millis(1);

impl Simulation {
    /// Requests a permit from the fleet, or renews one that the node waits for or uses.
    pub(super) fn want(&mut self, node: usize, permit: PermitId) {
        self.budget(node, Input::Want { owner: OWNER.to_owned(), permit });
        // The leader was known before the node wanted a permit.
        if let Some(leader) = self.nodes[node].early_leader.take() {
            self.budget(node, Input::Lead { owner: OWNER.to_owned(), leader: Some(leader) });
        }
    }

    /// Handles the message that a node has taken the lease of the budget.
    pub(super) fn on_leader_changed(&mut self, node: usize, owner: &str, leader: (NodeName, u64)) {
        if self.nodes[node].budgets.list(Now::default()).budgets.is_empty() {
            self.nodes[node].early_leader = Some(leader);
        } else {
            self.budget(node, Input::Lead { owner: owner.to_owned(), leader: Some(leader) });
        }
    }

    /// Passes the limits in an answer of the registry to the budget.
    pub(super) fn report_limits(&mut self, node: usize, permit: PermitId, limits: Vec<RegistryLimit>) {
        if self.options.policy.shares {
            self.budget(node, Input::Report { permit, limits });
        }
    }

    /// Gives a permit back, with the limits in the registry's answer and whether it could serve the request.
    pub(super) fn give_back(&mut self, node: usize, permit: PermitId, (limits, served): PullFeedback) {
        if self.options.policy.shares {
            self.budget(node, Input::Release { permit, limits, served });
        }
    }

    pub(super) fn budget(&mut self, node: usize, input: Input) {
        let now = Now { monotonic: self.now, wall: self.now };
        for effect in self.nodes[node].budgets.step(now, input) {
            self.carry_out_budget(node, effect);
        }
        let at = &mut self.nodes[node];
        if let Some(wake) = at.budgets.wake_in(now).map(|wait| self.now + wait.max(TIMER))
            && at.budget_tick.is_none_or(|tick| wake < tick)
        {
            at.budget_tick = Some(wake);
            self.queue.plan(wake, Event::Budget(node));
        }
    }

    fn carry_out_budget(&mut self, node: usize, effect: Effect) {
        let asked = self.now;
        match effect {
            Effect::Call { to, asked, call } => self.post(node, &to, PeerMessage::Call { from: node, asked, call }),
            // `on_peer_message` handles these effects itself.
            Effect::Reply(_) | Effect::Lapsed { .. } | Effect::RanOut { .. } | Effect::RateChanged { .. } => {}
            Effect::Turn { to, turn } => self.post(node, &to, PeerMessage::Input(Input::Turn(turn))),
            Effect::Campaign { owner } => self.send(node, ToServer::Campaign(owner, asked)),
            Effect::KeepLease { owner, epoch } => self.send(node, ToServer::Keep(owner, epoch, asked)),
            Effect::DropLease { owner, epoch, .. } => self.send(node, ToServer::Drop(owner, epoch)),
            Effect::Granted { permit, .. } => self.attempt(node, permit, None),
            Effect::Refused { permit, text } => self.attempt(node, permit, Some(text)),
        }
    }

    fn post(&mut self, node: usize, to: &NodeName, message: PeerMessage) {
        if let Some(to) = self.by_name.get(to).copied() {
            self.send(node, ToServer::Forward(to, Box::new(message)));
        }
    }

    /// Handles a message from another node.
    pub(super) fn on_peer_message(&mut self, node: usize, message: PeerMessage) {
        match message {
            PeerMessage::Input(input) => self.budget(node, input),
            PeerMessage::Call { from, asked, call } => {
                let now = Now { monotonic: self.now, wall: self.now };
                let input = Input::Called(call.clone());
                for effect in self.nodes[node].budgets.step(now, input) {
                    if let Effect::Reply(reply) = effect {
                        let answer = PeerMessage::Input(Input::Replied { asked, call: call.clone(), reply });
                        self.send(node, ToServer::Forward(from, Box::new(answer)));
                    } else {
                        self.carry_out_budget(node, effect);
                    }
                }
                // The request may have made something due sooner than the planned timer.
                self.budget(node, Input::Tick);
            }
        }
    }

    /// Handles the server's part of budget leases.
    pub(super) fn at_server_budget(&mut self, node: usize, message: ToServer) {
        match message {
            ToServer::Forward(to, message) => self.deliver(to, *message),
            ToServer::Campaign(owner, asked) => match self.bus.campaign(self.now, node, &owner) {
                CampaignResult::OtherLeads(led) => {
                    let leader = Some((self.nodes[led.by].name.clone(), led.epoch));
                    self.deliver(node, PeerMessage::Input(Input::Lead { owner, leader }));
                }
                CampaignResult::Won { epoch, first } => {
                    let term = Term { epoch, first, until: asked + DEADLINES.leader_lease };
                    self.deliver(node, PeerMessage::Input(Input::Elected { owner: owner.clone(), term }));
                    self.broadcast(Broadcast::Leads { owner, leader: node, epoch });
                }
            },
            ToServer::Keep(owner, epoch, asked) => {
                let kept = self.bus.keep(self.now, &owner, epoch);
                let until = asked + DEADLINES.leader_lease;
                let answer = if kept { Input::LeaseKept { owner, epoch, until } } else { Input::LeaseLost { owner, epoch } };
                self.deliver(node, PeerMessage::Input(answer));
            }
            ToServer::Drop(owner, epoch) => self.bus.drop_lead(&owner, epoch),
            ToServer::Publish(..) | ToServer::Acquire(..) | ToServer::Release(_) => {}
        }
    }

    fn deliver(&mut self, node: usize, message: PeerMessage) {
        if !self.bus_is_down() {
            let at = self.bus.arrives_down(self.now, node, &mut self.random);
            self.queue.plan(at, Event::PeerMessage(node, Box::new(message)));
        }
    }

    /// The numbers of waiting nodes that know how long they will wait, and of those that do not.
    pub(super) fn known_and_unknown_waits(&self) -> (usize, usize) {
        let now = Now { monotonic: self.now, wall: self.now };
        let waiting = self.nodes.iter().filter_map(|node| Some((node, node.cleared.as_ref().filter(|cleared| cleared.attempt.is_none())?)));
        let waits: Vec<Option<Duration>> =
            waiting.map(|(node, cleared)| node.budgets.wait_of(now, cleared.permit).and_then(|wait| wait.wait)).collect();
        let known = waits.iter().flatten().count();
        (known, waits.len() - known)
    }
}
