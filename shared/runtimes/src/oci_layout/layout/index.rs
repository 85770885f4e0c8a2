//! `index.json`: the images of the store.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use image::{Digest, Platform, Reference};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FILE_MODE, Hasher, INDEX, Layout, lock};

/// The annotation with the reference as asked for.
pub(super) const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Our annotation with the digest that the registry resolved the reference to, if that is a list's.
pub(super) const RESOLVED_ANNOTATION: &str = "io.fleetpull.resolved-digest";
/// Our annotation with the manifest's digest if the entry is an index around the manifest.
const MANIFEST_ANNOTATION: &str = "io.fleetpull.manifest-digest";
/// The media type of an index. Most readers of layouts ignore entries that are no OCI manifest or index.
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a manifest that needs no index around it.
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The file that is locked while the index is replaced.
const INDEX_LOCK: &str = "index.lock";
/// The largest `index.json` that is read; one with 50,000 images has 20 MiB.
const INDEX_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Why `index.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::oci_layout) enum IndexProblem {
    #[error("cannot read {}: {source}; make the store readable for this user, or name another folder with --store", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("cannot enter the image in {}: {source}; end that process, or name another folder with --store", .path.display())]
    Held { path: PathBuf, source: io::Error },
    #[error("{} is damaged ({problem}); mend it, or move it away and pull again: blobs that are there are not fetched again", .path.display())]
    Damaged { path: PathBuf, problem: String },
}

/// An image to add.
#[derive(Clone, Debug)]
pub(in crate::oci_layout) struct NewImage {
    /// The reference as asked for.
    pub(in crate::oci_layout) reference: Reference,
    pub(in crate::oci_layout) media_type: String,
    pub(in crate::oci_layout) manifest: Digest,
    pub(in crate::oci_layout) manifest_bytes: u64,
    /// The digest that the registry resolved the reference to.
    pub(in crate::oci_layout) resolved: Digest,
    pub(in crate::oci_layout) platform: Option<Platform>,
}

/// The file's content. Entries of other programs are kept unchanged.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::oci_layout) struct Index {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    manifests: Vec<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The fields of an entry that are read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) digest: Digest,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) platform: Option<PlatformFields>,
}

/// The platform fields of descriptors and configs.
#[derive(Debug, Default, Deserialize)]
pub(in crate::oci_layout) struct PlatformFields {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

impl PlatformFields {
    /// The platform, if the fields name one.
    pub(in crate::oci_layout) fn platform(&self) -> Option<Platform> {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref()).ok()
    }
}

impl Index {
    fn empty() -> Self {
        let media_type = Value::from(OCI_INDEX);
        Self { schema_version: 2, manifests: Vec::new(), others: Map::from_iter([("mediaType".to_owned(), media_type)]) }
    }

    /// The readable entries; others are skipped.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.manifests.iter().filter_map(|entry| Entry::deserialize(entry).ok())
    }

    /// Adds an image under the name that was asked for. It replaces an older one of that name and platform, and comes before others of the
    /// name, because other programs read the first. Entries with other spellings of the name (`busybox`,
    /// `docker.io/library/busybox:latest`) are updated too, so that one tag never means two images.
    fn enter(&mut self, image: &NewImage) {
        let asked = image.reference.requested();
        let name = |entry: &Value| entry["annotations"][NAME_ANNOTATION].as_str().unwrap_or_default().to_owned();
        let platform = |entry: &Value| PlatformFields::deserialize(&entry["platform"]).ok().and_then(|fields| fields.platform());
        let same =
            |name: &str| name == asked || Reference::parse(name).is_ok_and(|other| other.normalised() == image.reference.normalised());
        for entry in &mut self.manifests {
            let spelling = name(entry);
            if spelling != asked && platform(entry) == image.platform && same(&spelling) {
                *entry = image.entry(&spelling);
            }
        }
        self.manifests.retain(|entry| !(name(entry) == asked && platform(entry) == image.platform));
        let place = self.manifests.iter().position(|entry| name(entry) == asked).unwrap_or(self.manifests.len());
        self.manifests.insert(place, image.entry(asked));
    }
}

impl Entry {
    /// The digest of the image's manifest.
    pub(super) fn manifest(&self) -> Digest {
        let named = self.annotations.get(MANIFEST_ANNOTATION).and_then(|digest| Digest::parse(digest).ok());
        named.unwrap_or_else(|| self.digest.clone())
    }
}

impl NewImage {
    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.manifest, "size": self.manifest_bytes})
    }

    /// An index around a manifest of Docker's form, which keeps the registry's digest. It names no platform, so that every reader accepts
    /// the pulled image.
    fn wrapper(&self) -> Option<Vec<u8>> {
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [self.descriptor()]});
        (self.media_type != OCI_MANIFEST).then(|| index.to_string().into_bytes())
    }

    fn entry(&self, name: &str) -> Value {
        let mut entry = self.descriptor();
        entry["annotations"] = json!({NAME_ANNOTATION: name});
        if let Some(wrapper) = self.wrapper() {
            entry["mediaType"] = json!(OCI_INDEX);
            entry["digest"] = json!(Hasher::sha256(&wrapper));
            entry["size"] = json!(wrapper.len());
            entry["annotations"][MANIFEST_ANNOTATION] = json!(self.manifest);
        }
        if self.resolved != self.manifest {
            entry["annotations"][RESOLVED_ANNOTATION] = json!(self.resolved);
        }
        if let Some(platform) = &self.platform {
            entry["platform"] = json!({"os": platform.os(), "architecture": platform.architecture()});
            if let Some(variant) = platform.variant() {
                entry["platform"]["variant"] = json!(variant);
            }
        }
        entry
    }
}

impl Layout {
    /// Reads `index.json`; a store without one is empty.
    pub(in crate::oci_layout) fn read_index(&self) -> Result<Index, IndexProblem> {
        let path = self.index_path();
        let mut text = Vec::new();
        let read = self.root.open_file(INDEX).and_then(|file| file.take(INDEX_MAX_BYTES + 1).read_to_end(&mut text));
        match read {
            Ok(_) if text.len() as u64 > INDEX_MAX_BYTES => Err(IndexProblem::Damaged { path, problem: "longer than 64 MiB".to_owned() }),
            Ok(_) => serde_json::from_slice(&text).map_err(|error| IndexProblem::Damaged { path, problem: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::empty()),
            Err(source) => Err(IndexProblem::Unreadable { path, source }),
        }
    }

    /// Adds an image whose blobs are all present.
    pub(in crate::oci_layout) async fn enter(&self, image: &NewImage) -> Result<(), IndexProblem> {
        let path = self.index_path();
        let unreadable = |source| IndexProblem::Unreadable { path: path.clone(), source };
        if let Some(wrapper) = image.wrapper() {
            self.put_blob(&Hasher::sha256(&wrapper), &wrapper).map_err(unreadable)?;
        }
        let own = self.own_folder().map_err(unreadable)?;
        let guard = own.open_to_write(INDEX_LOCK, FILE_MODE).map_err(unreadable)?;
        lock::lock(&guard, &own.path().join(INDEX_LOCK), |_| {})
            .await
            .map_err(|source| IndexProblem::Held { path: path.clone(), source })?;
        lock::touch(&guard);
        let mut index = self.read_index()?;
        index.enter(image);
        let text = serde_json::to_vec(&index).map_err(|error| unreadable(io::Error::other(error)))?;
        self.replace(&self.root, INDEX, &text).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, letter: char, platform: &str) -> NewImage {
        let digest = Digest::parse(&format!("sha256:{}", letter.to_string().repeat(64))).unwrap();
        NewImage {
            reference: Reference::parse(name).unwrap(),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            manifest: digest.clone(),
            manifest_bytes: 7,
            resolved: digest,
            platform: Some(Platform::parse(platform).unwrap()),
        }
    }

    fn names(index: &Index) -> Vec<String> {
        index.entries().map(|entry| format!("{} {}", entry.annotations[NAME_ANNOTATION], &entry.digest.hex()[..1])).collect()
    }

    #[test]
    fn image_replaces_one_of_the_same_name_and_platform() {
        let mut index = Index::empty();
        index.enter(&image("one", 'a', "linux/amd64"));
        index.enter(&image("two", 'b', "linux/amd64"));
        index.enter(&image("one", 'c', "linux/arm64"));
        index.enter(&image("one", 'd', "linux/amd64"));
        assert_eq!(names(&index), ["one d", "one c", "two b"]);
    }

    #[test]
    fn other_spellings_of_an_image_are_updated() {
        let mut index = Index::empty();
        index.enter(&image("busybox", 'a', "linux/amd64"));
        index.enter(&image("busybox", 'e', "linux/arm64"));
        index.enter(&image("docker.io/library/busybox:latest", 'b', "linux/amd64"));
        index.enter(&image("busybox:1", 'c', "linux/amd64"));
        assert_eq!(names(&index), ["busybox e", "busybox b", "docker.io/library/busybox:latest b", "busybox:1 c"]);
    }

    #[test]
    fn entries_of_other_programs_are_kept() {
        let text = r#"{"schemaVersion":2,"manifests":[{"digest":"odd","x":1}],"annotations":{"a":"b"}}"#;
        let mut index: Index = serde_json::from_str(text).unwrap();
        index.enter(&image("one", 'a', "linux/amd64"));
        let written = serde_json::to_value(&index).unwrap();
        assert_eq!(written["manifests"][0], json!({"digest": "odd", "x": 1}));
        assert_eq!(written["annotations"], json!({"a": "b"}));
        assert_eq!(names(&index), ["one a"]);
    }

    /// On a paused clock the minute passes at once.
    #[tokio::test(start_paused = true)]
    async fn stuck_process_is_not_waited_for_and_its_lock_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let image = image("one", 'a', "linux/amd64");
        let blob = format!("partial/sha256-{}", image.manifest.hex());
        let held = ["index.lock", blob.as_str()].map(|name| {
            let file = std::fs::File::create(folder.path().join(".fleetpull").join(name)).unwrap();
            file.try_lock().unwrap();
            file
        });
        let text = layout.enter(&image).await.unwrap_err().to_string();
        assert!(text.contains(".fleetpull/index.lock and has shown no sign of life for 60 s; end that process"), "{text}");
        let Err(error) = layout.lock_partial(&image.manifest, 7, |_| {}).await else { panic!("it is held") };
        assert!(error.to_string().contains(&blob), "{error}");
        drop(held);
        layout.enter(&image).await.unwrap();
    }
}
