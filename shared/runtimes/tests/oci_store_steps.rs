//! What outlives a loss of power, by the order of the steps on the disk.
//!
//! Pinned here: with `store.fsync` a blob's content is synced before its name is there, the names of all blobs before the index
//! names the image, and that before the pull is over; without it nothing is synced, and the names come in the same order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oci_support;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use oci_support::{Node, registry};
use practice_registry::{Flavour, MadeImage};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Hears each step of the store as `sync PATH` and `rename FROM PATH`.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

struct Words(Vec<String>);

impl Visit for Words {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.push(format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Steps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "runtimes::store_steps"
    }
    fn event(&self, event: &Event<'_>) {
        let mut words = Words(Vec::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0.join(" "));
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// One after the other in one test: who hears is set for the whole process, as the store works on threads of its own.
#[tokio::test]
async fn content_is_synced_before_its_name_and_all_names_before_the_index() {
    let heard = Steps::default();
    tracing::subscriber::set_global_default(heard.clone()).unwrap();
    for (flavour, fsync) in [(Flavour::Oci, true), (Flavour::Docker, true), (Flavour::Oci, false)] {
        let registry = registry().await;
        let added = registry.add_image("app", "1", &MadeImage::of_layers([100_000, 200_000, 3_000]).of_flavour(flavour));
        heard.0.lock().unwrap().clear();
        let node = Node::with(|options| options.fsync = fsync);
        let opened = heard.0.lock().unwrap().len();
        node.pull(&format!("{}/app:1", registry.host())).await.unwrap();
        oci_support::assert_complete(&node, &added.manifests[0]);

        let store = node.store().display().to_string();
        let steps: Vec<String> = heard.0.lock().unwrap().iter().map(|step| step.replace(&store, "STORE")).collect();
        let steps = &steps[opened..];
        let after = |from: usize, step: &str| {
            from + steps[from..].iter().position(|heard| heard == step).unwrap_or_else(|| panic!("{step} in {steps:#?}"))
        };
        let is_name_of_blob = |step: &&String| step.starts_with("rename ") && step.contains(" STORE/blobs/sha256/");
        // Config, layers and manifest; for Docker's form the index around it, too.
        let names: Vec<&String> = steps.iter().filter(is_name_of_blob).collect();
        assert_eq!(names.len(), if flavour == Flavour::Docker { 6 } else { 5 }, "{steps:#?}");
        let index = steps.iter().position(|step| step.ends_with(" STORE/index.json")).expect("the image is entered");
        let last_name = steps.iter().rposition(|step| is_name_of_blob(&step)).unwrap();
        assert!(last_name < index, "{steps:#?}");
        let syncs = steps.iter().filter(|step| step.starts_with("sync ")).count();
        if !fsync {
            assert_eq!(syncs, 0, "{steps:#?}");
            continue;
        }
        for name in steps.iter().filter(|step| step.starts_with("rename ")) {
            let content = name.split(' ').nth(1).unwrap();
            assert!(after(0, &format!("sync {content}")) < after(0, name), "{name} in {steps:#?}");
        }
        assert!(after(last_name, "sync STORE/blobs/sha256") < index, "{steps:#?}");
        assert!(after(0, "sync STORE/blobs") < index, "{steps:#?}");
        assert_eq!(after(index, "sync STORE"), steps.len() - 1, "nothing is reported before the index is kept: {steps:#?}");
    }
}
