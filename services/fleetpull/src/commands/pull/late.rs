//! Nodes that the fleet knows and that did not answer when all were asked: they are asked by name, until they answer or the
//! command's time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::messages::registrar::KNOWN_FOR_MS;
use futures::future::LocalBoxFuture;

use crate::cli::Selector;
use crate::fleet::{Answer, FleetClient};
use crate::output::units;

/// Between two looks: as often as an agent says that it is alive.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Who was not heard for so long is not known any more.
const KNOWN_FOR: Duration = Duration::from_millis(KNOWN_FOR_MS);

/// What a look finds.
pub(super) type Look<'a> = LocalBoxFuture<'a, Vec<Answer<NodeDescription>>>;

/// Who is known and silent.
pub(super) struct Late {
    /// How long each had not been heard when the command began.
    silent: BTreeMap<NodeName, Duration>,
    /// Which of them are meant: their labels are known when they answer.
    selector: Option<Selector>,
    looked: bool,
}

impl Late {
    pub(super) fn new(silent: Vec<(NodeName, Duration)>, selector: Option<&Selector>) -> Self {
        Self { silent: silent.into_iter().collect(), selector: selector.cloned(), looked: false }
    }

    /// Who is silent still, by name.
    pub(super) fn names(&self) -> Vec<NodeName> {
        self.silent.keys().cloned().collect()
    }

    /// How many nodes are silent still.
    pub(super) fn count(&self) -> usize {
        self.silent.len()
    }

    /// Whether every one of them is meant, whatever it says.
    pub(super) fn all_meant(&self) -> bool {
        self.selector.is_none()
    }

    /// Asks each of them, at once when it is for the first time.
    pub(super) fn look<'a>(&self, client: &'a FleetClient) -> Option<Look<'a>> {
        let (nodes, pause) = (self.names(), if self.looked { LOOK_EVERY } else { Duration::ZERO });
        let look = async move {
            tokio::time::sleep(pause).await;
            client.ask_each(&nodes, &DescribeNode {}).await
        };
        (!self.silent.is_empty()).then(|| Box::pin(look) as Look<'a>)
    }

    /// Who has answered, and is meant.
    pub(super) fn hear(&mut self, answers: Vec<Answer<NodeDescription>>) -> Vec<NodeName> {
        self.looked = true;
        let mut meant = Vec::new();
        for (node, described) in answers.into_iter().filter_map(|(node, answer)| Some((node, answer.ok()?))) {
            self.silent.remove(&node);
            if self.selector.as_ref().is_none_or(|selector| selector.matches(&described.labels)) {
                meant.push(node);
            }
        }
        meant
    }

    /// Whether somebody of them is to be asked before the command may end, `lasts` after its beginning. One with labels that nobody
    /// knows is no reason to stay, nor one that the fleet has forgotten meanwhile.
    pub(super) fn is_awaited(&self, lasts: Duration, stays: bool) -> bool {
        let known = || self.silent.values().any(|ago| *ago + lasts < KNOWN_FOR);
        !self.silent.is_empty() && (!self.looked || (stays && self.all_meant() && known()))
    }

    /// Each with what is known of its silence, `lasts` after the command's beginning.
    pub(super) fn told(&self, lasts: Duration) -> Vec<(NodeName, String)> {
        let heard = |ago: &Duration| units::seconds(u64::try_from((*ago + lasts).as_millis()).unwrap_or(u64::MAX));
        let message = |ago| format!("known to the fleet, but its agent does not answer; it was heard {} ago", heard(ago));
        self.silent.iter().map(|(node, ago)| (node.clone(), message(ago))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn late(selector: Option<&str>) -> Late {
        let selector = selector.map(|text| text.parse().expect("a selector"));
        let silent = vec![(node("n1"), Duration::from_secs(20)), (node("n2"), Duration::from_secs(590))];
        Late::new(silent, selector.as_ref())
    }

    fn answer(name: &str, zone: &str) -> Answer<NodeDescription> {
        let text = format!(
            r#"{{"node": "{name}", "instance": "", "started_ms": 0, "version": "", "state": "ok", "since_ms": 0, "runtime": "",
                "labels": {{"zone": "{zone}"}}, "pulling": 0, "waiting": 0, "backoff": 0}}"#
        );
        (node(name), Ok(serde_json::from_str(&text).expect("a description")))
    }

    #[test]
    fn who_answers_late_is_asked_if_its_labels_fit() {
        for (selector, meant) in [(None, true), (Some("zone=a"), true), (Some("zone=b"), false)] {
            let mut late = late(selector);
            let joins = late.hear(vec![answer("n1", "a"), (node("n2"), Err("silent".to_owned()))]);
            assert_eq!((joins.len() == 1, late.names()), (meant, vec![node("n2")]), "{selector:?}");
        }
    }

    #[test]
    fn each_is_asked_once_and_awaited_where_a_wish_may_stand() {
        let (soon, later) = (Duration::from_secs(1), Duration::from_secs(581));
        let mut all = late(None);
        assert!(all.is_awaited(soon, false), "it was not asked yet");
        let _ = all.hear(vec![(node("n1"), Err(String::new()))]);
        assert_eq!((all.is_awaited(soon, false), all.is_awaited(soon, true)), (false, true));
        assert!(!all.is_awaited(later, true), "the fleet has forgotten both");
        let mut some = late(Some("zone=a"));
        let _ = some.hear(Vec::new());
        assert!(!some.is_awaited(soon, true), "whether it is meant is not known");
        assert!(!Late::new(Vec::new(), None).is_awaited(soon, true));
    }
}
