//! The caps that the nodes of a budget have in their settings, and the median of them.

use std::collections::VecDeque;

use contract::NodeName;
use contract::policy::{Caps, LEAST_PER_SECOND, MOST_AT_ONCE, MOST_PER_SECOND};

/// How many nodes are remembered, those that asked last. Sixteen of them have to agree before the median is theirs.
const NODES_MAX: usize = 31;

/// The caps of the nodes that have asked for a permit last; a new leader begins with its own. If the fleet policy sets no cap, the median
/// is the fleet's cap: a leader whose settings differ from those of most nodes does not impose them.
#[derive(Debug, Default)]
pub(super) struct StatedCaps {
    nodes: VecDeque<(NodeName, Caps)>,
}

impl StatedCaps {
    /// Records the caps of a node; returns whether anything changed. A cap that no settings allow is not recorded.
    pub(super) fn state(&mut self, node: &NodeName, caps: Caps) -> bool {
        let caps = allowed(caps);
        if caps == Caps::NONE {
            return false;
        }
        let known = self.nodes.iter().position(|(known, _)| known == node).and_then(|place| self.nodes.remove(place));
        if self.nodes.len() == NODES_MAX {
            self.nodes.pop_front();
        }
        let changes = known.is_none_or(|(_, before)| before != caps);
        self.nodes.push_back((node.clone(), caps));
        changes
    }

    /// The median of each cap.
    pub(super) fn median(&self) -> Caps {
        Caps {
            pulls_per_second: median(self.nodes.iter().filter_map(|(_, caps)| caps.pulls_per_second), |cap| *cap == 0.0, f64::total_cmp),
            pulls_at_once: median(self.nodes.iter().filter_map(|(_, caps)| caps.pulls_at_once), |cap| *cap == 0, u64::cmp),
        }
    }
}

/// The caps that the settings allow.
fn allowed(caps: Caps) -> Caps {
    Caps {
        pulls_per_second: caps.pulls_per_second.filter(|cap| *cap == 0.0 || (LEAST_PER_SECOND..=MOST_PER_SECOND).contains(cap)),
        pulls_at_once: caps.pulls_at_once.filter(|cap| *cap <= MOST_AT_ONCE),
    }
}

/// The median, of two the lower one. Zeros mean no limit, and come last.
fn median<T: Copy>(
    caps: impl Iterator<Item = T>,
    is_unlimited: impl Fn(&T) -> bool,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Option<T> {
    let mut caps: Vec<T> = caps.collect();
    caps.sort_by(|one, other| is_unlimited(one).cmp(&is_unlimited(other)).then_with(|| order(one, other)));
    caps.get(caps.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::budget::BudgetPolicy;

    fn caps(per_second: f64, at_once: u64) -> Caps {
        Caps { pulls_per_second: Some(per_second), pulls_at_once: Some(at_once) }
    }

    fn node(number: usize) -> NodeName {
        format!("n{number}").parse().unwrap()
    }

    #[test]
    fn cap_in_force_is_the_median_of_stated_ones_unless_the_policy_sets_it() {
        let policy = Caps { pulls_per_second: Some(70.0), pulls_at_once: None };
        let settings = BudgetPolicy { per_second: 1.0, at_once: 5, ..BudgetPolicy::default() };
        // What each node states; the caps in force without and with the policy.
        let table = [
            (vec![], (1.0, 5), (70.0, 5)),
            (vec![caps(1.0, 5)], (1.0, 5), (70.0, 5)),
            (vec![caps(1.0, 5), caps(200.0, 0)], (1.0, 5), (70.0, 5)),
            (vec![caps(1.0, 5), caps(200.0, 0), caps(200.0, 0)], (200.0, 0), (70.0, 0)),
            (vec![caps(0.0, 5), caps(50.0, 5), caps(200.0, 9)], (200.0, 5), (70.0, 5)),
            (vec![caps(9e4, 5), caps(50.0, 5), caps(50.0, 9)], (50.0, 5), (70.0, 5)),
        ];
        for (stated, without, with) in table {
            let mut known = StatedCaps::default();
            for (number, caps) in stated.iter().enumerate() {
                assert!(known.state(&node(number), *caps));
                assert!(!known.state(&node(number), *caps), "repeated");
            }
            let in_force = |by_policy: Caps| {
                let BudgetPolicy { per_second, at_once, .. } = settings.with(known.median()).with(by_policy);
                (per_second, at_once)
            };
            assert_eq!((in_force(Caps::NONE), in_force(policy)), (without, with), "{stated:?}");
        }
    }

    #[test]
    fn nodes_that_asked_last_are_remembered() {
        let mut known = StatedCaps::default();
        for number in 0..10 * NODES_MAX {
            known.state(&node(number), caps(number as f64 + 1.0, 1));
        }
        assert_eq!(known.nodes.len(), NODES_MAX);
        assert!(!known.state(&node(0), Caps::NONE), "an older node states nothing");
        assert_eq!(known.median().pulls_per_second, Some((10 * NODES_MAX - NODES_MAX / 2) as f64));
    }

    #[test]
    fn caps_that_no_settings_allow_are_ignored() {
        let mut known = StatedCaps::default();
        assert!(known.state(&node(1), caps(200.0, 5)));
        for (number, cap) in [f64::NAN, f64::INFINITY, -1.0, 1e-9, 1e9].into_iter().enumerate() {
            known.state(&node(2 + number), caps(cap, u64::MAX));
        }
        assert_eq!((known.median(), known.nodes.len()), (caps(200.0, 5), 1));
    }
}
