//! The commands for images in a store: images, rm, prune.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use image::{ImagePattern, Reference};

use super::groups::{Flag, LogArgs, NodesQuestionArgs, OutputArgs, RuntimeArgs, SettingsArgs};
use super::image::image;
use super::list::{ListFormat, TableArgs};
use super::pull::duration;
use crate::completion;

/// List the images of this machine's store or runtime, or of nodes of the fleet.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull images                    in this user's store, for root the agent's
  fleetpull images --store ./images
  fleetpull images --runtime cri      what containerd or CRI-O lists
  fleetpull images -o wide            with whole digests
  fleetpull images --sort-by size
  fleetpull images -o json            one object a line
  fleetpull images --all-nodes --nats nats://nats:4222
  fleetpull images --node n1 --node n2 -o json

Without --all-nodes, --node, --selector or --agent this machine is meant.
PULLED is how long ago a pull entered the image last. It is not known of
images that another program put into the store, nor of a container runtime's.
Of nodes there is a row for each image, with the nodes that have it (-o wide:
and the newest PULLED); in JSON an object for each image of each node. Each node
lists at most 1,000 images.

Exit status: 1 when a node that was asked did not answer.")]
pub struct ImagesArgs {
    /// On every node of the fleet that answers.
    #[arg(long, conflicts_with_all = ["nodes", "selector"])]
    pub all_nodes: bool,
    /// Runtime, for this machine.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// How the list is shown.
    #[command(flatten)]
    pub table: TableArgs,
    /// Which nodes, and how facts are written.
    #[command(flatten)]
    pub asked: NodesQuestionArgs<ListFormat>,
}

impl ImagesArgs {
    /// True if the command asks nodes instead of this machine.
    #[must_use]
    pub fn has_target(&self) -> bool {
        let fleet = &self.asked.question.fleet;
        self.all_nodes || !self.asked.nodes.is_empty() || fleet.agent.is_some() || fleet.selector.is_some()
    }

    /// The options as settings. A given store is an embedded one, whatever the settings say.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let runtime = self.runtime.runtime.clone().or_else(|| kind_of(self.runtime.store.as_ref()));
        [RuntimeArgs { runtime, ..self.runtime.clone() }.flags(), self.asked.question.flags()].concat()
    }
}

/// The kind of runtime that a given store implies.
fn kind_of(store: Option<&PathBuf>) -> Option<String> {
    store.map(|_| "oci-layout".to_owned())
}

/// Remove images from the embedded store.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull rm app:v1 app:v2
  fleetpull rm busybox --store ./images --dry-run

rm removes an image under all spellings of its name (busybox, busybox:latest)
and for all platforms; app@sha256:... names every tag of app with that digest.
The blobs stay until `fleetpull prune`, because other images may need them; rm
prints how much a prune would free.
Containerd and CRI-O remove their own images: crictl rmi IMAGE.

Exit status: 1 when an image is not there; the others are removed all the same.")]
pub struct RmArgs {
    /// Which images, as `fleetpull images` lists them.
    #[arg(required = true, value_name = "IMAGE", value_parser = reference, add = completion::images_of_store())]
    pub images: Vec<Reference>,
    /// Remove nothing: print what would be removed, and what a prune would free then.
    #[arg(long)]
    pub dry_run: bool,
    /// Which store, and how facts are written.
    #[command(flatten)]
    pub place: StoreArgs,
}

/// Remove the blobs that no image of the embedded store needs.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull prune                                blobs that no image needs
  fleetpull prune --dry-run                      how much that would free
  fleetpull prune --older-than 30d               first all images of a month ago
  fleetpull prune --older-than 30d --keep 'r.example/base/*' --keep app:v1

Without --older-than no image is removed. It counts from when a pull entered
the image last, not from its last use; images that another program put into the
store have no such time and stay. --keep takes an image as `rm` does, or a
pattern with * for any text, which is compared with the name as it was asked for
and in full, with registry and tag.

Agents and other pulls may go on meanwhile: prune keeps the blobs that they
need, and partial blobs of a pull that was interrupted less than a day ago.
prune does not notice another program that writes into the store at that moment
(skopeo). If prune is killed, no image is broken, and the next prune continues.")]
pub struct PruneArgs {
    /// First remove the images that were pulled longer ago than this: 12h, 30d.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub older_than: Option<Duration>,
    /// But not this image, or images whose names have this form; may be given several times.
    #[arg(long, value_name = "IMAGE|PATTERN", value_parser = pattern, requires = "older_than")]
    pub keep: Vec<ImagePattern>,
    /// Remove nothing: print what would be removed.
    #[arg(long)]
    pub dry_run: bool,
    /// Which store, and how facts are written.
    #[command(flatten)]
    pub place: StoreArgs,
}

/// Which embedded store is meant.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArgs {
    /// The OCI image layout that is meant [default: /var/lib/fleetpull as root, else ~/.local/share/fleetpull].
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl StoreArgs {
    /// The options as settings. A given store is an embedded one, whatever the settings say.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let runtime = RuntimeArgs { runtime: kind_of(self.store.as_ref()), store: self.store.clone(), ..RuntimeArgs::default() };
        [runtime.flags(), self.log.flags()].concat()
    }
}

fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(&image(text)?).map_err(|error| format!("{error}: give a name as `fleetpull images` lists it, like app:v2"))
}

fn pattern(text: &str) -> Result<ImagePattern, String> {
    image(text)?.parse().map_err(|error| format!("{error}: give an image, like app:v2, or a pattern, like 'registry.example/team/*'"))
}
