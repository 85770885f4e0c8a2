//! The store: an OCI image layout that several processes share.
//!
//! A blob gets into `blobs/` only by rename, after its size and digest were checked. An image gets into `index.json` only when all its
//! blobs are present. Files of pulls under way are below `.fleetpull/`.

mod checked;
mod entry;
mod forgotten;
mod hasher;
mod images;
mod index;
mod lock;
mod partial;
mod prune;
mod pull_lock;
mod status;
mod unreferenced;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use image::{Algorithm, Digest};
use safe_dir::{PRIVATE_MODE, PUBLIC_MODE, SafeDir};

use super::failure::StepFailure;
use checked::{Checked, Stamp};
pub(super) use entry::{Entry, PlatformFields};
use forgotten::for_each_forgotten;
pub(super) use hasher::Hasher;
use index::Index;
pub(super) use index::{IndexProblem, NewImage};
pub(super) use lock::holding;
pub(super) use partial::{Partial, PartialLock};
pub(super) use status::StatusCache;

/// The file that makes a folder an image layout, and its only version.
const MARKER: (&str, &str) = ("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
/// The folder for our own files; other programs ignore it.
const OWN_FOLDER: &str = ".fleetpull";
/// The folder of partial blobs, in `OWN_FOLDER`.
const PARTIALS: &str = "partial";
/// The folder of the pulls that run, in `OWN_FOLDER`.
const PULLS: &str = "pulls";
/// The folder of blobs, with a folder for each algorithm.
const BLOBS: &str = "blobs";
/// The algorithms, each with its own folder of blobs.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];
/// The file that names the images.
const INDEX: &str = "index.json";
/// How many bytes are read of the file that makes a folder an image layout.
const MARKER_MAX_BYTES: u64 = 64 * 1024;
/// Everybody may read a store's images, and its owner may write it.
const FILE_MODE: u32 = 0o644;
/// The log target for the order of disk operations; tests check there what outlives a power failure.
const STEPS: &str = "runtimes::store_steps";
/// Files that an interrupted pull left are removed if they have not changed for this long.
const LEFT_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An opened store. No symbolic link below its root is followed.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: SafeDir,
    fsync: bool,
    checked: Arc<Checked>,
}

impl Layout {
    /// Opens the store; creates it if it is missing.
    pub(super) fn open(root: &Path, fsync: bool, wall: Duration) -> io::Result<Self> {
        let layout = Self { root: SafeDir::make(root, PUBLIC_MODE)?, fsync, checked: Arc::default() };
        layout.make_own_folders()?;
        layout.make_blob_folder(Algorithm::Sha256)?;
        if !layout.is_marked()? {
            layout.replace(&layout.root, MARKER.0, MARKER.1.as_bytes())?;
        }
        for folder in [PARTIALS, PULLS] {
            let folder = layout.own_folder()?.dir(folder)?;
            for_each_forgotten(&folder, wall, LEFT_AGE_MAX, |name, _| drop(folder.remove_file(name)))?;
        }
        layout.sync_folder(&layout.root)?;
        Ok(layout)
    }

    /// Opens a store that exists, and changes nothing; none if the folder is no store.
    pub(super) fn open_existing(root: &Path, fsync: bool) -> io::Result<Option<Self>> {
        let layout = Self { root: SafeDir::open(root)?, fsync, checked: Arc::default() };
        Ok(layout.is_marked()?.then_some(layout))
    }

    /// Opens a store without creating or changing anything. A folder without any file of a store is an empty store.
    pub(super) fn open_read_only(root: &Path) -> io::Result<Self> {
        let layout = Self { root: SafeDir::open(root)?, fsync: false, checked: Arc::default() };
        layout.is_marked()?;
        Ok(layout)
    }

    /// Whether the marker file exists; an error if it has other content.
    fn is_marked(&self) -> io::Result<bool> {
        let Some(file) = found(self.root.open_file(MARKER.0))? else { return Ok(false) };
        let mut text = String::new();
        file.take(MARKER_MAX_BYTES).read_to_string(&mut text)?;
        check_version(&text).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        Ok(true)
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// A blob's path, for texts. The file is opened through [`Layout::blob_folder`].
    pub(super) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root().join(BLOBS).join(digest.algorithm().name()).join(digest.hex())
    }

    /// The folder of an algorithm's blobs, if it exists.
    fn blob_folder(&self, algorithm: Algorithm) -> io::Result<Option<SafeDir>> {
        found(self.root.dir(BLOBS).and_then(|blobs| blobs.dir(algorithm.name())))
    }

    fn make_blob_folder(&self, algorithm: Algorithm) -> io::Result<SafeDir> {
        self.root.make_dir(BLOBS, PUBLIC_MODE)?.make_dir(algorithm.name(), PUBLIC_MODE)
    }

    /// Makes the folders of our own files, which a store of another program lacks. Other users may not enter them: a user who may open a
    /// lock's file may hold the lock, and so stop all pulls.
    pub(super) fn make_own_folders(&self) -> io::Result<()> {
        let own = self.root.make_dir(OWN_FOLDER, PRIVATE_MODE)?;
        own.make_dir(PARTIALS, PUBLIC_MODE)?;
        own.make_dir(PULLS, PUBLIC_MODE).map(drop)
    }

