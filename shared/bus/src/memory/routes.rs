//! Which subscriptions a subject reaches: a tree of tokens.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The prefix of reply subjects. Each receives one answer, so they are not cached.
const ANSWERS: &str = "_INBOX.";
/// The most subjects that are looked up without the tree, until a subscription changes.
const KNOWN_SUBJECTS: usize = 4_096;

/// Subscriptions by the pattern they were made with.
#[derive(Default)]
pub(super) struct Routes {
    root: Node,
    /// The subscriptions of subjects looked up before, because most are published on again and again.
    known: HashMap<String, Arc<[u64]>>,
}

#[derive(Default)]
struct Node {
    /// Children by token; the wildcard for one token is `*`.
    children: BTreeMap<String, Node>,
    /// Patterns that end here.
    ending: BTreeSet<u64>,
    /// Patterns that continue with `>`.
    rest: BTreeSet<u64>,
}

impl Routes {
    /// Adds a subscription.
    pub(super) fn insert(&mut self, pattern: &str, id: u64) {
        self.known.clear();
        let mut node = &mut self.root;
        for token in pattern.split('.') {
            if token == ">" {
                node.rest.insert(id);
                return;
            }
            node = node.children.entry(token.to_owned()).or_default();
        }
        node.ending.insert(id);
    }

    /// Removes a subscription and the branches that only it needed.
    pub(super) fn remove(&mut self, pattern: &str, id: u64) {
        self.known.clear();
        self.root.remove(pattern, id);
    }

    /// The subscriptions that a subject reaches, in the order in which they were made.
    pub(super) fn reached_by(&mut self, subject: &str) -> Arc<[u64]> {
        if let Some(known) = self.known.get(subject) {
            return Arc::clone(known);
        }
        let mut ids = Vec::new();
        self.root.collect(Some(subject), &mut ids);
        ids.sort_unstable();
        let ids: Arc<[u64]> = ids.into();
        if !subject.starts_with(ANSWERS) {
            if self.known.len() >= KNOWN_SUBJECTS {
                self.known.clear();
            }
            self.known.insert(subject.to_owned(), Arc::clone(&ids));
        }
        ids
    }
}

impl Node {
    fn remove(&mut self, pattern: &str, id: u64) {
        let (token, following) = split(pattern);
        if token == ">" {
            self.rest.remove(&id);
            return;
        }
        let Some(child) = self.children.get_mut(token) else { return };
        match following {
            Some(following) => child.remove(following, id),
            None => {
                child.ending.remove(&id);
            }
        }
        if child.is_empty() {
            self.children.remove(token);
        }
    }

    fn collect(&self, subject: Option<&str>, ids: &mut Vec<u64>) {
        let Some(subject) = subject else {
            ids.extend(&self.ending);
            return;
        };
        ids.extend(&self.rest);
        let (token, following) = split(subject);
        for child in [self.children.get(token), self.children.get("*")].into_iter().flatten() {
            child.collect(following, ids);
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.ending.is_empty() && self.rest.is_empty()
    }
}

fn split(subject: &str) -> (&str, Option<&str>) {
    subject.split_once('.').map_or((subject, None), |(token, following)| (token, Some(following)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_reaches_the_patterns_that_match_it() {
        let patterns = ["a.b", "a.*", "a.>", ">", "*.b", "a", "a.b.c", "*.*.c", "a.*.>"];
        let mut routes = Routes::default();
        for (id, pattern) in (0..).zip(patterns) {
            routes.insert(pattern, id);
        }
        for (subject, expected) in
            [("a", vec![3, 5]), ("a.b", vec![0, 1, 2, 3, 4]), ("a.x", vec![1, 2, 3]), ("a.b.c", vec![2, 3, 6, 7, 8]), ("x.y.z.w", vec![3])]
        {
            for _ in 0..2 {
                assert_eq!(*routes.reached_by(subject), expected, "{subject}");
            }
        }
    }

    #[test]
    fn removed_subscription_receives_nothing() {
        let patterns = ["a.b", "a.*", "a.>", ">", "*.b"];
        let mut routes = Routes::default();
        for (id, pattern) in (0..).zip(patterns) {
            routes.insert(pattern, id);
        }
        for (id, pattern) in (0..).zip(patterns) {
            // The result is cached until a subscription is removed.
            routes.reached_by("a.b");
            routes.remove(pattern, id);
            assert!(!routes.reached_by("a.b").contains(&id), "{pattern}");
        }
        assert!(routes.root.is_empty());
    }
}
