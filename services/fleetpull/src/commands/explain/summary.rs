//! Explains in a sentence or two why an image waits: the cause, since when, the nodes, and the next attempt. Printed first.

use std::cmp::Reverse;

use contract::NodeName;
use contract::messages::pull_coordinator::{BudgetHold, Explanation, PullPolicy};

use super::{Findings, Verdict};
use crate::commands::status::{name, silent, state_in_words, without_a_bus};
use crate::output::known_failures::{Known, found_by, named_few};
use crate::output::layout::without_middle;
use crate::output::refusal::next_attempt;
use crate::output::silent::{Silent, milliseconds};
use crate::output::units;

/// The longest name in a sentence, in columns. It leaves room for the figures after it.
const NAME_SHOWN: usize = 40;

/// Sorts the entries as they are explained. The sentence is about the first: of those that hold all nodes, the one that does so for the
/// longest time. Shared entries precede those of single nodes, because they name all nodes that found the failure.
pub(super) fn sort(known: &mut [Known]) {
    known.sort_by_cached_key(|known| (Reverse(known.holds_all()), !known.is_shared(), Reverse(known.due_ms())));
}

/// The sentences, the most important first. None for this process alone, whose verdict says it all.
pub(super) fn sentences(findings: &Findings) -> Vec<String> {
    let Findings { verdicts, known, silent: missing, bus_lost } = findings;
    let explanations: Vec<(&NodeName, &Explanation)> = verdicts.iter().filter_map(of_node).collect();
    if explanations.is_empty() {
        return Vec::new();
    }
    let cause = known.first().map(|first| {
        let more = known.len() - 1;
        let more = if more > 0 { format!(", {more} more below") } else { String::new() };
        format!("{}{more}", cause(first, &explanations))
    });
    let cause = cause.or_else(|| budget(&explanations)).unwrap_or_else(|| free(&explanations));
    let lost = bus_lost.iter().map(|(node, lost)| without_a_bus(node, lost, ""));
    let silent = missing.first().map(|first| of_silent(first, missing, verdicts.len()));
    [cause].into_iter().chain(lost).chain(silent).collect()
}

fn of_node(verdict: &Verdict) -> Option<(&NodeName, &Explanation)> {
    Some((verdict.node.as_ref()?, verdict.explanation.as_ref().ok()?))
}

fn nodes_of(explanations: &[(&NodeName, &Explanation)], is: impl Fn(&Explanation) -> bool) -> Vec<NodeName> {
    explanations.iter().filter(|(_, explanation)| is(explanation)).map(|(node, _)| (*node).clone()).collect()
}

/// The hold by the budget of the registry, if there is one.
fn budget_hold<'a>(explanations: &[(&NodeName, &'a Explanation)]) -> Option<&'a BudgetHold> {
    explanations.iter().find_map(|(_, explanation)| explanation.budget_hold.as_ref())
}

/// Describes a back-off entry. The next attempt also waits for the budget. If all nodes disregard the entry, it delays no attempt.
fn cause(known: &Known, explanations: &[(&NodeName, &Explanation)]) -> String {
    let held = nodes_of(explanations, |explanation| explanation.next_attempt_ms.is_some_and(|left| left > 0));
    let unenforced = explanations.iter().find_map(|(_, explanation)| explanation.unenforced_because.as_ref()).filter(|_| held.is_empty());
    let budget = budget_hold(explanations);
    let entry = &known.entry;
    let what = without_middle(&name(&entry.key_parts), NAME_SHOWN);
    let (state, since) = (state_in_words(entry.class), units::age(entry.since_ms));
    let finder = if known.is_shared() { found_by(entry) } else { known.nodes.first().map(ToString::to_string).unwrap_or_default() };
    let due_ms = Some(known.due_ms()).max(budget.and_then(|hold| hold.wait_ms));
    let next = match unenforced {
        Some(why) => format!(": {why}"),
        None => next_attempt(due_ms, known.prober()).map(|next| format!(", {next}")).unwrap_or_default(),
    };
    let budget = budget.map(|hold| format!(", {}", hold.cause)).unwrap_or_default();
    format!("{what}: {state} for {since}, {} ({finder}), it holds {} back{next}{budget}", known.last_result(), names_or_none(&held))
}

fn names_or_none(held: &[NodeName]) -> String {
    if held.is_empty() { "no node".to_owned() } else { named_few(held) }
}

/// Describes the budget that the image waits for.
fn budget(explanations: &[(&NodeName, &Explanation)]) -> Option<String> {
    let hold = budget_hold(explanations)?;
    let held = nodes_of(explanations, waits_for_budget);
    if held.is_empty() {
        return None;
    }
    let next = next_attempt(hold.wait_ms, None).map(|next| format!(", {next}")).unwrap_or_default();
    Some(format!("the budget of its registry: {}, it holds {} back{next}", hold.cause, named_few(&held)))
}

/// True if a pull would wait for the budget: the image is neither there nor being pulled.
fn waits_for_budget(explanation: &Explanation) -> bool {
    let is_there = explanation.present == Some(true) && explanation.policy != PullPolicy::Always.as_str();
    explanation.budget_hold.is_some() && !explanation.in_flight && !is_there
}

