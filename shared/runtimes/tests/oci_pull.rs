//! Successful pulls of the embedded runtime.
//!
//! Checks the requests to the registry, the store's content afterwards, and that the image is found in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::oci_support::{Node, assert_complete, registry, request};
use memory_registry::{Flavour, MadeImage};
use runtimes::{ImageRuntime, Progress};
use serde_json::Value;

const SIZES: [u64; 3] = [300_000, 1_000_000, 20_000];

#[tokio::test]
async fn pulled_image_is_found_in_the_layout() {
    for flavour in [Flavour::Oci, Flavour::Docker] {
        let registry = registry().await;
        let added = registry.add_image("demo/app", "1.0", &MadeImage::of_layers(SIZES).of_flavour(flavour));
        let image = format!("{}/demo/app:1.0", registry.host());
        let node = Node::new();
        assert_eq!(node.status(&image).await, None);

        let pulled = node.pull(&image).await.unwrap();
        assert_eq!(pulled.digest.as_deref(), Some(added.digest.as_str()));
        assert_eq!(pulled.image_ref, format!("{}/demo/app@{}", registry.host(), added.digest));
        assert_eq!(pulled.auth, "anonymous");
        assert_eq!(pulled.platform.as_deref(), Some(added.manifests[0].platform.as_str()));
        assert_complete(&node, &added.manifests[0]);
        assert_eq!(node.partials(), [""; 0]);
        // A manifest, a config and three layers, each once.
        assert_eq!(registry.counts().requests, 5);

        let status = node.status(&image).await.unwrap();
        assert_eq!(status.size_bytes, added.manifests[0].size());
        assert_eq!((Some(&status.image_ref), status.digest, status.platform), (Some(&pulled.image_ref), pulled.digest, pulled.platform));
    }
}

#[tokio::test]
async fn store_is_a_readable_oci_layout() {
    let registry = registry().await;
    let added = registry.add_image("app", "latest", &MadeImage::of_layers(SIZES));
    let node = Node::new();
    let image = format!("{}/app", registry.host());
    node.pull(&image).await.unwrap();
    let read = |name: &str| serde_json::from_str::<Value>(&std::fs::read_to_string(node.store().join(name)).unwrap()).unwrap();
    assert_eq!(read("oci-layout")["imageLayoutVersion"], "1.0.0");
    let index = read("index.json");
    assert_eq!(index["schemaVersion"], 2);
    assert_eq!(index["manifests"][0]["digest"], added.digest.as_str());
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], image.as_str(), "the reference as asked for");
    assert!(node.status(&format!("{image}:latest")).await.is_some(), "another spelling of it");
}

#[tokio::test]
async fn present_blobs_are_not_fetched_again() {
    let registry = registry().await;
    let added = registry.add_image("app", "1", &MadeImage::of_layers(SIZES));
    let node = Node::new();
    let image = format!("{}/app:1", registry.host());
    node.pull(&image).await.unwrap();
    registry.reset_counts();
    node.pull(&image).await.unwrap();
    assert_eq!(registry.counts().requests, 1, "only the tag is asked for again");

    let lost = &added.manifests[0].layers[1].digest;
    std::fs::remove_file(node.store().join("blobs/sha256").join(&lost["sha256:".len()..])).unwrap();
    assert_eq!(node.status(&image).await, None, "an image that lacks a blob is not there");
    registry.reset_counts();
    node.pull(&image).await.unwrap();
    assert_eq!(registry.blobs_served().keys().collect::<Vec<_>>(), [lost]);
    assert!(node.status(&image).await.is_some());
}

#[tokio::test]
async fn image_for_the_platform_is_chosen_from_a_list() {
    for flavour in [Flavour::Oci, Flavour::Docker] {
        let registry = registry().await;
        let made = MadeImage::of_layers(SIZES).of_flavour(flavour).for_platforms(["linux/amd64", "linux/arm64", "linux/arm/v7"]);
        let added = registry.add_image("app", "1", &made);
        let image = format!("{}/app:1", registry.host());
        for (place, platform) in ["linux/amd64", "linux/arm64", "linux/arm/v7"].into_iter().enumerate() {
            let node = Node::new();
            let pulled = node.pull_for(&image, Some(platform)).await.unwrap();
            assert_eq!(pulled.platform.as_deref(), Some(platform));
            assert_eq!(pulled.digest.as_deref(), Some(added.digest.as_str()), "the digest that the tag resolved to");
            assert!(pulled.image_ref.ends_with(&added.manifests[place].digest));
            assert_complete(&node, &added.manifests[place]);
            let reference = image::Reference::parse(&image).unwrap();
            let wanted = image::Platform::parse(platform).unwrap();
            let status = node.runtime.image_status(&reference, Some(&wanted)).await.unwrap().unwrap();
            assert_eq!(status.digest.as_deref(), Some(added.digest.as_str()));
            let other = image::Platform::parse("linux/s390x").unwrap();
            assert_eq!(node.runtime.image_status(&reference, Some(&other)).await.unwrap(), None);
        }
    }
}

#[tokio::test]
async fn image_is_found_by_each_of_its_digests() {
    let registry = registry().await;
    let added = registry.add_image("app", "1", &MadeImage::of_layers(SIZES).for_platforms(["linux/amd64", "linux/arm64"]));
    let by = |digest: &str| format!("{}/app@{digest}", registry.host());
    let (list, manifest) = (by(&added.digest), by(&added.manifests[0].digest));
    let node = Node::new();
    let pulled = node.pull_for(&list, Some("linux/amd64")).await.unwrap();
    assert_eq!(pulled.digest.as_deref(), Some(added.digest.as_str()));
    for image in [&list, &manifest] {
        let reference = image::Reference::parse(image).unwrap();
        let platform = image::Platform::parse("linux/amd64").unwrap();
        assert!(node.runtime.image_status(&reference, Some(&platform)).await.unwrap().is_some(), "{image}");
    }
    assert_eq!(node.status(&format!("{}/other@{}", registry.host(), added.digest)).await, None, "another repository");
}

#[tokio::test]
async fn progress_counts_every_byte() {
    let registry = registry().await;
    let added = registry.add_image("app", "1", &MadeImage::of_layers(SIZES));
    let node = Node::new();
    let progress = Progress::new();
    node.runtime.pull(request(&format!("{}/app:1", registry.host()), None), progress.clone()).await.unwrap();
    let snapshot = progress.snapshot();
    let size = added.manifests[0].size();
    assert!(snapshot.resolved);
    assert_eq!(snapshot.bytes(), (size, size));
    let names: Vec<_> = snapshot.layers.iter().map(|layer| layer.digest.clone()).collect();
    assert_eq!(names, added.manifests[0].blobs().map(|blob| blob.digest.clone()).collect::<Vec<_>>(), "in the manifest's order");
}

#[tokio::test]
async fn ten_concurrent_pulls_fetch_each_blob_once() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers(SIZES));
    let image = format!("{}/app:1", registry.host());
    let node = Node::new();
    let pulls = futures::future::join_all((0..10).map(|_| node.pull(&image))).await;
    assert!(pulls.iter().all(Result::is_ok));
    assert!(registry.blobs_served().values().all(|served| *served == 1), "{:?}", registry.blobs_served());
}
