//! Takes commands from the bus to an actor.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use bus::services::{Endpoint, EndpointCounters};
use bus::{BusError, Message, MessagingRef, Subscription};
use clock::{Clock, Random};
use contract::{CallError, Command, Service};
use futures::StreamExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::abandoned::abandoned;
use crate::ask::Ask;
use crate::sender::Wiring;
use crate::wire;

/// The most waiting requests of one kind on a node; a further one is refused at once. A request with a standing pull may wait for hours,
/// and each costs a few KiB.
pub const MAX_STANDING_REQUESTS: usize = 4096;

/// How long [`Served::end`] waits until the waiting callers are answered, which takes one turn of the actors.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A served command. Dropping it ends serving, and waiting callers get an error that the service has ended.
#[derive(Debug)]
pub struct Served {
    task: JoinHandle<()>,
    /// Open while the command is served.
    ended: watch::Sender<()>,
    standing: Arc<Semaphore>,
    service: Service,
    endpoint: Endpoint,
}

impl Served {
    /// The service.
    #[must_use]
    pub fn service(&self) -> Service {
        self.service
    }

    /// Ends serving, and waits until waiting callers have their error, so that they need not wait for their time-out.
    pub async fn end(self) {
        self.task.abort();
        // Waiting callers are answered now.
        let _ = self.ended.send(());
        let all = u32::try_from(MAX_STANDING_REQUESTS).unwrap_or(u32::MAX);
        if tokio::time::timeout(END_WITHIN, self.standing.acquire_many(all)).await.is_err() {
            tracing::debug!(subject = self.endpoint.subject, "not every waiting caller got its error in time");
        }
    }

    /// The endpoint and its counters, for the NATS services API.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the commands `C` to one node with an actor. If the bus is connected, the subscription is confirmed when this returns.
///
/// # Errors
/// The bus is closed.
pub async fn serve<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    let subject = match C::SENDER {
        Some(_) => wiring.fleet.command_from_any(&wiring.node, C::SERVICE, C::VERB),
        None => wiring.fleet.command(&wiring.node, C::SERVICE, C::VERB),
    };
    serve_on(wiring, subject, recipient).await
}

/// Serves the commands `C` that are sent to every node.
///
/// # Errors
/// The bus is closed.
pub async fn serve_everywhere<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    serve_on(wiring, wiring.fleet.command_to_all(C::SERVICE, C::VERB), recipient).await
}

/// Serves the commands `C` that are sent to the service's leader, while this agent is that.
///
/// # Errors
/// The bus is closed.
pub async fn serve_as_leader<C: Command>(wiring: &Wiring, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    serve_on(wiring, wiring.fleet.command_to_leader(C::SERVICE, C::VERB), recipient).await
}

async fn serve_on<C: Command>(wiring: &Wiring, subject: String, recipient: Recipient<Ask<C>>) -> Result<Served, BusError> {
    let commands = wiring.bus.subscribe(&subject, None).await?;
    let counters = Arc::new(EndpointCounters::default());
    let standing = Arc::new(Semaphore::new(MAX_STANDING_REQUESTS));
    let (ended, end) = watch::channel(());
    let (bus, refused) = (Arc::clone(&wiring.bus), Cell::new(0));
    let desk = Desk { bus, recipient, counters: Arc::clone(&counters), standing: Arc::clone(&standing), refused, end };
    let task = tasks::spawn_local("command-receiver", take(commands, desk));
    let endpoint = Endpoint { name: C::VERB.to_owned(), subject, queue_group: None, counters };
    Ok(Served { task, ended, standing, service: C::SERVICE, endpoint })
}

/// What is needed to carry out and answer a command.
struct Desk<C: Command> {
    bus: MessagingRef,
    recipient: Recipient<Ask<C>>,
    counters: Arc<EndpointCounters>,
    standing: Arc<Semaphore>,
    /// The commands that could not be read.
    refused: Cell<u64>,
    /// Changes or closes when serving ends.
    end: watch::Receiver<()>,
}

