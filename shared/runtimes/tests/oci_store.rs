//! Stores in a bad state, and concurrent pulls into one store.
//!
//! Checks the errors of an unusable store, a full disk, and the bounds of connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::oci_support::{Node, options, registry};
use contract::FailureClass;
use image::Reference;
use memory_registry::{BodyFault, Fault, MadeImage};
use runtimes::ImageRuntime;
use runtimes::oci_layout::OciLayout;
use tempfile::TempDir;

#[tokio::test]
async fn damaged_index_is_reported_and_not_overwritten() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    let image = format!("{}/app:1", registry.host());
    for damage in ["{\"schemaVersion\":2,\"manife", "", "[]", "{}"] {
        let node = Node::new();
        let index = node.store().join("index.json");
        std::fs::write(&index, damage).unwrap();
        let failure = node.runtime.image_status(&Reference::parse(&image).unwrap(), None).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NodeLocal);
        assert!(failure.text.contains("index.json is damaged") && failure.text.contains("move it away"), "{failure}");
        assert_eq!(node.runtime.describe().await.problem.as_deref(), Some(failure.text.as_str()));
        let failure = node.pull(&image).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NodeLocal);
        assert!(failure.text.contains("index.json is damaged"), "{failure}");
        assert_eq!(std::fs::read_to_string(&index).unwrap(), damage);
        std::fs::remove_file(&index).unwrap();
        registry.reset_counts();
        node.pull(&image).await.unwrap();
        assert_eq!(registry.counts().requests, 1, "the blobs were there already");
    }
}

#[tokio::test]
async fn index_that_is_no_file_is_reported() {
    let node = Node::new();
    std::fs::create_dir(node.store().join("index.json")).unwrap();
    let failure = node.runtime.image_status(&Reference::parse("a.example/b:1").unwrap(), None).await.unwrap_err();
    assert!(failure.text.contains("cannot read") && failure.text.contains("index.json") && failure.text.contains("--store"), "{failure}");
}

#[tokio::test]
async fn changed_index_is_noticed_at_once() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    registry.add_image("app", "2", &MadeImage::of_layers([20_000]));
    let image = |tag: u8| format!("{}/app:{tag}", registry.host());
    let node = Node::new();
    let other = OciLayout::open(options(node.folder.path())).unwrap();
    node.pull(&image(1)).await.unwrap();
    assert!(other.image_status(&Reference::parse(&image(1)).unwrap(), None).await.unwrap().is_some());
    node.pull(&image(2)).await.unwrap();
    assert!(other.image_status(&Reference::parse(&image(2)).unwrap(), None).await.unwrap().is_some());
}

#[test]
fn file_is_not_opened_as_a_store() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("store"), "a file").unwrap();
    let error = OciLayout::open(options(folder.path())).err().unwrap().to_string();
    assert!(error.contains("as an image store") && error.contains("--store"), "{error}");
}

#[test]
fn old_partial_blobs_are_removed_and_young_ones_kept() {
    let node = Node::new();
    let folder = node.store().join(".fleetpull/partial");
    let week = std::time::Duration::from_secs(8 * 24 * 60 * 60);
    for (name, age) in [("sha256-old", week), ("sha256-young", std::time::Duration::ZERO)] {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + clock::Clock::host().now().wall - age).unwrap();
    }
    OciLayout::open(options(node.folder.path())).unwrap();
    assert_eq!(node.partials(), ["sha256-young"]);
}

/// A file system of a few MB, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(format!("a small disk needs root and mount: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("a small disk needs root and mount: {error}")),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn full_disk_is_node_local_and_harms_no_other_pull() {
    let Some(disk) = support::requirement::met(SmallDisk::mount()) else { return };
    let registry = registry().await;
    registry.add_image("big", "1", &MadeImage::of_layers([9_000_000, 8_000_000]));
    let small = registry.add_image("small", "1", &MadeImage::of_layers([100_000]));
    let runtime = OciLayout::open(options(disk.0.path())).unwrap();
    let pull = |image: String| runtime.pull(super::oci_support::request(&image, None), runtimes::Progress::new());
    for _ in 0..2 {
        let failure = pull(format!("{}/big:1", registry.host())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NodeLocal);
        assert!(failure.text.contains("No space left") && failure.text.contains("free some space"), "{failure}");
        assert_eq!(failure.endpoint, None);
        pull(format!("{}/small:1", registry.host())).await.unwrap();
    }
    assert_eq!(registry.counts().failing, 0);
    let manifest = disk.0.path().join("store/blobs/sha256").join(&small.manifests[0].digest["sha256:".len()..]);
    assert!(manifest.exists());
}

