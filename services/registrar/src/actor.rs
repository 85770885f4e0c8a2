//! The actix shell: feeds the core and carries out its effects.

use std::time::Duration;

use actix::{
    Actor, ActorFutureExt as _, AsyncContext as _, Context, Handler, Message, MessageResult, ResponseFuture, SpawnHandle, StreamHandler,
    WrapFuture as _,
};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard, Sender, Served, Wiring};
use bus::{BusError, SharedStateRef, Subscription};
use clock::{Clock, Random};
use contract::messages::registrar::{FleetDigest, FleetSeen, ListNodes, ReportAlive};
use contract::version::READS;
use contract::{CallError, Command, Envelope, Meta};
use futures::future::LocalBoxFuture;
use metrics::{Instruments, Lease};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::core::{Answer, Call, Counts, Effect, Input, Member, Membership, Reply};
use crate::inbound;
use crate::lease::LeaseKeeper;
use crate::outbound::{self, Neighbours};

/// How long the registrar may take to answer; a live one takes milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a stopping agent waits until its last messages are sent and its lease is given back.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// The actor that reports its node to the registrar, and that is the fleet's registrar while it holds the lease.
pub struct Registrar {
    core: Membership,
    clock: Clock,
    wiring: Wiring,
    lease: LeaseKeeper,
    /// Sends to the present registrar.
    leader: Sender<ReportAlive>,
    /// The node's services that receive the fleet's state; none: no service needs it.
    neighbours: Option<Neighbours>,
    seen: watch::Sender<FleetSeen>,
    /// The registrar's commands, served while this agent is the registrar.
    served: Vec<Served>,
    /// The timer for the core's next due time.
    wake: Option<(SpawnHandle, Duration)>,
    /// The digests from the bus, until the actor is started.
    digests: Option<Subscription>,
    unreadable: inbound::Unreadable,
    random: Random,
    instruments: Instruments,
    _panic_guard: PanicGuard,
}

/// The arguments of [`Registrar::new`].
pub struct RegistrarParts {
    /// The bus, the fleet and the node.
    pub wiring: Wiring,
    /// The fleet's shared state, which contains the lease.
    pub state: SharedStateRef,
    /// Different for each start of an agent.
    pub instance: String,
    /// `node.zone`.
    pub zone: String,
    /// The clock.
    pub clock: Clock,
    /// The source of jitter, which spreads the nodes' actions.
    pub random: Random,
    /// The node's services that receive the fleet's state.
    pub neighbours: Option<Neighbours>,
    /// Reports a panic of the actor.
    pub panic_guard: PanicGuard,
}

/// Asks for the registrar's counters.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "RegistrarCounts")]
pub struct CountRegistrar;

/// The answer to [`CountRegistrar`], by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrarCounts(pub Vec<(&'static str, u64)>);

impl RegistrarCounts {
    /// Whether the node shares.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.0.is_empty()
    }

    /// The counter of this name; 0 if there is none.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}

/// Tells the registrar that the node leaves, and gives the lease back. Answered when that is done.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Leave;

