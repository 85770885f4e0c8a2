//! Decides which nodes may begin, and when: a limited number at a time, canaries first, and no more nodes after a failure that every node
//! would have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use contract::messages::pull_coordinator::OutcomeKind;
use contract::{FailureClass, NodeName};

use crate::output::outcome::Row;

/// The failures that every node would have, so that other nodes need not begin.
const EVERYWHERE: [FailureClass; 4] =
    [FailureClass::NotFound, FailureClass::Denied, FailureClass::ContentInvalid, FailureClass::SignatureInvalid];

/// True if every node would have a failure of this class.
pub(super) fn is_everywhere(class: FailureClass) -> bool {
    EVERYWHERE.contains(&class)
}

/// The nodes of one command and their progress.
pub(super) struct Plan {
    /// Nodes that have not begun, in their order.
    waiting: VecDeque<NodeName>,
    at_work: BTreeSet<NodeName>,
    at_a_time: usize,
    /// Canaries that have not begun. The other nodes wait for them. More than the known nodes: nodes that join late are canaries too.
    canaries: usize,
    /// Canaries that have begun and not ended.
    open_canaries: BTreeSet<NodeName>,
    /// The row of a canary that failed. No other node begins then.
    dead_canary: Option<Box<Row>>,
    /// Images that would fail on every node, each with the row that showed it.
    stopped: BTreeMap<String, Box<Row>>,
    /// Standing pulls that wait because of a failure that every node would have. No other node begins until they go on.
    holding: BTreeSet<(NodeName, String)>,
    /// True with standing pulls, which go on after a failure.
    standing: bool,
}

/// A node that may begin, and the images that it pulls.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) node: NodeName,
    pub(super) images: Vec<String>,
}

impl Plan {
    pub(super) fn new(nodes: Vec<NodeName>, at_a_time: usize, canaries: usize, standing: bool) -> Self {
        Self {
            waiting: nodes.into(),
            at_work: BTreeSet::new(),
            at_a_time: at_a_time.max(1),
            canaries,
            open_canaries: BTreeSet::new(),
            dead_canary: None,
            stopped: BTreeMap::new(),
            holding: BTreeSet::new(),
            standing,
        }
    }

    /// The next node that may begin, with those of `images` that are worth a request.
    pub(super) fn begin(&mut self, images: &[String]) -> Option<Begin> {
        if self.at_work.len() >= self.at_a_time || self.dead_canary.is_some() || !self.holding.is_empty() {
            return None;
        }
        if self.canaries == 0 && !self.open_canaries.is_empty() {
            return None;
        }
        let images: Vec<String> = images.iter().filter(|image| !self.stopped.contains_key(*image)).cloned().collect();
        if images.is_empty() {
            return None;
        }
        let node = self.waiting.pop_front()?;
        if self.canaries > 0 {
            self.canaries -= 1;
            self.open_canaries.insert(node.clone());
        }
        self.at_work.insert(node.clone());
        Some(Begin { node, images })
    }

    /// Adds a node after all others.
    pub(super) fn join(&mut self, node: NodeName) {
        self.waiting.push_back(node);
    }

    /// Takes a row.
    pub(super) fn see(&mut self, row: &Row) {
        self.holding.remove(&(row.node.clone(), row.image.clone()));
        if row.is_there() || row.outcome.stands {
            return;
        }
        if self.open_canaries.contains(&row.node) && self.dead_canary.is_none() {
            self.dead_canary = Some(Box::new(row.clone()));
        }
        let failed = matches!(row.outcome.outcome, OutcomeKind::Failed | OutcomeKind::Backoff);
        if failed && !self.standing && row.outcome.class.is_some_and(is_everywhere) {
            self.stopped.entry(row.image.clone()).or_insert_with(|| Box::new(row.clone()));
        }
    }