impl<C: Command> Desk<C> {
    /// Counts a command that cannot be read, and logs it. Repeats are logged ever more rarely, because a client may send any number.
    fn refuse(&self, message: &Message, error: &CallError) {
        let refused = self.refused.get() + 1;
        self.refused.set(refused);
        if refused.is_power_of_two() {
            tracing::warn!(subject = message.subject, %error, bytes = message.payload.len(), refused, "a command was refused");
        }
        self.counters.record(Duration::ZERO, Some(&error.to_string()));
    }
}

async fn take<C: Command>(mut commands: Subscription, desk: Desk<C>) {
    let clock = Clock::host();
    let mut random = Random::from_system();
    while let Some(message) = commands.next().await {
        let Some(reply_to) = message.reply_to.clone() else {
            take_one_way(&message, &desk, &mut random);
            continue;
        };
        let command = match wire::decode_command::<C>(&message, &mut random) {
            Ok(command) => command,
            Err(error) => {
                desk.refuse(&message, &error);
                answer(&desk.bus, wire::encode_reply::<C::Reply>(reply_to, None, Err(error))).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&desk.standing).try_acquire_owned() else {
            let busy =
                CallError::Refused { reason: format!("{MAX_STANDING_REQUESTS} requests already wait on this node: try again later") };
            answer(&desk.bus, wire::encode_reply::<C::Reply>(reply_to, Some(&command.meta), Err(busy))).await;
            continue;
        };
        let (bus, recipient, clock, counters) = (Arc::clone(&desk.bus), desk.recipient.clone(), clock.clone(), Arc::clone(&desk.counters));
        let mut end = desk.end.clone();
        let request = Message { payload: Vec::new().into(), ..message };
        let carrying_out = async move {
            let _place = place;
            let meta = command.meta.clone();
            let began = clock.now().monotonic;
            let ended = || Err(CallError::Ended { service: C::SERVICE.name() });
            let reply = tokio::select! {
                biased;
                reply = recipient.send(Ask(command)) => reply.unwrap_or_else(|_| ended()),
                _ = end.changed() => ended(),
                () = abandoned(&bus, &request, &clock) => {
                    tracing::debug!(subject = request.subject, "a request was abandoned by its caller");
                    return counters.record(clock.now().monotonic.saturating_sub(began), Some("abandoned by its caller"));
                }
            };
            let error = reply.as_ref().err().map(ToString::to_string);
            counters.record(clock.now().monotonic.saturating_sub(began), error.as_deref());
            answer(&bus, wire::encode_reply(reply_to, Some(&meta), reply)).await;
        };
        tasks::spawn_local("command", carrying_out);
    }
}

/// Handles a command whose sender wants no answer.
fn take_one_way<C: Command>(message: &Message, desk: &Desk<C>, random: &mut Random) {
    if !C::ALLOWS_ONE_WAY {
        tracing::debug!(subject = message.subject, "ignored a command without a reply subject");
        return;
    }
    match wire::decode_command::<C>(message, random) {
        Ok(command) => {
            let refused = desk.recipient.try_send(Ask(command)).err().map(|error| error.to_string());
            desk.counters.record(Duration::ZERO, refused.as_deref());
        }
        Err(error) => desk.refuse(message, &error),
    }
}

async fn answer(bus: &MessagingRef, mut message: Message) {
    let subject = message.subject.clone();
    if message.wire_bytes() > bus::MAX_PAYLOAD_BYTES {
        let error = CallError::Refused { reason: format!("the answer of {} bytes is over the bus's limit", message.wire_bytes()) };
        message = wire::encode_reply::<()>(subject.clone(), None, Err(error));
    }
    if let Err(error) = bus.publish(message).await {
        tracing::debug!(subject, %error, "an answer was not sent");
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use actix::{Actor, Context, Handler, MessageResult, ResponseFuture};
    use bus::memory::MemoryBus;
    use contract::messages::agent::{CountAll, NodeCounters};
    use contract::messages::registrar::{Place, ReportAlive};
    use contract::messages::throttler::{BudgetAnswer, GrantBudget, KnownLimits};
    use contract::subject::Fleet;
    use contract::{Envelope, Meta, PermitId};
    use support::counted_log::CountedLog;
    use tracing::Level;

    use super::*;
    use crate::sender::{Delivery, Sender};

    /// Never answers; reports each request.
    struct Silent(tokio::sync::mpsc::UnboundedSender<()>);

    impl Actor for Silent {
        type Context = Context<Self>;
    }

    impl Handler<Ask<CountAll>> for Silent {
        type Result = ResponseFuture<Result<NodeCounters, CallError>>;

        fn handle(&mut self, _: Ask<CountAll>, _: &mut Self::Context) -> Self::Result {
            self.0.send(()).unwrap();
            Box::pin(std::future::pending())
        }
    }

    /// Reports the commands that it gets.
    #[derive(Clone)]
    struct Listening(tokio::sync::mpsc::UnboundedSender<&'static str>);

    impl Actor for Listening {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ReportAlive>> for Listening {
        type Result = MessageResult<Ask<ReportAlive>>;

        fn handle(&mut self, _: Ask<ReportAlive>, _: &mut Self::Context) -> Self::Result {
            self.0.send("alive").unwrap();
            MessageResult(Ok(Place::default()))
        }
    }

    impl Handler<Ask<CountAll>> for Listening {
        type Result = MessageResult<Ask<CountAll>>;

        fn handle(&mut self, _: Ask<CountAll>, _: &mut Self::Context) -> Self::Result {
            self.0.send("count").unwrap();
            MessageResult(Ok(NodeCounters::default()))
        }
    }

    #[actix::test]
    async fn command_without_reply_subject_is_taken_only_if_its_kind_allows_it() {
        let bus: MessagingRef = Arc::new(MemoryBus::new(Clock::host()));
        let wiring = Wiring { bus, fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery: Delivery::Bus };
        let (handled, mut received) = tokio::sync::mpsc::unbounded_channel();
        let actor = Listening(handled).start();
        let _alive = serve_as_leader::<ReportAlive>(&wiring, actor.clone().recipient()).await.unwrap();
        let _count = serve::<CountAll>(&wiring, actor.recipient()).await.unwrap();
        let report = ReportAlive {
            node: "n2".parse().unwrap(),
            instance: "1".to_owned(),
            zone: String::new(),
            reads_versions: vec![1],
            leaves: false,
        };
        let report = Envelope { meta: Meta::root(&mut Random::seeded(1)), body: report };
        Sender::<CountAll>::remote(wiring.clone()).send_one_way(envelope()).await.unwrap();
        Sender::<ReportAlive>::to_leader(wiring.clone()).send_one_way(report).await.unwrap();
        assert_eq!(received.recv().await, Some("alive"));
        // The ignored command was sent earlier, so it would have arrived by now.
        Sender::<CountAll>::remote(wiring).call(envelope(), Duration::from_secs(10)).await.unwrap();
        assert_eq!((received.recv().await, received.try_recv().is_err()), (Some("count"), true));
    }

    /// Grants every request.
    struct Generous;

    impl Actor for Generous {
        type Context = Context<Self>;
    }

    impl Handler<Ask<GrantBudget>> for Generous {
        type Result = MessageResult<Ask<GrantBudget>>;

        fn handle(&mut self, _: Ask<GrantBudget>, _: &mut Self::Context) -> Self::Result {
            MessageResult(Ok(BudgetAnswer::Granted {
                epoch: 1,
                lease_ms: 1,
                known: KnownLimits::default(),
                caps: contract::policy::Caps::NONE,
            }))
        }
    }

    #[actix::test]
    async fn forged_sender_is_refused_and_counted() {
        let bus: MessagingRef = Arc::new(MemoryBus::new(Clock::host()));
        let wiring = Wiring { bus: Arc::clone(&bus), fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery: Delivery::Bus };
        let served = serve::<GrantBudget>(&wiring, Generous.start().recipient()).await.unwrap();
        let permit = PermitId::random(&mut Random::seeded(1));
        let body = GrantBudget {
            owner: "owner".to_owned(),
            node: "n2".parse().unwrap(),
            permit,
            known: KnownLimits::default(),
            caps: contract::policy::Caps::NONE,
        };
        let envelope = Envelope { meta: Meta::root(&mut Random::seeded(1)), body };
        let limit = Duration::from_secs(10);
        let granted = Sender::<GrantBudget>::remote(wiring.clone()).call(envelope.clone(), limit).await.unwrap();
        assert!(matches!(granted, BudgetAnswer::Granted { .. }), "{granted:?}");
        // A node with permission to send as n3 claims to be n2.
        let subject = wiring.fleet.command_from(&"n3".parse().unwrap(), &wiring.node, GrantBudget::SERVICE, GrantBudget::VERB);
        let reply = bus.request(wire::encode_command(subject, &envelope).unwrap(), limit).await.unwrap();
        let refused = wire::decode_reply::<BudgetAnswer>(&reply).unwrap_err();
        assert!(refused.to_string().contains("names node n2 as its sender"), "{refused}");
        let counted = format!("{:?}", served.endpoint().counters);
        assert!(counted.contains("requests: 2, errors: 1"), "{counted}");
    }

    #[actix::test]
    async fn refused_commands_are_counted_and_logged_ever_more_rarely() {
        let log = CountedLog::down_to(Level::WARN);
        let _logging = tracing::subscriber::set_default(log.clone());
        let bus: MessagingRef = Arc::new(MemoryBus::new(Clock::host()));
        let wiring = Wiring { bus: Arc::clone(&bus), fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery: Delivery::Bus };
        let served = serve::<GrantBudget>(&wiring, Generous.start().recipient()).await.unwrap();
        let subject = wiring.fleet.command_from(&"n3".parse().unwrap(), &wiring.node, GrantBudget::SERVICE, GrantBudget::VERB);
        for _ in 0..9 {
            let reply = bus.request(Message::new(subject.clone(), "nonsense"), Duration::from_secs(10)).await.unwrap();
            assert!(wire::decode_reply::<BudgetAnswer>(&reply).is_err());
        }
        let counted = format!("{:?}", served.endpoint().counters);
        assert!(counted.contains("requests: 9, errors: 9"), "{counted}");
        assert_eq!(log.lines(), 4, "the first, the second, the fourth and the eighth");
    }

    fn envelope() -> Envelope<CountAll> {
        Envelope { meta: Meta::root(&mut Random::seeded(1)), body: CountAll {} }
    }

    #[actix::test]
    async fn waiting_caller_gets_an_error_at_the_end_and_later_callers_find_no_service() {
        let bus: MessagingRef = Arc::new(MemoryBus::new(Clock::host()));
        let wiring = Wiring { bus, fleet: Fleet::default(), node: "n1".parse().unwrap(), delivery: Delivery::Bus };
        let (handled, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let actor = Silent(handled).start();
        let by_name = serve::<CountAll>(&wiring, actor.clone().recipient()).await.unwrap();
        let as_leader = serve_as_leader::<CountAll>(&wiring, actor.recipient()).await.unwrap();
        let hour = Duration::from_secs(3_600);
        let standing = [
            actix::spawn(Sender::<CountAll>::remote(wiring.clone()).call(envelope(), hour)),
            actix::spawn(Sender::<CountAll>::to_leader(wiring.clone()).call(envelope(), hour)),
        ];
        for _ in &standing {
            asked.recv().await.unwrap();
        }
        by_name.end().await;
        // The other one ends when it is dropped.
        drop(as_leader);
        for caller in standing {
            let error = caller.await.unwrap().unwrap_err();
            assert!(error.to_string().contains("the service agent has ended"), "{error}");
        }
        let deferred = Sender::<CountAll>::to_leader(wiring).call(envelope(), hour).await.unwrap_err();
        assert!(matches!(deferred, CallError::NoResponders { .. }), "{deferred}");
    }
}
