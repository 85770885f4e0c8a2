//! Operations on a store: list images, remove them, prune.
//!
//! Checks that entries are removed by any name of an image and leave their blobs; that prune removes exactly what neither an image nor a
//! running pull needs, and a dry run reports the same; that it keeps what other programs refer to; and that a folder that is no store is
//! unchanged.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use clock::Clock;
use image::Reference;
use memory_registry::{AddedImage, BodyFault, Fault, Flavour, MadeImage, MemoryRegistry};
use runtimes::ImageRuntime as _;
use runtimes::oci_layout::{Freed, PruneOptions, Pruned, StoreUpkeep};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::oci_support::{Node, assert_complete, names_in, registry, until};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn upkeep_at(store: &Path, wall: Duration) -> StoreUpkeep {
    StoreUpkeep::open(store, false, Clock::simulated(wall)).unwrap().expect("it is a store")
}

fn upkeep(node: &Node) -> StoreUpkeep {
    upkeep_at(&node.store(), Clock::host().now().wall)
}

/// Prunes, and checks that the dry run reported the same.
async fn prune(upkeep: &StoreUpkeep, options: &PruneOptions) -> Pruned {
    let planned = upkeep.would_prune(options).unwrap();
    let mut progress = Freed::default();
    let done = upkeep.prune(options, |freed| progress = freed).await.unwrap();
    assert_eq!(done, planned);
    assert!(progress.bytes <= done.freed.bytes);
    done
}

fn reference(name: &str) -> Reference {
    Reference::parse(name).unwrap()
}

fn hex(digest: &str) -> String {
    digest.strip_prefix("sha256:").unwrap().to_owned()
}

/// The blobs of an image without an index around it.
fn blobs_of(added: &AddedImage) -> BTreeSet<String> {
    let manifest = &added.manifests[0];
    std::iter::once(&manifest.digest).chain(manifest.blobs().map(|blob| &blob.digest)).map(|digest| hex(digest)).collect()
}

fn stored(node: &Node) -> BTreeSet<String> {
    node.blobs().into_iter().collect()
}

/// Two images that share their first layer.
async fn two_images() -> (MemoryRegistry, [String; 2], [AddedImage; 2]) {
    let registry = registry().await;
    let added = ["1", "2"].map(|tag| {
        let own: u64 = tag.parse().unwrap();
        registry.add_image("app", tag, &MadeImage::of_layers([20_000, 5_000 + own]))
    });
    let images = ["1", "2"].map(|tag| format!("{}/app:{tag}", registry.host()));
    (registry, images, added)
}

#[tokio::test]
async fn images_are_listed_with_what_is_known_of_them() {
    let registry = registry().await;
    let docker = MadeImage::of_layers([10_000]).of_flavour(Flavour::Docker);
    let list = MadeImage::of_layers([20_000]).for_platforms(["linux/amd64", "linux/arm64"]);
    let added = [registry.add_image("app", "1", &docker), registry.add_image("app", "2", &list)];
    let node = Node::new();
    let before = Clock::host().now().wall.as_secs();
    for tag in 1..=2 {
        node.pull_for(&format!("{}/app:{tag}", registry.host()), Some("linux/amd64")).await.unwrap();
    }
    let after = Clock::host().now().wall.as_secs();
    let images = upkeep(&node).images().unwrap();
    assert_eq!(node.runtime.images().await.unwrap(), images);
    assert_eq!(images.len(), 2);
    for (image, (tag, added)) in images.iter().zip([("1", &added[0]), ("2", &added[1])]) {
        assert_eq!(image.name, Some(format!("{}/app:{tag}", registry.host())));
        assert_eq!(image.digest.as_ref(), Some(&added.digest));
        assert_eq!(image.platform.as_deref(), Some("linux/amd64"));
        assert_eq!(image.size_bytes, Some(added.manifests[0].blobs().map(|blob| blob.size).sum()));
        assert!((before..=after).contains(&image.pulled_at.unwrap().as_secs()), "{image:?}");
    }
}

