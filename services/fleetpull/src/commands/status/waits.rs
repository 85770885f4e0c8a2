//! The images that nodes wait for, merged as the answers arrive.

use std::collections::{BTreeMap, BTreeSet};

use contract::NodeName;
use contract::messages::pull_coordinator::{PullState, PullStatus, StandingPullState, StandingPullStatus};
use image::Reference;

/// The most images that are counted separately.
const IMAGES_MOST: usize = 10_000;
/// The most waits that are kept, each of one node for one image. They take about 20 MB; further ones are not counted.
const WAITS_MOST: usize = 1_000_000;

/// The waits of nodes for images.
#[derive(Debug, Default)]
pub(super) struct Waits {
    nodes: Vec<NodeName>,
    node_numbers: BTreeMap<NodeName, u32>,
    /// The images by normalised reference, or as requested if the reference is invalid.
    images: BTreeMap<String, u32>,
    /// The waits as pairs of a node's and an image's number.
    waits: BTreeSet<(u32, u32)>,
    oldest_ms: Option<u64>,
}

/// How many nodes and images wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub(super) nodes: u64,
    pub(super) images: u64,
}

impl Waits {
    /// Adds the waiting ones among the pulls of a node.
    pub(super) fn add_pulls(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        for pull in pulls.iter().filter(|pull| pull.state == PullState::Waiting) {
            self.add(node, &pull.image, pull.since_ms);
        }
    }

    /// Adds the standing pulls of a node that are not pulling.
    pub(super) fn add_standing_pulls(&mut self, node: &NodeName, standing_pulls: &[StandingPullStatus]) {
        for standing_pull in standing_pulls.iter().filter(|standing_pull| standing_pull.state != StandingPullState::Pulling) {
            self.add(node, &standing_pull.image, standing_pull.since_ms);
        }
    }

    /// How long the oldest wait has lasted.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.oldest_ms
    }

    fn add(&mut self, node: &NodeName, image: &str, since_ms: u64) {
        self.oldest_ms = self.oldest_ms.max(Some(since_ms));
        let name = normalised(image);
        let number_of_image = match self.images.get(&name) {
            Some(number) => *number,
            None if self.images.len() >= IMAGES_MOST => return,
            None => number(self.images.len()),
        };
        if self.waits.len() >= WAITS_MOST {
            return;
        }
        let number_of_node = match self.node_numbers.get(node) {
            Some(number) => *number,
            None => {
                self.nodes.push(node.clone());
                number(self.nodes.len() - 1)
            }
        };
        self.images.insert(name, number_of_image);
        self.node_numbers.insert(node.clone(), number_of_node);
        self.waits.insert((number_of_node, number_of_image));
    }

    /// How many nodes and images wait for each of `causes`. A wait counts for all causes of its image that the node has according to
    /// `knows`; if it has none, for the queue.
    pub(super) fn by_cause(
        &self,
        causes: usize,
        causes_of: impl Fn(&str) -> Causes,
        knows: impl Fn(usize, &NodeName) -> bool,
    ) -> Vec<Waiting> {
        let mut of_image: Vec<Causes> = vec![Causes::default(); self.images.len()];
        for (image, number) in &self.images {
            of_image[*number as usize] = causes_of(image);
        }
        let mut counts = vec![Count::default(); causes];
        // The waits are sorted by node.
        for (node, image) in &self.waits {
            let Causes { holding, queue } = &of_image[*image as usize];
            let holding: Vec<usize> = holding.iter().copied().filter(|cause| knows(*cause, &self.nodes[*node as usize])).collect();
            let queue = queue.filter(|_| holding.is_empty());
            holding.into_iter().chain(queue).for_each(|cause| counts[cause].add(*node, *image));
        }
        counts.into_iter().map(|count| Waiting { nodes: count.nodes, images: count.images.len() as u64 }).collect()
    }
}

/// The causes that delay an image, as numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    /// Causes that must all end before the image is pulled.
    pub(super) holding: Vec<usize>,
    /// The queue in which the image waits if no cause delays it.
    pub(super) queue: Option<usize>,
}

/// The waits for one cause.
#[derive(Clone, Default)]
struct Count {
    nodes: u64,
    last_node: Option<u32>,
    images: BTreeSet<u32>,
}

impl Count {
    /// Must be called in the order of the nodes.
    fn add(&mut self, node: u32, image: u32) {
        if self.last_node.replace(node) != Some(node) {
            self.nodes += 1;
        }
        self.images.insert(image);
    }
}

/// The same form for all spellings of an image.
pub(super) fn normalised(image: &str) -> String {
    Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.normalised().to_owned())
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeName {
        format!("n{number}").parse().expect("a name")
    }

    #[test]
    fn a_node_waits_for_all_causes_that_it_knows_and_else_in_a_queue() {
        let mut waits = Waits::default();
        for number in 0..4 {
            waits.add(&node(number), "busybox", 1_000);
            // A standing pull and its flight count as one wait.
            waits.add(&node(number), "docker.io/library/busybox:latest", 70_000);
        }
        waits.add(&node(0), "r.example/a:1", 5_000);
        waits.add(&node(9), "A b", 1);
        let causes_of = |image: &str| match image {
            "docker.io/library/busybox:latest" => Causes { holding: vec![0, 1], queue: Some(2) },
            "r.example/a:1" => Causes { holding: vec![0], queue: None },
            _ => Causes::default(),
        };
        // The first node has the first cause; the first two nodes have the second.
        let knows = |cause: usize, node: &NodeName| [&["n1"][..], &["n1", "n2"]][cause].contains(&node.as_str());
        let expected = [(1, 1), (2, 1), (2, 1), (0, 0)].map(|(nodes, images)| Waiting { nodes, images });
        assert_eq!((waits.by_cause(4, causes_of, knows), waits.oldest_ms()), (expected.to_vec(), Some(70_000)));
    }

    #[test]
    fn number_of_images_that_are_distinguished_is_bounded() {
        let mut waits = Waits::default();
        for number in 0..=IMAGES_MOST {
            waits.add(&node(number), &format!("r.example/a:{number}"), 1);
        }
        let waiting = waits.by_cause(1, |_| Causes { holding: vec![0], queue: None }, |_, _| true);
        assert_eq!(waiting, [Waiting { nodes: IMAGES_MOST as u64, images: IMAGES_MOST as u64 }]);
    }
}
