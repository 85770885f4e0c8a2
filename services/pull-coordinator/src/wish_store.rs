//! Standing wishes on disk: they live through restarts of agent and command.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::core::KeptWish;

/// The version that is written. Within it fields are only added.
const VERSION: u32 = 1;
/// The largest file that is read: a thousand wishes of the longest names and references need less.
const FILE_MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A shared store of any kind.
pub type WishStoreRef = Arc<dyn WishStore>;

/// Keeps the standing wishes of a node.
pub trait WishStore: fmt::Debug + Send + Sync + 'static {
    /// The wishes that were kept last.
    ///
    /// # Errors
    /// They cannot be read. Unless they were put aside, they stay as they are: none are kept until they are read.
    fn load(&self) -> Result<Vec<KeptWish>, WishStoreError>;

    /// Keeps these wishes and no others. When it returns they live through a crash; when it fails or ends half-way, those kept before
    /// do.
    ///
    /// # Errors
    /// They cannot be written.
    fn keep(&self, wishes: &[KeptWish]) -> Result<(), WishStoreError>;
}

/// Wishes could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WishStoreError {
    /// The file cannot be reached.
    #[error("cannot {doing} {path}: {source}; see that its directory exists, is the agent's own and has room")]
    File {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file cannot be understood. It was put aside.
    #[error("the standing wishes in {path} cannot be read: {reason}; the file is kept as {aside}, ask for them again")]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// Where it is kept.
        aside: PathBuf,
    },
    /// What is in the file is not known, so it is not replaced.
    #[error("the standing wishes in {path} could not be read and are left as they are; see that the agent may read them, then restart it")]
    Unread {
        /// Which file.
        path: PathBuf,
    },
}

/// One JSON file, replaced as a whole.
#[derive(Clone, Debug)]
pub struct FileWishStore {
    path: PathBuf,
    /// The file could not be read: what it holds must not be replaced.
    unread: Arc<AtomicBool>,
}

#[derive(Serialize)]
struct FileWritten<'a> {
    version: u32,
    wishes: &'a [KeptWish],
}

#[derive(Deserialize)]
struct FileRead {
    version: u32,
    wishes: Vec<KeptWish>,
}

impl FileWishStore {
    /// Keeps wishes in the file of this path; its directory must exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, unread: Arc::default() }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    fn corrupt(&self, reason: String) -> WishStoreError {
        let aside = self.beside(".corrupt");
        match fs::rename(&self.path, &aside) {
            Ok(()) => WishStoreError::Corrupt { path: self.path.clone(), reason, aside },
            Err(source) => WishStoreError::File { doing: "put aside the damaged", path: self.path.clone(), source },
        }
    }

    fn read(&self) -> Result<Vec<KeptWish>, WishStoreError> {
        let failed = |source| WishStoreError::File { doing: "read", path: self.path.clone(), source };
        let bytes = match fs::metadata(&self.path) {
            Ok(found) if found.len() > FILE_MAX_BYTES => return Err(self.corrupt(format!("it is larger than {FILE_MAX_BYTES} bytes"))),
            Ok(_) => fs::read(&self.path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        match serde_json::from_slice(&bytes) {
            Ok(FileRead { version: VERSION, wishes }) => Ok(wishes),
            Ok(FileRead { version, .. }) => Err(self.corrupt(format!("it is of version {version}, this agent reads {VERSION}"))),
            Err(error) => Err(self.corrupt(error.to_string())),
        }
    }
}

impl WishStore for FileWishStore {
    fn load(&self) -> Result<Vec<KeptWish>, WishStoreError> {
        let read = self.read();
        self.unread.store(matches!(read, Err(WishStoreError::File { .. })), Ordering::Relaxed);
        read
    }

    fn keep(&self, wishes: &[KeptWish]) -> Result<(), WishStoreError> {
        if self.unread.load(Ordering::Relaxed) {
            return Err(WishStoreError::Unread { path: self.path.clone() });
        }
        let new = self.beside(".new");
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| WishStoreError::File { doing, path, source }
        };
        let bytes = serde_json::to_vec(&FileWritten { version: VERSION, wishes })
            .map_err(|error| failed("encode", &self.path)(io::Error::other(error)))?;
        let mut file = File::create(&new).map_err(failed("create", &new))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
        fs::rename(&new, &self.path).map_err(failed("replace", &self.path))?;
        // The new name must outlive a crash too.
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync the directory of", &self.path))
    }
}
