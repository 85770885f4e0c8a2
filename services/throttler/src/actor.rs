//! The actix shell: a mailbox, a clock, the cores and the deferred replies.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Actor, AsyncContext as _, Context, Handler, MessageResult, ResponseFuture, SpawnHandle, StreamHandler};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard};
use bus::BusHealth;
use clock::Clock;
use contract::messages::registrar::{FleetSeen, Place};
use contract::messages::throttler::{
    AcquirePermit, BudgetAnswer, BudgetList, BudgetRenewed, BudgetReturned, BudgetTurn, BudgetTurnReceived, CountPermits, FleetNoted,
    GrantBudget, LimitsReported, ListBudgets, PermitAnswer, PermitReleased, ReleasePermit, RenewBudget, ReportLimits, ReturnBudget,
    SeeFleet,
};
use contract::{CallError, DEADLINES, PermitId, version};
use metrics::Instruments;
use tokio::sync::oneshot;

use crate::core::budget::{self, BudgetReply, BudgetRequest};
use crate::core::{Effect, Input, Queue, ThrottlePolicy};
use crate::counting::Counting;
use crate::recording::Recording;
use crate::sharing::{FleetParts, Sharing};

/// Is called with the monotonic time and each effect of the budgets.
pub type Watch = Box<dyn Fn(Duration, &budget::Effect)>;

/// The actor that gives permits.
pub struct Throttler {
    core: Queue,
    pub(crate) clock: Clock,
    pub(crate) sharing: Option<Sharing>,
    pub(crate) watch: Option<Watch>,
    answers: BTreeMap<PermitId, Waiting>,
    /// Pulls that are counted on a budget. Each joins the node's own queue once the fleet has granted its permit.
    requests: BTreeMap<PermitId, Request>,
    /// Permits that the node's own queue refused and that the budgets do not know yet.
    pub(crate) refused: Vec<PermitId>,
    pub(crate) counting: Counting,
    pub(crate) recording: Option<Recording>,
    /// The timer of the next tick, and when it is due.
    alarm: Option<(SpawnHandle, Duration)>,
    _panic_guard: PanicGuard,
}

/// A pull that is counted on a budget.
struct Request {
    image: String,
    /// The caller was answered early because its wait exceeds its patience. When it asks again, it waits until its patience is over.
    answered_early: bool,
}

/// A deferred reply.
struct Waiting {
    answer: oneshot::Sender<PermitAnswer>,
    patience: Duration,
}

impl Throttler {
    /// A throttler without a fleet: the node's bucket and slots alone decide.
    #[must_use]
    pub fn new(policy: ThrottlePolicy, clock: Clock, panic_guard: PanicGuard) -> Self {
        Self {
            core: Queue::new(policy),
            clock,
            sharing: None,
            watch: None,
            answers: BTreeMap::new(),
            requests: BTreeMap::new(),
            refused: Vec::new(),
            counting: Counting::default(),
            recording: None,
            alarm: None,
            _panic_guard: panic_guard,
        }
    }

    /// A throttler in a fleet: a pull that is counted on a budget needs the fleet's permit first.
    #[must_use]
    pub fn sharing(policy: ThrottlePolicy, clock: Clock, panic_guard: PanicGuard, fleet: FleetParts) -> Self {
        let sharing = Some(Sharing::new(fleet, policy.slots, clock.clone()));
        Self { sharing, ..Self::new(policy, clock, panic_guard) }
    }

    /// Records an event of this node when the rate of a budget that it leads changes, and when it is asked to record that an operator has
    /// cleared a quota. Call this before the actor is started.
    #[must_use]
    pub fn recording(self, recording: Recording) -> Self {
        Self { recording: Some(recording), ..self }
    }

    /// Counts in these metrics. Call this before the actor is started.
    #[must_use]
    pub fn counting(self, instruments: Instruments) -> Self {
        Self { counting: Counting::of(instruments), ..self }
    }