impl Registrar {
    /// A registrar to start. If the bus is connected, the subscription is confirmed when this returns.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn new(parts: RegistrarParts) -> Result<Self, BusError> {
        let RegistrarParts { wiring, state, instance, zone, clock, mut random, neighbours, panic_guard } = parts;
        let digests = wiring.bus.subscribe(&wiring.fleet.digests(), None).await?;
        let lease = LeaseKeeper::new(state, &wiring.fleet, wiring.node.clone(), instance.clone(), clock.clone());
        let member = Member { node: wiring.node.clone(), instance, zone, reads_versions: READS.to_vec() };
        Ok(Self {
            core: Membership::new(member, Random::seeded(random.word()), clock.now().monotonic),
            lease,
            clock,
            leader: Sender::to_leader(wiring.clone()),
            wiring,
            neighbours,
            seen: watch::Sender::new(FleetSeen::default()),
            served: Vec::new(),
            wake: None,
            digests: Some(digests),
            unreadable: inbound::Unreadable::default(),
            random,
            instruments: Instruments::default(),
            _panic_guard: panic_guard,
        })
    }

    /// Sets the metrics to count for. Call it before the actor is started.
    #[must_use]
    pub fn counting(self, instruments: Instruments) -> Self {
        Self { instruments, ..self }
    }

    /// A receiver of the fleet's state as this node learns it.
    #[must_use]
    pub fn fleet_seen(&self) -> watch::Receiver<FleetSeen> {
        self.seen.subscribe()
    }

    fn now(&self) -> Duration {
        self.clock.now().monotonic
    }

    /// Feeds an input and carries out its effects; returns the reply if the input was a call.
    fn feed(&mut self, input: Input, context: &mut Context<Self>) -> Option<Reply> {
        let mut reply = None;
        for effect in self.core.step(self.now(), input) {
            match effect {
                Effect::Reply(answer) => reply = Some(answer),
                effect => self.carry_out(effect, context),
            }
        }
        self.wake_when_due(context);
        reply
    }

    fn wake_when_due(&mut self, context: &mut Context<Self>) {
        let due = self.core.next_due();
        if self.wake.as_ref().map(|(_, at)| *at) == due {
            return;
        }
        if let Some((wake, _)) = self.wake.take() {
            context.cancel_future(wake);
        }
        self.wake = due.map(|due| {
            let wake = context.run_later(due.saturating_sub(self.now()), |registrar, context| {
                registrar.wake = None;
                registrar.feed(Input::Tick, context);
            });
            (wake, due)
        });
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::Report(report) => self.report(report, context),
            Effect::Notify(report) => {
                let sent = self.leader.clone().send_one_way(self.envelope(report));
                context.spawn(sent.into_actor(self).map(|sent, _, _| {
                    if let Err(error) = sent {
                        debug!(%error, "a report could not be sent to the registrar");
                    }
                }));
            }
            Effect::TryLease => {
                let lease = self.lease.clone();
                self.ask_for_the_lease(async move { lease.take().await }, context);
            }
            Effect::Renew(epoch) => {
                let lease = self.lease.clone();
                self.ask_for_the_lease(async move { lease.renew(epoch).await }, context);
            }
            Effect::Look => {
                let (lease, began) = (self.lease.clone(), self.now());
                let looking = async move { lease.holder().await };
                context.spawn(
                    looking
                        .into_actor(self)
                        .map(move |looked, registrar, context| drop(registrar.feed(Input::Looked(began, looked), context))),
                );
            }
            Effect::Lead => {
                self.instruments.lease_taken(Lease::Registrar);
                self.lead(context);
            }
            Effect::StepDown => {
                info!("this agent is not the fleet's registrar any more");
                self.instruments.lease_lost(Lease::Registrar);
                self.served.clear();
            }
            Effect::GiveBack(epoch) => {
                let lease = self.lease.clone();
                tasks::spawn("registrar-lease", async move { lease.give_back(epoch).await });
            }
            Effect::Publish(digest) => self.publish(digest, context),
            Effect::SendFleet(seen) => self.send_fleet(seen, context),
            // `feed` has returned it to the handler.
            Effect::Reply(_) => {}
            Effect::LogUnreadableVersion(version) => {
                warn!(version, reads = ?READS, "the fleet writes a version that this agent cannot read, so it ignores other nodes: update this agent");
            }
        }
    }

    fn report(&mut self, report: ReportAlive, context: &mut Context<Self>) {
        let envelope = self.envelope(report);
        let answer = self.leader.call(envelope, ANSWER_WITHIN);
        context.spawn(answer.into_actor(self).map(|answer, registrar, context| {
            if let Err(error) = &answer {
                debug!(%error, "the registrar did not answer");
            }
            registrar.feed(Input::Reported(answer.ok()), context);
        }));
    }

    /// Sends the fleet's state to the node's services.
    fn send_fleet(&mut self, seen: FleetSeen, context: &mut Context<Self>) {
        if let Some(neighbours) = &self.neighbours {
            let calls = neighbours.send_fleet(&Meta::root(&mut self.random), &seen, self.wiring.delivery);
            context.spawn(calls.into_actor(self));
        }
        self.seen.send_replace(seen);
    }

    fn envelope<C: Command>(&mut self, body: C) -> Envelope<C> {
        Envelope { meta: Meta::root(&mut self.random), body }
    }

    fn ask_for_the_lease(&self, asking: impl Future<Output = Answer> + 'static, context: &mut Context<Self>) {
        let began = self.now();
        context
            .spawn(asking.into_actor(self).map(move |asked, registrar, context| drop(registrar.feed(Input::Asked(began, asked), context))));
    }

    fn lead(&self, context: &mut Context<Self>) {
        info!("this agent is the fleet's registrar");
        let serving = inbound::serve_as_registrar(self.wiring.clone(), context.address());
        context.spawn(serving.into_actor(self).map(|served, registrar, context| match served {
            // The lease may have ended before the commands were served.
            Ok(served) if registrar.core.counts().is_registrar => registrar.served = served,
            Ok(_) => {}
            Err(error) => {
                warn!(%error, "the registrar's commands cannot be taken: the lease is left to others");
                let now = registrar.now();
                registrar.feed(Input::Asked(now, Answer::Taken), context);
            }
        }));
    }

    fn publish(&self, mut digest: FleetDigest, context: &mut Context<Self>) {
        let (bus, fleet, node) = (self.wiring.bus.clone(), self.wiring.fleet.clone(), self.wiring.node.clone());
        let lease = self.lease.clone();
        let publishing = async move {
            let (reports, members) = lease.buckets_status().await;
            (digest.reports_sequence, digest.reports_created) = (reports.sequence, reports.created);
            digest.members_created = members.created;
            if let Err(error) = bus.publish(outbound::digest_message(&fleet, &node, &digest)).await {
                debug!(%error, "the digest was not published");
            }
        };
        context.spawn(publishing.into_actor(self));
    }
}

