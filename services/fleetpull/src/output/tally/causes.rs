//! Causes of waits and failures, grouped by the registry or image at fault, whichever node reported them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use contract::{FailureClass, NodeName};
use image::Reference;

use crate::output::quota::{self, SpentQuota};
use crate::output::refusal::result_in_words;
use crate::output::{one_line, units};

/// The cause of a wait or failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A registry or an image, and the result of an attempt. If it was refused for too many requests, the subject is the registry.
    Failed { subject: String, result: String, is_rate_limited: bool },
    /// Without a failure: the reason for waiting, as the agent describes it.
    Described(String),
}

impl Cause {
    /// The cause of a failed attempt: the registry if it is at fault, else the image.
    pub(super) fn of_failure(image: &str, class: FailureClass, message: &str) -> Self {
        let registry = || Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.registry().to_owned());
        let subject = match class {
            FailureClass::RegistryUnavailable | FailureClass::RateLimited => registry(),
            FailureClass::NotFound
            | FailureClass::Denied
            | FailureClass::ContentInvalid
            | FailureClass::SignatureInvalid
            | FailureClass::NodeLocal
            | FailureClass::Unknown => image.to_owned(),
        };
        Self::Failed { subject, result: result_in_words(class, message), is_rate_limited: class == FailureClass::RateLimited }
    }

    /// The cause as an agent describes it. Times, which differ between nodes, follow a comma and are cut off.
    pub(super) fn described(sentence: &str) -> Self {
        Self::Described(sentence.split(", ").next().unwrap_or(sentence).to_owned())
    }

    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Failed { subject, result, .. } => one_line(&format!("{subject} {result}")),
            Self::Described(description) => one_line(description),
        }
    }
}

/// The cause that holds a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) cause: Cause,
    /// When the next attempt is due, in milliseconds since 1970-01-01, if known.
    pub(super) next_ms: Option<u64>,
}

/// Holds with the same cause.
#[derive(Debug, Default)]
struct Held<'a> {
    nodes: BTreeSet<&'a NodeName>,
    next_ms: Option<u64>,
}

/// A line for each cause, sorted by the number of nodes: `4 nodes: registry.example 503, next attempt 19:05:16Z`. A pull that was refused
/// for too many requests also waits for the quota of its registry, if that is in `quotas`, the used-up quotas by registry.
pub(super) fn lines<'a>(
    holds: impl Iterator<Item = (&'a NodeName, &'a Hold)>,
    quotas: &BTreeMap<&str, SpentQuota>,
    now_ms: u64,
    most: usize,
) -> Vec<String> {
    let mut causes: BTreeMap<&Cause, Held<'_>> = BTreeMap::new();
    for (node, Hold { cause, next_ms }) in holds {
        let held = causes.entry(cause).or_default();
        held.nodes.insert(node);
        held.next_ms = [held.next_ms, *next_ms].into_iter().flatten().min();
    }
    let mut causes: Vec<(&Cause, Held<'_>)> = causes.into_iter().collect();
    causes.sort_by_key(|(cause, held)| (Reverse(held.nodes.len()), *cause));
    let line = |(cause, held): &(&Cause, Held<'_>)| {
        let spent = match cause {
            Cause::Failed { subject, is_rate_limited: true, .. } => quotas.get(subject.as_str()),
            _ => None,
        };
        let quota = spent.map(|spent| format!(", {}", quota::in_words(&spent.limit))).unwrap_or_default();
        let next = match held.next_ms.max(spent.map(|spent| now_ms.saturating_add(spent.wait_ms))) {
            None => String::new(),
            Some(next_ms) if next_ms <= now_ms => ", the next attempt is due".to_owned(),
            Some(next_ms) => format!(", next attempt {}", units::time_of_day(next_ms)),
        };
        let wait = match (cause, held.nodes.len()) {
            (Cause::Failed { .. }, _) => "",
            (Cause::Described(_), 1) => " waits",
            (Cause::Described(_), _) => " wait",
        };
        format!("  {}{wait}: {}{quota}{next}", counted(held.nodes.len()), cause.in_words())
    };
    some(&causes, most, line)
}

/// The first `most` items as lines, and the number of others.
pub(super) fn some<T>(all: &[T], most: usize, line: impl Fn(&T) -> String) -> Vec<String> {
    let more = all.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("  and {more} other {}", if more == 1 { "cause" } else { "causes" }));
    all.iter().take(most).map(line).chain(more).collect()
}

/// The number of nodes in words.
pub(super) fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: &str = "ErrImagePull: 127.0.0.1:5010: 503 Service Unavailable for manifest v1";
    const MISSING: &str = "ErrImagePull: r.example: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown) for manifest v9";

    fn shown(holds: &[(&str, Hold)], most: usize) -> Vec<String> {
        let holds: Vec<(NodeName, &Hold)> = holds.iter().map(|(node, hold)| (node.parse().expect("a name"), hold)).collect();
        lines(holds.iter().map(|(node, hold)| (node, *hold)), &BTreeMap::new(), 1_769_860_800_000, most)
    }

    #[test]
    fn a_registry_at_fault_is_one_cause_for_all_its_images_and_a_tag_is_one_for_itself() {
        let down = |image: &str, next_ms| Hold { cause: Cause::of_failure(image, FailureClass::RegistryUnavailable, DOWN), next_ms };
        let missing = Hold { cause: Cause::of_failure("r.example/a:9", FailureClass::NotFound, MISSING), next_ms: None };
        let due = Hold { next_ms: Some(1), ..missing.clone() };
        let holds = [
            ("n1", down("127.0.0.1:5010/a:1", Some(1_769_860_816_000))),
            ("n1", down("127.0.0.1:5010/b:1", Some(1_769_860_818_000))),
            ("n2", down("127.0.0.1:5010/a:1", None)),
            ("n3", missing),
        ];
        assert_eq!(shown(&holds, 2), ["  2 nodes: 127.0.0.1:5010 503, next attempt 12:00:16Z", "  1 node: r.example/a:9 404"]);
        assert_eq!(shown(&holds, 1), ["  2 nodes: 127.0.0.1:5010 503, next attempt 12:00:16Z", "  and 1 other cause"]);
        assert_eq!(shown(&[("n1", due)], 2), ["  1 node: r.example/a:9 404, the next attempt is due"]);
    }

    #[test]
    fn wait_without_a_failure_is_shown_as_the_agent_describes_it_without_control_characters() {
        let turn = |moment: &str| Hold { cause: Cause::described(&format!("the budget of r.example, {moment}")), next_ms: None };
        assert_eq!(shown(&[("n1", turn("in 3 s")), ("n2", turn("in 4 s"))], 3), ["  2 nodes wait: the budget of r.example"]);
        let bad = Hold { cause: Cause::of_failure("a\u{1b}[2J:1", FailureClass::Unknown, "Failed: x\u{9b}2J\nforged"), next_ms: None };
        assert_eq!(shown(&[("n1", bad)], 3), ["  1 node: a [2J:1 x 2J forged"]);
        assert_eq!(shown(&[("n1", Hold { cause: Cause::described("x\r\u{1b}[2K"), next_ms: None })], 3), ["  1 node waits: x  [2K"]);
    }
}