    /// Takes the state of a standing pull. `held_by` is the failure that it waits for.
    pub(super) fn see_standing_pull(&mut self, node: &NodeName, image: &str, held_by: Option<FailureClass>) {
        let place = (node.clone(), image.to_owned());
        if held_by.is_some_and(is_everywhere) && self.at_work.contains(node) {
            self.holding.insert(place);
        } else {
            self.holding.remove(&place);
        }
    }

    /// The node has stopped answering: what its standing pulls wait for is unknown until it answers again, so it holds up no other node.
    pub(super) fn see_no_answer(&mut self, node: &NodeName) {
        self.holding.retain(|(holder, _)| holder != node);
    }

    /// Ends a node, which has sent all its rows.
    pub(super) fn end(&mut self, node: &NodeName) {
        self.at_work.remove(node);
        self.open_canaries.remove(node);
        self.holding.retain(|(holder, _)| holder != node);
    }

    /// True if no node may begin until a standing pull goes on.
    pub(super) fn is_paused(&self) -> bool {
        !self.holding.is_empty() && !self.waiting.is_empty()
    }

    /// The number of nodes that have not begun.
    pub(super) fn not_begun(&self) -> usize {
        self.waiting.len()
    }

    /// The nodes that are pulling, sorted by name.
    pub(super) fn at_work(&self) -> impl Iterator<Item = &NodeName> {
        self.at_work.iter()
    }

    /// Takes the nodes that will not begin. Called when no node is pulling.
    pub(super) fn left_over(&mut self) -> Vec<NodeName> {
        std::mem::take(&mut self.waiting).into()
    }

