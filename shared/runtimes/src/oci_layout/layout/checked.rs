//! Which blobs were found to be what their names say.
//!
//! A blob is hashed before it is put into the store. What a loss of power leaves, or somebody writes over, can still have the
//! right size: so a manifest and a config are hashed again before an image counts as there, and every blob before a pull takes
//! it for fetched. Each is hashed once in the life of a process, and again when its file is another or was changed.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use image::Digest;

use super::hasher::hash_to_end;
use super::{Hasher, Layout};

/// Largest blob that is hashed while somebody waits to hear whether an image is there: what registries take as a manifest. A
/// longer config counts by its size. Bytes.
const SMALL_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Most blobs that are remembered, about 200 bytes each: those of a thousand images. Beyond it all are hashed once more.
const CHECKED_MAX: usize = 20_000;

/// Tells whether a file is the one that was looked at, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Of the entry: setting `modified` back changes this.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(entry: &Metadata) -> Self {
        let (modified, changed) = ((entry.mtime(), entry.mtime_nsec()), (entry.ctime(), entry.ctime_nsec()));
        Self { inode: entry.ino(), size: entry.size(), modified, changed }
    }

    /// Whether the same file, looked at again, still has the content it had. Losing its last name changes the entry and not the
    /// content.
    fn has_content_of(self, entry: &Metadata) -> bool {
        let now = Self::of(entry);
        now == self || entry.nlink() == 0 && Self { changed: now.changed, ..self } == now
    }
}

/// What was found of blobs: the file that was hashed, and whether it is what its name says.
#[derive(Debug, Default)]
pub(super) struct Checked(Mutex<BTreeMap<Digest, (Stamp, bool)>>);

impl Checked {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Digest, (Stamp, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, digest: &Digest) -> Option<(Stamp, bool)> {
        self.held().get(digest).copied()
    }

    pub(super) fn add(&self, digest: &Digest, stamp: Stamp, is_sound: bool) {
        let mut held = self.held();
        if held.len() >= CHECKED_MAX {
            held.clear();
        }
        held.insert(digest.clone(), (stamp, is_sound));
    }
}

impl Layout {
    /// The blob's file, if there is one.
    pub(super) fn stamp_of(&self, digest: &Digest) -> io::Result<Option<Stamp>> {
        let Some(folder) = self.blob_folder(digest.algorithm())? else { return Ok(None) };
        Ok(folder.metadata(digest.hex())?.filter(Metadata::is_file).map(|entry| Stamp::of(&entry)))
    }

    /// The blob's file, if it has this size.
    pub(super) fn stamp_of_size(&self, digest: &Digest, size: u64) -> io::Result<Option<Stamp>> {
        Ok(self.stamp_of(digest)?.filter(|stamp| stamp.size == size))
    }

    /// Whether a manifest, or what else is small, is there and is what its name says.
    pub(super) fn has_sound(&self, digest: &Digest) -> io::Result<bool> {
        match self.stamp_of(digest)? {
            Some(stamp) if stamp.size <= SMALL_MAX_BYTES => self.is_sound(digest, stamp),
            _ => Ok(false),
        }
    }

    /// Whether a blob of this size is there and, where it is small, is what its name says.
    pub(super) fn has_sound_of_size(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        if size > SMALL_MAX_BYTES {
            return self.has_unchanged_of_size(digest, size);
        }
        match self.stamp_of_size(digest, size)? {
            Some(stamp) => self.is_sound(digest, stamp),
            None => Ok(false),
        }
    }

    /// Whether a blob of this size is there and was not exchanged since this process hashed it. One that it never hashed counts by
    /// its size.
    pub(super) fn has_unchanged_of_size(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        match (self.stamp_of_size(digest, size)?, self.checked.get(digest)) {
            (None, _) => Ok(false),
            (Some(_), None) => Ok(true),
            (Some(stamp), Some(_)) => self.is_sound(digest, stamp),
        }
    }

    /// Whether the blob is what its name says; hashed unless the file of this stamp was before. Where another process puts its own copy
    /// under that name meanwhile, the answer is of the file that had the name; the copy is hashed at the next question.
    pub(super) fn is_sound(&self, digest: &Digest, stamp: Stamp) -> io::Result<bool> {
        if let Some((_, is_sound)) = self.checked.get(digest).filter(|(known, _)| *known == stamp) {
            return Ok(is_sound);
        }
        let Some(file) = self.open_blob(digest)? else { return Ok(false) };
        // Of the file that is read, whatever has taken its name meanwhile.
        let before = Stamp::of(&file.metadata()?);
        let mut hasher = Hasher::new(digest.algorithm());
        hash_to_end(&file, &mut hasher, &AtomicBool::new(false))?;
        let has_digest = hasher.finish().as_ref() == Some(digest);
        let is_sound = has_digest && before.has_content_of(&file.metadata()?);
        if is_sound == has_digest {
            self.checked.add(digest, before, is_sound);
        }
        if !is_sound {
            self.warn_of(digest);
        }
        Ok(is_sound)
    }

    fn warn_of(&self, digest: &Digest) {
        let blob = self.blob_path(digest);
        tracing::warn!(blob = %blob.display(), "a blob of the store is not what its name says: the next pull fetches it again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use image::Algorithm;

    use super::*;

    /// Processes that pull the same image at once each put its manifest under the same name.
    #[test]
    fn a_blob_that_another_process_puts_again_meanwhile_is_sound() {
        let place = tempfile::tempdir().unwrap();
        let content = vec![7; 1_000_000];
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(&content);
        let digest = hasher.finish().unwrap();
        let open = || Layout::open(place.path(), false, Duration::ZERO).unwrap();
        let layout = open();
        layout.put_blob(&digest, &content).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let folder = layout.make_blob_folder(digest.algorithm()).unwrap();
                while !done.load(Ordering::Relaxed) {
                    layout.replace(&folder, digest.hex(), &content).unwrap();
                }
            });
            // Each time by a process that has not hashed it yet.
            let unsound = (0..30).filter(|_| !open().has_sound(&digest).unwrap()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(unsound, 0);
        });
    }
}
