//! Interrupted pulls.
//!
//! Checks that received bytes are not fetched again, by this process or another, and that kept bytes are verified.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::oci_support::{Node, assert_complete, options, registry, request, until};
use memory_registry::{AddedImage, BodyFault, Fault, FaultAction, MadeImage, MemoryRegistry};
use runtimes::oci_layout::OciLayout;
use runtimes::{ImageRuntime, Progress};

const LAYER_BYTES: u64 = 3_000_000;
/// Where a layer breaks off in these tests.
const BREAK: u64 = 1_500_000;

async fn with_layer() -> (MemoryRegistry, AddedImage, String) {
    let registry = registry().await;
    let added = registry.add_image("app", "1", &MadeImage::of_layers([LAYER_BYTES]));
    let image = format!("{}/app:1", registry.host());
    (registry, added, image)
}

fn layer(added: &AddedImage) -> &str {
    &added.manifests[0].layers[0].digest
}

fn partial(store: &Path, digest: &str) -> std::path::PathBuf {
    store.join(".fleetpull/partial").join(digest.replace(':', "-"))
}

/// The ranges that were asked for.
fn ranges(registry: &MemoryRegistry, digest: &str) -> Vec<String> {
    let requests = registry.requests();
    requests
        .iter()
        .filter(|request| request.path.ends_with(digest))
        .map(|request| request.headers.get("range").cloned().unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn interrupted_body_is_resumed() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::CutAfter(BREAK)).times(1));
    let node = Node::new();
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
    let asked = ranges(&registry, layer(&added));
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], "");
    assert!(asked[1].starts_with("bytes=") && asked[1] != "bytes=0-", "{asked:?}");
}

#[tokio::test]
async fn body_that_ends_early_without_a_length_is_resumed_like_an_interrupted_one() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::EndAfter(BREAK)).times(1));
    let node = Node::new();
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
    assert_eq!(ranges(&registry, layer(&added)), [String::new(), format!("bytes={BREAK}-")]);

    registry.faults().add(Fault::body(layer(&added), BodyFault::EndAfter(100_000)));
    let failure = Node::new().pull(&image).await.unwrap_err();
    assert_eq!(failure.class, contract::FailureClass::ContentInvalid, "a body that always ends early says nothing of the registry");
    assert!(failure.text.contains("ended after 600000 of "), "{failure}");
}

#[tokio::test]
async fn whole_blob_is_fetched_from_a_registry_without_ranges() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::CutAfter(BREAK)).times(1));
    registry.faults().add(Fault::new(layer(&added), FaultAction::IgnoreRange).times(1));
    let node = Node::new();
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
}

/// The refusal must not keep the only connection that the next request needs.
#[tokio::test]
async fn whole_blob_is_fetched_after_a_refused_range_with_one_connection() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::CutAfter(BREAK)).times(1));
    registry.faults().add(Fault::answer(layer(&added), 416, &[], "").times(1));
    let node = Node::with(|options| options.connections_per_registry = 1);
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
    assert_eq!(ranges(&registry, layer(&added)).len(), 3);
}

#[tokio::test]
async fn repeatedly_interrupted_body_fails_the_pull() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::CutAfter(100_000)));
    let failure = Node::new().pull(&image).await.unwrap_err();
    assert_eq!(failure.class, contract::FailureClass::RegistryUnavailable);
    assert!(failure.text.contains("the connection broke after"), "{failure}");
    assert_eq!(ranges(&registry, layer(&added)).len(), 6);
}

#[tokio::test]
async fn dropped_pull_stops_and_the_next_resumes() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::StallAfter(BREAK)).times(1));
    let node = Node::new();
    let progress = Progress::new();
    {
        let pull = node.runtime.pull(request(&image, None), progress.clone());
        let stalled = until("the layer stalls", || progress.snapshot().bytes().0 >= BREAK);
        tokio::select! {
            biased;
            result = pull => panic!("the pull ended: {result:?}"),
            () = stalled => {}
        }
    }
    let kept = partial(&node.store(), layer(&added));
    until("what was received is written", || std::fs::metadata(&kept).is_ok_and(|entry| entry.len() == BREAK)).await;
    assert_eq!(node.status(&image).await, None);
    registry.reset_counts();
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
    assert_eq!(ranges(&registry, layer(&added)), [format!("bytes={BREAK}-")]);
    assert_eq!(registry.blob_bytes_served()[layer(&added)], added.manifests[0].layers[0].size - BREAK);
}

