//! Damaged blobs of the store, after a power failure or because another program overwrote them.
//!
//! Checks that a manifest, a config and the index around a manifest of Docker's form are hashed before an image counts as present; that a
//! layer counts by its size until it was hashed, and then while its file is unchanged; that a pull hashes all blobs and fetches exactly the
//! damaged ones again; and that a symlink is no blob.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::oci_support::{Node, assert_complete, options, registry};
use contract::FailureClass;
use memory_registry::{AddedImage, BodyFault, Fault, Flavour, MadeImage, MemoryRegistry};
use runtimes::oci_layout::OciLayout;
use serde_json::Value;

/// A kind of damage to a file.
type Damage = fn(&Path);

fn zeros(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    fs::write(path, vec![0; usize::try_from(length).unwrap()]).unwrap();
}

/// Flips one bit and restores the times, as a failing disk would.
fn one_bit_in_silence(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut content = fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).unwrap();
    File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

fn half(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    File::options().write(true).open(path).unwrap().set_len(length / 2).unwrap();
}

fn longer(path: &Path) {
    let content = fs::read(path).unwrap();
    fs::write(path, [content, vec![0; 10]].concat()).unwrap();
}

fn removed(path: &Path) {
    fs::remove_file(path).unwrap();
}

const KEEPS_ITS_SIZE: [(&str, Damage); 2] = [("zeros", zeros), ("one bit in silence", one_bit_in_silence)];
const CHANGES_ITS_SIZE: [(&str, Damage); 3] = [("half", half), ("longer", longer), ("removed", removed)];

/// A node that has pulled an image of Docker's form, which has all kinds of blobs.
struct Pulled {
    registry: MemoryRegistry,
    node: Node,
    image: String,
    added: AddedImage,
}

impl Pulled {
    async fn new() -> Self {
        let registry = registry().await;
        let added = registry.add_image("app", "1", &MadeImage::of_layers([300_000, 5_000_000]).of_flavour(Flavour::Docker));
        let (node, image) = (Node::new(), format!("{}/app:1", registry.host()));
        node.pull(&image).await.unwrap();
        registry.reset_counts();
        Self { registry, node, image, added }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.node.store().join("blobs/sha256").join(digest.strip_prefix("sha256:").unwrap())
    }

    /// The digest in `index.json`.
    fn wrapper(&self) -> String {
        let index: Value = serde_json::from_str(&fs::read_to_string(self.node.store().join("index.json")).unwrap()).unwrap();
        index["manifests"][0]["digest"].as_str().unwrap().to_owned()
    }

    /// Opens the store again, as another process or the agent's next start.
    fn start_again(&mut self) {
        self.node.runtime = OciLayout::open(options(self.node.folder.path())).unwrap();
    }

    async fn is_there(&self) -> bool {
        self.node.status(&self.image).await.is_some()
    }

    /// Checks that a pull repairs the store by fetching exactly these blobs.
    async fn heals_by_fetching(&self, what: &str, blobs: &[&str]) {
        self.node.pull(&self.image).await.unwrap_or_else(|failure| panic!("{what}: {failure}"));
        assert_eq!(self.registry.blobs_served().keys().collect::<Vec<_>>(), blobs, "{what}");
        assert_complete(&self.node, &self.added.manifests[0]);
        let wrapper = fs::read(self.path(&self.wrapper())).unwrap();
        assert!(String::from_utf8_lossy(&wrapper).contains(&self.added.digest), "{what}");
        assert!(self.is_there().await, "{what}");
        self.registry.reset_counts();
        self.node.pull(&self.image).await.unwrap();
        assert_eq!(self.registry.counts().requests, 1, "{what}: all is well again");
        self.registry.reset_counts();
    }
}

#[tokio::test]
async fn manifest_config_and_index_are_hashed_before_an_image_counts_as_present() {
    let mut pulled = Pulled::new().await;
    let config = pulled.added.manifests[0].config.digest.clone();
    for (kind, digest, fetched) in [
        ("manifest", pulled.added.digest.clone(), vec![]),
        ("wrapper", pulled.wrapper(), vec![]),
        ("config", config.clone(), vec![config.as_str()]),
    ] {
        for (damage, damages) in KEEPS_ITS_SIZE.into_iter().chain(CHANGES_ITS_SIZE) {
            for again in [false, true] {
                let what = format!("{kind}, {damage}, started again: {again}");
                assert!(pulled.is_there().await, "{what}");
                damages(&pulled.path(&digest));
                if again {
                    pulled.start_again();
                }
                assert!(!pulled.is_there().await, "{what}");
                pulled.heals_by_fetching(&what, &fetched).await;
            }
        }
    }
}

#[tokio::test]
async fn layer_counts_by_its_size_until_a_pull_hashes_it() {
    let mut pulled = Pulled::new().await;
    for layer in pulled.added.manifests[0].layers.clone() {
        for (damage, damages) in KEEPS_ITS_SIZE.into_iter().chain(CHANGES_ITS_SIZE) {
            for again in [false, true] {
                let what = format!("{} bytes, {damage}, started again: {again}", layer.size);
                damages(&pulled.path(&layer.digest));
                if again {
                    pulled.start_again();
                }
                // A process that has hashed the layer notices the other file; one that has not goes by the size.
                let counts = again && KEEPS_ITS_SIZE.iter().any(|(keeps, _)| *keeps == damage);
                assert_eq!(pulled.is_there().await, counts, "{what}");
                pulled.heals_by_fetching(&what, &[&layer.digest]).await;
            }
        }
    }
}