#[tokio::test]
async fn removed_image_leaves_its_blobs_and_prune_removes_those_of_no_other() {
    let (registry, images, added) = two_images().await;
    let node = Node::new();
    for image in &images {
        node.pull(image).await.unwrap();
    }
    let upkeep = upkeep(&node);
    assert_eq!(prune(&upkeep, &PruneOptions::default()).await, Pruned::default());
    let first = reference(&images[0]);
    let (one, two) = (blobs_of(&added[0]), blobs_of(&added[1]));
    let own: BTreeSet<_> = one.difference(&two).cloned().collect();
    let bytes = own.iter().map(|hex| std::fs::metadata(node.store().join("blobs/sha256").join(hex)).unwrap().len()).sum();
    let freed = Freed { blobs: own.len() as u64, bytes };
    assert_eq!(upkeep.prunable_without(std::slice::from_ref(&first)).unwrap(), freed);
    assert_eq!((upkeep.find(&first).unwrap().len(), upkeep.remove(&first).await.unwrap().len()), (1, 1));
    assert_eq!(upkeep.remove(&first).await.unwrap(), []);
    assert_eq!((node.status(&images[0]).await, stored(&node)), (None, &one | &two));
    assert_eq!(prune(&upkeep, &PruneOptions::default()).await, Pruned { images: Vec::new(), freed });
    assert_eq!(stored(&node), two);
    assert_complete(&node, &added[1].manifests[0]);
    // The same process continues after its remembered blobs were removed.
    registry.reset_counts();
    node.pull(&images[0]).await.unwrap();
    assert_complete(&node, &added[0].manifests[0]);
    assert_eq!(registry.blobs_served().len(), 2, "its config and its own layer");
}

#[tokio::test]
async fn image_is_removed_by_its_digest_and_in_all_its_spellings() {
    let (_registry, images, added) = two_images().await;
    let node = Node::new();
    node.pull(&images[0]).await.unwrap();
    node.pull(&images[1]).await.unwrap();
    let by_digest = format!("{}@{}", images[0].strip_suffix(":1").unwrap(), added[0].digest);
    node.pull(&by_digest).await.unwrap();
    let upkeep = upkeep(&node);
    let removed = upkeep.remove(&reference(&by_digest)).await.unwrap();
    assert_eq!(removed.iter().map(|image| image.name.as_ref().unwrap()).collect::<Vec<_>>(), [&images[0], &by_digest]);
    assert_eq!(upkeep.images().unwrap().len(), 1);
}

#[tokio::test]
async fn images_pulled_long_ago_go_unless_they_are_kept() {
    let (registry, images, _) = two_images().await;
    registry.add_image("other", "1", &MadeImage::of_layers([4_000]));
    let node = Node::new();
    let other = format!("{}/other:1", registry.host());
    for image in images.iter().chain([&other]) {
        node.pull(image).await.unwrap();
    }
    let later = upkeep_at(&node.store(), Clock::host().now().wall + 40 * DAY);
    let options = |days: u32, keep: &[&str]| PruneOptions {
        older_than: Some(days * DAY),
        keep: keep.iter().map(|pattern| pattern.parse().unwrap()).collect(),
    };
    let names = |pruned: Pruned| pruned.images.into_iter().map(|image| image.name.unwrap()).collect::<Vec<_>>();
    assert_eq!(prune(&later, &options(41, &[])).await, Pruned::default());
    assert_eq!(prune(&later, &PruneOptions { older_than: None, ..options(0, &[]) }).await, Pruned::default());
    assert_eq!(names(prune(&later, &options(39, &["*/app:*"])).await), std::slice::from_ref(&other));
    assert_eq!(names(prune(&later, &options(39, &[&images[0]])).await), std::slice::from_ref(&images[1]));
    // After another pull it is not old any more.
    node.pull(&images[0]).await.unwrap();
    assert_eq!(prune(&upkeep(&node), &options(1, &[])).await, Pruned::default());
    assert_eq!(names(prune(&later, &options(39, &[])).await), std::slice::from_ref(&images[0]));
    assert_eq!(node.blobs(), Vec::<String>::new());
}

/// Puts a blob into the store by hand, and returns its digest.
fn put(node: &Node, content: &[u8]) -> String {
    let hex = image::Digest::from_sha256(Sha256::digest(content).into()).hex().to_owned();
    std::fs::write(node.store().join("blobs/sha256").join(&hex), content).unwrap();
    format!("sha256:{hex}")
}

