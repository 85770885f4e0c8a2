//! The throttler's part in the fleet's budgets: carries the core's effects to the bus, and the results back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::{ActorFutureExt as _, wrap_future};
use actix::{AsyncContext as _, Context};
use actors::{Delivery, PolicyFollower, Sender, Wiring};
use bus::{BusHealth, BusRef};
use clock::{Clock, Random};
use contract::messages::throttler::BudgetTurn;
use contract::subject::Fleet;
use contract::{CallError, Command, DEADLINES, Envelope, Meta, NodeName};
use futures::future::{LocalBoxFuture, TryFutureExt as _};

use crate::actor::Throttler;
use crate::core::budget::{BudgetPolicy, BudgetReply, BudgetRequest, Budgets, Effect, Input, PlantedBug};
use crate::lease::Leases;

/// How long a node that does not know the fleet policy yet leads no budget. Leading needs the bucket of leases, and if that answers, the
/// bucket of policies mostly answers as well.
const POLICY_AWAITED: Duration = Duration::from_secs(5);

/// The parts of a throttler in a fleet, in addition to the node's own.
pub struct FleetParts {
    /// The bus.
    pub bus: BusRef,
    /// The fleet.
    pub fleet: Fleet,
    /// The node's name.
    pub node: NodeName,
    /// Different for each start of the node; the leases that it takes contain it.
    pub instance: String,
    /// The budget of each owner.
    pub budget: BudgetPolicy,
    /// The registry of an owner's budget, as the fleet policy names it.
    pub registry_of: fn(&str) -> String,
    /// Random numbers, for ids and for spreading requests over time.
    pub random: Random,
    /// A bug that is planted to test the checkers.
    pub planted_bug: Option<PlantedBug>,
}

pub(crate) struct Sharing {
    pub(crate) core: Budgets,
    bus: BusRef,
    fleet: Fleet,
    random: Random,
    pub(crate) leases: Arc<Leases>,
    /// The owners whose lease is being looked at. A second look at the same time would take a lease that the first one is taking.
    campaigns: BTreeSet<String>,
    /// Whether the bus was connected and fit for budgets at any time since the start.
    was_connected: bool,
    /// Whether the bus has answered what the fleet policy is, or that there is none.
    pub(crate) knows_policy: bool,
    /// From this time on, the node may lead even if it does not know the fleet policy.
    leads_from: Duration,
}

impl Sharing {
    pub(crate) fn new(parts: FleetParts, slots: usize, clock: Clock) -> Self {
        let FleetParts { bus, fleet, node, instance, budget, registry_of, mut random, planted_bug } = parts;
        let leads_from = clock.now().monotonic + POLICY_AWAITED;
        let leases = Arc::new(Leases::new(Arc::clone(&bus), &fleet, node.clone(), instance, clock));
        let core = Budgets::new(node, budget, Random::seeded(random.word()))
            .with_slots(slots)
            .with_registries(registry_of)
            .with_planted_bug(planted_bug);
        Self { core, bus, fleet, random, leases, campaigns: BTreeSet::new(), was_connected: false, knows_policy: false, leads_from }
    }

    pub(crate) fn health(&self) -> bus::HealthChanges {
        self.bus.health_changes()
    }

    pub(crate) fn follower(&mut self) -> PolicyFollower {
        PolicyFollower::new(Arc::clone(&self.bus), self.fleet.clone(), Random::seeded(self.random.word()))
    }

    fn sender<C: Command>(&self, to: NodeName) -> Sender<C> {
        Sender::remote(Wiring { bus: self.bus.clone(), fleet: self.fleet.clone(), node: to, delivery: Delivery::Bus })
    }

    fn envelope<C>(&mut self, body: C) -> Envelope<C> {
        Envelope { meta: Meta::root(&mut self.random), body }
    }

    fn ask_leader<C: Command>(
        &mut self,
        to: NodeName,
        body: C,
        reply: fn(C::Reply) -> BudgetReply,
    ) -> LocalBoxFuture<'static, Result<BudgetReply, CallError>> {
        Box::pin(self.sender::<C>(to).call(self.envelope(body), DEADLINES.leader_answer_accepted).map_ok(reply))
    }
}

impl Throttler {
    /// Gives an input to the core and carries out its effects. Returns the reply if the input was a call to this node as a leader.
    pub(crate) fn share(&mut self, input: Input, context: &mut Context<Self>) -> Option<BudgetReply> {
        let now = self.clock.now();
        let effects = self.sharing.as_mut()?.core.step(now, input);
        let mut answer = None;
        for effect in effects {
            if let Some(watch) = &self.watch {
                watch(now.monotonic, &effect);
            }
            match effect {
                Effect::Reply(reply) => answer = Some(reply),
                Effect::Granted { permit, .. } => self.fleet_granted(permit),
                Effect::Refused { permit, text } => self.fleet_refused(permit, text),
                Effect::Lapsed { permit } => self.fleet_forgot(permit),
                Effect::RateChanged { owner, rate, before } => self.record_rate(&owner, rate, before, context),
                effect => self.carry_to_the_bus(effect, context),
            }
        }
        for permit in std::mem::take(&mut self.refused) {
            self.share(Input::Release { permit, limits: Vec::new(), served: None }, context);
        }
        self.answer_long_waits();
        self.set_alarm(context);
        answer
    }

