//! `index.json`: the images of the store.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use image::{Digest, Platform, Reference};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::checked::Stamp;
use super::entry::{Entry, MANIFEST_ANNOTATION, NAME_ANNOTATION, Named, PULLED_ANNOTATION, RESOLVED_ANNOTATION, may_be_of};
use super::{FILE_MODE, Hasher, INDEX, Layout, lock};

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
    #[error(
        "cannot change {}: {source}; free some space, make the store writable for this user, or name another folder with --store",
        .path.display()
    )]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot change {}: {source}; end that process, or name another folder with --store", .path.display())]
    Held { path: PathBuf, source: io::Error },
    #[error(
        "cannot change {}: it would be longer than 64 MiB; remove images with `fleetpull rm`, or name another folder with --store",
        .path.display()
    )]
    TooLong { path: PathBuf },
    #[error("{} is damaged ({problem}); repair it, or move it away and pull again: blobs that are there are not fetched again", .path.display())]
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
    /// The time since 1970.
    pub(in crate::oci_layout) pulled_at: Duration,
}

/// The index as this process has written it, for [`super::StatusCache::remember`].
#[derive(Debug)]
pub(in crate::oci_layout) struct WrittenIndex {
    pub(super) index: Index,
    pub(super) stamp: Stamp,
}

/// The file's content. Entries are kept as text: each pull replaces the file, and reads few fields of the other entries. So those of other
/// programs stay unchanged too.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::oci_layout) struct Index {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    manifests: Vec<Box<RawValue>>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Index {
    fn empty() -> Self {
        let media_type = Value::from(OCI_INDEX);
        Self { schema_version: 2, manifests: Vec::new(), others: Map::from_iter([("mediaType".to_owned(), media_type)]) }
    }

    /// The readable entries; others are skipped.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.manifests.iter().filter_map(|entry| Entry::read(entry))
    }

    /// The readable entries that may be of the repository of `image`.
    pub(super) fn entries_of(&self, image: &Reference) -> impl Iterator<Item = Entry> {
        self.manifests.iter().filter(|entry| may_be_of(entry, image)).filter_map(|entry| Entry::read(entry))
    }

    /// All entries as they are written; an error if one nests too deep to be read.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = serde_json::Result<Value>> {
        self.manifests.iter().map(|entry| serde_json::from_str(entry.get()))
    }

    /// Removes the readable entries for which this holds, and returns them.
    pub(in crate::oci_layout) fn remove(&mut self, is_removed: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut removed = Vec::new();
        self.manifests.retain(|entry| match Entry::read(entry) {
            Some(entry) if is_removed(&entry) => {
                removed.push(entry);
                false
            }
            _ => true,
        });
        removed
    }

    /// Adds an image under the name that was asked for. It replaces an older one of that name and platform, and comes before others of the
    /// name, because other programs read the first. Entries with other spellings of the name (`busybox`,
    /// `docker.io/library/busybox:latest`) are updated too, so that one tag never means two images.
    fn insert(&mut self, image: &NewImage) -> serde_json::Result<()> {
        let asked = image.reference.requested();
        let same =
            |name: &str| name == asked || Reference::parse(name).is_ok_and(|other| other.normalised() == image.reference.normalised());
        let (mut kept, mut place) = (Vec::with_capacity(self.manifests.len() + 1), None);
        for entry in std::mem::take(&mut self.manifests) {
            if !may_be_of(&entry, &image.reference) {
                kept.push(entry);
                continue;
            }
            let named = Named::read(&entry);
            let (is_asked, is_platform) = (named.name == asked, named.platform == image.platform);
            match (is_asked, is_platform) {
                (true, true) => {}
                (false, true) if same(&named.name) => kept.push(image.entry(&named.name)?),
                _ => {
                    place = place.or(is_asked.then_some(kept.len()));
                    kept.push(entry);
                }
            }
        }
        kept.insert(place.unwrap_or(kept.len()), image.entry(asked)?);
        self.manifests = kept;
        Ok(())
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

    /// The digests of the blobs that stand for the image itself: its manifest, and the index around one of Docker's form.
    pub(in crate::oci_layout) fn manifests(&self) -> impl Iterator<Item = Digest> {
        let wrapper = self.wrapper().map(|wrapper| Hasher::sha256(&wrapper));
        std::iter::once(self.manifest.clone()).chain(wrapper)
    }

    fn entry(&self, name: &str) -> serde_json::Result<Box<RawValue>> {
        let mut entry = self.descriptor();
        entry["annotations"] = json!({NAME_ANNOTATION: name, PULLED_ANNOTATION: written(self.pulled_at)});
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
        serde_json::value::to_raw_value(&entry)
    }
}

