//! Carries out the core's effects: calls to the runtime and to other actors, and answers to callers.

use std::sync::Arc;

use actix::Context;
use contract::messages::backoff_tracker::ResolveAttempt;
use contract::messages::pull_coordinator::PullOutcome;
use contract::{ClearanceId, TraceContext};
use futures::FutureExt as _;
use image::{Platform, Reference};
use runtimes::{LookFor, Looked, PullRequest};

use crate::actor::PullCoordinator;
use crate::core::{Effect, Failure, FlightId, ImageFacts, Input, KeptStandingPull, RequestId};
use crate::pulling::PullStart;
use crate::runtime_results::{image_facts, inspect_failure};
use crate::standing_pull_file::StandingPullStoreRef;

impl PullCoordinator {
    pub(crate) fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::RequestClearance { flight, turn, mut ask, trace } => {
                ask.attempt_span = ask.attempt_span.map(|span| self.exported_if_failed(span));
                let clearance = self.outbound.clearance(trace, *ask);
                self.then_after_poll(clearance, context, move |answer| Input::ClearanceAnswered { flight, turn, answer });
            }
            Effect::Resolve { resolve, trace } => self.resolve(*resolve, trace, context),
            Effect::Withdraw { clearance, trace, .. } => self.withdraw(clearance, trace, context),
            Effect::KeepStandingPulls { standing_pulls } => self.keep_standing_pulls(standing_pulls, context),
            Effect::Inspect { request, reference, platform, presence, target, room } => {
                let wanted = LookFor { presence, route: target, free_bytes: room };
                self.then_after_poll(self.look(request, reference, platform, wanted), context, |inspected| inspected);
            }
            Effect::CheckBackoff { request, key, target, trace } => {
                let target = target.map(Arc::unwrap_or_clone);
                let check = self.outbound.check(trace, key, target, false);
                self.then_after_poll(check, context, move |answer| Input::BackoffChecked { request, answer });
            }
            Effect::AcquirePermit { flight, permit, image, budget, trace } => {
                let acquire = self.outbound.acquire(trace, permit, image, budget);
                self.then_for_flight(flight, acquire, context, move |answer| Input::Permitted { flight, answer });
            }
            Effect::Recheck { flight, reference, platform } => {
                let status = self.status(reference, platform);
                self.then_for_flight(flight, status, context, move |found| Input::Rechecked { flight, found });
            }
            Effect::StartPull {
                flight,
                permit,
                budget,
                begin,
                fleet_waits,
                one_blob_first,
                route_known,
                report_size,
                reference,
                platform,
                trace,
            } => {
                let request = PullRequest { reference, platform, trace, carried: self.carried(flight) };
                self.start_pull(
                    PullStart { flight, permit, budget, begin, fleet_waits, one_blob_first, route_known, report_size, request },
                    context,
                );
            }
            Effect::Verify { flight, reference, platform } => {
                let status = self.status(reference, platform);
                self.then_for_flight(flight, status, context, move |found| Input::Verified { flight, found });
            }
            Effect::Cancel { flight } => self.cancel(flight),
            Effect::Release { permit, feedback, trace, .. } => {
                self.pending.spawn(context, self.outbound.release(trace, permit, feedback), |(), _, _| {});
            }
            Effect::Report { request, mut report, trace } => {
                report.attempt_span = report.attempt_span.map(|span| self.exported_if_failed(span));
                self.report(request, report, trace, context);
            }
            Effect::Record { request, event } => self.record(request, event, context),
            Effect::Answer { request, outcome } => self.answer(request, outcome),
        }
    }

    /// As [`Self::then`], but the core first learns which tags the runtime has resolved: its decision depends on that.
    fn then_after_poll<T: 'static>(
        &self,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) {
        self.pending.spawn(context, work, move |result, coordinator, context| {
            coordinator.poll_progress(context);
            coordinator.feed(input(result), context);
        });
    }

    /// As [`Self::then`], for a flight: [`Self::cancel`] ends `work`.
    fn then_for_flight<T: 'static>(
        &mut self,
        flight: FlightId,
        work: impl Future<Output = T> + 'static,
        context: &mut Context<Self>,
        input: impl FnOnce(T) -> Input + 'static,
    ) {
        let work = self.then(work, context, input);
        self.flights.entry(flight).or_default().work = Some(work);
    }

    fn keep_standing_pulls(&mut self, standing_pulls: Vec<KeptStandingPull>, context: &mut Context<Self>) {
        let keep = keep(self.standing_pulls.clone(), standing_pulls);
        self.pending.spawn(context, keep, |error, coordinator, context| {
            coordinator.log_write(error.as_ref());
            coordinator.feed(Input::StandingPullsKept { error: error.clone() }, context);
            coordinator.standing_pulls_written(error.as_ref());
        });
    }

    /// Logs the first failed write and the success after it: a failed write is repeated every few seconds.
    fn log_write(&mut self, error: Option<&String>) {
        match error {
            Some(error) if !self.is_write_failing => {
                tracing::error!(error, "standing pulls cannot be written down; a restarted agent has those of the last write");
            }
            None if self.is_write_failing => tracing::info!("standing pulls are written down again"),
            _ => {}
        }
        self.is_write_failing = error.is_some();
    }

    fn standing_pulls_written(&mut self, error: Option<&String>) {
        let waiters = std::mem::take(&mut self.write_waiters).into_iter();
        let (over, waiting): (Vec<_>, Vec<_>) = waiters.partition(|(writing, _)| self.core.is_written(*writing));
        self.write_waiters = waiting;
        for (_, waiter) in over {
            // There is no receiver if the caller is abandoned.
            let _ = waiter.send(error.cloned());
        }
    }

    /// The span of an attempt for others to link to. A failed attempt is always exported if there is an exporter, so it counts as sampled.
    fn exported_if_failed(&self, span: TraceContext) -> TraceContext {
        TraceContext { sampled: self.traces.is_some(), ..span }
    }

    fn resolve(&mut self, resolve: ResolveAttempt, trace: TraceContext, context: &mut Context<Self>) {
        let clearance = resolve.clearance;
        let sent = self.outbound.resolve(trace, resolve).shared();
        self.pending.spawn(context, sent.clone(), |(), _, _| {});
        self.resolving.insert(clearance, sent);
    }

    /// Withdraws a clearance after its last `resolve` was answered, so that the two cannot overtake each other.
    fn withdraw(&mut self, clearance: ClearanceId, trace: TraceContext, context: &mut Context<Self>) {
        let (sent, outbound) = (self.resolving.remove(&clearance), self.outbound.clone());
        let withdraw = async move {
            if let Some(sent) = sent {
                sent.await;
            }
            outbound.withdraw(trace, clearance).await;
        };
        self.pending.spawn(context, withdraw, |(), _, _| {});
    }

    fn status(
        &self,
        reference: Reference,
        platform: Option<Platform>,
    ) -> impl Future<Output = Result<Option<ImageFacts>, Failure>> + use<> {
        let runtime = self.runtime.clone();
        async move { runtime.image_status(&reference, platform.as_ref()).await.map(|found| found.map(image_facts)).map_err(inspect_failure) }
    }

    /// What [`Effect::Inspect`] asks for, as its input.
    fn look(
        &self,
        request: RequestId,
        reference: Reference,
        platform: Option<Platform>,
        wanted: LookFor,
    ) -> impl Future<Output = Input> + use<> {
        let (runtime, locality) = (self.runtime.clone(), self.locality.clone());
        async move {
            let Looked { found, route, free_bytes } = runtime.look(&reference, platform.as_ref(), wanted).await;
            let target = locality.zip(route).map(|(locality, route)| Arc::new(locality.target_for_route(route, &reference)));
            Input::Inspected { request, found: found.map(|found| found.map(image_facts)).map_err(inspect_failure), target, free_bytes }
        }
    }

    fn answer(&mut self, request: RequestId, outcome: PullOutcome) {
        self.entries_of_failures.remove(&request);
        // An abandoned caller was counted when that was noticed.
        let Some(caller) = self.callers.remove(&request) else { return };
        self.answered.count(&outcome);
        if let Some(alarm) = caller.alarm {
            alarm.cancel();
        }
        caller.answer.give(Ok(outcome));
    }
}

/// Writes the standing pulls to disk; the error if that fails.
async fn keep(store: Option<StandingPullStoreRef>, standing_pulls: Vec<KeptStandingPull>) -> Option<String> {
    let store = store?;
    Some(tasks::blocking("keep-standing-pulls", move || store.keep(&standing_pulls)).await.err()?.to_string())
}
