//! A pull under way, and what is looked out for meanwhile.

use std::time::Duration;

use actix::Context;
use actors::PendingHandle;
use contract::messages::backoff_tracker::BeginAttempt;
use contract::{PermitId, Stage};
use runtimes::{Progress, PullRequest};
use tracing::Instrument as _;

use crate::actor::{Flying, PullCoordinator};
use crate::core::{Failure, FlightId, Input, PulledFacts};
use crate::facts::{pull_failure, pulled_facts, too_long};
use crate::manifest_check::ManifestCheck;

/// How often a pull renews its permit: three times within the throttler's lease of 30 s.
const RENEW_PERMIT_EVERY: Duration = Duration::from_secs(10);

/// What a pull begins with.
pub(crate) struct Start {
    pub(crate) flight: FlightId,
    pub(crate) permit: PermitId,
    pub(crate) budget: Option<String>,
    pub(crate) begin: Option<BeginAttempt>,
    pub(crate) in_haste: bool,
    pub(crate) one_blob_first: bool,
    pub(crate) routed: bool,
    pub(crate) measured: bool,
    pub(crate) request: PullRequest,
}

impl PullCoordinator {
    pub(crate) fn start_pull(&mut self, start: Start, context: &mut Context<Self>) {
        let flight = start.flight;
        let progress = self.flights.entry(flight).or_default().progress.clone();
        if start.one_blob_first {
            progress.ask_for_one_blob_first();
        }
        self.at_runtime.insert(flight);
        let mut lookouts = Vec::new();
        if self.locality.is_some() {
            lookouts.extend(self.look_out(&start, progress.clone(), context));
        }
        if start.measured {
            lookouts.push(self.measure(flight, progress.clone(), context));
        }
        let pull = self.pull(start, progress).instrument(self.attempt_span(flight));
        let work = self.then(pull, context, move |result| Input::Pulled { flight, result });
        let flying = self.flights.entry(flight).or_default();
        (flying.work, flying.lookouts) = (Some(work), lookouts);
    }

    pub(crate) fn cancel(&mut self, flight: FlightId) {
        self.at_runtime.remove(&flight);
        let Flying { work, lookouts, .. } = self.flights.remove(&flight).unwrap_or_default();
        for under_way in work.into_iter().chain(lookouts) {
            under_way.cancel();
        }
    }

    /// Says when the registry has given the manifest, and what it told of its limits with it.
    fn look_out(&self, start: &Start, progress: Progress, context: &mut Context<Self>) -> [PendingHandle; 4] {
        let flight = start.flight;
        let (token, blob) = (progress.clone(), progress.clone());
        let token = async move { token.when_token_given().await };
        let blob = async move { blob.when_blob_answered().await };
        let token = self.then(token, context, move |()| Input::Reached { flight, stage: Stage::Token });
        let blob = self.then(blob, context, move |()| Input::Reached { flight, stage: Stage::Blob });
        let beside = ManifestCheck {
            runtime: self.runtime.clone(),
            outbound: self.outbound.clone(),
            clock: self.clock.clone(),
            questions: self.questions.clone(),
            request: start.request.clone(),
            permit: start.permit,
            progress,
            owner: start.budget.clone().filter(|_| start.routed),
            begin: start.begin,
            in_haste: start.in_haste,
        };
        let head = beside.head();
        let limits = self.pending.spawn(context, beside.clone().learn_limits(head.clone()), |(), _, _| {});
        [limits, token, blob, self.then(beside.until_seen(head), context, move |()| Input::Resolved { flight, seen: true })]
    }

    /// Says how much is still to come once that is known, and how much room there is for it.
    fn measure(&self, flight: FlightId, progress: Progress, context: &mut Context<Self>) -> PendingHandle {
        let runtime = self.runtime.clone();
        let measure = async move {
            progress.when_sized().await;
            let free = runtime.free_bytes().await;
            // In this order what came in between lets a pull go on rather than end.
            (progress.snapshot().missing_bytes().unwrap_or_default(), free)
        };
        self.then(measure, context, move |(missing_bytes, free_bytes)| Input::Sized { flight, missing_bytes, free_bytes })
    }

    fn pull(&self, start: Start, progress: Progress) -> impl Future<Output = Result<PulledFacts, Failure>> + use<> {
        let (runtime, outbound, limit) = (self.runtime.clone(), self.outbound.clone(), self.pull_timeout);
        let Start { permit, budget, request, begin, in_haste, .. } = start;
        let (trace, image) = (request.trace, request.reference.normalised().to_owned());
        async move {
            let pull = runtime.pull(request, progress.clone());
            let accompany = async {
                // A runtime that does not show the manifest's coming says so as soon as it pulls. Its silence says nothing of the
                // registry, and the tracker takes an attempt that it was not told of for one that still waits for the node.
                if let Some(begin) = begin.filter(|_| in_haste || !progress.snapshot().resolved) {
                    outbound.begin(trace, begin).await;
                }
                loop {
                    tokio::time::sleep(RENEW_PERMIT_EVERY).await;
                    outbound.acquire(trace, permit, image.clone(), budget.clone()).await;
                }
            };
            let over = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                pulled = pull => pulled.map(pulled_facts).map_err(pull_failure),
                () = over => Err(too_long(limit.unwrap_or_default())),
                () = accompany => Err(too_long(Duration::ZERO)),
            }
        }
    }

    /// Who asks with Always may join only a flight whose tag is not resolved yet; the runtime says so in its progress.
    pub(crate) fn learn_what_is_resolved(&mut self, context: &mut Context<Self>) {
        let of_those = |shows: fn(&Progress) -> bool| {
            let flying = |flight: &&FlightId| self.flights.get(flight).is_some_and(|flying| shows(&flying.progress));
            self.at_runtime.iter().filter(flying).copied().collect::<Vec<FlightId>>()
        };
        let (resolved, awaiting) = (of_those(|progress| progress.snapshot().resolved), of_those(Progress::awaits_blob));
        for flight in awaiting {
            self.feed(Input::BlobAwaited { flight }, context);
        }
        for flight in resolved {
            self.feed(Input::Resolved { flight, seen: false }, context);
        }
    }
}
