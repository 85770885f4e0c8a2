//! Remembers which blobs were hashed and match their digest.
//!
//! A blob is hashed before it is put into the store. After a power failure, or if a program overwrites it, a damaged blob can still have
//! the right size. So a manifest and a config are hashed again before an image counts as present, and every blob before a pull counts it as
//! fetched. Each is hashed once in the life of a process, and again if its file was replaced or changed.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use image::Digest;
use tokio::sync::OwnedMutexGuard;

use super::hasher::hash_to_end;
use super::{Hasher, Layout};

/// The largest blob that is hashed during a status call, in bytes: the largest manifest that registries accept. A longer config counts by
/// its size.
const SMALL_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The most remembered blobs, about 200 bytes each: those of 1,000 images. Beyond it all are forgotten and hashed again.
const CHECKED_MAX: usize = 20_000;

/// Shows whether a file is unchanged since it was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// The time of the last change of the inode; setting `modified` back changes it.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(entry: &Metadata) -> Self {
        let (modified, changed) = ((entry.mtime(), entry.mtime_nsec()), (entry.ctime(), entry.ctime_nsec()));
        Self { inode: entry.ino(), size: entry.size(), modified, changed }
    }

    /// Whether the file still has its content. Removing its last name changes the inode but not the content.
    fn has_content_of(self, entry: &Metadata) -> bool {
        let now = Self::of(entry);
        now == self || entry.nlink() == 0 && Self { changed: now.changed, ..self } == now
    }
}

/// The blobs that were hashed, and those that are being hashed for pulls.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Each file's stamp, and whether the content matches the digest.
    hashed: Mutex<BTreeMap<Digest, (Stamp, bool)>>,
    /// The lock of each blob that is being hashed, or that a pull waits for.
    being_hashed: Mutex<BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

impl Checked {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Digest, (Stamp, bool)>> {
        self.hashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other pull hashes the blob. The thread that hashes it keeps the returned guard to its end, also if its pull is
    /// cancelled. So a pull that is retried waits for that thread and finds its result, instead of starting another one.
    pub(super) async fn lock_to_hash(&self, digest: &Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.being_hashed.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(digest).and_then(Weak::upgrade);
            let lock = known.unwrap_or_default();
            locks.insert(digest.clone(), Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }

    fn get(&self, digest: &Digest) -> Option<(Stamp, bool)> {
        self.held().get(digest).copied()
    }

    pub(super) fn add(&self, digest: &Digest, stamp: Stamp, is_intact: bool) {
        let mut held = self.held();
        if held.len() >= CHECKED_MAX {
            held.clear();
        }
        held.insert(digest.clone(), (stamp, is_intact));
    }
}

impl Layout {
    /// The stamp of the blob's file, if it exists.
    pub(super) fn stamp_of(&self, digest: &Digest) -> io::Result<Option<Stamp>> {
        let Some(folder) = self.blob_folder(digest.algorithm())? else { return Ok(None) };
        Ok(folder.metadata(digest.hex())?.filter(Metadata::is_file).map(|entry| Stamp::of(&entry)))
    }

    /// The stamp of the blob's file, if it has this size.
    pub(super) fn stamp_of_size(&self, digest: &Digest, size: u64) -> io::Result<Option<Stamp>> {
        Ok(self.stamp_of(digest)?.filter(|stamp| stamp.size == size))
    }

    /// Whether a small blob is present and matches its digest.
    pub(super) fn has_intact(&self, digest: &Digest) -> io::Result<bool> {
        match self.stamp_of(digest)? {
            Some(stamp) if stamp.size <= SMALL_MAX_BYTES => self.is_intact(digest, stamp),
            _ => Ok(false),
        }
    }

    /// Whether a blob of this size is present and, if it is small, matches its digest.
    pub(super) fn has_intact_of_size(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        if size > SMALL_MAX_BYTES {
            return self.has_unchanged_of_size(digest, size);
        }
        match self.stamp_of_size(digest, size)? {
            Some(stamp) => self.is_intact(digest, stamp),
            None => Ok(false),
        }
    }

    /// Whether a blob of this size is present and, if this process hashed it, unchanged since then or matching again. One that it never
    /// hashed counts by its size.
    pub(super) fn has_unchanged_of_size(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        match (self.stamp_of_size(digest, size)?, self.checked.get(digest)) {
            (None, _) => Ok(false),
            (Some(_), None) => Ok(true),
            (Some(stamp), Some(_)) => self.is_intact(digest, stamp),
        }
    }

    /// Whether the blob matches its digest; hashes it unless this stamp is known. If another process replaces the file meanwhile, the
    /// answer is about the old file; the new one is hashed at the next call.
    pub(super) fn is_intact(&self, digest: &Digest, stamp: Stamp) -> io::Result<bool> {
        if let Some((_, is_intact)) = self.checked.get(digest).filter(|(known, _)| *known == stamp) {
            return Ok(is_intact);
        }
        let Some(file) = self.open_blob(digest)? else { return Ok(false) };
        // The stamp of the opened file, even if its name has another file by now.
        let before = Stamp::of(&file.metadata()?);
        let mut hasher = Hasher::new(digest.algorithm());
        hash_to_end(&file, &mut hasher, &AtomicBool::new(false))?;
        let has_digest = hasher.finish().as_ref() == Some(digest);
        let is_intact = has_digest && before.has_content_of(&file.metadata()?);
        if is_intact == has_digest {
            self.checked.add(digest, before, is_intact);
        }
        if !is_intact {
            self.warn_of(digest);
        }
        Ok(is_intact)
    }

    fn warn_of(&self, digest: &Digest) {
        let blob = self.blob_path(digest);
        tracing::warn!(blob = %blob.display(), "a blob of the store does not match its digest: the next pull fetches it again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use image::Algorithm;

    use super::*;
    use crate::oci_layout::layout::hasher::tests::bytes_read_by_this_thread;

    #[test]
    fn written_blob_is_not_hashed_again_until_its_file_changes() {
        let place = tempfile::tempdir().unwrap();
        let content = vec![7; 1_000_000];
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(&content);
        let digest = hasher.finish().unwrap();
        let layout = Layout::open(place.path(), false, Duration::ZERO).unwrap();
        layout.put_blob(&digest, &content).unwrap();
        let before = bytes_read_by_this_thread();
        assert!(layout.has_intact(&digest).unwrap());
        let read = bytes_read_by_this_thread() - before;
        assert!(read < 500_000, "read {read} bytes of a blob that it has just written");
        let path = layout.blob_path(&digest);
        std::fs::write(&path, vec![8; 1_000_000]).unwrap();
        // The clock of files may not have moved since the blob was written.
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(!layout.has_intact(&digest).unwrap(), "a changed blob is hashed again");
    }

    /// Several processes that pull one image each put its manifest under the same name.
    #[test]
    fn blob_replaced_by_an_equal_copy_meanwhile_is_intact() {
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
            // A new layout each time stands for a process that has not hashed the blob yet.
            let unsound = (0..30).filter(|_| !open().has_intact(&digest).unwrap()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(unsound, 0);
        });
    }
}
