//! Checks that each refusal names the failed attempt, of this node or another.
//!
//! A standing pull that is in back-off records an event, which names the failed attempt. The registry must have seen this attempt: made by
//! the node that the event names, begun before the refusal, and not the one that delivered the image. It may still be running, because
//! nodes also report attempts that have had no answer for long.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler, MessageResult};
use actors::Ask;
use clock::Clock;
use contract::messages::event_recorder::{EventRecorded, RecordEvent};
use contract::{CallError, EventReason, TraceContext};
use event_recorder::EventRecorder;

use crate::registry::{Behaviour, PullRecord};
use crate::story::Story;
use crate::world::name;

/// A refusal, read from its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub at: Duration,
    pub node: usize,
    pub image: String,
    /// The other node that found the failure; none if this node found it.
    pub learned_by: Option<String>,
    pub learned: Option<TraceContext>,
}

/// The refusals of all nodes, in order.
#[derive(Clone)]
pub struct AllRefusals {
    clock: Clock,
    recorded: Rc<RefCell<Vec<Refusal>>>,
}

/// Records the refusals of one node.
pub struct Refusals {
    all: AllRefusals,
    node: usize,
}

impl AllRefusals {
    /// Uses the clock of the registry.
    pub fn new(clock: Clock) -> Self {
        Self { clock, recorded: Rc::default() }
    }

    pub fn of(&self, node: usize) -> Refusals {
        Refusals { all: self.clone(), node }
    }

    pub fn take(&self) -> Vec<Refusal> {
        self.recorded.take()
    }
}

impl Refusals {
    /// An actor in front of a node's recorder that sees each event and passes it on.
    pub fn before(self, recorder: Addr<EventRecorder>) -> Tap {
        Tap { refusals: self, recorder }
    }
}

pub struct Tap {
    refusals: Refusals,
    recorder: Addr<EventRecorder>,
}

impl Actor for Tap {
    type Context = Context<Self>;
}

impl Handler<Ask<RecordEvent>> for Tap {
    type Result = MessageResult<Ask<RecordEvent>>;

    fn handle(&mut self, Ask(record): Ask<RecordEvent>, _: &mut Self::Context) -> Self::Result {
        let event = &record.body.event;
        if event.reason == EventReason::BackOff {
            let Refusals { all, node } = &self.refusals;
            all.recorded.borrow_mut().push(Refusal {
                at: all.clock.now().monotonic,
                node: *node,
                image: event.image.clone(),
                learned_by: event.learned_by.as_ref().map(ToString::to_string),
                learned: event.learned_trace,
            });
        }
        let passed_on = self.recorder.try_send(Ask(record)).map(|()| EventRecorded {});
        MessageResult(passed_on.map_err(|error| CallError::Refused { reason: error.to_string() }))
    }
}

/// Refusals that name no attempt, or an attempt that has not failed.
pub fn unexplained(story: &Story) -> Vec<&Refusal> {
    let attempts: BTreeMap<TraceContext, &PullRecord> = story.asked.iter().map(|one| (unsampled(one.span), one)).collect();
    let liar = name(story.plan.liar).to_string();
    // Refusals because of forged reports are ignored: forged reports may name any attempt.
    let honest = story.refusals.iter().filter(|refusal| refusal.learned_by.as_deref() != Some(liar.as_str()));
    honest
        .filter(|refusal| {
            let named = refusal.learned.and_then(|learned| attempts.get(&unsampled(learned)));
            !named.is_some_and(|attempt| explains(story, refusal, attempt))
        })
        .collect()
}

fn explains(story: &Story, refusal: &Refusal, attempt: &PullRecord) -> bool {
    let finder = refusal.learned_by.clone().unwrap_or_else(|| name(refusal.node).to_string());
    let present_since = story.present_since.get(&(attempt.node, attempt.image.clone()));
    let served = attempt.got == Behaviour::Serves && attempt.over.is_some_and(|over| over <= refusal.at && present_since == Some(&over));
    name(attempt.node).as_str() == finder && attempt.at <= refusal.at && !served
}

/// The span without its sampling flag, because the flag does not identify a span.
fn unsampled(span: TraceContext) -> TraceContext {
    TraceContext { sampled: false, ..span }
}