    /// Shows each effect of the budgets to `watch`, for tests.
    #[must_use]
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    fn step(&mut self, input: Input, context: &mut Context<Self>) {
        self.queue(input);
        self.set_alarm(context);
    }

    fn queue(&mut self, input: Input) {
        let now = self.clock.now();
        for effect in self.core.step(now, input) {
            match effect {
                Effect::Grant { permit } => {
                    self.counting.slot_given(now.monotonic, permit);
                    self.answer(permit, PermitAnswer::Granted { lease_ms: DEADLINES.permit_lease.as_millis() as u64 });
                }
                Effect::Refuse { permit, text } => {
                    self.counting.ended(now.monotonic, permit);
                    self.refused.extend(self.requests.remove(&permit).map(|_| permit));
                    self.answer(permit, PermitAnswer::Refused { text });
                }
            }
        }
    }

    fn answer(&mut self, permit: PermitId, answer: PermitAnswer) {
        if let Some(waiting) = self.answers.remove(&permit) {
            // A caller that gave up waiting asks again, or its permit expires.
            let _ = waiting.answer.send(answer);
        }
    }

    /// The fleet has granted the permit, so the pull joins the node's own queue.
    pub(crate) fn fleet_granted(&mut self, permit: PermitId) {
        if let Some(image) = self.requests.get(&permit).map(|request| request.image.clone()) {
            self.counting.permit_given(self.clock.now().monotonic, permit);
            self.queue(Input::Acquire { permit, image });
        }
    }

    /// The request lapsed because its caller died.
    pub(crate) fn fleet_forgot(&mut self, permit: PermitId) {
        self.requests.remove(&permit);
    }

    pub(crate) fn fleet_refused(&mut self, permit: PermitId, text: String) {
        self.counting.ended(self.clock.now().monotonic, permit);
        self.requests.remove(&permit);
        self.answer(permit, PermitAnswer::Refused { text });
    }

    /// Answers a caller at once if its wait for the fleet is known to exceed its patience.
    pub(crate) fn answer_long_waits(&mut self) {
        let Some(sharing) = &self.sharing else { return };
        let now = self.clock.now();
        let too_long = |(permit, wait): (PermitId, budget::BudgetWait)| {
            let patience = self.answers.get(&permit)?.patience;
            self.requests.get(&permit).filter(|request| !request.answered_early)?;
            (wait.wait? > patience).then(|| (permit, queued(wait)))
        };
        let long_waits: Vec<_> = sharing.core.known_waits(now).filter_map(too_long).collect();
        for (permit, answer) in long_waits {
            if let Some(request) = self.requests.get_mut(&permit) {
                request.answered_early = true;
            }
            self.answer(permit, answer);
        }
    }

    pub(crate) fn set_alarm(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now();
        let shared = self.sharing.as_ref().and_then(|sharing| sharing.core.wake_in(now));
        let wake_in = self.core.wake_in(now).into_iter().chain(shared).min();
        let due = wake_in.map(|wake_in| now.monotonic + wake_in);
        if self.alarm.as_ref().map(|(_, at)| *at) == due {
            return;
        }
        if let Some((alarm, _)) = self.alarm.take() {
            context.cancel_future(alarm);
        }
        self.alarm = wake_in.zip(due).map(|(wake_in, due)| {
            let alarm = context.run_later(wake_in, |throttler, context| {
                throttler.alarm = None;
                throttler.step(Input::Tick, context);
                throttler.share(budget::Input::Tick, context);
            });
            (alarm, due)
        });
    }

    /// The answer for a permit that is not granted yet.
    fn place_in_queue(&self, permit: PermitId) -> PermitAnswer {
        let of_fleet = self.sharing.as_ref().and_then(|sharing| sharing.core.wait_of(self.clock.now(), permit));
        let ahead = self.core.ahead_of(permit).unwrap_or_default();
        of_fleet.map_or(PermitAnswer::Queued { ahead, budget_wait_ms: None }, queued)
    }

