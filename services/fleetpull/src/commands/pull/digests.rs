//! Warns if a tag has several digests: it was moved while nodes pulled, or the nodes' registries differ.

use std::collections::BTreeMap;

use contract::NodeName;

use crate::output::known_failures::named;
use crate::output::outcome::Row;

/// A warning for each image with several digests on nodes of one platform.
pub(super) fn warnings(rows: &[Row]) -> Vec<String> {
    // Nodes of different platforms may have different manifests of one image.
    let mut digests: BTreeMap<(&str, &str), BTreeMap<&str, Vec<NodeName>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is_there()) {
        if let Some(digest) = row.outcome.digest.as_deref() {
            let platform = row.outcome.platform.as_deref().unwrap_or_default();
            digests.entry((row.image.as_str(), platform)).or_default().entry(digest).or_default().push(row.node.clone());
        }
    }
    let several = digests.into_iter().filter(|(_, digests)| digests.len() > 1);
    several.map(|((image, _), digests)| warning(image, digests)).collect()
}

fn warning(image: &str, digests: BTreeMap<&str, Vec<NodeName>>) -> String {
    let mut digests: Vec<_> = digests.into_iter().collect();
    digests.iter_mut().for_each(|(_, nodes)| nodes.sort());
    digests.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let by_digest: Vec<String> = digests.iter().map(|(digest, nodes)| format!("{digest} on {}", named(nodes))).collect();
    format!(
        "{image} is not the same everywhere: {}. The tag was moved: pull it again with --policy Always, or by its digest",
        by_digest.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};

    use super::*;

    fn row(node: &str, outcome: OutcomeKind, digest: &str, platform: &str) -> Row {
        let outcome =
            PullOutcome { outcome, digest: Some(digest.to_owned()), platform: Some(platform.to_owned()), ..PullOutcome::default() };
        Row { image: "a:1".to_owned(), node: node.parse().expect("a name"), outcome, at_ms: 0, under_way: None, not_begun: false }
    }

    #[test]
    fn two_digests_of_one_tag_are_warned_of() {
        use OutcomeKind::{Failed, Present, Pulled};
        let mut rows = vec![
            row("n1", Present, "sha256:a", "linux/amd64"),
            row("n2", Pulled, "sha256:a", "linux/amd64"),
            row("n3", Pulled, "sha256:c", "linux/arm64"),
            row("n4", Failed, "sha256:d", "linux/amd64"),
        ];
        assert!(warnings(&rows).is_empty(), "another platform, and what is not there, count for nothing");
        rows.push(row("n5", Pulled, "sha256:b", "linux/amd64"));
        let warnings = warnings(&rows);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("a:1 is not the same everywhere: sha256:a on n1, n2; sha256:b on n5."), "{warnings:?}");
    }
}