    pub(crate) fn bus_changed(&mut self, health: &BusHealth, context: &mut Context<Self>) {
        let was_there = self.sharing.as_ref().is_some_and(|sharing| sharing.was_connected);
        let input = match health {
            BusHealth::Connected => Input::BusBack,
            // A bus that was there is mostly lost for the seconds in which a server restarts or its cluster elects a leader.
            BusHealth::Disconnected { .. } | BusHealth::Degraded { transient: true, .. } if was_there => Input::BusLost,
            BusHealth::Disconnected { .. } | BusHealth::Degraded { .. } => Input::BusUnusable,
        };
        if let (BusHealth::Connected, Some(sharing)) = (health, &mut self.sharing) {
            sharing.was_connected = true;
            let leases = Arc::clone(&sharing.leases);
            let found = async move { leases.found().await.is_some() };
            context.spawn(wrap_future(found).map(|_, _: &mut Self, _| ()));
        }
        self.share(input, context);
    }

    fn carry_to_the_bus(&mut self, effect: Effect, context: &mut Context<Self>) {
        let Some(sharing) = self.sharing.as_mut() else { return };
        match effect {
            Effect::Call { to, asked, call } => {
                let answer = match call.clone() {
                    BudgetRequest::Grant(body) => sharing.ask_leader(to, body, BudgetReply::Granted),
                    BudgetRequest::Renew(body) => sharing.ask_leader(to, body, BudgetReply::Renewed),
                    BudgetRequest::Return(body) => sharing.ask_leader(to, body, BudgetReply::Returned),
                };
                // A missing answer is not passed on, because the core measures the time itself.
                context.spawn(wrap_future(answer).map(move |answer, throttler: &mut Self, context| {
                    if let Ok(reply) = answer {
                        throttler.share(Input::Replied { asked, call, reply }, context);
                    }
                }));
            }
            Effect::Turn { to, turn } => {
                let sent = sharing.sender::<BudgetTurn>(to).call(sharing.envelope(turn), DEADLINES.leader_answer.least);
                context.spawn(wrap_future(sent).map(|_, _: &mut Self, _| ()));
            }
            Effect::Campaign { owner } => {
                // The core repeats this each second, and a slow bus takes longer.
                if !sharing.campaigns.insert(owner.clone()) {
                    return;
                }
                let leads = sharing.core.epoch_led(&owner).is_some();
                let may_take = sharing.knows_policy || self.clock.monotonic() >= sharing.leads_from;
                let leases = Arc::clone(&sharing.leases);
                let asking = async move { (leases.campaign(owner.clone(), leads, may_take).await, owner) };
                context.spawn(wrap_future(asking).map(|(answer, owner), throttler: &mut Self, context| {
                    if let Some(sharing) = throttler.sharing.as_mut() {
                        sharing.campaigns.remove(&owner);
                    }
                    throttler.lease_answered(answer, context);
                }));
            }
            Effect::KeepLease { owner, epoch } => {
                let leases = Arc::clone(&sharing.leases);
                let asking = async move { leases.keep(owner, epoch).await };
                context.spawn(wrap_future(asking).map(|answer, throttler: &mut Self, context| throttler.lease_answered(answer, context)));
            }
            Effect::DropLease { owner, epoch, in_good_order } => {
                let leases = Arc::clone(&sharing.leases);
                context.spawn(wrap_future(async move { leases.release(&owner, epoch, in_good_order).await }));
            }
            Effect::Reply(_)
            | Effect::Granted { .. }
            | Effect::Lapsed { .. }
            | Effect::RanOut { .. }
            | Effect::Refused { .. }
            | Effect::RateChanged { .. } => {}
        }
    }

    fn lease_answered(&mut self, answer: Input, context: &mut Context<Self>) {
        let epoch_led = |owner: &str| self.sharing.as_ref()?.core.epoch_led(owner);
        match &answer {
            Input::Elected { .. } => self.counting.lease_taken(),
            Input::LeaseLost { owner, epoch } if epoch_led(owner) == Some(*epoch) => self.counting.lease_lost(),
            Input::LeaseKept { owner, epoch, .. } => {
                if let Some(sharing) = &self.sharing {
                    let (leases, owner, epoch) = (Arc::clone(&sharing.leases), owner.clone(), *epoch);
                    context.spawn(wrap_future(async move { leases.remember(&owner, epoch).await }));
                }
            }
            _ => {}
        }
        self.share(answer, context);
    }
}
