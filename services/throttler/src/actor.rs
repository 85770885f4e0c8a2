//! The actix shell: a mailbox, a clock, the core, and the answers that are held back.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Actor, AsyncContext as _, Context, Handler, MessageResult, ResponseFuture, SpawnHandle};
use actors::{Ask, Gravestone, MAILBOX_CAPACITY};
use clock::Clock;
use contract::messages::throttler::{AcquirePermit, CountPermits, PermitAnswer, PermitReleased, ReleasePermit};
use contract::{CallError, PermitId};
use tokio::sync::oneshot;

use crate::core::{Effect, Input, PERMIT_LEASE, Queue, ThrottlePolicy};

/// The actor that gives permits.
#[derive(Debug)]
pub struct Throttler {
    core: Queue,
    clock: Clock,
    answers: BTreeMap<PermitId, oneshot::Sender<PermitAnswer>>,
    alarm: Option<SpawnHandle>,
    _gravestone: Gravestone,
}

impl Throttler {
    /// Ready to be started.
    #[must_use]
    pub fn new(policy: ThrottlePolicy, clock: Clock, gravestone: Gravestone) -> Self {
        Self { core: Queue::new(policy), clock, answers: BTreeMap::new(), alarm: None, _gravestone: gravestone }
    }

    fn step(&mut self, input: Input, context: &mut Context<Self>) {
        let now = self.clock.now();
        self.answers.retain(|_, waiting| !waiting.is_closed());
        for effect in self.core.step(now, input) {
            let (permit, answer) = match effect {
                Effect::Grant { permit } => (permit, PermitAnswer::Granted { lease_ms: PERMIT_LEASE.as_millis() as u64 }),
                Effect::Refuse { permit, text } => (permit, PermitAnswer::Refused { text }),
            };
            if let Some(waiting) = self.answers.remove(&permit) {
                // Whoever gave up waiting asks again, or its permit expires.
                let _ = waiting.send(answer);
            }
        }
        if let Some(alarm) = self.alarm.take() {
            context.cancel_future(alarm);
        }
        if let Some(wake_in) = self.core.wake_in(now) {
            self.alarm = Some(context.run_later(wake_in, |throttler, context| {
                throttler.alarm = None;
                throttler.step(Input::Tick, context);
            }));
        }
    }
}

impl Actor for Throttler {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }
}

impl Handler<Ask<AcquirePermit>> for Throttler {
    type Result = ResponseFuture<Result<PermitAnswer, CallError>>;

    fn handle(&mut self, Ask(acquire): Ask<AcquirePermit>, context: &mut Self::Context) -> Self::Result {
        let AcquirePermit { permit, image, patience_ms, budget: _ } = acquire.body;
        let (answer, mut answered) = oneshot::channel();
        self.answers.insert(permit, answer);
        self.step(Input::Acquire { permit, image }, context);
        if let Ok(at_once) = answered.try_recv() {
            return Box::pin(async { Ok(at_once) });
        }
        let ahead = self.core.ahead_of(permit).unwrap_or_default();
        Box::pin(async move {
            let patience = Duration::from_millis(patience_ms).min(PERMIT_LEASE / 2);
            match tokio::time::timeout(patience, answered).await {
                Ok(Ok(answer)) => Ok(answer),
                // The sender is dropped when the same permit is asked for again or the actor ends; then the newer ask has the answer.
                Ok(Err(_)) | Err(_) => Ok(PermitAnswer::Queued { ahead, budget_wait_ms: None }),
            }
        })
    }
}

impl Handler<Ask<ReleasePermit>> for Throttler {
    type Result = MessageResult<Ask<ReleasePermit>>;

    fn handle(&mut self, Ask(release): Ask<ReleasePermit>, context: &mut Self::Context) -> Self::Result {
        self.answers.remove(&release.body.permit);
        self.step(Input::Release { permit: release.body.permit }, context);
        MessageResult(Ok(PermitReleased {}))
    }
}

impl Handler<Ask<CountPermits>> for Throttler {
    type Result = MessageResult<Ask<CountPermits>>;

    fn handle(&mut self, _: Ask<CountPermits>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.core.counts()))
    }
}
