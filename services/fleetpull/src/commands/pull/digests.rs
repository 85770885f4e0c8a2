//! Warns if a tag has several digests on the nodes that have it: it was moved between their pulls, or the nodes' registries differ.

use std::collections::BTreeMap;

use contract::NodeName;

use crate::output::known_failures::named;
use crate::output::outcome::Row;

/// Digests of one image that are named.
const DIGESTS_NAMED: usize = 5;
/// The most letters of a digest that are shown: those of one with SHA-512.
const DIGEST_SHOWN: usize = 135;

/// An image that a node has.
pub(in crate::commands) struct Present<'a> {
    pub(in crate::commands) node: &'a NodeName,
    pub(in crate::commands) image: &'a str,
    /// Empty if it is not known.
    pub(in crate::commands) platform: &'a str,
    pub(in crate::commands) digest: &'a str,
}

impl<'a> Present<'a> {
    fn of_row(row: &'a Row) -> Option<Self> {
        let digest = row.outcome.digest.as_deref().filter(|_| row.is_there())?;
        Some(Self { node: &row.node, image: &row.image, platform: row.outcome.platform.as_deref().unwrap_or_default(), digest })
    }
}

/// A warning for each image of a pull with several digests.
pub(super) fn of_rows(rows: &[Row]) -> Vec<String> {
    warnings(rows.iter().filter_map(Present::of_row))
}

/// A warning for each image with several digests on nodes of one platform.
pub(in crate::commands) fn warnings<'a>(present: impl Iterator<Item = Present<'a>>) -> Vec<String> {
    // Nodes of different platforms may have different manifests of one image.
    let mut digests: BTreeMap<(&str, &str), BTreeMap<&str, Vec<NodeName>>> = BTreeMap::new();
    for Present { node, image, platform, digest } in present {
        digests.entry((image, platform)).or_default().entry(digest).or_default().push(node.clone());
    }
    let several = digests.into_iter().filter(|(_, digests)| digests.len() > 1);
    several.map(|((image, _), digests)| warning(image, digests)).collect()
}

fn warning(image: &str, digests: BTreeMap<&str, Vec<NodeName>>) -> String {
    let mut digests: Vec<_> = digests.into_iter().collect();
    digests.iter_mut().for_each(|(_, nodes)| nodes.sort());
    digests.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let mut by_digest: Vec<String> =
        digests.iter().take(DIGESTS_NAMED).map(|(digest, nodes)| format!("{} on {}", shortened(digest), named(nodes))).collect();
    by_digest.extend((digests.len() > DIGESTS_NAMED).then(|| format!("{} more digests", digests.len() - DIGESTS_NAMED)));
    format!(
        "{image} is not the same everywhere: {}. The tag was moved: pull it again with --policy Always, or by its digest",
        by_digest.join("; ")
    )
}

/// Another node may answer anything.
fn shortened(digest: &str) -> String {
    digest.chars().take(DIGEST_SHOWN).collect()
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
        assert!(of_rows(&rows).is_empty(), "another platform, and what is not there, count for nothing");
        rows.push(row("n5", Pulled, "sha256:b", "linux/amd64"));
        let warnings = of_rows(&rows);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("a:1 is not the same everywhere: sha256:a on n1, n2; sha256:b on n5."), "{warnings:?}");
    }

    #[test]
    fn few_of_many_digests_are_named() {
        let names: Vec<(NodeName, String)> =
            (0..10_000).map(|number| (format!("n{number}").parse().expect("a name"), format!("sha256:{number}"))).collect();
        let present = names.iter().map(|(node, digest)| Present { node, image: "a:1", platform: "", digest });
        let warnings = warnings(present);
        assert!(warnings[0].contains("; 9995 more digests. The tag was moved") && warnings[0].len() < 300, "{warnings:?}");
    }
}