    /// The folder of our own files.
    fn own_folder(&self) -> io::Result<SafeDir> {
        self.root.dir(OWN_FOLDER)
    }

    /// The folder of partial blobs.
    fn partials(&self) -> io::Result<SafeDir> {
        self.own_folder()?.dir(PARTIALS)
    }

    /// A blob's file. A symlink or a pipe at its path counts as missing, and is replaced by the next pull.
    fn open_blob(&self, digest: &Digest) -> io::Result<Option<File>> {
        let Some(folder) = self.blob_folder(digest.algorithm())? else { return Ok(None) };
        match folder.open_file(digest.hex()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(%error, "a blob's path is no regular file: the next pull replaces it");
                Ok(None)
            }
            opened => found(opened),
        }
    }

    /// A small blob's content, if it is present and not longer than `limit`.
    pub(super) fn read_blob(&self, digest: &Digest, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_blob(digest)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= limit).then_some(content))
    }

    /// Writes a small blob whose digest was checked; replaces a damaged one. It counts as intact without being hashed once more.
    pub(super) fn put_blob(&self, digest: &Digest, content: &[u8]) -> io::Result<()> {
        if self.read_blob(digest, content.len() as u64)?.is_some_and(|there| there == content) {
            return Ok(());
        }
        let stamp = self.replace(&self.make_blob_folder(digest.algorithm())?, digest.hex(), content)?;
        self.checked.add(digest, stamp, true);
        Ok(())
    }

    /// Syncs the blobs' folders, so that renames outlive a power failure.
    pub(super) fn sync_blob_folders(&self) -> io::Result<()> {
        let blobs = self.root.dir(BLOBS)?;
        for algorithm in ALGORITHMS {
            if let Some(folder) = found(blobs.dir(algorithm.name()))? {
                self.sync_folder(&folder)?;
            }
        }
        self.sync_folder(&blobs)
    }

    /// Replaces a small file; readers see the old or the new content, never a part. Returns the new file's stamp.
    fn replace(&self, folder: &SafeDir, name: &str, content: &[u8]) -> io::Result<Stamp> {
        let partials = self.partials()?;
        let (new, mut file) = new_file_in(&partials, "new")?;
        let written = file.write_all(content).and_then(|()| self.sync(&file, &partials.path().join(&new)));
        if let Err(error) = written.and_then(|()| rename(&partials, &new, folder, name)) {
            let _ = partials.remove_file(&new);
            return Err(error);
        }
        // After the rename, which changes the inode, and before the sync: meanwhile another program may overwrite the file.
        let stamp = Stamp::of(&file.metadata()?);
        self.sync_folder(folder)?;
        Ok(stamp)
    }

    /// Syncs a file's content, if `store.fsync` is set.
    fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        if self.fsync {
            file.sync_data()?;
            tracing::trace!(target: STEPS, step = "sync", path = %path.display());
        }
        Ok(())
    }

    /// Syncs a folder's names, if `store.fsync` is set.
    fn sync_folder(&self, folder: &SafeDir) -> io::Result<()> {
        if self.fsync {
            folder.sync()?;
            tracing::trace!(target: STEPS, step = "sync", path = %folder.path().display());
        }
        Ok(())
    }

    fn index_path(&self) -> PathBuf {
        self.root().join(INDEX)
    }
}

/// None if the file does not exist.
fn found<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file with a unique name. One left by a killed process is removed when it is old, as partial blobs are.
fn new_file_in(folder: &SafeDir, kind: &str) -> io::Result<(String, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("{kind}-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        match folder.create_file(&name, FILE_MODE) {
            Ok(file) => return Ok((name, file)),
            // A process with the same number in another container, or an earlier one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a file still has its name after it was locked: before that, another pull may have stored or removed it, and begun a new one.
fn has_name(file: &File, folder: &SafeDir, name: &str) -> io::Result<bool> {
    let inode = file.metadata()?.ino();
    Ok(folder.metadata(name)?.is_some_and(|named| named.ino() == inode))
}

fn rename(from: &SafeDir, name: &str, to: &SafeDir, to_name: &str) -> io::Result<()> {
    from.rename(name, to, to_name)?;
    tracing::trace!(target: STEPS, step = "rename", from = %from.path().join(name).display(), path = %to.path().join(to_name).display());
    Ok(())
}

fn check_version(text: &str) -> Result<(), &'static str> {
    let Ok(marker) = serde_json::from_str::<serde_json::Value>(text) else { return Err("its file oci-layout is damaged") };
    if marker["imageLayoutVersion"] == "1.0.0" { Ok(()) } else { Err("its file oci-layout names another version than 1.0.0") }
}

/// A failure of the store, for a pull.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StepFailure {
    let path = path.to_owned();
    move |error| StepFailure::store(doing, &path, &error)
}
