//! Standing wishes on disk: they live through restarts of agent and command.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// They cannot be read.
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
}

/// One JSON file, replaced as a whole.
#[derive(Clone, Debug)]
pub struct FileWishStore {
    path: PathBuf,
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
        Self { path }
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
}

impl WishStore for FileWishStore {
    fn load(&self) -> Result<Vec<KeptWish>, WishStoreError> {
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

    fn keep(&self, wishes: &[KeptWish]) -> Result<(), WishStoreError> {
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
