//! The images on a node.

use serde::{Deserialize, Serialize};

use crate::{Command, Service};

/// The most images in one answer.
pub const IMAGES_MOST: usize = 1_000;

/// Asks for the images on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListImages {}

impl Command for ListImages {
    type Reply = ImageList;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "images";
}

/// The answer to [`ListImages`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageList {
    /// Sorted by name. At most [`IMAGES_MOST`], and as many as fit into a message; see `left_out`.
    pub images: Vec<ListedImage>,
    /// How many more there are.
    #[serde(default)]
    pub left_out: u64,
    /// Why the runtime does not list its images, and what to do.
    #[serde(default)]
    pub problem: Option<String>,
}

/// One image, for one platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedImage {
    /// Its name as it was asked for; none if it has no name.
    pub image: Option<String>,
    /// The digest of the manifest, or of the manifest list if the name stands for one; none if unknown.
    pub digest: Option<String>,
    /// `os/arch[/variant]`; none if unknown.
    pub platform: Option<String>,
    /// Bytes, as the runtime counts them; none if unknown.
    pub size_bytes: Option<u64>,
    /// How long ago a pull stored it last, in milliseconds; none if unknown.
    pub pulled_ms_ago: Option<u64>,
}