#[tokio::test]
async fn blobs_that_other_programs_refer_to_stay() {
    let node = Node::new();
    let layer = put(&node, b"layer");
    let config = put(&node, b"{}");
    let manifest = put(&node, json!({"config": {"digest": config}, "layers": [{"digest": layer}]}).to_string().as_bytes());
    let descriptor = |digest: &str| json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1});
    let inner = put(&node, json!({"manifests": [descriptor(&manifest)]}).to_string().as_bytes());
    // A list in a list, a document of an unknown kind, and a damaged manifest that names itself.
    let outer = put(
        &node,
        json!({"manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": inner}]}).to_string().as_bytes(),
    );
    let attached = put(&node, b"attached");
    let artifact = put(&node, json!({"blobs": [{"mediaType": "text/plain", "digest": attached}]}).to_string().as_bytes());
    let damaged = put(&node, b"to be damaged");
    std::fs::write(node.store().join("blobs/sha256").join(hex(&damaged)), descriptor(&damaged).to_string()).unwrap();
    let needless = put(&node, b"needless");
    let entries: Vec<Value> = [&outer, &artifact, &damaged].into_iter().map(|digest| json!({"digest": digest, "odd": 1})).collect();
    std::fs::write(node.store().join("index.json"), json!({"schemaVersion": 2, "manifests": entries}).to_string()).unwrap();
    let before = stored(&node);
    let far_future = upkeep_at(&node.store(), Clock::host().now().wall + 1_000 * DAY);
    let pruned = prune(&far_future, &PruneOptions { older_than: Some(DAY), keep: Vec::new() }).await;
    assert_eq!((pruned.images.len(), pruned.freed), (0, Freed { blobs: 1, bytes: 8 }));
    assert_eq!(stored(&node), &before - &BTreeSet::from([hex(&needless)]));
}

#[tokio::test]
async fn blobs_of_a_running_pull_are_kept() {
    let (registry, images, added) = two_images().await;
    let node = Node::new();
    node.pull(&images[0]).await.unwrap();
    let upkeep = upkeep(&node);
    upkeep.remove(&reference(&images[0])).await.unwrap();
    // The second image finds the shared layer, which no image names any more, and waits in its own layer.
    let own = added[1].manifests[0].layers[1].digest.clone();
    registry.faults().add(Fault::body(&own, BodyFault::StallAfter(1_000)).times(1));
    let partial = node.store().join(".fleetpull/partial").join(own.replace(':', "-"));
    let pull = node.pull(&images[1]);
    let mut pull = std::pin::pin!(pull);
    let waits = async {
        until("its own layer is asked for", || partial.exists() && node.blobs().contains(&hex(&added[1].manifests[0].config.digest))).await
    };
    tokio::select! {
        biased;
        ended = &mut pull => panic!("it waits for its layer: {ended:?}"),
        () = waits => {}
    }
    prune(&upkeep, &PruneOptions::default()).await;
    let left = stored(&node);
    let needed = blobs_of(&added[1]);
    assert!(left.is_subset(&needed) && left.contains(&hex(&added[1].manifests[0].layers[0].digest)), "{left:?}");
    assert!(partial.exists(), "what it has received stays");
    registry.faults().clear();
    pull.await.unwrap();
    assert_complete(&node, &added[1].manifests[0]);
    assert_eq!(registry.blobs_served()[&added[1].manifests[0].layers[0].digest], 1, "the shared layer stayed");
    assert_eq!(names_in(&node.store().join(".fleetpull/pulls")), Vec::<String>::new());
}

#[tokio::test]
async fn partial_blobs_go_when_no_pull_resumed_them_for_a_day() {
    let node = Node::new();
    let folder = node.store().join(".fleetpull/partial");
    let now = Clock::host().now().wall;
    let make = |name: &str, age: Duration| {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        file.set_len(1_000).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + now - age).unwrap();
        file
    };
    drop((make("sha256-old", 2 * DAY), make("sha256-young", DAY / 2)));
    let held = make("sha256-held", 2 * DAY);
    held.try_lock().unwrap();
    let pruned = prune(&upkeep_at(&node.store(), now), &PruneOptions::default()).await;
    assert_eq!(pruned.freed, Freed { blobs: 1, bytes: 1_000 });
    assert_eq!(node.partials(), ["sha256-held", "sha256-young"]);
}

#[tokio::test]
async fn folder_that_is_no_store_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| StoreUpkeep::open(path, false, Clock::host());
    assert!(open(folder.path()).unwrap().is_none() && open(&folder.path().join("missing")).unwrap().is_none());
    assert_eq!(names_in(folder.path()), Vec::<String>::new());
    std::fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    // Without an index it is unknown which blobs are needed.
    let node = Node::new();
    put(&node, b"perhaps needed");
    let error = upkeep(&node).prune(&PruneOptions::default(), |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("has blobs and no index.json") && error.contains("put it back"), "{error}");
    assert_eq!(upkeep(&node).would_prune(&PruneOptions::default()).unwrap_err().to_string(), error);
    assert_eq!(node.blobs().len(), 1);
    // A layout of another program, without our own folders.
    let made = open(folder.path()).unwrap().unwrap();
    assert_eq!((made.images().unwrap(), made.would_prune(&PruneOptions::default()).unwrap()), (Vec::new(), Pruned::default()));
    assert_eq!(names_in(folder.path()), ["oci-layout"]);
    assert_eq!(made.prune(&PruneOptions::default(), |_| {}).await.unwrap(), Pruned::default());
}
