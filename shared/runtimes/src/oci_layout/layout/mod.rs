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

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use image::{Algorithm, Digest};

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
/// The log's target for what is done to the disk in which order: tests hear there what outlives a loss of power.
const STEPS: &str = "runtimes::store_steps";
/// A partial blob nobody has added to for so long is given up.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Paths of a store that is there.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
    fsync: bool,
    checked: Arc<Checked>,
}

impl Layout {
    /// Makes the store, or checks that what is there is one.
    pub(super) fn open(root: &Path, fsync: bool, wall: Duration) -> io::Result<Self> {
        let layout = Self { root: root.to_owned(), fsync, checked: Arc::default() };
        fs::create_dir_all(layout.partials())?;
        fs::create_dir_all(root.join("blobs").join(Algorithm::Sha256.name()))?;
        let marker = root.join(MARKER.0);
        match fs::read_to_string(&marker) {
            Ok(text) => check_version(&text).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => layout.replace(&marker, MARKER.1.as_bytes())?,
            Err(error) => return Err(error),
        }
        layout.give_up_old_partials(wall)?;
        layout.sync_folder(root)?;
        Ok(layout)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.algorithm().name()).join(digest.hex())
    }

    /// Whether the blob is there with this size.
    pub(super) fn has_blob(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        Ok(self.stamp_of_size(digest, size)?.is_some())
    }

    /// A small blob's content, if it is there and not longer than `limit`.
    pub(super) fn read_blob(&self, digest: &Digest, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.blob_path(digest)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= limit).then_some(content))
    }

    /// Puts a small blob whose digest was checked, in the place of one that is another in spite of its name.
    pub(super) fn put_blob(&self, digest: &Digest, content: &[u8]) -> io::Result<()> {
        if self.read_blob(digest, content.len() as u64)?.is_some_and(|there| there == content) {
            return Ok(());
        }
        let path = self.blob_path(digest);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        self.replace(&path, content)
    }

    /// Makes sure that renames in the blobs' folders are kept over a power failure.
    pub(super) fn sync_blob_folders(&self) -> io::Result<()> {
        let blobs = self.root.join("blobs");
        for folder in fs::read_dir(&blobs)? {
            self.sync_folder(&folder?.path())?;
        }
        self.sync_folder(&blobs)
    }

    /// Writes a small file so that readers see the old content or the new, never a part.
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (new, mut file) = new_file_in(&self.partials())?;
        let written = file.write_all(content).and_then(|()| self.sync(&file, &new)).and_then(|()| rename(&new, path));
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        path.parent().map_or(Ok(()), |folder| self.sync_folder(folder))
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
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if self.fsync {
            File::open(folder)?.sync_all()?;
            tracing::trace!(target: STEPS, step = "sync", path = %folder.display());
        }
        Ok(())
    }

    fn own(&self) -> PathBuf {
        self.root.join(OWN_FOLDER)
    }

    fn partials(&self) -> PathBuf {
        self.own().join("partial")
    }

    fn index_path(&self) -> PathBuf {
        self.root.join("index.json")
    }

    /// Removes what interrupted pulls left long ago. A partial blob in use is locked, and left alone.
    fn give_up_old_partials(&self, wall: Duration) -> io::Result<()> {
        for entry in fs::read_dir(self.partials())? {
            let entry = entry?;
            let age = |modified: std::time::SystemTime| wall.saturating_sub(modified.duration_since(std::time::UNIX_EPOCH).unwrap_or(wall));
            let Ok(file) = File::open(entry.path()) else { continue };
            let old = file.metadata()?.modified().is_ok_and(|modified| age(modified) > PARTIAL_AGE_MAX);
            if old && file.try_lock().is_ok() {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// A new file of its own name. It lies among the partial blobs, so that what a killed process leaves is given up like them.
fn new_file_in(folder: &Path) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("new-{}-{number}", std::process::id()));
        match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            // A process of the same number in another container, or long ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    tracing::trace!(target: STEPS, step = "rename", from = %from.display(), path = %to.display());
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
