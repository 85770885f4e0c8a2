//! The images of nodes: a row for each image, with the nodes that have it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ImageList, ListImages, ListedImage};
use runtimes::StoredImage;
use serde_json::json;

use crate::cli::{ImagesArgs, OutputFormat};
use crate::commands::store;
use crate::exit::Exit;
use crate::fleet::ask_fleet;
use crate::output::known_failures::named_few;
use crate::output::{self, silent, table, units};

const HEADER: [&str; 5] = ["IMAGE", "DIGEST", "PLATFORM", "SIZE", "NODES"];

/// The nodes that have each image. Two images are the same if name, digest and platform are equal.
#[derive(Default)]
struct Nodes(BTreeMap<Key, (Option<u64>, Vec<NodeName>)>);

type Key = (Option<String>, Option<String>, Option<String>);

pub(super) fn list(args: &ImagesArgs) -> Result<Exit> {
    let is_json = args.asked.question.output.format == OutputFormat::Json;
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
                        if is_json { print_json(&node, image, now) } else { with.add(&node, image) }
                    }
                }
            })
            .await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        if is_json {
            silent.iter().for_each(|silent| output::json(&silent::row(silent)));
        } else {
            silent::sentence(&silent).iter().for_each(|sentence| output::remark(sentence));
            with.print(args, exit);
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

fn print_json(node: &NodeName, image: ListedImage, now: Duration) {
    let pulled_at = image.pulled_ms_ago.map(|ago| now.saturating_sub(Duration::from_millis(ago)));
    let ListedImage { image: name, digest, platform, size_bytes, .. } = image;
    let mut row = store::row(&StoredImage { name, digest, platform, size_bytes, pulled_at });
    row["node"] = json!(node);
    output::json(&row);
}

impl Nodes {
    fn add(&mut self, node: &NodeName, image: ListedImage) {
        let (size, nodes) = self.0.entry((image.image, image.digest, image.platform)).or_default();
        *size = image.size_bytes.or(*size);
        nodes.push(node.clone());
    }

    fn print(self, args: &ImagesArgs, exit: Exit) {
        if self.0.is_empty() {
            if exit == Exit::Success && !args.asked.question.output.quiet {
                output::remark("no images on these nodes");
            }
            return;
        }
        table::columns(&HEADER, &self.rows()).iter().for_each(|line| output::fact(line));
    }

    fn rows(self) -> Vec<Vec<String>> {
        let row = |((name, digest, platform), (size_bytes, nodes)): (Key, (Option<u64>, Vec<NodeName>))| {
            let image = StoredImage { name, digest, platform, size_bytes, pulled_at: None };
            let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
            let size = or_none(size_bytes.map(units::bytes));
            let holders = format!("{}: {}", nodes.len(), named_few(&nodes));
            vec![store::name(&image).to_owned(), store::short_digest(&image), or_none(image.platform), size, holders]
        };
        self.0.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_the_same_image_share_a_row_and_another_digest_has_its_own() {
        let image = |digest: &str| ListedImage {
            image: Some("app:v1".to_owned()),
            digest: Some(format!("sha256:{}", digest.repeat(64))),
            size_bytes: Some(1_024),
            ..ListedImage::default()
        };
        let mut nodes = Nodes::default();
        for (node, digest) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
            nodes.add(&node.parse().expect("a name"), image(digest));
        }
        let expected =
            [["app:v1", "sha256:aaaaaaaaaaaa", "-", "1.0 KiB", "2: n1, n2"], ["app:v1", "sha256:bbbbbbbbbbbb", "-", "1.0 KiB", "1: n3"]];
        assert_eq!(nodes.rows(), expected.map(|row| row.map(str::to_owned).to_vec()));
    }
}