#[tokio::test]
async fn layer_replaced_by_an_equal_copy_is_hashed_again_and_counts() {
    let pulled = Pulled::new().await;
    for layer in &pulled.added.manifests[0].layers {
        let path = pulled.path(&layer.digest);
        let copy = path.with_extension("copy");
        fs::copy(&path, &copy).unwrap();
        fs::rename(&copy, &path).unwrap();
        assert!(pulled.is_there().await);
    }
    pulled.node.pull(&pulled.image).await.unwrap();
    assert_eq!(pulled.registry.blobs_served().len(), 0);
}

#[tokio::test]
async fn symlink_in_place_of_a_blob_is_replaced() {
    let pulled = Pulled::new().await;
    let manifest = pulled.added.manifests[0].clone();
    for digest in [&pulled.added.digest, &manifest.config.digest, &manifest.layers[0].digest] {
        let path = pulled.path(digest);
        let other = pulled.node.folder.path().join("elsewhere");
        fs::rename(&path, &other).unwrap();
        let content = fs::read(&other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(!pulled.is_there().await, "what it points at may be exchanged unseen");
        pulled.node.pull(&pulled.image).await.unwrap();
        assert!(pulled.is_there().await);
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(&other).unwrap(), content, "what it pointed at is left alone");
    }
}

#[tokio::test]
async fn damaged_layer_of_another_image_is_not_reused() {
    let pulled = Pulled::new().await;
    let layer = &pulled.added.manifests[0].layers[0];
    zeros(&pulled.path(&layer.digest));
    let other = pulled.registry.add_image("other", "1", &MadeImage::of_layers([300_000, 7_000]));
    let blobs: Vec<&str> = other.manifests[0].blobs().map(|blob| blob.digest.as_str()).collect();
    assert!(blobs.contains(&layer.digest.as_str()), "they share it");
    pulled.node.pull(&format!("{}/other:1", pulled.registry.host())).await.unwrap();
    assert_complete(&pulled.node, &other.manifests[0]);
    assert_complete(&pulled.node, &pulled.added.manifests[0]);
}

#[tokio::test]
async fn damaged_blob_that_cannot_be_fetched_fails_the_pull() {
    let pulled = Pulled::new().await;
    let layer = &pulled.added.manifests[0].layers[0];
    zeros(&pulled.path(&layer.digest));
    pulled.registry.faults().add(Fault::body("/blobs/", BodyFault::CorruptAt(7)));
    let failure = pulled.node.pull(&pulled.image).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::ContentInvalid);
    assert!(failure.text.contains(&format!("the content of blob {} has another digest", layer.digest)), "{failure}");
    pulled.registry.faults().clear();
    pulled.node.pull(&pulled.image).await.unwrap();
    assert_complete(&pulled.node, &pulled.added.manifests[0]);
}

#[tokio::test]
async fn store_without_its_blobs_is_filled_again() {
    let mut pulled = Pulled::new().await;
    for again in [false, true] {
        fs::remove_dir_all(pulled.node.store().join("blobs")).unwrap();
        if again {
            pulled.start_again();
        }
        assert!(!pulled.is_there().await);
        pulled.node.pull(&pulled.image).await.unwrap();
        assert!(pulled.is_there().await);
        assert_complete(&pulled.node, &pulled.added.manifests[0]);
    }
}

#[tokio::test]
async fn folder_in_place_of_a_blob_is_reported() {
    let pulled = Pulled::new().await;
    let manifest = &pulled.added.manifests[0];
    for digest in [&pulled.added.digest, &manifest.config.digest, &manifest.layers[0].digest] {
        let path = pulled.path(digest);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!pulled.is_there().await);
        let failure = pulled.node.pull(&pulled.image).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NodeLocal);
        assert!(failure.text.contains("Is a directory") && failure.text.contains("store"), "{failure}");
        fs::remove_dir(&path).unwrap();
        pulled.node.pull(&pulled.image).await.unwrap();
        assert!(pulled.is_there().await);
    }
}

#[test]
fn problem_of_a_store_is_reported_with_advice() {
    let text = |prepare: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        prepare(&store);
        let text = OciLayout::open(options(folder.path())).err().unwrap().to_string();
        text.replace(&store.display().to_string(), "STORE")
    };
    let another = "name another folder with --store";
    let marked = |marker: &'static str| text(&move |store| fs::write(store.join("oci-layout"), marker).unwrap());
    assert_eq!(marked("garbage"), format!("cannot use STORE as an image store: its file oci-layout is damaged; {another}"));
    let version = "its file oci-layout names another version than 1.0.0";
    for marker in [r#"{"imageLayoutVersion":"2.0.0"}"#, "{}", "[]"] {
        assert_eq!(marked(marker), format!("cannot use STORE as an image store: {version}; {another}"));
    }
    let files: [Damage; 3] = [
        |store| fs::write(store.join("blobs"), "").unwrap(),
        |store| {
            fs::create_dir(store.join("blobs")).unwrap();
            fs::write(store.join("blobs/sha256"), "").unwrap();
        },
        |store| fs::write(store.join(".fleetpull"), "").unwrap(),
    ];
    for file in files {
        let error = text(&file);
        assert!(
            error.contains("a file stands where the store, its blobs, blobs/sha256 or .fleetpull should be a folder: move it away"),
            "{error}"
        );
    }
}
