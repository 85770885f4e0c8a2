//! Finds nodes whose caps differ from those of the budget's leader.

use std::collections::BTreeMap;

use contract::NodeName;
use contract::messages::throttler::BudgetState;
use serde::Serialize;

use crate::output::known_failures::named;

/// The caps that a node uses, as it reports them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeCaps {
    per_second: f64,
    at_once: u64,
    per_second_of_node: Option<f64>,
    at_once_of_node: Option<u64>,
    revision: u64,
}

impl NodeCaps {
    pub(super) fn of(state: &BudgetState) -> Self {
        let BudgetState { per_second, at_once, per_second_of_node, at_once_of_node, policy_revision, .. } = *state;
        Self { per_second, at_once, per_second_of_node, at_once_of_node, revision: policy_revision }
    }

    /// The differences to the state that the budget's leader reports.
    fn differs(&self, state: &BudgetState) -> Vec<String> {
        let mut what = Vec::new();
        if let Some(own) = self.per_second_of_node {
            what.push(format!("own settings allow at most {own} pulls a second"));
        }
        if let Some(own) = self.at_once_of_node {
            what.push(format!("own settings allow at most {own} pulls at once"));
        }
        if !state.leads {
            // The leader did not report, so its caps are unknown.
            return what;
        }
        let cap = |number: f64| if number > 0.0 { number.to_string() } else { "no limit".to_owned() };
        let other = |what: &str, own: f64, leaders: f64| {
            format!("the fleet's cap of pulls {what} is {} here, and {} on the leader", cap(own), cap(leaders))
        };
        let theirs = state.policy_revision;
        let policy =
            |revision: u64| if revision == 0 { "no fleet policy".to_owned() } else { format!("revision {revision} of the fleet policy") };
        if self.revision != theirs {
            what.push(format!("{} is in use, and {} on the leader", policy(self.revision), policy(theirs)));
        }
        if self.per_second != state.per_second {
            what.push(other("a second", self.per_second, state.per_second));
        }
        if self.at_once != state.at_once {
            what.push(other("at once", self.at_once as f64, state.at_once as f64));
        }
        what
    }
}

/// A difference on some nodes. The names and their meaning are an interface.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Difference<'a> {
    pub(super) nodes: Vec<&'a NodeName>,
    pub(super) what: String,
}

/// The differences between nodes and the state that the budget's leader reports. Nodes with the same difference are grouped.
pub(super) fn differences<'a>(state: &BudgetState, caps: &'a [(NodeName, NodeCaps)]) -> Vec<Difference<'a>> {
    let mut differences: BTreeMap<String, Vec<&NodeName>> = BTreeMap::new();
    for (node, node_caps) in caps {
        for what in node_caps.differs(state) {
            differences.entry(what).or_default().push(node);
        }
    }
    differences.into_iter().map(|(what, nodes)| Difference { nodes, what }).collect()
}

/// Node names in one line.
pub(super) fn names(nodes: &[&NodeName]) -> String {
    named(&nodes.iter().map(|node| (*node).clone()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_other_caps_are_listed_with_the_difference() {
        let led = BudgetState { per_second: 5.0, per_second_by_policy: true, policy_revision: 7, leads: true, ..BudgetState::default() };
        let stricter = BudgetState { leads: false, per_second_of_node: Some(2.0), at_once_of_node: Some(3), ..led.clone() };
        let behind = BudgetState { leads: false, per_second: 200.0, per_second_by_policy: false, policy_revision: 0, ..led.clone() };
        let caps: Vec<(NodeName, NodeCaps)> = [("n1", &led), ("n2", &stricter), ("n3", &behind), ("n4", &stricter)]
            .into_iter()
            .map(|(node, state)| (node.parse().expect("a name"), NodeCaps::of(state)))
            .collect();
        let found: Vec<(String, String)> = differences(&led, &caps).into_iter().map(|one| (names(&one.nodes), one.what)).collect();
        let expected = [
            ("n3", "no fleet policy is in use, and revision 7 of the fleet policy on the leader"),
            ("n2, n4", "own settings allow at most 2 pulls a second"),
            ("n2, n4", "own settings allow at most 3 pulls at once"),
            ("n3", "the fleet's cap of pulls a second is 200 here, and 5 on the leader"),
        ];
        assert_eq!(found, expected.map(|(nodes, what)| (nodes.to_owned(), what.to_owned())));
        assert_eq!(differences(&led, &caps[..1]), []);
        assert_eq!(differences(&BudgetState { leads: false, ..led.clone() }, &caps[2..3]), [], "the leader says nothing");
        let (quick, slow) = (
            BudgetState { per_second: 200.0, leads: true, ..BudgetState::default() },
            BudgetState { at_once: 4, ..BudgetState::default() },
        );
        let caps = [("n1".parse().expect("a name"), NodeCaps::of(&slow))];
        let found: Vec<String> = differences(&quick, &caps).into_iter().map(|one| one.what).collect();
        assert_eq!(
            found,
            [
                "the fleet's cap of pulls a second is no limit here, and 200 on the leader",
                "the fleet's cap of pulls at once is 4 here, and no limit on the leader"
            ]
        );
    }
}