impl Actor for Registrar {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        if let Some(digests) = self.digests.take() {
            context.add_stream(futures::StreamExt::map(digests, ReceivedDigest));
        }
        self.feed(Input::Tick, context);
    }
}

struct ReceivedDigest(bus::Message);

impl StreamHandler<ReceivedDigest> for Registrar {
    fn handle(&mut self, ReceivedDigest(message): ReceivedDigest, context: &mut Self::Context) {
        match inbound::read_digest(&message) {
            Some((from, digest)) => drop(self.feed(Input::DigestReceived(from, digest), context)),
            None => self.unreadable.note(&message),
        }
    }

    /// The bus is closed. The actor goes on until the agent ends.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Ask<ReportAlive>> for Registrar {
    type Result = MessageResult<Ask<ReportAlive>>;

    fn handle(&mut self, Ask(report): Ask<ReportAlive>, context: &mut Self::Context) -> Self::Result {
        MessageResult(match self.feed(Input::Called(Call::Alive(report.body)), context) {
            Some(Reply::Place(place)) => Ok(place),
            _ => Err(not_the_registrar()),
        })
    }
}

impl Handler<Ask<ListNodes>> for Registrar {
    type Result = MessageResult<Ask<ListNodes>>;

    fn handle(&mut self, _: Ask<ListNodes>, context: &mut Self::Context) -> Self::Result {
        MessageResult(match self.feed(Input::Called(Call::List), context) {
            Some(Reply::Nodes(nodes)) => Ok(nodes),
            _ => Err(not_the_registrar()),
        })
    }
}

impl Handler<CountRegistrar> for Registrar {
    type Result = MessageResult<CountRegistrar>;

    fn handle(&mut self, _: CountRegistrar, _: &mut Self::Context) -> Self::Result {
        MessageResult(RegistrarCounts(by_name(&self.core.counts())))
    }
}

impl Handler<Leave> for Registrar {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Leave, context: &mut Self::Context) -> Self::Result {
        let effects = self.core.step(self.now(), Input::Leave);
        self.wake_when_due(context);
        // The order matters: the registrar gives the lease back, and then tells the other agents to take it.
        let mut farewell = Vec::new();
        for effect in effects {
            match effect {
                Effect::Report(report) => {
                    let envelope = self.envelope(report);
                    let sent = self.leader.call(envelope, LEAVE_WITHIN);
                    farewell.push(Box::pin(async move { drop(sent.await) }) as LocalBoxFuture<'static, ()>);
                }
                Effect::GiveBack(epoch) => {
                    let lease = self.lease.clone();
                    farewell.push(Box::pin(async move { lease.give_back(epoch).await }));
                }
                Effect::Publish(digest) => {
                    let (bus, message) =
                        (self.wiring.bus.clone(), outbound::digest_message(&self.wiring.fleet, &self.wiring.node, &digest));
                    farewell.push(Box::pin(async move { drop(bus.publish(message).await) }));
                }
                other => self.carry_out(other, context),
            }
        }
        Box::pin(async move {
            let all = async {
                for step in farewell {
                    step.await;
                }
            };
            // An agent that does not get this message notices that digests are missing.
            let _ = tokio::time::timeout(LEAVE_WITHIN, all).await;
        })
    }
}

fn not_the_registrar() -> CallError {
    CallError::Refused { reason: "this agent is not the fleet's registrar".to_owned() }
}

fn by_name(counts: &Counts) -> Vec<(&'static str, u64)> {
    vec![
        ("presence_alive", counts.place.alive),
        ("presence_alive_in_zone", counts.place.alive_in_zone),
        ("presence_registrar", u64::from(counts.is_registrar)),
        ("presence_known", counts.known),
        ("presence_beyond_room_total", counts.beyond_room_total),
        ("presence_unanswered_total", counts.unanswered_total),
        ("presence_elected_total", counts.elected_total),
        ("presence_digests_refused_total", counts.digests_refused_total),
        ("presence_writes_version", u64::from(counts.writes_version)),
        ("presence_reads_nothing_in_common", u64::from(counts.reads_no_common_version)),
        ("presence_nodes_apart", counts.incompatible),
    ]
}
