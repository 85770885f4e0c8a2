//! A lying node: it reports failures of a good image.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{About, BackoffKey, FailureDetails, Finding, Report};
use contract::AttemptId;

use super::node::target;
use super::{Event, Simulation};
use crate::bus::Upward;

/// The time between two rounds of lies: image not found, registry unavailable, rate limited.
const LIES_EVERY: Duration = Duration::from_secs(3);

impl Simulation {
    /// Sends the lies of the last node.
    pub(super) fn lie(&mut self, number: u64) {
        let target = target(0);
        let about = match number % 3 {
            0 => About::Reference { reference: target.reference, scope: target.scope, mirrored: false },
            1 => About::Login { repository: target.repository, fingerprint: target.scope, anonymous: true },
            _ => About::BudgetOwner(target.budget_owner),
        };
        let details =
            FailureDetails { message: "a lie".to_owned(), step: 1_000, retry_after: Some(Duration::MAX), ..FailureDetails::default() };
        let liar = self.nodes.len() - 1;
        let report = Report {
            reporter: self.nodes[liar].name.clone(),
            backoff_key: Arc::new(BackoffKey::new(target.view, about)),
            attempt: AttemptId::random(&mut self.random),
            trace: None,
            finding: Finding::Failed(details),
        };
        self.send(liar, Upward::Publish(Arc::new(report), self.now));
        self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1));
    }
}