#[tokio::test]
async fn resumed_bytes_are_verified() {
    let (registry, added, image) = with_layer().await;
    let size = added.manifests[0].layers[0].size;
    // Zeros as after a power failure, a wrong blob of full length, and too many bytes.
    for length in [1_000, BREAK, size, size + 5] {
        let node = Node::new();
        std::fs::write(partial(&node.store(), layer(&added)), vec![0; usize::try_from(length).unwrap()]).unwrap();
        node.pull(&image).await.unwrap();
        assert_complete(&node, &added.manifests[0]);
    }
    assert_eq!(registry.counts().failing, 0);
}

#[tokio::test]
async fn complete_partial_blob_is_not_fetched_again() {
    let (registry, added, image) = with_layer().await;
    let first = Node::new();
    first.pull(&image).await.unwrap();
    let node = Node::new();
    let blob = first.store().join("blobs/sha256").join(layer(&added).strip_prefix("sha256:").unwrap());
    std::fs::copy(blob, partial(&node.store(), layer(&added))).unwrap();
    registry.reset_counts();
    node.pull(&image).await.unwrap();
    assert!(!registry.blobs_served().contains_key(layer(&added)));
}

/// The variable that tells the child below what to pull and into which store.
const CHILD: &str = "FLEETPULL_TEST_CHILD";

/// Not a test: the code of a child process that pulls.
#[tokio::test]
async fn pull_in_child_process() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (folder, image) = arguments.split_once(' ').unwrap();
    let runtime = OciLayout::open(options(Path::new(folder))).unwrap();
    runtime.pull(request(image, None), Progress::new()).await.unwrap();
}

fn child(folder: &Path, image: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "oci_resume::pull_in_child_process"]).env(CHILD, format!("{} {image}", folder.display()));
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn partial_blob_of_a_killed_process_is_resumed() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::StallAfter(BREAK)).times(1));
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut killed = child(folder.path(), &image);
    // The last batch is in the process's memory, and is lost with it.
    let kept = partial(&store, layer(&added));
    until("most of it is written", || std::fs::metadata(&kept).is_ok_and(|entry| entry.len() > BREAK - 300_000)).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!store.join("index.json").exists());
    let written = std::fs::metadata(&kept).unwrap().len();

    registry.reset_counts();
    let runtime = OciLayout::open(options(folder.path())).unwrap();
    runtime.pull(request(&image, None), Progress::new()).await.unwrap();
    assert_eq!(ranges(&registry, layer(&added)), [format!("bytes={written}-")]);
    assert_eq!(super::oci_support::names_in(&store.join(".fleetpull/partial")), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_processes_fetch_each_blob_once() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::BytesPerSecond(6_000_000)));
    let folder = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..3).map(|_| child(folder.path(), &image)).collect();
    until("all are done", || children.iter_mut().all(|child| child.try_wait().unwrap().is_some())).await;
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(registry.blobs_served()[layer(&added)], 1);
    let index = std::fs::read_to_string(folder.path().join("store/index.json")).unwrap();
    assert_eq!(index.matches("ref.name").count(), 1, "{index}");
}

#[tokio::test]
async fn waiting_pull_shows_the_other_pulls_progress() {
    let (registry, added, image) = with_layer().await;
    registry.faults().add(Fault::body(layer(&added), BodyFault::StallAfter(BREAK)).times(1));
    let node = Node::new();
    let other = OciLayout::open(options(node.folder.path())).unwrap();
    let (first, second) = (Progress::new(), Progress::new());
    let mut stalled = Box::pin(node.runtime.pull(request(&image, None), first.clone()));
    let seen = until("the first stalls", || first.snapshot().bytes().0 >= BREAK);
    tokio::select! { biased; result = &mut stalled => panic!("{result:?}"), () = seen => {} }
    let mut waiting = Box::pin(other.pull(request(&image, None), second.clone()));
    let seen = until("the second sees it", || second.snapshot().bytes().0 >= BREAK - 300_000);
    tokio::select! { biased; result = &mut waiting => panic!("{result:?}"), () = seen => {} }
    drop(stalled);
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert_eq!(registry.blob_bytes_served()[layer(&added)], added.manifests[0].layers[0].size, "no byte twice");
}