    /// The row that explains why `image` was not requested from a node.
    pub(super) fn why_not(&self, image: &str) -> Option<&Row> {
        self.stopped.get(image).or(self.dead_canary.as_ref()).map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use contract::messages::pull_coordinator::PullOutcome;

    use super::*;

    fn nodes(count: usize) -> Vec<NodeName> {
        (1..=count).map(|number| format!("n{number:02}").parse().expect("a name")).collect()
    }

    fn images() -> Vec<String> {
        vec!["a".to_owned(), "b".to_owned()]
    }

    fn row(node: &NodeName, image: &str, outcome: OutcomeKind, class: Option<FailureClass>) -> Row {
        let outcome = PullOutcome { outcome, class, ..PullOutcome::default() };
        Row { image: image.to_owned(), node: node.clone(), outcome, at_ms: 0, under_way: None, not_begun: false }
    }

    fn begin_all(plan: &mut Plan) -> Vec<Begin> {
        std::iter::from_fn(|| plan.begin(&images())).collect()
    }

    #[test]
    fn no_more_begin_than_may_at_a_time() {
        let mut plan = Plan::new(nodes(5), 2, 0, false);
        let begun = begin_all(&mut plan);
        assert_eq!((begun.len(), plan.not_begun()), (2, 3));
        plan.end(&begun[0].node);
        assert_eq!(begin_all(&mut plan).len(), 1);
        assert_eq!(plan.at_work().count(), 2);
    }

    #[test]
    fn node_that_joins_late_begins_last() {
        let mut plan = Plan::new(nodes(1), 1, 0, false);
        plan.join("late".parse().expect("a name"));
        let first = begin_all(&mut plan);
        assert_eq!((first.len(), first[0].node.as_str()), (1, "n01"));
        plan.end(&first[0].node);
        assert_eq!(begin_all(&mut plan)[0].node.as_str(), "late");
    }

    #[test]
    fn the_others_begin_when_every_canary_has_it() {
        let mut plan = Plan::new(nodes(5), 10, 2, false);
        let canaries = begin_all(&mut plan);
        assert_eq!(canaries.len(), 2);
        plan.see(&row(&canaries[0].node, "a", OutcomeKind::Pulled, None));
        plan.end(&canaries[0].node);
        assert!(begin_all(&mut plan).is_empty(), "one canary is not done");
        plan.see(&row(&canaries[1].node, "a", OutcomeKind::Present, None));
        plan.end(&canaries[1].node);
        assert_eq!(begin_all(&mut plan).len(), 3);
    }

    #[test]
    fn nodes_that_join_late_are_canaries_until_enough_have_begun() {
        for (answering, canaries, at_once) in [(0, 1, 1), (1, 2, 2), (2, 2, 2), (3, 1, 1), (1, 9, 4)] {
            let mut plan = Plan::new(nodes(answering), 10, canaries, false);
            let mut begun = begin_all(&mut plan);
            for late in answering..4 {
                plan.join(format!("late{late}").parse().expect("a name"));
            }
            begun.extend(begin_all(&mut plan));
            assert_eq!(begun.len(), at_once, "{answering} nodes answer at first, {canaries} are canaries");
            for canary in begun {
                plan.see(&row(&canary.node, "a", OutcomeKind::Pulled, None));
                plan.end(&canary.node);
            }
            assert_eq!(begin_all(&mut plan).len(), 4 - at_once, "the others begin when the canaries have it");
        }
    }

    #[test]
    fn failed_canary_stops_the_others_for_any_failure() {
        let mut plan = Plan::new(nodes(5), 10, 1, false);
        let canary = begin_all(&mut plan).remove(0);
        plan.see(&row(&canary.node, "a", OutcomeKind::Failed, Some(FailureClass::NodeLocal)));
        plan.end(&canary.node);
        assert!(begin_all(&mut plan).is_empty());
        assert_eq!((plan.left_over().len(), plan.why_not("b").map(|row| row.image.as_str())), (4, Some("a")));
    }

    #[test]
    fn image_that_fails_everywhere_is_skipped_and_others_begin() {
        for (class, stops) in [
            (FailureClass::NotFound, true),
            (FailureClass::Denied, true),
            (FailureClass::ContentInvalid, true),
            (FailureClass::SignatureInvalid, true),
            (FailureClass::RegistryUnavailable, false),
            (FailureClass::RateLimited, false),
            (FailureClass::NodeLocal, false),
            (FailureClass::Unknown, false),
        ] {
            let mut plan = Plan::new(nodes(3), 1, 0, false);
            let first = plan.begin(&images()).expect("one may begin");
            plan.see(&row(&first.node, "a", OutcomeKind::Backoff, Some(class)));
            plan.end(&first.node);
            let second = plan.begin(&images()).expect("b is worth asking for");
            assert_eq!(second.images.len(), if stops { 1 } else { 2 }, "{class}");
            assert_eq!(plan.why_not("a").is_some(), stops, "{class}");
        }
    }

    #[test]
    fn plan_with_standing_pulls_pauses_until_the_image_is_pulled() {
        let mut plan = Plan::new(nodes(3), 2, 0, true);
        let first = plan.begin(&images()).expect("one may begin");
        plan.see_standing_pull(&first.node, "a", Some(FailureClass::NotFound));
        assert!(plan.is_paused() && plan.begin(&images()).is_none());
        plan.see_standing_pull(&first.node, "a", Some(FailureClass::RegistryUnavailable));
        assert!(!plan.is_paused(), "that would not come everywhere");
        plan.see_standing_pull(&first.node, "a", Some(FailureClass::Denied));
        plan.see(&row(&first.node, "a", OutcomeKind::Pulled, None));
        assert_eq!(plan.begin(&images()).map(|begin| begin.images.len()), Some(2));
        plan.see_standing_pull(&first.node, "b", Some(FailureClass::Denied));
        plan.see_no_answer(&first.node);
        assert!(!plan.is_paused(), "a silent node does not pause the plan");
        plan.see_standing_pull(&first.node, "b", Some(FailureClass::Denied));
        assert!(plan.is_paused(), "it answers again");
        plan.end(&first.node);
        assert!(!plan.is_paused(), "a node that has ended holds nobody up");
    }
}
