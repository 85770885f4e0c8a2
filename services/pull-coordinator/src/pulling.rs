//! Runs a pull, and watches its progress.

use std::time::Duration;

use actix::Context;
use actors::PendingHandle;
use contract::messages::backoff_tracker::BeginAttempt;
use contract::{DEADLINES, PermitId, Stage};
use runtimes::{Progress, PullRequest};
use tracing::Instrument as _;

use crate::actor::PullCoordinator;
use crate::core::{Failure, FlightId, Input, PulledFacts};
use crate::manifest_check::ManifestCheck;
use crate::runtime_results::{pull_failure, pulled_facts, too_long};

/// The arguments of [`PullCoordinator::start_pull`].
pub(crate) struct PullStart {
    pub(crate) flight: FlightId,
    pub(crate) permit: PermitId,
    pub(crate) budget: Option<String>,
    pub(crate) begin: Option<BeginAttempt>,
    pub(crate) fleet_waits: bool,
    pub(crate) one_blob_first: bool,
    pub(crate) route_known: bool,
    pub(crate) report_size: bool,
    pub(crate) request: PullRequest,
}

impl PullCoordinator {
    pub(crate) fn start_pull(&mut self, start: PullStart, context: &mut Context<Self>) {
        let flight = start.flight;
        let progress = self.flights.entry(flight).or_default().progress.clone();
        if start.one_blob_first {
            progress.ask_for_one_blob_first();
        }
        self.at_runtime.insert(flight);
        let mut watches = Vec::new();
        if self.locality.is_some() {
            watches.extend(self.watch_progress(&start, progress.clone(), context));
        }
        if start.report_size {
            watches.push(self.measure(flight, progress.clone(), context));
        }
        let pull = self.pull(start, progress).instrument(self.attempt_span(flight));
        let work = self.then(pull, context, move |result| Input::Pulled { flight, result });
        let under_way = self.flights.entry(flight).or_default();
        (under_way.work, under_way.watches) = (Some(work), watches);
    }

    pub(crate) fn cancel(&mut self, flight: FlightId) {
        self.at_runtime.remove(&flight);
        if let Some(under_way) = self.flights.remove(&flight) {
            under_way.cancel(self.clock.now(), &self.instruments);
        }
    }

    /// Feeds the core when the registry has given the token, the manifest and a blob, and passes its limits to the throttler.
    fn watch_progress(&self, start: &PullStart, progress: Progress, context: &mut Context<Self>) -> [PendingHandle; 4] {
        let flight = start.flight;
        let (token, blob) = (progress.clone(), progress.clone());
        let token = async move { token.when_token_given().await };
        let blob = async move { blob.when_blob_answered().await };
        let token = self.then(token, context, move |()| Input::Reached { flight, stage: Stage::Token });
        let blob = self.then(blob, context, move |()| Input::Reached { flight, stage: Stage::Blob });
        let check = ManifestCheck {
            runtime: self.runtime.clone(),
            outbound: self.outbound.clone(),
            clock: self.clock.clone(),
            recent_checks: self.recent_checks.clone(),
            request: start.request.clone(),
            permit: start.permit,
            progress,
            owner: start.budget.clone().filter(|_| start.route_known),
            begin: start.begin,
            fleet_waits: start.fleet_waits,
        };
        let head = check.head();
        let limits = self.pending.spawn(context, check.clone().learn_limits(head.clone()), |(), _, _| {});
        [limits, token, blob, self.then(check.until_seen(head), context, move |()| Input::Resolved { flight, seen: true })]
    }

    /// Feeds the core with the missing bytes once they are known, and with the free bytes, which a runtime that does not show them is asked
    /// for.
    fn measure(&self, flight: FlightId, progress: Progress, context: &mut Context<Self>) -> PendingHandle {
        let runtime = self.runtime.clone();
        let measure = async move {
            progress.when_sized().await;
            let free = match progress.free_bytes() {
                None => runtime.free_bytes().await,
                shown => shown,
            };
            // Free bytes first: bytes that arrive in between then count in the pull's favour.
            (progress.snapshot().missing_bytes().unwrap_or_default(), free)
        };
        self.then(measure, context, move |(missing_bytes, free_bytes)| Input::Sized { flight, missing_bytes, free_bytes })
    }

    fn pull(&self, start: PullStart, progress: Progress) -> impl Future<Output = Result<PulledFacts, Failure>> + use<> {
        let (runtime, outbound, limit) = (self.runtime.clone(), self.outbound.clone(), self.pull_timeout.unwrap_or(Duration::MAX));
        let PullStart { permit, budget, request, begin, fleet_waits, .. } = start;
        let (trace, image) = (request.trace, request.reference.normalised().to_owned());
        async move {
            let pull = runtime.pull(request, progress.clone());
            let accompany = async {
                // A runtime that does not show the manifest counts as `resolved` from the beginning. Its silence says nothing about
                // the registry, so `begin` is not sent: without it the tracker assumes that the attempt still waits for the node.
                if let Some(begin) = begin.filter(|_| fleet_waits || !progress.snapshot().resolved) {
                    outbound.begin(trace, begin).await;
                }
                loop {
                    tokio::time::sleep(DEADLINES.permit_renewed_every).await;
                    outbound.acquire(trace, permit, image.clone(), budget.clone()).await;
                }
            };
            tokio::select! {
                biased;
                pulled = pull => pulled.map(pulled_facts).map_err(pull_failure),
                _ = tokio::time::timeout(limit, accompany) => Err(too_long(limit)),
            }
        }
    }

    /// Feeds the core with what runtimes show in their progress: resolved tags (policy Always joins no such flight) and awaited blobs.
    pub(crate) fn poll_progress(&mut self, context: &mut Context<Self>) {
        let of_those = |shows: fn(&Progress) -> bool| {
            let under_way = |flight: &&FlightId| self.flights.get(flight).is_some_and(|under_way| shows(&under_way.progress));
            self.at_runtime.iter().filter(under_way).copied().collect::<Vec<FlightId>>()
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