/// A time since 1970 in RFC 3339, in whole seconds.
fn written(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

impl Layout {
    /// Reads `index.json`; a store without one is empty.
    pub(in crate::oci_layout) fn read_index(&self) -> Result<Index, IndexProblem> {
        Ok(self.read_existing_index()?.unwrap_or_else(Index::empty))
    }

    /// Reads `index.json`; none if the store has none.
    pub(super) fn read_existing_index(&self) -> Result<Option<Index>, IndexProblem> {
        let path = self.index_path();
        let mut text = Vec::new();
        let read = self.root.open_file(INDEX).and_then(|file| file.take(INDEX_MAX_BYTES + 1).read_to_end(&mut text));
        match read {
            Ok(_) if text.len() as u64 > INDEX_MAX_BYTES => Err(IndexProblem::Damaged { path, problem: "longer than 64 MiB".to_owned() }),
            Ok(_) => serde_json::from_slice(&text).map(Some).map_err(|error| IndexProblem::Damaged { path, problem: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IndexProblem::Unreadable { path, source }),
        }
    }

    /// Adds an image whose blobs are all present.
    pub(in crate::oci_layout) async fn add_image(&self, image: &NewImage) -> Result<WrittenIndex, IndexProblem> {
        if let Some(wrapper) = image.wrapper() {
            let unwritable = |source| IndexProblem::Unwritable { path: self.index_path(), source };
            self.put_blob(&Hasher::sha256(&wrapper), &wrapper).map_err(unwritable)?;
        }
        self.change_index(|index| index.insert(image)).await.map(|((), written)| written)
    }

    /// Removes the entries for which this holds, and returns them. Their blobs stay.
    pub(in crate::oci_layout) async fn remove_entries(&self, is_removed: impl Fn(&Entry) -> bool) -> Result<Vec<Entry>, IndexProblem> {
        self.change_index(|index| Ok(index.remove(is_removed))).await.map(|(removed, _)| removed)
    }

    /// Changes `index.json` as one process of all. If the change fails, the file stays as it is.
    async fn change_index<T>(&self, change: impl FnOnce(&mut Index) -> serde_json::Result<T>) -> Result<(T, WrittenIndex), IndexProblem> {
        let path = self.index_path();
        let unwritable = |source| IndexProblem::Unwritable { path: path.clone(), source };
        let own = self.own_folder().map_err(unwritable)?;
        let guard = own.open_to_write(INDEX_LOCK, FILE_MODE).map_err(unwritable)?;
        lock::lock(&guard, &own.path().join(INDEX_LOCK), |_| {}).await.map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => IndexProblem::Held { path: path.clone(), source },
            _ => unwritable(source),
        })?;
        lock::touch(&guard);
        let mut index = self.read_index()?;
        let changed = change(&mut index).map_err(|error| unwritable(error.into()))?;
        let text = serde_json::to_vec(&index).map_err(|error| unwritable(error.into()))?;
        if text.len() as u64 > INDEX_MAX_BYTES {
            // It could not be read again.
            return Err(IndexProblem::TooLong { path: path.clone() });
        }
        let stamp = self.replace(&self.root, INDEX, &text).map_err(unwritable)?;
        Ok((changed, WrittenIndex { index, stamp }))
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
            pulled_at: Duration::from_secs(1_700_000_000),
        }
    }

    fn names(index: &Index) -> Vec<String> {
        index.entries().map(|entry| format!("{} {}", entry.annotations[NAME_ANNOTATION], &entry.digest.hex()[..1])).collect()
    }

    #[test]
    fn image_replaces_one_of_the_same_name_and_platform() {
        let mut index = Index::empty();
        index.insert(&image("one", 'a', "linux/amd64")).unwrap();
        index.insert(&image("two", 'b', "linux/amd64")).unwrap();
        index.insert(&image("one", 'c', "linux/arm64")).unwrap();
        index.insert(&image("one", 'd', "linux/amd64")).unwrap();
        assert_eq!(names(&index), ["one d", "one c", "two b"]);
    }

    #[test]
    fn other_spellings_of_an_image_are_updated() {
        let mut index = Index::empty();
        index.insert(&image("busybox", 'a', "linux/amd64")).unwrap();
        index.insert(&image("busybox", 'e', "linux/arm64")).unwrap();
        index.insert(&image("docker.io/library/busybox:latest", 'b', "linux/amd64")).unwrap();
        index.insert(&image("busybox:1", 'c', "linux/amd64")).unwrap();
        assert_eq!(names(&index), ["busybox e", "busybox b", "docker.io/library/busybox:latest b", "busybox:1 c"]);
    }

    #[test]
    fn entries_of_other_programs_are_kept() {
        let text = r#"{"schemaVersion":2,"manifests":[{"digest":"odd","x":1}],"annotations":{"a":"b"}}"#;
        let mut index: Index = serde_json::from_str(text).unwrap();
        index.insert(&image("one", 'a', "linux/amd64")).unwrap();
        let written = serde_json::to_value(&index).unwrap();
        assert_eq!(written["manifests"][0], json!({"digest": "odd", "x": 1}));
        assert_eq!(written["annotations"], json!({"a": "b"}));
        assert_eq!(names(&index), ["one a"]);
    }

    #[test]
    fn name_is_found_however_another_program_writes_it() {
        let annotations = r#"{"org.opencontainers.image.ref.name":"\u006fne"}"#;
        let escaped = format!(r#"{{"digest":"sha256:{}","annotations":{annotations}}}"#, "b".repeat(64));
        let mut index: Index = serde_json::from_str(&format!(r#"{{"schemaVersion":2,"manifests":[{escaped}]}}"#)).unwrap();
        let of = |index: &Index, name: &str| index.entries_of(&Reference::parse(name).unwrap()).count();
        assert_eq!(of(&index, "docker.io/library/one:latest"), 1);
        index.insert(&NewImage { platform: None, ..image("one", 'a', "linux/amd64") }).unwrap();
        assert_eq!(names(&index), ["one a"], "it is replaced");
        assert_eq!((of(&index, "docker.io/library/one:latest"), of(&index, "other")), (1, 0));
    }

    #[test]
    fn entry_that_cannot_be_read_whole_is_kept_and_its_blobs_are_not_guessed() {
        let deep = format!("{{\"digest\":{}1{}}}", "[".repeat(200), "]".repeat(200));
        let mut index: Index = serde_json::from_str(&format!(r#"{{"schemaVersion":2,"manifests":[{deep}]}}"#)).unwrap();
        index.insert(&image("one", 'a', "linux/amd64")).unwrap();
        assert!(serde_json::to_string(&index).unwrap().contains(&deep));
        let readable: Vec<bool> = index.descriptors().map(|entry| entry.is_ok()).collect();
        assert_eq!((names(&index), readable), (vec!["one a".to_owned()], vec![false, true]));
    }

    #[test]
    fn entry_has_the_time_of_its_pull_and_is_found_by_any_name_of_the_image() {
        let mut index = Index::empty();
        let made = image("busybox", 'a', "linux/amd64");
        index.insert(&NewImage { resolved: Digest::parse(&format!("sha256:{}", "b".repeat(64))).unwrap(), ..made.clone() }).unwrap();
        let entry = index.entries().next().unwrap();
        assert_eq!(entry.pulled_at(), Some(made.pulled_at));
        let by_digest = |letter: &str| format!("docker.io/library/busybox@sha256:{}", letter.repeat(64));
        for (name, is_it) in [
            ("busybox", true),
            ("docker.io/library/busybox:latest", true),
            (&by_digest("a"), true),
            (&by_digest("b"), true),
            (&by_digest("c"), false),
            ("busybox:1", false),
            ("registry.example/busybox", false),
        ] {
            assert_eq!(entry.is(&Reference::parse(name).unwrap()), is_it, "{name}");
        }
        assert_eq!(index.remove(|entry| entry.pulled_at().is_none()).len(), 0);
        assert_eq!((index.remove(|_| true).len(), index.entries().count()), (1, 0));
    }

    /// A disk fills up during a pull, after the index could still be read.
    #[tokio::test]
    async fn index_that_cannot_be_written_is_not_reported_as_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        // New files are made there.
        std::fs::remove_dir(folder.path().join(".fleetpull/partial")).unwrap();
        let docker =
            NewImage { media_type: "application/vnd.docker.distribution.manifest.v2+json".to_owned(), ..image("two", 'b', "linux/amd64") };
        for image in [image("one", 'a', "linux/amd64"), docker] {
            let text = layout.add_image(&image).await.unwrap_err().to_string();
            assert!(text.starts_with("cannot change ") && text.contains("index.json: ") && text.contains("; free some space"), "{text}");
        }
    }

    #[tokio::test]
    async fn index_that_would_be_too_long_to_be_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let (before, after) = (r#"{"schemaVersion":2,"manifests":[],"note":""#, "\"}");
        let room = usize::try_from(INDEX_MAX_BYTES).unwrap() - before.len() - after.len();
        std::fs::write(folder.path().join(INDEX), format!("{before}{}{after}", "x".repeat(room))).unwrap();
        let text = layout.add_image(&image("one", 'a', "linux/amd64")).await.unwrap_err().to_string();
        assert!(text.contains("index.json: it would be longer than 64 MiB; remove images"), "{text}");
        assert_eq!(layout.read_index().unwrap().entries().count(), 0);
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
        let text = layout.add_image(&image).await.unwrap_err().to_string();
        assert!(text.contains(".fleetpull/index.lock and has shown no sign of life for 60 s; end that process"), "{text}");
        let Err(error) = layout.lock_partial(&image.manifest, 7, |_| {}).await else { panic!("it is held") };
        assert!(error.to_string().contains(&blob), "{error}");
        drop(held);
        layout.add_image(&image).await.unwrap();
    }
}