/// The sentence if nothing delays the image.
fn free(explanations: &[(&NodeName, &Explanation)]) -> String {
    let (there, all) = (explanations.iter().filter(|(_, explanation)| explanation.present == Some(true)).count(), explanations.len());
    let under_way = nodes_of(explanations, |explanation| explanation.in_flight);
    let under_way = if under_way.is_empty() { String::new() } else { format!(", it is being pulled on {}", named_few(&under_way)) };
    let of = if all == 1 { "1 node that answers" } else { &format!("{all} nodes that answer") };
    format!("nothing holds it back: it is on {there} of {of}{under_way}")
}

fn of_silent(first: &Silent, missing: &[Silent], answering: usize) -> String {
    let more = missing.len() - 1;
    let others = if more > 0 { format!("{more} more are silent, ") } else { String::new() };
    let total = missing.len() + answering;
    silent(&first.node, milliseconds(first.ago), &format!("{others}{answering} of {total} nodes continue without it"))
}

#[cfg(test)]
mod tests {
    use contract::View;
    use contract::messages::backoff_tracker::BackoffEntry;

    use super::*;
    use crate::output::known_failures::Merger;

    #[test]
    fn sentence_is_about_the_entry_that_holds_all_nodes_the_longest() {
        let node: NodeName = "n1".parse().expect("a name");
        let entry = |key: &str, binds: &str, next_attempt_ms| BackoffEntry {
            key: key.to_owned(),
            binds: binds.to_owned(),
            next_attempt_ms,
            view: Some(View::default()),
            ..BackoffEntry::default()
        };
        let mut merger = Merger::default();
        let own = BackoffEntry { view: None, ..entry("own", "this node", 300_000) };
        let (few, newer) = (entry("few", "reporters", 90_000), entry("newer", "a word of a newer agent", 1_000));
        merger.add(&node, vec![own, few, entry("b", "everybody", 3_000), entry("c", "everybody", 53_000), newer]);
        let mut known = merger.into_known();
        sort(&mut known);
        assert_eq!(known.iter().map(|known| known.entry.key.as_str()).collect::<Vec<_>>(), ["c", "b", "newer", "few", "own"]);
    }

    #[test]
    fn sentence_on_an_entry_says_why_it_holds_no_node_back() {
        let sentence = |next_attempt_ms: Option<u64>, unenforced_because: Option<&str>, left_ms| {
            let node: NodeName = "n1".parse().expect("a name");
            let mut merger = Merger::default();
            merger.add(&node, vec![BackoffEntry { next_attempt_ms: left_ms, ..BackoffEntry::default() }]);
            let unenforced_because = unenforced_because.map(str::to_owned);
            let explanation = Explanation { next_attempt_ms, unenforced_because, ..Explanation::default() };
            let verdicts = vec![Verdict { node: Some(node), explanation: Ok(explanation) }];
            sentences(&Findings { verdicts, known: merger.into_known(), ..Findings::default() }).remove(0)
        };
        let held = sentence(Some(53_000), None, 53_000);
        assert!(held.ends_with("it holds n1 back, next attempt in 53s"), "{held}");
        let observed = sentence(None, Some("this node only observes"), 53_000);
        assert!(observed.ends_with("it holds no node back: this node only observes"), "{observed}");
        let due = sentence(None, None, 0);
        assert!(due.ends_with("it holds no node back, the next attempt is due"), "{due}");
    }

    #[test]
    fn budget_holds_back_only_nodes_that_would_pull() {
        let explanation = |policy: PullPolicy, present, in_flight| Explanation {
            policy: policy.to_string(),
            present: Some(present),
            in_flight,
            budget_hold: Some(BudgetHold { wait_ms: Some(3_600_000), cause: "quota 0 of 100 left".to_owned() }),
            ..Explanation::default()
        };
        let sentence = |explanations: Vec<Explanation>| {
            let verdict = |(number, explanation): (usize, Explanation)| Verdict {
                node: Some(format!("n{number}").parse().expect("a name")),
                explanation: Ok(explanation),
            };
            let verdicts = explanations.into_iter().enumerate().map(verdict).collect();
            sentences(&Findings { verdicts, ..Findings::default() }).remove(0)
        };
        let (missing, there) =
            (|| explanation(PullPolicy::IfNotPresent, false, false), || explanation(PullPolicy::IfNotPresent, true, false));
        let (pulling, again) = (explanation(PullPolicy::IfNotPresent, false, true), explanation(PullPolicy::Always, true, false));
        assert_eq!(sentence(vec![there(), there()]), "nothing holds it back: it is on 2 of 2 nodes that answer");
        assert_eq!(sentence(vec![there(), pulling]), "nothing holds it back: it is on 1 of 2 nodes that answer, it is being pulled on n1");
        assert_eq!(
            sentence(vec![there(), missing(), again]),
            "the budget of its registry: quota 0 of 100 left, it holds n1, n2 back, next attempt in 60m"
        );
    }
}
