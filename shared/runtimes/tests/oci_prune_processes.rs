//! Prunes during pulls of several processes, some of which are killed.
//!
//! Checks that every image of the index is whole whenever a pull has ended and at the end, that every remaining blob has its digest and is
//! needed, and that 20 GB of unneeded blobs are removed.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clock::Clock;
use futures::future::join_all;
use image::{Digest, Reference};
use memory_registry::{MadeImage, MemoryRegistry};
use runtimes::oci_layout::{OciLayout, PruneOptions, StoreUpkeep};
use runtimes::{ImageRuntime as _, Progress};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::oci_support::{LIMIT, names_in, options, registry, request, until};

/// The variable with a child's work, the store's parent folder, and the registry.
const CHILD: &str = "FLEETPULL_TEST_UPKEEP";
/// The number of images that are never touched, and of those that are removed before the prunes.
const IMAGES: u64 = 100;
const REMOVED: u64 = 50;
/// How many pulls run in this process at the same time in each round.
const PULLS: u64 = 10;
const REPEATED: usize = 10;
const KILLS: u64 = 3;
/// How many layers are shared by several images in each round: a pull may find such a layer while a prune could remove it.
const SHARED: u64 = 5;
/// How many requests the children send to the registry before the pulls begin.
const REQUESTS_OF_A_CHILD: u64 = 60;
/// The size of a sparse blob, which takes no room on the disk.
const SPARSE_BYTES: u64 = 200_000_000;

/// An image whose first layer is shared by all of this seed; the second is its own.
fn add(registry: &MemoryRegistry, kind: &str, number: u64, seed: u64) {
    registry.add_image(kind, &number.to_string(), &MadeImage::of_layers([30_000, 3_000 + number]).seeded(seed));
}

fn add_all(registry: &MemoryRegistry) {
    (0..IMAGES).for_each(|number| add(registry, "steady", number, 1));
    for round in 0..KILLS {
        (0..SHARED).map(|shared| round * SHARED + shared).for_each(|number| add(registry, "passing", number, 2 + number));
        (0..PULLS).for_each(|pull| add(registry, "pulled", round * PULLS + pull, 2 + round * SHARED + pull % SHARED));
    }
}

fn image(host: &str, kind: &str, number: u64) -> String {
    format!("{host}/{kind}:{number}")
}

fn upkeep(folder: &Path) -> StoreUpkeep {
    StoreUpkeep::open(&folder.join("store"), false, Clock::host()).unwrap().expect("it is a store")
}

/// Not a test: the code of a child process, which works until it is killed or the store is removed.
#[tokio::test]
async fn child_that_works_in_the_store() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let [work, folder, host] = arguments.split(' ').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let folder = Path::new(folder);
    let runtime = OciLayout::open(options(folder)).unwrap();
    while folder.exists() {
        if work == "prune" {
            upkeep(folder).prune(&PruneOptions::default(), |_| {}).await.unwrap();
            continue;
        }
        for number in 0..KILLS * SHARED {
            let image = image(host, "passing", number);
            runtime.pull(request(&image, None), Progress::new()).await.unwrap();
            upkeep(folder).remove(&Reference::parse(&image).unwrap()).await.unwrap();
        }
    }
}

/// A child process, which is killed with the test.
struct Working(Child);

impl Working {
    fn start(work: &str, folder: &Path, host: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "oci_prune_processes::child_that_works_in_the_store"]);
        command.env(CHILD, format!("{work} {} {host}", folder.display()));
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Kills it with SIGKILL, after checking that it has not failed by itself.
    fn kill(mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "it works until it is killed");
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn blob(store: &Path, digest: &str) -> PathBuf {
    store.join("blobs").join(digest.replacen(':', "/", 1))
}

fn document(store: &Path, digest: &str) -> Value {
    let text = std::fs::read(blob(store, digest)).unwrap_or_else(|error| panic!("{digest}: {error}"));
    assert_eq!(Digest::from_sha256(Sha256::digest(&text).into()).as_str(), digest);
    serde_json::from_slice(&text).unwrap()
}

