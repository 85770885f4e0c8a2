//! Nodes whose reports show nothing about the registry: one that lies, so that good images look bad and bad ones good, and a rack that is
//! cut off from the registry.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{BackoffKey, FailureDetails, Finding, KeyInView, Report};
use contract::AttemptId;

use super::node::target;
use super::{Event, Simulation};
use crate::bus::ToServer;

/// The time between two lies.
const LIES_EVERY: Duration = Duration::from_secs(1);
/// How many of its first reports the liar repeats, with their old dates, until the end of the run.
pub(super) const REPEATED: usize = 8;
/// How many kinds of lies the liar sends in turn.
const KINDS: u64 = 9;
/// The Retry-After in false reports.
const RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The time between two reports of a rack's nodes, in turn: shorter than any delay.
const RACK_REPORTS_EVERY: Duration = Duration::from_millis(300);

/// Nodes that are cut off from the registry, and attempt by their own rule.
#[derive(Clone, Copy, Debug)]
pub struct SickRack {
    /// How many nodes there are.
    pub nodes: usize,
    /// Whether they falsely state that each of their attempts is for all nodes.
    pub states_for_all: bool,
}

/// What a liar claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// Failures and successes of all kinds, in turn.
    AllKinds,
    /// Again and again that each image is missing.
    MissingImages,
}

impl Simulation {
    /// Sends a lie of the last node: all its kinds of lies about one image, then about the next image.
    pub(super) fn lie(&mut self, number: u64) {
        let images = self.options.images.unwrap_or(1) as u64;
        let kinds = if self.options.lies == Some(Lies::MissingImages) { 1 } else { KINDS };
        let target = target(usize::try_from(number / kinds % images).unwrap_or_default());
        let (endpoint, zone) = (target.endpoint, target.zone);
        let failed = || {
            // In each second round also a success just before it.
            let succeeded_ago = (number / KINDS % 2 == 1).then_some(Duration::ZERO);
            let (message, retry_after) = ("a lie".to_owned(), Some(RETRY_AFTER));
            let details = FailureDetails { message, step: 1_000, in_a_row: 1_000, retry_after, succeeded_ago, ..FailureDetails::default() };
            Finding::Failed(details)
        };
        let (in_view, finding) = match number % kinds {
            0 => (KeyInView::Reference { reference: target.reference, scope: target.scope, mirrored: false }, failed()),
            1 => (KeyInView::Login { repository: target.repository, fingerprint: target.scope, anonymous: true }, failed()),
            2 => (KeyInView::BudgetOwner(target.budget_owner), failed()),
            3 => (KeyInView::Endpoint { endpoint, zone }, failed()),
            4 => (KeyInView::Repository(target.repository), failed()),
            5 => (KeyInView::Content { reference: target.reference, endpoint }, failed()),
            6 => (KeyInView::Reference { reference: target.reference, scope: target.scope, mirrored: false }, Finding::Succeeded),
            7 => (KeyInView::Endpoint { endpoint, zone }, Finding::Succeeded),
            _ => return self.repeat_a_lie(number),
        };
        let liar = self.nodes.len() - 1;
        let report = Arc::new(Report {
            reporter: self.nodes[liar].name.clone(),
            backoff_key: Arc::new(BackoffKey::new(target.view, in_view)),
            attempt: AttemptId::random(&mut self.random),
            trace: None,
            finding,
        });
        if self.lies.len() < REPEATED {
            self.lies.push((Arc::clone(&report), self.now));
        }
        self.publish_lie(number, report, self.now);
    }

    /// Sends the report of the rack's next node: its own attempt failed, too.
    pub(super) fn report_of_rack(&mut self, number: u64) {
        let Some(SickRack { nodes, states_for_all }) = self.options.sick_rack else { return };
        let target = target(0);
        let in_view = KeyInView::Endpoint { endpoint: target.endpoint, zone: target.zone };
        let round = number / nodes as u64;
        let failing_for = RACK_REPORTS_EVERY * u32::try_from(round * nodes as u64).unwrap_or(u32::MAX);
        let details = FailureDetails {
            message: "no route to host".to_owned(),
            step: 1,
            in_a_row: u32::try_from(round + 1).unwrap_or(u32::MAX),
            failing_for,
            for_all_ago: if states_for_all { Duration::ZERO } else { failing_for },
            ..FailureDetails::default()
        };
        let node = self.nodes.len() - 1 - usize::try_from(number).unwrap_or_default() % nodes;
        let report = Arc::new(Report {
            reporter: self.nodes[node].name.clone(),
            backoff_key: Arc::new(BackoffKey::new(target.view, in_view)),
            attempt: AttemptId::random(&mut self.random),
            trace: None,
            finding: Finding::Failed(details.bounded()),
        });
        self.send(node, ToServer::Publish(report, self.now));
        self.queue.plan(self.now + RACK_REPORTS_EVERY, Event::RackReport(number + 1));
    }

    fn repeat_a_lie(&mut self, number: u64) {
        let chosen = usize::try_from(number / KINDS).unwrap_or_default() % REPEATED;
        match self.lies.get(chosen).cloned() {
            Some((report, date)) => self.publish_lie(number, report, date),
            None => self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1)),
        }
    }

    fn publish_lie(&mut self, number: u64, report: Arc<Report>, date: Duration) {
        self.send(self.nodes.len() - 1, ToServer::Publish(report, date));
        self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1));
    }
}