    /// Whether a pull with a budget is counted on it. A pull that has begun is counted if it was when it began; any other is counted unless
    /// the fleet only observes.
    fn is_counted(&self, permit: PermitId) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        if self.core.is_granted(permit) { self.requests.contains_key(&permit) } else { !sharing.core.observes() }
    }

    /// Answers another node as the budget leader.
    fn lead(&mut self, call: BudgetRequest, context: &mut Context<Self>) -> Option<BudgetReply> {
        self.share(budget::Input::Called(call), context)
    }
}

fn queued(wait: budget::BudgetWait) -> PermitAnswer {
    let budget_wait_ms = Some(wait.wait.unwrap_or_default().as_millis() as u64);
    PermitAnswer::Queued { ahead: wait.ahead, budget_wait_ms }
}

impl Actor for Throttler {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        let Some(sharing) = &mut self.sharing else { return };
        context.add_stream(sharing.health());
        let follower = sharing.follower();
        self.follow_policy(follower, context);
    }
}

impl StreamHandler<BusHealth> for Throttler {
    fn handle(&mut self, health: BusHealth, context: &mut Self::Context) {
        self.bus_changed(&health, context);
    }

    /// The bus was drained. Does nothing, because the default would stop the actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Ask<AcquirePermit>> for Throttler {
    type Result = ResponseFuture<Result<PermitAnswer, CallError>>;

    fn handle(&mut self, Ask(acquire): Ask<AcquirePermit>, context: &mut Self::Context) -> Self::Result {
        let AcquirePermit { permit, image, patience_ms, budget } = acquire.body;
        let budget = budget.filter(|_| self.is_counted(permit));
        if budget.is_none() && self.requests.remove(&permit).is_some() {
            // The pull has waited for the fleet's permit and does not need it any more.
            self.share(budget::Input::Release { permit, limits: Vec::new(), served: None }, context);
        }
        if !self.core.is_granted(permit) {
            self.counting.asked(self.clock.now().monotonic, permit, budget.is_some(), acquire.meta.trace);
        }
        let now = self.clock.monotonic();
        let patience = clock::end_of_wait(now, Duration::from_millis(patience_ms).min(DEADLINES.permit_lease / 2)).saturating_sub(now);
        let (answer, mut answered) = oneshot::channel();
        self.answers.insert(permit, Waiting { answer, patience });
        match budget {
            Some(owner) => {
                self.requests.entry(permit).or_insert(Request { image, answered_early: false });
                self.share(budget::Input::Want { owner, permit }, context);
            }
            None => self.step(Input::Acquire { permit, image }, context),
        }
        if let Ok(at_once) = answered.try_recv() {
            return Box::pin(async { Ok(at_once) });
        }
        let place = self.place_in_queue(permit);
        let address = context.address();
        Box::pin(async move {
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(answer)) => Ok(answer),
                // The sender is dropped when the actor ends or the same permit is requested again; then the newer request gets the answer.
                Ok(Err(_)) => Ok(place),
                Err(_) => Ok(address.send(PlaceInQueue(permit)).await.unwrap_or(place)),
            }
        })
    }
}

/// Asks for the state of a permit when its caller's patience is over.
struct PlaceInQueue(PermitId);

impl actix::Message for PlaceInQueue {
    type Result = PermitAnswer;
}

impl Handler<PlaceInQueue> for Throttler {
    type Result = MessageResult<PlaceInQueue>;

    fn handle(&mut self, PlaceInQueue(permit): PlaceInQueue, _: &mut Self::Context) -> Self::Result {
        // If the permit was requested again meanwhile, the newer caller still waits.
        if self.answers.get(&permit).is_some_and(|waiting| waiting.answer.is_closed()) {
            self.answers.remove(&permit);
        }
        MessageResult(self.place_in_queue(permit))
    }
}

impl Handler<Ask<ReleasePermit>> for Throttler {
    type Result = MessageResult<Ask<ReleasePermit>>;

