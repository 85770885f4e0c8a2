//! Lists of known failures for operators, filtered and bounded here, so that the answers of thousands of nodes are small.

use actix::{Context, Handler, MessageResult};
use actors::Ask;
use contract::list_bounds::{keep_fitting, shorten};
use contract::messages::backoff_tracker::{BackoffEntry, BackoffList, EntryQuery, LISTED_MOST, ListBackoffs};

use crate::actor::BackoffTracker;

impl Handler<Ask<ListBackoffs>> for BackoffTracker {
    type Result = MessageResult<Ask<ListBackoffs>>;

    fn handle(&mut self, Ask(list): Ask<ListBackoffs>, _: &mut Context<Self>) -> Self::Result {
        let now = self.clock.now().monotonic;
        let entries = match &list.body.pod {
            None => self.core.list(now),
            Some(pod) => self.core.list_of_pod(now, pod),
        };
        let (share, alone) = (self.takes_part().as_str().to_owned(), self.core.is_without_bus());
        MessageResult(Ok(BackoffList { share, alone, pauses: self.pauses(), ..listed(entries, &list.body) }))
    }
}

/// The entries that match, as many as fit into one answer.
fn listed(entries: Vec<BackoffEntry>, list: &ListBackoffs) -> BackoffList {
    let (mut entries, others, mut left_out) = select(entries, list);
    // Before the keys are taken: a node that lists a key also sends its entry when it is asked for all.
    left_out += fit(&mut entries);
    let shared_keys = if list.shared_by_key { take_shared_keys(&mut entries) } else { Vec::new() };
    BackoffList { entries, shared_keys, left_out, others, ..BackoffList::default() }
}

/// The entries that match, how many do not match, and how many match but exceed the limit.
fn select(mut entries: Vec<BackoffEntry>, list: &ListBackoffs) -> (Vec<BackoffEntry>, u64, u64) {
    let all = entries.len();
    let entry_query = list.what.as_deref().map(EntryQuery::of);
    entries.retain(|entry| {
        entry_query.as_ref().is_none_or(|entry_query| entry_query.names(entry))
            && list.registry.as_ref().is_none_or(|registry| entry.key_parts.registry == *registry)
    });
    let limit = list.limit.and_then(|limit| usize::try_from(limit).ok()).map_or(LISTED_MOST, |limit| limit.min(LISTED_MOST));
    let (others, left_out) = (all - entries.len(), entries.len().saturating_sub(limit));
    entries.truncate(limit);
    (entries, others as u64, left_out as u64)
}

/// Keeps the first entries, as many as fit into one answer; returns how many it removes. Long causes are shortened, so that more fit.
fn fit(entries: &mut Vec<BackoffEntry>) -> u64 {
    shorten(entries.iter_mut().map(|entry| &mut entry.cause));
    keep_fitting(entries)
}

fn take_shared_keys(entries: &mut Vec<BackoffEntry>) -> Vec<String> {
    entries.extract_if(.., |entry| entry.is_shared()).map(|entry| entry.key).collect()
}

#[cfg(test)]
mod tests {
    use contract::View;
    use contract::messages::backoff_tracker::{EntryKind, KeyParts};

    use super::*;

    #[test]
    fn shared_entries_can_be_listed_by_key_only() {
        let entry = |key: &str, view| BackoffEntry { key: key.to_owned(), view, ..BackoffEntry::default() };
        let mut entries = vec![entry("1", Some(View::default())), entry("a:1", None), entry("2", Some(View::default()))];
        assert_eq!(take_shared_keys(&mut entries), ["1", "2"]);
        assert_eq!(entries, [entry("a:1", None)]);
    }

    #[test]
    fn node_lists_the_keys_of_the_entries_that_it_sends_when_asked_for_all() {
        let entry = |number: usize| BackoffEntry {
            key: format!("{number:032x}"),
            view: Some(View::default()),
            cause: "y".repeat(200),
            key_parts: KeyParts { image: "x".repeat(4_000), ..KeyParts::of(EntryKind::Image, "r.example") },
            ..BackoffEntry::default()
        };
        let entries: Vec<BackoffEntry> = (0..500).map(entry).collect();
        let in_full = listed(entries.clone(), &ListBackoffs::default());
        let by_key = listed(entries, &ListBackoffs { shared_by_key: true, ..ListBackoffs::default() });
        assert!(in_full.left_out > 0 && by_key.left_out == in_full.left_out, "{} {}", in_full.left_out, by_key.left_out);
        assert!(by_key.entries.is_empty() && by_key.shared_keys.iter().eq(in_full.entries.iter().map(|entry| &entry.key)));
    }

    #[test]
    fn entries_are_listed_as_far_as_a_message_takes_them_with_short_causes_if_there_are_many() {
        for (count, key_bytes, cause_bytes, are_all, listed_cause_bytes) in
            [(1, 4_096, 65_664, true, 65_664), (1_000, 100, 65_664, true, 262), (1_000, 4_096, 10, false, 10)]
        {
            let entry = BackoffEntry { key: "x".repeat(key_bytes), cause: "y".repeat(cause_bytes), ..BackoffEntry::default() };
            let mut entries = vec![entry; count];
            let left_out = fit(&mut entries);
            assert_eq!((entries.len() as u64 + left_out, left_out == 0), (count as u64, are_all), "{key_bytes} {cause_bytes}");
            assert!(entries.iter().all(|entry| entry.cause.len() == listed_cause_bytes), "{key_bytes} {cause_bytes}");
        }
    }

    #[test]
    fn a_list_has_only_the_entries_that_match_up_to_its_limit() {
        let own = |number: usize| {
            let registry = format!("r{}.example", number % 2);
            let key_parts = KeyParts { image: format!("{registry}/a:{number}"), ..KeyParts::of(EntryKind::NodeImage, &registry) };
            BackoffEntry { key: key_parts.image.clone(), key_parts, ..BackoffEntry::default() }
        };
        let entries: Vec<BackoffEntry> = (0..3_000).map(own).collect();
        let selected = |list: ListBackoffs| {
            let (entries, others, left_out) = select(entries.clone(), &list);
            (entries.len(), others, left_out)
        };
        let all = ListBackoffs::default();
        assert_eq!(selected(all.clone()), (1_000, 0, 2_000));
        assert_eq!(selected(ListBackoffs { limit: Some(u64::MAX), ..all.clone() }), (1_000, 0, 2_000));
        assert_eq!(selected(ListBackoffs { limit: Some(7), ..all.clone() }), (7, 0, 2_993));
        assert_eq!(selected(ListBackoffs { registry: Some("r1.example".to_owned()), limit: Some(7), ..all.clone() }), (7, 1_500, 1_493));
        assert_eq!(selected(ListBackoffs { what: Some("r1.example/a:5".to_owned()), ..all.clone() }), (1, 2_999, 0));
        assert_eq!(selected(ListBackoffs { what: Some("r9.example/a:5".to_owned()), ..all }), (0, 3_000, 0));
    }
}
