//! Answers in microseconds whether an image is present: `index.json` is read again only if it has changed since this process read it or
//! added an image.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use image::{Digest, Platform, Reference};

use super::checked::Stamp;
use super::entry::{Entry, NAME_ANNOTATION, PlatformFields, RESOLVED_ANNOTATION};
use super::index::{IndexProblem, WrittenIndex};
use super::{Hasher, INDEX, Index, Layout};
use crate::oci_layout::manifest::{ImageManifest, MANIFEST_MAX_BYTES};
use crate::port::ImageStatus;

/// Each pull replaces the index, so that most of its versions are read for a few look-ups. After this many in one version, all its entries
/// are prepared.
const PREPARED_AFTER: u32 = 16;

/// The index as read last.
#[derive(Default)]
pub(in crate::oci_layout) struct StatusCache(Mutex<Option<Cached>>);

struct Cached {
    /// The stamp of the index's file, which is only ever replaced.
    stamp: Stamp,
    images: Prepared,
}

enum Prepared {
    /// Not yet, after this many look-ups.
    No(Index, u32),
    Yes(Arc<Images>),
}

/// The index prepared for look-ups.
#[derive(Default)]
struct Images {
    /// Entries by normalised reference, which is equal for all spellings.
    by_name: BTreeMap<String, Vec<Arc<Known>>>,
    /// Entries by repository and each of their digests.
    by_digest: BTreeMap<(String, Digest), Vec<Arc<Known>>>,
}

/// One entry of the index.
struct Known {
    manifest: Digest,
    /// The index around a manifest of Docker's form.
    wrapper: Option<Digest>,
    /// The manifest list; none if the reference was resolved to a single manifest.
    list: Option<Digest>,
    platform: Option<Platform>,
    /// The manifest's content; none if it was not read yet or is missing.
    content: Mutex<Option<Arc<Content>>>,
}

struct Content {
    /// The blobs; the config is first.
    blobs: Vec<(Digest, u64)>,
    size_bytes: u64,
}

impl StatusCache {
    /// The image, if it is present with all its blobs.
    pub(in crate::oci_layout) fn status(
        &self,
        layout: &Layout,
        reference: &Reference,
        platform: Option<&Platform>,
    ) -> Result<Option<ImageStatus>, IndexProblem> {
        let images = self.images(layout, reference)?;
        let Some(known) = images.find(reference, platform) else { return Ok(None) };
        let unreadable = |source| IndexProblem::Unreadable { path: layout.blob_path(&known.manifest), source };
        let Some(content) = known.content(layout).map_err(unreadable)? else { return Ok(None) };
        for (place, (digest, size)) in content.blobs.iter().enumerate() {
            let there = if place == 0 { layout.has_intact_of_size(digest, *size) } else { layout.has_unchanged_of_size(digest, *size) };
            if !there.map_err(|source| IndexProblem::Unreadable { path: layout.blob_path(digest), source })? {
                return Ok(None);
            }
        }
        Ok(Some(ImageStatus {
            image_ref: format!("{}@{}", reference.repository(), known.manifest),
            size_bytes: content.size_bytes,
            digest: Some(known.list.as_ref().unwrap_or(&known.manifest).to_string()),
            platform: known.platform.as_ref().map(ToString::to_string),
        }))
    }

    /// Takes the index that this process has just written, so that the next look-up does not read it.
    pub(in crate::oci_layout) fn remember(&self, WrittenIndex { index, stamp }: WrittenIndex) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cached { stamp, images: Prepared::No(index, 0) });
    }

    /// The images, at least those of the repository of `reference`.
    fn images(&self, layout: &Layout, reference: &Reference) -> Result<Arc<Images>, IndexProblem> {
        let stamp = match layout.root.metadata(INDEX) {
            Ok(Some(entry)) => Stamp::of(&entry),
            Ok(None) => return Ok(Arc::default()),
            Err(source) => return Err(IndexProblem::Unreadable { path: layout.index_path(), source }),
        };
        let mut lock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = match lock.take().filter(|cached| cached.stamp == stamp) {
            Some(cached) => cached,
            // If the file changes in between, the older stamp makes the next call read it again.
            None => Cached { stamp, images: Prepared::No(layout.read_index()?, 0) },
        };
        let (images, prepared) = match cached.images {
            Prepared::Yes(images) => (Arc::clone(&images), Prepared::Yes(images)),
            Prepared::No(index, PREPARED_AFTER..) => {
                let images = Arc::new(Images::of(index.entries()));
                (Arc::clone(&images), Prepared::Yes(images))
            }
            Prepared::No(index, lookups) => (Arc::new(Images::of(index.entries_of(reference))), Prepared::No(index, lookups + 1)),
        };
        *lock = Some(Cached { images: prepared, ..cached });
        Ok(images)
    }
}