#[tokio::test]
async fn unwritable_store_is_reported() {
    let root = std::fs::metadata("/proc/self").is_ok_and(|entry| std::os::unix::fs::MetadataExt::uid(&entry) == 0);
    let node = Node::new();
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    let partials = node.store().join(".fleetpull/partial");
    if root {
        // Root may write everywhere, so the folder is removed instead.
        std::fs::remove_dir(&partials).unwrap();
    } else {
        std::fs::set_permissions(&partials, std::fs::Permissions::from_mode(0o500)).unwrap();
    }
    let failure = node.pull(&format!("{}/app:1", registry.host())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("store") && failure.text.contains("--store"), "{failure}");
}

#[tokio::test]
async fn connections_are_bounded_per_pull_and_per_registry() {
    let registry = registry().await;
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(400_000)));
    for number in 0..4 {
        registry.add_image("app", &number.to_string(), &MadeImage::of_layers([40_000; 8]).seeded(number));
    }
    let image = |number: u64| format!("{}/app:{number}", registry.host());
    let node = Node::new();
    node.pull(&image(0)).await.unwrap();
    assert_eq!(registry.counts().peak_blobs_in_flight, 4);
    let images: Vec<_> = (1..4).map(image).collect();
    let pulls = futures::future::join_all(images.iter().map(|image| node.pull(image))).await;
    assert!(pulls.iter().all(Result::is_ok));
    assert!((5..=8).contains(&registry.counts().peak_blobs_in_flight), "{:?}", registry.counts());
}

/// The index is prepared for look-ups only after some look-ups.
#[tokio::test]
async fn an_image_is_found_by_its_names_and_digest_however_often_it_is_looked_up() {
    let registry = registry().await;
    registry.add_image("team/app", "1", &MadeImage::of_layers([10_000]));
    registry.add_image("team/other", "1", &MadeImage::of_layers([20_000]));
    let node = Node::new();
    let digest = node.pull(&format!("{}/team/app:1", registry.host())).await.unwrap().digest.unwrap();
    node.pull(&format!("{}/team/other:1", registry.host())).await.unwrap();
    let other = OciLayout::open(options(node.folder.path())).unwrap();
    for lookup in 0..50 {
        let names = [("team/app:1", true), (&format!("team/app@{digest}"), true), ("team/app:2", false), (&format!("app@{digest}"), false)];
        for (name, is_there) in names {
            let image = Reference::parse(&format!("{}/{name}", registry.host())).unwrap();
            let found = other.image_status(&image, None).await.unwrap();
            assert_eq!(found.is_some(), is_there, "{name}, look-up {lookup}");
            assert!(found.is_none_or(|found| found.digest.as_ref() == Some(&digest)), "{name}, look-up {lookup}");
        }
    }
}

/// The bytes that this thread has read from files so far.
fn bytes_read_by_this_thread() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// The calling thread is the actors': it serves every pull of the node.
#[tokio::test]
async fn image_status_reads_no_blob_on_the_calling_thread() {
    let registry = registry().await;
    let config = registry.put_blob("app", format!("{{\"os\":\"linux\",\"padding\":\"{}\"}}", "x".repeat(2_000_000)));
    let layer = registry.put_blob("app", vec![7; 1_000]);
    let descriptor = |blob: &memory_registry::BlobInfo| format!("{{\"digest\":\"{}\",\"size\":{}}}", blob.digest, blob.size);
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{media_type}\",\"config\":{},\"layers\":[{}]}}",
        descriptor(&config),
        descriptor(&layer)
    );
    registry.put_manifest("app", Some("1"), media_type, manifest);
    let image = format!("{}/app:1", registry.host());
    let node = Node::new();
    node.pull(&image).await.unwrap();
    // Stands for another process, which has hashed nothing yet.
    let other = OciLayout::open(options(node.folder.path())).unwrap();
    let before = bytes_read_by_this_thread();
    assert!(other.image_status(&Reference::parse(&image).unwrap(), None).await.unwrap().is_some());
    other.describe().await;
    let read = bytes_read_by_this_thread() - before;
    assert!(read < 10_000, "{read} bytes were read by the thread that asks");
}
