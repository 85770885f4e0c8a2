//! Pauses of sharing: a shared entry then refuses no pull, and each node makes its next attempt by its own back-off.

use std::collections::BTreeMap;

use contract::NodeName;
use contract::messages::backoff_tracker::{EntryQuery, Pause};

use super::Known;

/// Gives shared entries of paused registries the next attempts of the nodes that have failed themselves and still wait. If there are none,
/// the next attempt is due.
pub fn note_pauses(known: &mut [Known], pauses: &[Pause]) {
    if pauses.is_empty() {
        return;
    }
    let mut own: BTreeMap<String, Vec<(NodeName, u64)>> = BTreeMap::new();
    for known in known.iter().filter(|known| !known.is_shared() && known.due_ms() > 0) {
        if let (Some(image), Some(node)) = (known.entry.key_parts.one_image(), known.nodes.first()) {
            own.entry(image.to_owned()).or_default().push((node.clone(), known.due_ms()));
        }
    }
    let own: Vec<(EntryQuery, Vec<(NodeName, u64)>)> = own.into_iter().map(|(image, nodes)| (EntryQuery::of(&image), nodes)).collect();
    for known in known.iter_mut().filter(|known| is_paused(known, pauses)) {
        let mut next = BTreeMap::new();
        let of_entry = own.iter().filter(|(query, _)| query.names(&known.entry)).flat_map(|(_, nodes)| nodes);
        for (node, left_ms) in of_entry.filter(|(node, _)| known.nodes.binary_search(node).is_ok()) {
            let soonest = next.entry(node.clone()).or_insert(*left_ms);
            *soonest = (*soonest).min(*left_ms);
        }
        known.entry.next_attempt_ms = 0;
        known.next = next;
        known.is_paused = true;
    }
}

/// True if sharing of the entry's registry is paused.
fn is_paused(known: &Known, pauses: &[Pause]) -> bool {
    let concerns = |registry: &str| pauses.iter().any(|pause| pause.registry.as_deref().is_none_or(|paused| paused == registry));
    known.entry.view.as_ref().is_some_and(|view| concerns(&view.registry))
}

#[cfg(test)]
mod tests {
    use contract::messages::backoff_tracker::BackoffEntry;

    use super::super::Merger;
    use super::super::tests::{node, own, shared};
    use super::*;

    const IMAGE: &str = "registry.example/a:1";

    fn pause(registry: Option<&str>) -> Pause {
        Pause { registry: registry.map(str::to_owned), left_ms: 60_000, by: "me@here".to_owned() }
    }

    /// The shared entry of the image, after the own back-offs of n1 and n3 have been noted.
    fn noted(own_left_ms: [u64; 2], pauses: &[Pause]) -> Known {
        let mut merger = Merger::default();
        for name in ["n1", "n2"] {
            merger.add(&node(name), vec![BackoffEntry { next_attempt_ms: 999, ..shared(IMAGE, 1) }]);
        }
        for (name, next_attempt_ms) in ["n1", "n3"].into_iter().zip(own_left_ms) {
            merger.add(&node(name), vec![BackoffEntry { next_attempt_ms, ..own(IMAGE) }, BackoffEntry { next_attempt_ms: 1, ..own("a") }]);
        }
        let mut known = merger.into_known();
        note_pauses(&mut known, pauses);
        known.remove(0)
    }

    #[test]
    fn next_attempt_during_a_pause_is_that_of_the_nodes_themselves() {
        for (own_left_ms, pauses, due_ms) in [
            ([8_000, 3_000], vec![pause(None)], 8_000),
            ([8_000, 3_000], vec![pause(Some("registry.example"))], 8_000),
            ([0, 3_000], vec![pause(None)], 0),
            ([8_000, 3_000], vec![pause(Some("other.example"))], 999),
            ([8_000, 3_000], vec![], 999),
        ] {
            let known = noted(own_left_ms, &pauses);
            assert_eq!(known.due_ms(), due_ms, "n3 does not have the entry: {pauses:?}");
            let details = known.details(0).join("\n");
            assert_eq!(details.contains(", by each node for itself, because sharing is paused"), due_ms != 999, "{details}");
        }
    }
}
