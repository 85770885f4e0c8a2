//! The store: an OCI image layout that several processes share.
//!
//! A blob stands under `blobs/` by rename only, after its size and digest were checked. An image stands in `index.json` only
//! when all its blobs are there. What belongs to pulls under way lies below `.fleetpull/`.

mod checked;
mod hasher;
mod index;
mod lock;
mod partial;
mod status;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use image::{Algorithm, Digest};
use safe_dir::{PUBLIC_MODE, SafeDir};

use super::failure::StepFailure;
use checked::Checked;
pub(super) use hasher::Hasher;
use index::Index;
pub(super) use index::{NewImage, PlatformFields};
pub(super) use lock::holding;
pub(super) use partial::{Partial, PartialLock};
pub(super) use status::StatusCache;

/// The file that makes a folder an image layout, and its only version.
const MARKER: (&str, &str) = ("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
/// Where bookkeeping lies; other programs pass it over.
const OWN_FOLDER: &str = ".fleetpull";
/// In it, the folder of blobs under way.
const PARTIALS: &str = "partial";
/// Where blobs lie, in a folder for each algorithm.
const BLOBS: &str = "blobs";
/// Each has a folder of its own.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];
/// The file that names the images.
const INDEX: &str = "index.json";
/// As much is read of the file that makes a folder an image layout. Bytes.
const MARKER_MAX_BYTES: u64 = 64 * 1024;
/// A store is for everybody to read and for its owner to write.
const FILE_MODE: u32 = 0o644;
/// The log's target for what is done to the disk in which order: tests hear there what outlives a loss of power.
const STEPS: &str = "runtimes::store_steps";
/// A partial blob nobody has added to for so long is given up.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A store that is there. Nothing below its root is reached through a symbolic link.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: SafeDir,
    fsync: bool,
    checked: Arc<Checked>,
}

impl Layout {
    /// Makes the store, or checks that what is there is one.
    pub(super) fn open(root: &Path, fsync: bool, wall: Duration) -> io::Result<Self> {
        let layout = Self { root: SafeDir::make(root, PUBLIC_MODE)?, fsync, checked: Arc::default() };
        let partials = layout.root.make_dir(OWN_FOLDER, PUBLIC_MODE)?.make_dir(PARTIALS, PUBLIC_MODE)?;
        layout.make_blob_folder(Algorithm::Sha256)?;
        if !layout.is_marked()? {
            layout.replace(&layout.root, MARKER.0, MARKER.1.as_bytes())?;
        }
        give_up_old_partials(&partials, wall)?;
        layout.sync_folder(&layout.root)?;
        Ok(layout)
    }

    /// Opens a store to look at it: nothing is made or changed. A directory without any file of a store is an empty one.
    pub(super) fn open_as_it_is(root: &Path) -> io::Result<Self> {
        let layout = Self { root: SafeDir::open(root)?, fsync: false, checked: Arc::default() };
        layout.is_marked()?;
        Ok(layout)
    }

    /// Whether the file is there that says that this is a store; an error if it says something else.
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

    /// Where a blob stands, for people to read. It is reached by [`Layout::blob_folder`].
    pub(super) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root().join(BLOBS).join(digest.algorithm().name()).join(digest.hex())
    }

    /// The folder of an algorithm's blobs, if it is there.
    fn blob_folder(&self, algorithm: Algorithm) -> io::Result<Option<SafeDir>> {
        found(self.root.dir(BLOBS).and_then(|blobs| blobs.dir(algorithm.name())))
    }

    fn make_blob_folder(&self, algorithm: Algorithm) -> io::Result<SafeDir> {
        self.root.make_dir(BLOBS, PUBLIC_MODE)?.make_dir(algorithm.name(), PUBLIC_MODE)
    }

    /// The folder of the store's bookkeeping.
    fn own_folder(&self) -> io::Result<SafeDir> {
        self.root.dir(OWN_FOLDER)
    }

    /// The folder of blobs under way.
    fn partials(&self) -> io::Result<SafeDir> {
        self.own_folder()?.dir(PARTIALS)
    }

    /// A blob's file. A link or a pipe in its place is no blob, and is replaced by the next pull.
    fn open_blob(&self, digest: &Digest) -> io::Result<Option<File>> {
        let Some(folder) = self.blob_folder(digest.algorithm())? else { return Ok(None) };
        match folder.open_file(digest.hex()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(%error, "what stands in the place of a blob is none: the next pull replaces it");
                Ok(None)
            }
            opened => found(opened),
        }
    }

    /// Whether the blob is there with this size.
    pub(super) fn has_blob(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        Ok(self.stamp_of_size(digest, size)?.is_some())
    }

    /// A small blob's content, if it is there and not longer than `limit`.
    pub(super) fn read_blob(&self, digest: &Digest, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open_blob(digest)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= limit).then_some(content))
    }

    /// Puts a small blob whose digest was checked, in the place of one that is another in spite of its name.
    pub(super) fn put_blob(&self, digest: &Digest, content: &[u8]) -> io::Result<()> {
        if self.read_blob(digest, content.len() as u64)?.is_some_and(|there| there == content) {
            return Ok(());
        }
        self.replace(&self.make_blob_folder(digest.algorithm())?, digest.hex(), content)
    }

    /// Makes sure that renames in the blobs' folders are kept over a power failure.
    pub(super) fn sync_blob_folders(&self) -> io::Result<()> {
        let blobs = self.root.dir(BLOBS)?;
        for algorithm in ALGORITHMS {
            if let Some(folder) = found(blobs.dir(algorithm.name()))? {
                self.sync_folder(&folder)?;
            }
        }
        self.sync_folder(&blobs)
    }

    /// Writes a small file so that readers see the old content or the new, never a part.
    fn replace(&self, folder: &SafeDir, name: &str, content: &[u8]) -> io::Result<()> {
        let partials = self.partials()?;
        let (new, mut file) = new_file_in(&partials)?;
        let written = file.write_all(content).and_then(|()| self.sync(&file, &partials.path().join(&new)));
        if let Err(error) = written.and_then(|()| rename(&partials, &new, folder, name)) {
            let _ = partials.remove_file(&new);
            return Err(error);
        }
        self.sync_folder(folder)
    }

    /// Has a file's content kept over a power failure, where that is wanted.
    fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        if self.fsync {
            file.sync_data()?;
            tracing::trace!(target: STEPS, step = "sync", path = %path.display());
        }
        Ok(())
    }

    /// The same for a folder's names.
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

/// None where there is nothing.
fn found<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes what interrupted pulls left long ago. A partial blob in use is locked, and left alone.
fn give_up_old_partials(partials: &SafeDir, wall: Duration) -> io::Result<()> {
    for name in partials.names()? {
        let age = |modified: std::time::SystemTime| wall.saturating_sub(modified.duration_since(std::time::UNIX_EPOCH).unwrap_or(wall));
        let Ok(file) = partials.open_file(&name) else { continue };
        let old = file.metadata()?.modified().is_ok_and(|modified| age(modified) > PARTIAL_AGE_MAX);
        if old && file.try_lock().is_ok() {
            let _ = partials.remove_file(&name);
        }
    }
    Ok(())
}

/// A new file of its own name. It lies among the partial blobs, so that what a killed process leaves is given up like them.
fn new_file_in(folder: &SafeDir) -> io::Result<(String, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("new-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        match folder.create_file(&name, FILE_MODE) {
            Ok(file) => return Ok((name, file)),
            // A process of the same number in another container, or long ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
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