/// The blobs of all images of the index, after checking their digests.
fn referenced(store: &Path) -> BTreeSet<String> {
    let index: Value = serde_json::from_slice(&std::fs::read(store.join("index.json")).unwrap()).unwrap();
    let mut found = BTreeSet::new();
    for entry in index["manifests"].as_array().unwrap() {
        let manifest = entry["digest"].as_str().unwrap();
        let image = document(store, manifest);
        let layers = image["layers"].as_array().unwrap().iter().chain([&image["config"]]);
        let digests = layers.map(|layer| layer["digest"].as_str().unwrap().to_owned());
        found.extend(digests.chain([manifest.to_owned()]));
    }
    for digest in &found {
        let content = std::fs::read(blob(store, digest)).unwrap_or_else(|error| panic!("{digest}: {error}"));
        assert_eq!(Digest::from_sha256(Sha256::digest(content).into()).as_str(), digest);
    }
    found
}

/// Pulls an image and removes it repeatedly, and finally leaves it. It is whole each time, because nobody else removes it.
async fn pull_often(runtime: &OciLayout, upkeep: &StoreUpkeep, image: &str) {
    let reference = Reference::parse(image).unwrap();
    for time in 1..=REPEATED {
        runtime.pull(request(image, None), Progress::new()).await.unwrap();
        assert!(runtime.image_status(&reference, None).await.unwrap().is_some(), "{image} is broken, time {time}");
        if time < REPEATED {
            assert_eq!(upkeep.remove(&reference).await.unwrap().len(), 1);
        }
    }
}

/// Stores blobs that nothing refers to, 20 GB in all.
fn put_needless(store: &Path) -> Vec<PathBuf> {
    let paths: Vec<_> = (0..100).map(|number| blob(store, Digest::from_sha256(Sha256::digest([number]).into()).as_str())).collect();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(SPARSE_BYTES).unwrap();
    }
    paths
}

#[tokio::test]
async fn prune_breaks_no_image_during_pulls_and_kills() {
    let registry = registry().await;
    let host = registry.host().to_owned();
    add_all(&registry);
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let runtime = OciLayout::open(options(folder.path())).unwrap();
    for number in 0..IMAGES {
        runtime.pull(request(&image(&host, "steady", number), None), Progress::new()).await.unwrap();
    }
    let upkeep = upkeep(folder.path());
    for number in 0..REMOVED {
        assert_eq!(upkeep.remove(&Reference::parse(&image(&host, "steady", number)).unwrap()).await.unwrap().len(), 1);
    }
    let needless = put_needless(&store);
    for round in 0..KILLS {
        let before = registry.counts().requests;
        let children = ["prune", "pull", "pull"].map(|work| Working::start(work, folder.path(), &host));
        until("the children work", || registry.counts().requests > before + REQUESTS_OF_A_CHILD).await;
        let images: Vec<_> = (round * PULLS..(round + 1) * PULLS).map(|number| image(&host, "pulled", number)).collect();
        let pulls = join_all(images.iter().map(|image| pull_often(&runtime, &upkeep, image)));
        tokio::time::timeout(LIMIT, pulls).await.expect("no pull is starved");
        children.into_iter().for_each(Working::kill);
        referenced(&store);
    }
    upkeep.prune(&PruneOptions::default(), |_| {}).await.unwrap();
    assert!(needless.iter().all(|path| !path.exists()));
    let left = names_in(&store.join("blobs/sha256")).into_iter().map(|hex| format!("sha256:{hex}"));
    assert_eq!(left.collect::<BTreeSet<_>>(), referenced(&store));
    let fresh = OciLayout::open(options(folder.path())).unwrap();
    let steady = (REMOVED..IMAGES).map(|number| image(&host, "steady", number));
    for image in steady.chain((0..KILLS * PULLS).map(|number| image(&host, "pulled", number))) {
        assert!(fresh.image_status(&Reference::parse(&image).unwrap(), None).await.unwrap().is_some(), "{image} is broken");
    }
}