    fn handle(&mut self, Ask(release): Ask<ReleasePermit>, context: &mut Self::Context) -> Self::Result {
        let ReleasePermit { permit, limits, served } = release.body;
        self.answers.remove(&permit);
        self.requests.remove(&permit);
        self.counting.ended(self.clock.now().monotonic, permit);
        self.step(Input::Release { permit }, context);
        self.share(budget::Input::Release { permit, limits, served }, context);
        MessageResult(Ok(PermitReleased {}))
    }
}

impl Handler<Ask<ReportLimits>> for Throttler {
    type Result = MessageResult<Ask<ReportLimits>>;

    fn handle(&mut self, Ask(report): Ask<ReportLimits>, context: &mut Self::Context) -> Self::Result {
        let ReportLimits { permit, limits } = report.body;
        self.share(budget::Input::Report { permit, limits }, context);
        MessageResult(Ok(LimitsReported {}))
    }
}

impl Handler<Ask<CountPermits>> for Throttler {
    type Result = MessageResult<Ask<CountPermits>>;

    fn handle(&mut self, _: Ask<CountPermits>, _: &mut Self::Context) -> Self::Result {
        let own = self.core.counts();
        MessageResult(Ok(self.sharing.as_ref().map_or(own, |sharing| sharing.core.count(own))))
    }
}

impl Handler<Ask<SeeFleet>> for Throttler {
    type Result = MessageResult<Ask<SeeFleet>>;

    fn handle(&mut self, Ask(seen): Ask<SeeFleet>, context: &mut Self::Context) -> Self::Result {
        let FleetSeen { place: Place { alive, .. }, digest } = seen.body.0;
        if let (Some(sharing), Some(digest)) = (&self.sharing, digest) {
            sharing.leases.write_in(version::to_write(version::READS, digest.version));
        }
        if alive > 0 {
            self.share(budget::Input::Fleet { alive }, context);
        }
        MessageResult(Ok(FleetNoted {}))
    }
}

impl Handler<Ask<ListBudgets>> for Throttler {
    type Result = MessageResult<Ask<ListBudgets>>;

    fn handle(&mut self, _: Ask<ListBudgets>, _: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        MessageResult(Ok(self.sharing.as_ref().map_or_else(BudgetList::default, |sharing| sharing.core.list(now))))
    }
}

impl Handler<Ask<GrantBudget>> for Throttler {
    type Result = MessageResult<Ask<GrantBudget>>;

    fn handle(&mut self, Ask(ask): Ask<GrantBudget>, context: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(match self.lead(BudgetRequest::Grant(ask.body), context) {
            Some(BudgetReply::Granted(answer)) => answer,
            _ => BudgetAnswer::NotLeading {},
        }))
    }
}

impl Handler<Ask<RenewBudget>> for Throttler {
    type Result = MessageResult<Ask<RenewBudget>>;

    fn handle(&mut self, Ask(renew): Ask<RenewBudget>, context: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(match self.lead(BudgetRequest::Renew(renew.body), context) {
            Some(BudgetReply::Renewed(renewed)) => renewed,
            _ => BudgetRenewed::default(),
        }))
    }
}

impl Handler<Ask<ReturnBudget>> for Throttler {
    type Result = MessageResult<Ask<ReturnBudget>>;

    fn handle(&mut self, Ask(back): Ask<ReturnBudget>, context: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(match self.lead(BudgetRequest::Return(back.body), context) {
            Some(BudgetReply::Returned(returned)) => returned,
            _ => BudgetReturned::default(),
        }))
    }
}

impl Handler<Ask<BudgetTurn>> for Throttler {
    type Result = MessageResult<Ask<BudgetTurn>>;

    fn handle(&mut self, Ask(turn): Ask<BudgetTurn>, context: &mut Self::Context) -> Self::Result {
        self.share(budget::Input::Turn(turn.body), context);
        MessageResult(Ok(BudgetTurnReceived {}))
    }
}
