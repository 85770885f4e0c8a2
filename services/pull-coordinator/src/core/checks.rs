//! The checks of a request before its flight: the image's name, the policy, the room on the disk, and back-off.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clock::Now;
use contract::messages::backoff_tracker::BackoffAnswer;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::{EventDetails, EventReason, FailureClass, MessageId, PullEvent, Reason, Target, TraceContext};
use image::{Platform, Reference};

use super::bounds;
use super::coordinator::Coordinator;
use super::kubelet_messages;
use super::outcomes::{self, present_fact};
use super::request::{Fact, Request, Stage, policy_of};
use super::standing_pulls;
use super::step::{Effect, Failure, ImageFacts, RequestId};

/// The cause in the event of a request that cannot be parsed. Kubelet gives such an event the reason of a runtime that cannot be asked.
const INVALID_NAME: &str = "invalid_name";

/// The target of a request in the fleet, and the free bytes.
type TargetAndFree = (Option<Arc<Target>>, Option<u64>);

impl Coordinator {
    pub(super) fn asked(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, effects: &mut Vec<Effect>) {
        if let Err(too_long) = bounds::check_image(&ask.image) {
            let ask = EnsureImage { image: bounds::shortened(&ask.image), ..ask };
            let text = kubelet_messages::invalid_name(&ask.image, &too_long.to_string());
            return self.refuse_unparsed(now, id, ask, trace, text, effects);
        }
        let reference = match Reference::parse(&ask.image) {
            Ok(reference) => reference,
            Err(error) => {
                let text = kubelet_messages::invalid_name(&ask.image, &error.kubelet_message(&ask.image));
                return self.refuse_unparsed(now, id, ask, trace, text, effects);
            }
        };
        let platform = match ask.platform.as_deref().map(Platform::parse).transpose() {
            Ok(platform) => platform,
            Err(error) => return self.refuse_unparsed(now, id, ask, trace, error.to_string(), effects),
        };
        let policy = policy_of(ask.policy, &reference);
        let mut request = Request {
            ask,
            reference,
            platform,
            policy,
            trace,
            stage: Stage::Inspecting,
            standing: standing_pulls::is_run(id),
            target: None,
            fleet_waited_before: Duration::ZERO,
            fleet_decides: false,
            images_pulled_before: self.images_pulled,
            pulling_since: None,
            throttled_recorded: false,
            events: VecDeque::new(),
            recording: false,
        };
        let (presence, may_pull) = (policy != PullPolicy::Always, policy != PullPolicy::Never);
        let target = may_pull && self.policy.clearance_within.is_some();
        let room = may_pull && self.policy.keep_free.is_some() && request.ask.pod.is_none();
        if presence || target || room {
            let (reference, platform) = (request.reference.clone(), request.platform.clone());
            effects.push(Effect::Inspect { request: id, reference, platform, presence, target, room });
        } else {
            check_backoff(id, &mut request, effects);
        }
        self.requests.insert(id, request);
    }

    /// Goes on without the image: refuses the request if too few bytes are free, and checks back-off.
    fn go_on(&mut self, now: Now, id: RequestId, (target, free): TargetAndFree, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.target = target.filter(|_| self.policy.clearance_within.is_some());
        let room = self.policy.keep_free.filter(|_| request.ask.pod.is_none()).zip(free);
        if let Some((keep, free)) = room.filter(|(keep, free)| free < keep) {
            let (outcome, fact) = outcomes::no_room(request, free, keep);
            return self.end(now, id, outcome, Some(fact), effects);
        }
        if request.standing && request.target.is_some() {
            // A standing pull is not refused. It waits for clearance, and learns there why.
            return self.join_or_start_flight(now, id, effects);
        }
        check_backoff(id, request, effects);
    }

    /// Refuses a request that cannot be parsed (kubelet's outcome A); the event and the answer have the same text.
    fn refuse_unparsed(&mut self, now: Now, id: RequestId, ask: EnsureImage, trace: TraceContext, text: String, effects: &mut Vec<Effect>) {
        let event = PullEvent {
            pod: ask.pod,
            image: ask.image,
            class: Some(FailureClass::Unknown),
            details: Some(EventDetails { cause: Some(INVALID_NAME.to_owned()), ..EventDetails::default() }),
            ..PullEvent::new(
                MessageId::random(&mut self.random),
                now.wall_ms(),
                self.node.clone(),
                EventReason::InspectFailed,
                text.clone(),
                trace,
            )
        };
        effects.push(Effect::Record { request: id, event });
        let outcome = PullOutcome {
            outcome: OutcomeKind::Failed,
            reason: Some(Reason::InvalidImageName),
            message: text,
            class: Some(FailureClass::Unknown),
            trace_id: trace.trace_id_hex(),
            ..PullOutcome::default()
        };
        self.unparsed.insert(id, outcome);
    }

    pub(super) fn inspected(
        &mut self,
        now: Now,
        id: RequestId,
        found: Result<Option<ImageFacts>, Failure>,
        target_and_free: TargetAndFree,
        effects: &mut Vec<Effect>,
    ) {
        let Some(request) = self.requests.get(&id).filter(|request| request.stage == Stage::Inspecting) else { return };
        match found {
            Err(failure) => {
                let text = kubelet_messages::inspect_failed(&failure.text);
                let outcome = request.refused(Reason::ImageInspectError, text.clone(), failure.class);
                let mut fact = Fact::plain(EventReason::InspectFailed, text);
                fact.fields.class = Some(failure.class);
                self.end(now, id, outcome, Some(fact), effects);
            }
            Ok(Some(facts)) => {
                let fact = present_fact(request, &facts, None);
                let outcome = request.present(facts, &fact);
                self.end(now, id, outcome, Some(fact), effects);
            }
            Ok(None) if request.policy == PullPolicy::Never => {
                let text = kubelet_messages::never_pull(&request.ask.image);
                let outcome = request.refused(Reason::ErrImageNeverPull, text.clone(), FailureClass::NodeLocal);
                self.end(now, id, outcome, Some(Fact::plain(EventReason::ErrImageNeverPull, text)), effects);
            }
            Ok(None) => self.go_on(now, id, target_and_free, effects),
        }
    }

    pub(super) fn backoff_checked(&mut self, now: Now, id: RequestId, answer: BackoffAnswer, effects: &mut Vec<Effect>) {
        let Some(request) = self.requests.get(&id).filter(|request| request.stage == Stage::CheckingBackoff) else { return };
        match answer {
            BackoffAnswer::Refused(refusal) => {
                let (outcome, fact) = outcomes::backed_off(request, refusal);
                self.end(now, id, outcome, Some(fact), effects);
            }
            BackoffAnswer::Allowed | BackoffAnswer::Unknown { .. } => self.join_or_start_flight(now, id, effects),
        }
    }
}

fn check_backoff(id: RequestId, request: &mut Request, effects: &mut Vec<Effect>) {
    request.stage = Stage::CheckingBackoff;
    effects.push(Effect::CheckBackoff { request: id, key: request.key(), target: request.target.clone(), trace: request.trace });
}