impl Images {
    fn of(entries: impl Iterator<Item = Entry>) -> Self {
        let mut images = Self::default();
        for entry in entries {
            let Some(name) = entry.annotations.get(NAME_ANNOTATION) else { continue };
            let list = entry.annotations.get(RESOLVED_ANNOTATION).and_then(|digest| Digest::parse(digest).ok());
            let platform = entry.platform.as_ref().and_then(PlatformFields::platform);
            let manifest = entry.manifest();
            let wrapper = (entry.digest != manifest).then(|| entry.digest.clone());
            let known = Arc::new(Known { manifest, wrapper, list, platform, content: Mutex::default() });
            let Ok(reference) = Reference::parse(name) else { continue };
            for digest in [Some(&known.manifest), known.list.as_ref()].into_iter().flatten() {
                let key = (reference.repository().to_owned(), digest.clone());
                images.by_digest.entry(key).or_default().push(Arc::clone(&known));
            }
            images.by_name.entry(reference.normalised().to_owned()).or_default().push(known);
        }
        images
    }

    /// The entry by name, else by digest, whatever tag it was pulled by.
    fn find(&self, reference: &Reference, platform: Option<&Platform>) -> Option<&Known> {
        let host;
        let wanted = match platform {
            Some(platform) => platform,
            None => {
                host = Platform::host();
                &host
            }
        };
        let named = self.by_name.get(reference.normalised());
        let digest = reference.digest().map(|digest| (reference.repository().to_owned(), digest.clone()));
        let same = digest.and_then(|key| self.by_digest.get(&key));
        let candidates = || named.into_iter().chain(same).flatten().map(Arc::as_ref);
        let exact = candidates().find(|known| known.platform.as_ref() == Some(wanted));
        let suitable = || candidates().find(|known| known.platform.as_ref().is_some_and(|offered| wanted.matches(offered)));
        // A single manifest counts for every platform, unless a platform was named.
        let single = || candidates().find(|known| known.list.is_none() && (platform.is_none() || known.platform.is_none()));
        exact.or_else(suitable).or_else(single)
    }
}

impl Known {
    /// The manifest's content; none if it does not match its digest or cannot be parsed, which the next pull repairs.
    fn content(&self, layout: &Layout) -> io::Result<Option<Arc<Content>>> {
        for digest in std::iter::once(&self.manifest).chain(&self.wrapper) {
            if !layout.has_intact(digest)? {
                return Ok(None);
            }
        }
        let mut held = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            let text = layout.read_blob(&self.manifest, MANIFEST_MAX_BYTES)?;
            // The file may have been replaced since it was hashed.
            let Some(text) = text.filter(|text| Hasher::verifies(text, &self.manifest)) else { return Ok(None) };
            let Ok(manifest) = ImageManifest::parse(&text) else { return Ok(None) };
            *held = Some(Arc::new(Content { blobs: manifest.blobs(), size_bytes: manifest.size_bytes() }));
        }
        Ok(held.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oci_layout::layout::NewImage;
    use crate::oci_layout::layout::hasher::tests::bytes_read_by_this_thread;

    fn reference(number: u8) -> Reference {
        Reference::parse(&format!("r.example/app{number}:1")).unwrap()
    }

    fn image(number: u8) -> NewImage {
        let manifest = Hasher::sha256(&[number]);
        NewImage {
            reference: reference(number),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            manifest: manifest.clone(),
            manifest_bytes: 1,
            resolved: manifest,
            platform: None,
            pulled_at: Duration::ZERO,
        }
    }

    /// Every pull looks for its image after it has written the index, which has all other images too.
    #[tokio::test]
    async fn index_that_this_process_has_written_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Layout::open(folder.path(), false, Duration::ZERO).unwrap();
        let (layout, cache) = (open(), StatusCache::default());
        let looked = || {
            let before = bytes_read_by_this_thread();
            assert_eq!(cache.status(&layout, &reference(7), None).unwrap(), None, "its manifest is missing");
            let size = std::fs::metadata(folder.path().join(INDEX)).unwrap().len();
            (bytes_read_by_this_thread() - before) * 2 > size
        };
        for number in 0..100 {
            cache.remember(layout.add_image(&image(number)).await.unwrap());
        }
        assert!(!looked(), "the index was read");
        open().add_image(&image(100)).await.unwrap();
        assert!(looked(), "another process has changed the index");
    }
}
