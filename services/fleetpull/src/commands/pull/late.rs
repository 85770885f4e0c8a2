//! Nodes that the fleet knows but that did not answer at first. They are asked by name until they answer or the command's time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::agent::{DescribeNode, NodeDescription};
use futures::future::LocalBoxFuture;

use crate::cli::Selector;
use crate::fleet::FleetClient;
use crate::output::silent::Silent;
use crate::output::{self, units};

/// The pause between two checks, as between two digests of the registrar.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The nodes that answer a check.
pub(super) type Look<'a> = LocalBoxFuture<'a, Vec<(NodeName, NodeDescription)>>;

/// Nodes that are known but do not answer.
pub(super) struct Late {
    /// The silent nodes, as known when the command began.
    silent: BTreeMap<NodeName, Silent>,
    /// The selector of the command. It is applied to the labels in a node's answer.
    selector: Option<Selector>,
    looked: bool,
}

impl Late {
    pub(super) fn new(silent: Vec<Silent>, selector: Option<&Selector>) -> Self {
        let silent = silent.into_iter().map(|silent| (silent.node.clone(), silent)).collect();
        Self { silent, selector: selector.cloned(), looked: false }
    }

    /// The number of selected nodes that are still silent.
    pub(super) fn selected_count(&self) -> usize {
        self.selected().count()
    }

    /// The selected nodes that are still silent.
    pub(super) fn selected_names(&self) -> Vec<NodeName> {
        self.selected().map(|silent| silent.node.clone()).collect()
    }

    /// Silent nodes that may not be selected, because their labels are unknown.
    fn unsure(&self) -> Vec<NodeName> {
        self.silent.values().filter(|silent| !self.is_selected(silent)).map(|silent| silent.node.clone()).collect()
    }

    /// Names silent nodes that may be selected. They have no row.
    pub(super) fn name_unsure(&self, quiet: bool) {
        let unsure = self.unsure();
        if !unsure.is_empty() && !quiet {
            output::remark(&format!("{}: silent, and it is not known if their labels match", output::known_failures::named(&unsure)));
        }
    }

    /// Asks each silent node: immediately the first time, later after a pause.
    pub(super) fn look<'a>(&self, client: &'a FleetClient) -> Option<Look<'a>> {
        let nodes: Vec<NodeName> = self.silent.keys().cloned().collect();
        let pause = if self.looked { LOOK_EVERY } else { Duration::ZERO };
        let look = async move {
            tokio::time::sleep(pause).await;
            client.replies_of(&nodes, &DescribeNode {}).await
        };
        (!self.silent.is_empty()).then(|| Box::pin(look) as Look<'a>)
    }

    /// Takes the nodes that answer, and returns the selected ones among them.
    pub(super) fn take_answers(&mut self, answers: Vec<(NodeName, NodeDescription)>) -> Vec<NodeName> {
        self.looked = true;
        let mut selected = Vec::new();
        for (node, described) in answers {
            self.silent.remove(&node);
            if self.selector.as_ref().is_none_or(|selector| selector.matches(&described.labels)) {
                selected.push(node);
            }
        }
        selected
    }

    /// True if a silent node has to be asked before the command may end; `lasts` is the time since its start. The command does not wait for
    /// a node that may not be selected, nor for one that the fleet has forgotten.
    pub(super) fn is_awaited(&self, lasts: Duration, stays: bool) -> bool {
        let known = || self.selected().any(|silent| silent.ago + lasts < silent.known_for);
        !self.silent.is_empty() && (!self.looked || (stays && known()))
    }

    /// Each selected silent node with a message about its silence; `lasts` is the time since the command's start.
    pub(super) fn silent_with_reasons(&self, lasts: Duration) -> Vec<(NodeName, String)> {
        let since_last_seen = |ago: Duration| units::age(u64::try_from((ago + lasts).as_millis()).unwrap_or(u64::MAX));
        let message = |ago| format!("known to the fleet, but its agent does not answer; last seen {} ago", since_last_seen(ago));
        self.selected().map(|silent| (silent.node.clone(), message(silent.ago))).collect()
    }

    fn selected(&self) -> impl Iterator<Item = &Silent> {
        self.silent.values().filter(|silent| self.is_selected(silent))
    }

    /// True if the node is certainly selected. Nodes whose known labels do not match are not in `silent`.
    fn is_selected(&self, silent: &Silent) -> bool {
        self.selector.is_none() || silent.labels.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn silent(name: &str, ago: u64, zone: Option<&str>) -> Silent {
        let labels = zone.map(|zone| BTreeMap::from([("zone".to_owned(), zone.to_owned())]));
        Silent { node: node(name), ago: Duration::from_secs(ago), labels, known_for: Duration::from_secs(600) }
    }

    /// The labels of n1 and n2 are unknown.
    fn late(selector: Option<&str>) -> Late {
        let selector = selector.map(|text| text.parse().expect("a selector"));
        Late::new(vec![silent("n1", 20, None), silent("n2", 590, None)], selector.as_ref())
    }

    fn answer(name: &str, zone: &str) -> (NodeName, NodeDescription) {
        let text = format!(
            r#"{{"node": "{name}", "instance": "", "started_ms": 0, "version": "", "state": "ok", "since_ms": 0, "runtime": "",
                "labels": {{"zone": "{zone}"}}, "pulling": 0, "waiting": 0, "backoff": 0}}"#
        );
        (node(name), serde_json::from_str(&text).expect("a description"))
    }

    #[test]
    fn node_that_answers_late_is_asked_if_its_labels_match() {
        for (selector, selected) in [(None, true), (Some("zone=a"), true), (Some("zone=b"), false)] {
            let mut late = late(selector);
            let joins = late.take_answers(vec![answer("n1", "a")]);
            let left: Vec<&NodeName> = late.silent.keys().collect();
            assert_eq!((joins.len() == 1, left), (selected, vec![&node("n2")]), "{selector:?}");
        }
    }

    #[test]
    fn silent_node_is_selected_if_its_known_labels_match() {
        let selector: Selector = "zone=a".parse().expect("a selector");
        let mut late = Late::new(vec![silent("n1", 20, Some("a")), silent("n2", 20, None)], Some(&selector));
        let silent_with_reasons: Vec<NodeName> = late.silent_with_reasons(Duration::ZERO).into_iter().map(|(node, _)| node).collect();
        assert_eq!((silent_with_reasons, late.selected_count(), late.unsure()), (vec![node("n1")], 1, vec![node("n2")]));
        let _ = late.take_answers(Vec::new());
        assert!(late.is_awaited(Duration::from_secs(1), true), "n1 is selected");
        assert_eq!(late.take_answers(vec![answer("n1", "b")]), [], "it was started again with another label");
        assert_eq!(late.selected_count(), 0);
    }

    #[test]
    fn silent_node_is_asked_once() {
        let (soon, later) = (Duration::from_secs(1), Duration::from_secs(581));
        let mut all = late(None);
        assert!(all.is_awaited(soon, false), "it was not asked yet");
        let _ = all.take_answers(Vec::new());
        assert_eq!((all.is_awaited(soon, false), all.is_awaited(soon, true)), (false, true));
        assert!(!all.is_awaited(later, true), "the fleet has forgotten both");
        let mut some = late(Some("zone=a"));
        let _ = some.take_answers(Vec::new());
        assert!(!some.is_awaited(soon, true), "it is not known if it is selected");
        assert!(!Late::new(Vec::new(), None).is_awaited(soon, true));
    }
}
