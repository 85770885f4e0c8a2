//! The embedded runtime with a real docker-registry, and its store read by skopeo.
//!
//! Checks that the results with the memory registry also hold for the most common real registry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use super::oci_support::{Node, assert_complete, keyring, registry};
use contract::FailureClass;
use memory_registry::{AddedImage, Flavour, MadeImage};
use support::docker_registry::{self, DockerRegistry, PASSWORD, USER};
use support::requirement::met;

const PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];

/// Adds an image to the registry as `demo/app:1`.
async fn fill(target: &DockerRegistry, made: &MadeImage) -> AddedImage {
    let source = registry().await;
    let added = source.add_image("made", "1", made);
    target.copy_in(&format!("{}/made:1", source.host()), "demo/app:1").await;
    added
}

fn node_with_login(host: &str, password: &str) -> Node {
    let logins = format!(r#"{{"auths":{{"{host}":{{"username":"{USER}","password":"{password}"}}}}}}"#);
    Node::with(|options| options.keyring = keyring(options.store.parent().unwrap(), Some(&logins)))
}

#[tokio::test]
async fn lists_of_docker_and_oci_are_pulled() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    for flavour in [Flavour::Oci, Flavour::Docker] {
        let registry = DockerRegistry::start();
        let added = fill(&registry, &MadeImage::of_layers([700_000, 90_000]).for_platforms(PLATFORMS).of_flavour(flavour)).await;
        let image = format!("{}/demo/app:1", registry.host());
        let node = Node::new();
        for (place, platform) in PLATFORMS.into_iter().enumerate() {
            let pulled = node.pull_for(&image, Some(platform)).await.unwrap();
            assert_eq!(pulled.digest.as_deref(), Some(added.digest.as_str()));
            assert_complete(&node, &added.manifests[place]);
        }
    }
}

/// skopeo, podman and buildah ignore names in a layout that are no OCI manifest or index.
#[tokio::test]
async fn skopeo_reads_images_by_name_in_docker_and_oci_form() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    for flavour in [Flavour::Oci, Flavour::Docker] {
        for platforms in [&[][..], &PLATFORMS] {
            let registry = DockerRegistry::start();
            let made = MadeImage::of_layers([700_000, 90_000]).of_flavour(flavour);
            let added = fill(&registry, &if platforms.is_empty() { made } else { made.for_platforms(PLATFORMS) }).await;
            let image = format!("{}/demo/app:1", registry.host());
            let node = Node::new();
            // The second manifest is for a foreign platform.
            for (place, manifest) in added.manifests.iter().enumerate() {
                let (node, platform) = (Node::new(), platforms.get(place).copied());
                node.pull_for(&image, platform).await.unwrap();
                let target = node.folder.path().join("copy");
                read_with_skopeo(&node, &image, &target);
                for blob in manifest.blobs() {
                    assert_eq!(std::fs::metadata(target.join(&blob.digest["sha256:".len()..])).unwrap().len(), blob.size);
                }
                let copied = std::fs::read(target.join("manifest.json")).unwrap();
                assert_eq!(sha256(&copied), manifest.digest, "{flavour:?}: the digest of the registry is kept");
            }
            node.pull(&image).await.unwrap();
            let status = node.status(&image).await.expect("it is there");
            assert_eq!(status.digest.as_deref(), Some(added.digest.as_str()));
            let by_digest = format!("{}/demo/app@{}", registry.host(), added.digest);
            assert_eq!(node.status(&by_digest).await, Some(status));
        }
    }
}

fn read_with_skopeo(node: &Node, image: &str, target: &std::path::Path) {
    let source = format!("oci:{}:{image}", node.store().display());
    let inspected = Command::new("skopeo").args(["inspect", "--raw", &source]).output().unwrap();
    assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
    let copied = Command::new("skopeo").args(["copy", "-q", &source, &format!("dir:{}", target.display())]).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}

fn sha256(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    image::Digest::from_sha256(Sha256::digest(content).into()).to_string()
}

#[tokio::test]
async fn image_added_by_another_program_is_kept_and_found() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let registry = DockerRegistry::start();
    fill(&registry, &MadeImage::of_layers([50_000])).await;
    let image = format!("{}/demo/app:1", registry.host());
    let node = Node::new();
    let target = format!("oci:{}:registry.example/other:2", node.store().display());
    let copied =
        Command::new("skopeo").args(["copy", "-q", "--src-tls-verify=false", &format!("docker://{image}"), &target]).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    node.pull(&image).await.unwrap();
    for image in [image.as_str(), "registry.example/other:2"] {
        assert!(node.status(image).await.is_some(), "{image}");
    }
}

#[tokio::test]
async fn right_login_is_accepted_and_a_wrong_one_refused() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let registry = DockerRegistry::start_with_login();
    fill(&registry, &MadeImage::of_layers([50_000])).await;
    let image = format!("{}/demo/app:1", registry.host());
    let source = format!("login for {} in ", registry.host());
    let auth = node_with_login(registry.host(), PASSWORD).pull(&image).await.unwrap().auth;
    assert!(auth.starts_with(&source), "{auth}");
    for (node, auth, expected) in [
        (node_with_login(registry.host(), "wrong"), source.as_str(), format!("though the {source}")),
        (Node::new(), "anonymous", "and no login was sent".to_owned()),
    ] {
        let failure = node.pull(&image).await.unwrap_err();
        assert!(failure.class == FailureClass::Denied && failure.auth.starts_with(auth), "{failure:?}");
        assert!(failure.text.contains("401 Unauthorized (UNAUTHORIZED: authentication required)"), "{}", failure.text);
        assert!(failure.text.contains(&expected), "{}", failure.text);
    }
}

#[tokio::test]
async fn missing_image_is_classed_as_not_found() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let registry = DockerRegistry::start();
    fill(&registry, &MadeImage::of_layers([50_000])).await;
    for (image, expected) in [("demo/app:2", "MANIFEST_UNKNOWN"), ("demo/none:1", "_UNKNOWN")] {
        let failure = Node::new().pull(&format!("{}/{image}", registry.host())).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NotFound, "{failure}");
        assert!(failure.text.contains(expected), "{failure}");
    }
    let host = registry.host().to_owned();
    drop(registry);
    let failure = Node::new().pull(&format!("{host}/demo/app:1")).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::RegistryUnavailable);
}

#[tokio::test]
async fn interrupted_layer_is_resumed() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let registry = DockerRegistry::start();
    let added = fill(&registry, &MadeImage::of_layers([2_000_000])).await;
    let image = format!("{}/demo/app:1", registry.host());
    let whole = Node::new();
    whole.pull(&image).await.unwrap();
    let hex = &added.manifests[0].layers[0].digest["sha256:".len()..];
    let mut content = std::fs::read(whole.store().join("blobs/sha256").join(hex)).unwrap();
    content.truncate(1_234_567);
    let node = Node::new();
    std::fs::write(node.store().join(format!(".fleetpull/partial/sha256-{hex}")), content).unwrap();
    node.pull(&image).await.unwrap();
    assert_complete(&node, &added.manifests[0]);
}
