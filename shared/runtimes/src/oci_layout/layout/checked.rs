//! Which blobs were found to be what their names say.
//!
//! A blob is hashed before it is put into the store. What a loss of power leaves, or somebody writes over, can still have the
//! right size: so a manifest and a config are hashed again before an image counts as there, and every blob before a pull takes
//! it for fetched. Each is hashed once in the life of a process, and again when its file is another.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
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
    /// Of the entry: whoever sets `modified` back changes this.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(entry: &Metadata) -> Self {
        let (modified, changed) = ((entry.mtime(), entry.mtime_nsec()), (entry.ctime(), entry.ctime_nsec()));
        Self { inode: entry.ino(), size: entry.size(), modified, changed }
    }

    /// Whether it is the same file, whatever happened to it.
    pub(super) fn is_same_file(self, other: Self) -> bool {
        self.inode == other.inode
    }
}

/// What was found right.
#[derive(Debug, Default)]
pub(super) struct Checked(Mutex<BTreeMap<Digest, Stamp>>);

impl Checked {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Digest, Stamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, digest: &Digest, stamp: Stamp) {
        let mut held = self.held();
        if held.len() >= CHECKED_MAX {
            held.clear();
        }
        held.insert(digest.clone(), stamp);
    }
}

impl Layout {
    /// The blob's file, if there is one.
    pub(super) fn stamp_of(&self, digest: &Digest) -> io::Result<Option<Stamp>> {
        match fs::metadata(self.blob_path(digest)) {
            Ok(entry) => Ok(entry.is_file().then(|| Stamp::of(&entry))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
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
        match self.stamp_of_size(digest, size)? {
            Some(stamp) if size <= SMALL_MAX_BYTES => self.is_sound(digest, stamp),
            there => Ok(there.is_some()),
        }
    }

    /// Whether the file of this stamp is what its name says; hashed unless it was found right before.
    pub(super) fn is_sound(&self, digest: &Digest, stamp: Stamp) -> io::Result<bool> {
        if self.checked.held().get(digest) == Some(&stamp) {
            return Ok(true);
        }
        let path = self.blob_path(digest);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut hasher = Hasher::new(digest.algorithm());
        hash_to_end(file, &mut hasher, &AtomicBool::new(false))?;
        let sound = hasher.finish().as_ref() == Some(digest);
        if sound {
            // Should the file have changed meanwhile, its stamp is another than this.
            self.checked.add(digest, stamp);
        } else {
            tracing::warn!(blob = %path.display(), "a blob of the store is not what its name says: the next pull fetches it again");
        }
        Ok(sound)
    }
}
