//! Nodes whose reports say nothing of the registry: one that lies, and a rack that is cut off from it.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{About, Finding, Report, Topic, Trouble};
use contract::AttemptId;

use super::node::target;
use super::{Event, Simulation};
use crate::bus::Upward;

/// How often a liar says something: that the image is not there, not to be had, not now, that the registry is down, that all is well, and
/// what it has said before.
const LIES_EVERY: Duration = Duration::from_secs(1);
const LIES: u64 = 7;
/// How often one of the nodes of a rack reports: sooner than any entry is due.
const COMPLAINS_EVERY: Duration = Duration::from_millis(300);
/// Images that a liar names, one after the other.
const IMAGES: usize = 20;

impl Simulation {
    /// The last node lies.
    pub(super) fn lie(&mut self, number: u64) {
        let target = target((number / LIES) as usize % IMAGES);
        let endpoint = About::Endpoint { endpoint: target.endpoint, zone: target.zone };
        let image = About::Reference { reference: target.reference, scope: target.scope.clone(), mirrored: false };
        let trouble = Trouble { message: "a lie".to_owned(), step: 1_000, retry_after: Some(Duration::MAX), ..Trouble::default() };
        let fails = Finding::Failed(Trouble { in_a_row: 1_000, ..trouble });
        let (about, finding) = match number % LIES {
            0 => (image, fails),
            1 => (About::Login { repository: target.repository, fingerprint: target.scope, anonymous: true }, fails),
            2 => (About::BudgetOwner(target.budget_owner), fails),
            3 => (endpoint, fails),
            4 => (endpoint, Finding::Succeeded),
            5 => (image, Finding::Succeeded),
            _ => return self.replay(number),
        };
        let topic = Arc::new(Topic::new(target.view, about));
        let liar = self.nodes.len() - 1;
        self.say(liar, topic, finding);
        self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1));
    }

    /// The liar says again, as if it were so now, what it and others have said before.
    fn replay(&mut self, number: u64) {
        let liar = self.nodes.len() - 1;
        let before = self.written.iter().rev().skip(number as usize % LIES as usize).find_map(|spread| match spread {
            crate::bus::Spread::Report { report, .. } => Some(Arc::clone(report)),
            _ => None,
        });
        if let Some(report) = before {
            let report = Report { reporter: self.nodes[liar].name.clone(), ..(*report).clone() };
            self.send(liar, Upward::Publish(Arc::new(report), self.now));
        }
        self.queue.plan(self.now + LIES_EVERY, Event::Lie(number + 1));
    }

    /// One of the nodes of a rack has tried by itself, and did not reach the registry.
    pub(super) fn complain(&mut self, number: u64) {
        let target = target(0);
        let node = self.nodes.len() - 1 - number as usize % self.options.sick_rack;
        let topic = Arc::new(Topic::new(target.view, About::Endpoint { endpoint: target.endpoint, zone: target.zone }));
        let in_a_row = u32::try_from(1 + number / self.options.sick_rack as u64).unwrap_or(u32::MAX);
        let trouble = Trouble { message: "no route to host".to_owned(), step: 1, in_a_row, ..Trouble::default() };
        self.say(node, topic, Finding::Failed(trouble));
        self.queue.plan(self.now + COMPLAINS_EVERY, Event::Complain(number + 1));
    }

    fn say(&mut self, node: usize, topic: Arc<Topic>, finding: Finding) {
        let attempt = AttemptId::random(&mut self.random);
        let report = Report { reporter: self.nodes[node].name.clone(), topic, attempt, trace: None, elected: None, finding };
        self.send(node, Upward::Publish(Arc::new(report), self.now));
    }
}
