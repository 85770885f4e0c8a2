//! The images of nodes: a row for each image, with the nodes that have it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ImageList, ListImages, ListedImage};
use runtimes::StoredImage;
use serde_json::json;

use crate::cli::ImagesArgs;
use crate::commands::store;
use crate::commands::watch::column_to_sort_by;
use crate::exit::Exit;
use crate::fleet::ask_fleet;
use crate::output::known_failures::named_few;
use crate::output::listing::{Listing, Manner};
use crate::output::table::{Cell, Column, Table};
use crate::output::{self, json_line, silent};

/// The columns for the images of nodes.
static COLUMNS: [Column; 6] = [
    Column::name("IMAGE", 20),
    Column::new("DIGEST"),
    Column::new("PLATFORM"),
    Column::new("SIZE"),
    Column::wide("PULLED"),
    Column::sentence("NODES", 12),
];

/// The nodes that have each image. Two images are the same if name, digest and platform are equal.
#[derive(Default)]
struct Nodes(BTreeMap<Key, Holders>);

type Key = (Option<String>, Option<String>, Option<String>);

/// The nodes that have an image.
#[derive(Default)]
struct Holders {
    size_bytes: Option<u64>,
    /// How long ago one of them pulled it last, if known.
    pulled_ms_ago: Option<u64>,
    nodes: Vec<NodeName>,
}

pub(super) fn list(args: &ImagesArgs) -> Result<Exit> {
    let sorted_by = column_to_sort_by(&args.table, &COLUMNS)?;
    let manner = Manner::of(args.asked.question.output, &args.table);
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let now = client.clock().now().wall;
        let (mut exit, mut with) = (Exit::Success, Nodes::default());
        client
            .for_each_answer(&nodes, &ListImages {}, |node, answer| match answer.and_then(whole) {
                Err(problem) => {
                    output::remark(&format!("{node}: {problem}"));
                    exit = Exit::Failure;
                }
                Ok(list) => {
                    if list.left_out > 0 {
                        output::remark(&format!("{node}: {} more images, which one answer does not take", list.left_out));
                    }
                    for image in list.images {
                        if manner.has_objects() { print_object(&manner, &node, image, now) } else { with.add(&node, image) }
                    }
                }
            })
            .await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        if manner.has_objects() {
            silent.iter().filter_map(|silent| json_line(&silent::row(silent))).for_each(|line| manner.write_object(&line));
        } else {
            let mut listing = with.listing(manner.is_wide());
            if let Some(column) = sorted_by {
                listing.table.sort_by(column);
            }
            if listing.table.is_empty() && exit == Exit::Success {
                listing.remarks.push("no images on these nodes".to_owned());
            }
            listing.remarks.extend(silent::sentence(&silent));
            listing.write(&manner);
        }
        Ok(exit)
    })
}

/// The list, or the problem of its runtime.
fn whole(list: ImageList) -> Result<ImageList, String> {
    match list.problem {
        Some(problem) => Err(problem),
        None => Ok(list),
    }
}

fn print_object(manner: &Manner, node: &NodeName, image: ListedImage, now: Duration) {
    let pulled_at = image.pulled_ms_ago.map(|ago| now.saturating_sub(Duration::from_millis(ago)));
    let ListedImage { image: name, digest, platform, size_bytes, .. } = image;
    let mut row = store::row(&StoredImage { name, digest, platform, size_bytes, pulled_at });
    row["node"] = json!(node);
    if let Some(line) = json_line(&row) {
        manner.write_object(&line);
    }
}

impl Nodes {
    fn add(&mut self, node: &NodeName, image: ListedImage) {
        let holders = self.0.entry((image.image, image.digest, image.platform)).or_default();
        holders.size_bytes = image.size_bytes.or(holders.size_bytes);
        holders.pulled_ms_ago = holders.pulled_ms_ago.into_iter().chain(image.pulled_ms_ago).min();
        holders.nodes.push(node.clone());
    }

    fn listing(self, is_wide: bool) -> Listing {
        // A remark says that there are no images, but not if a node did not answer.
        let mut listing = Listing::new(Table::new(&COLUMNS), "");
        for ((name, digest, platform), Holders { size_bytes, pulled_ms_ago, nodes }) in self.0 {
            let image = StoredImage { name, digest, platform, size_bytes, pulled_at: None };
            let named = if is_wide { nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ") } else { named_few(&nodes) };
            let holders = Cell::from(format!("{}: {named}", nodes.len())).sorted_by(nodes.len() as u64);
            let cells = store::cells(&image, is_wide).into_iter().chain([Cell::age_if(pulled_ms_ago), holders]);
            listing.table.add(store::name(&image), cells.collect());
        }
        listing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::Look;

    #[test]
    fn nodes_with_the_same_image_share_a_row_and_another_digest_has_its_own() {
        let image = |digest: &str, pulled_ms_ago| ListedImage {
            image: Some("app:v1".to_owned()),
            digest: Some(format!("sha256:{}", digest.repeat(64))),
            size_bytes: Some(1_024),
            pulled_ms_ago,
            ..ListedImage::default()
        };
        let mut nodes = Nodes::default();
        for (node, digest, pulled_ms_ago) in
            [("n1", "a", None), ("n2", "a", Some(660_000)), ("n3", "b", None), ("n4", "a", Some(42_000)), ("n5", "a", Some(90_000))]
        {
            nodes.add(&node.parse().expect("a name"), image(digest, pulled_ms_ago));
        }
        let table = nodes.listing(false).table;
        let lines = |is_wide| table.lines(&Look { has_header: false, is_wide, ..Look::of_width(None) });
        assert_eq!(
            lines(false),
            ["app:v1  sha256:aaaaaaaaaaaa  -  1.0 KiB  4: n1, n2, n4, n5", "app:v1  sha256:bbbbbbbbbbbb  -  1.0 KiB  1: n3"]
        );
        assert!(lines(true)[0].contains("  42s  4: "), "when one of the nodes pulled it last: {:#?}", lines(true));
        assert!(lines(true)[1].contains("  -    1: n3"), "{:#?}", lines(true));
    }
}
