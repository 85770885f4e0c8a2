//! Forgets a quota, as an operator asks.

use actix::{Context, Handler, MessageResult};
use actors::Ask;
use contract::messages::throttler::{ForgetQuota, QuotaForgotten};

use crate::actor::Throttler;
use crate::core::budget::Input;

impl Handler<Ask<ForgetQuota>> for Throttler {
    type Result = MessageResult<Ask<ForgetQuota>>;

    fn handle(&mut self, Ask(forget): Ask<ForgetQuota>, context: &mut Context<Self>) -> Self::Result {
        let (trace, ForgetQuota { owner, by, is_recorded }) = (forget.meta.trace, forget.body);
        let now = self.clock.now();
        let was_known = self.sharing.as_ref().is_some_and(|sharing| sharing.core.knows_quota(now, &owner));
        if is_recorded {
            self.record_cleared_quota(&owner, &by, trace, context);
        }
        if was_known {
            tracing::info!(owner, by, "a quota was forgotten");
            self.share(Input::ForgetQuota { owner }, context);
        }
        MessageResult(Ok(QuotaForgotten { was_known }))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use actix::Actor;
    use actors::{Delivery, EventSender, PanicGuard, Sender, Wiring};
    use bus::memory::MemoryBus;
    use clock::{Clock, Random};
    use contract::messages::event_recorder::{EventRecorded, RecordEvent};
    use contract::subject::Fleet;
    use contract::{Envelope, EventReason, Meta, NodeName, PullEvent};

    use super::*;
    use crate::core::{OnExhausted, ThrottlePolicy};
    use crate::recording::Recording;

    /// An event recorder that keeps what it receives.
    struct Recorder(Rc<RefCell<Vec<PullEvent>>>);

    impl Actor for Recorder {
        type Context = Context<Self>;
    }

    impl Handler<Ask<RecordEvent>> for Recorder {
        type Result = MessageResult<Ask<RecordEvent>>;

        fn handle(&mut self, Ask(record): Ask<RecordEvent>, _: &mut Context<Self>) -> Self::Result {
            self.0.borrow_mut().push(record.body.event);
            MessageResult(Ok(EventRecorded {}))
        }
    }

    #[test]
    fn node_that_is_asked_to_records_who_cleared_a_quota() {
        actix::System::new().block_on(async {
            let (clock, node): (Clock, NodeName) = (Clock::host(), "n1".parse().expect("a name"));
            let events = Rc::new(RefCell::new(Vec::new()));
            let recorder = Recorder(Rc::clone(&events)).start();
            let bus = Arc::new(MemoryBus::new(clock.clone()));
            let wiring = Wiring { bus, fleet: Fleet::default(), node: node.clone(), delivery: Delivery::Local };
            let recording = Recording {
                events: EventSender::new(node, Sender::local(wiring, recorder.recipient())),
                registry_of: |_| "r.example".to_owned(),
                in_words: |_| "registry r.example".to_owned(),
            };
            let policy = ThrottlePolicy { per_second: 0.0, burst: 1, slots: 1, on_exhausted: OnExhausted::Fail, queue: 1 };
            let throttler = Throttler::new(policy, clock, PanicGuard::of("throttler")).recording(recording).start();
            for is_recorded in [false, true] {
                let forget = ForgetQuota { owner: "hub".to_owned(), by: "ops@desk".to_owned(), is_recorded };
                let envelope = Envelope { meta: Meta::root(&mut Random::from_system()), body: forget };
                let answer = throttler.send(Ask(envelope)).await.expect("it runs");
                assert_eq!(answer, Ok(QuotaForgotten { was_known: false }));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let events = events.borrow();
            let recorded: Vec<_> = events.iter().map(|event| (event.reason, event.message.as_str(), event.registry.as_deref())).collect();
            let expected = (EventReason::BackoffCleared, "ops@desk cleared the quota of registry r.example", Some("r.example"));
            assert_eq!(recorded, [expected]);
        });
    }
}
