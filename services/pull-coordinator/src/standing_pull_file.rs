//! The file of a node's standing pulls, which outlive restarts of the agent and the command.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use safe_dir::SafeDir;
use serde::{Deserialize, Serialize};

use crate::core::KeptStandingPull;

/// The version that is written. Within it fields are only added.
const VERSION: u32 = 1;
/// The largest file that is read: 1,000 standing pulls with the longest names and references need less.
const FILE_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Nothing in the file is secret; the mode of its directory decides who reaches it.
const FILE_MODE: u32 = 0o644;

/// A shared store of any kind.
pub type StandingPullStoreRef = Arc<dyn StandingPullStore>;

/// Keeps the standing pulls of a node.
pub trait StandingPullStore: fmt::Debug + Send + Sync + 'static {
    /// The standing pulls that were kept last.
    ///
    /// # Errors
    /// The standing pulls cannot be read. A damaged file was put aside; any other file stays, and `keep` fails until it can be read.
    fn load(&self) -> Result<Vec<KeptStandingPull>, StandingPullStoreError>;

    /// Replaces the stored standing pulls. Once this returns, they outlive a crash; if it fails or is interrupted, the earlier ones stay
    /// stored.
    ///
    /// # Errors
    /// The standing pulls cannot be written.
    fn keep(&self, standing_pulls: &[KeptStandingPull]) -> Result<(), StandingPullStoreError>;
}

/// Standing pulls could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StandingPullStoreError {
    /// The file cannot be reached.
    #[error("cannot {doing} {path}: {source}; see that its directory exists, is the agent's own and has room")]
    File {
        /// The step that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file cannot be parsed. It was put aside.
    #[error("the standing pulls in {path} cannot be read: {reason}; the file is kept as {aside}, ask for them again")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        reason: String,
        /// The path of the damaged file now.
        aside: PathBuf,
    },
    /// The file could not be read before, so it is not replaced.
    #[error("the standing pulls in {path} could not be read and are left as they are; see that the agent may read them, then restart it")]
    Unread {
        /// The file.
        path: PathBuf,
    },
}

/// One JSON file, replaced as a whole.
#[derive(Clone, Debug)]
pub struct StandingPullFile {
    path: PathBuf,
    /// The file exists but could not be read, so it must not be replaced.
    unread: Arc<AtomicBool>,
}

#[derive(Serialize)]
struct FileWritten<'a> {
    version: u32,
    standing_pulls: &'a [KeptStandingPull],
}

#[derive(Deserialize)]
struct FileRead {
    version: u32,
    standing_pulls: Vec<KeptStandingPull>,
}

impl StandingPullFile {
    /// A store in the file of this path; its directory must exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, unread: Arc::default() }
    }

    /// The file's directory, opened again each time because it may have been replaced.
    fn dir(&self) -> io::Result<SafeDir> {
        SafeDir::open(self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
    }

    /// The file's name, with a suffix.
    fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    fn corrupt(&self, dir: &SafeDir, reason: String) -> StandingPullStoreError {
        let aside = self.name(".corrupt");
        match dir.rename(&self.name(""), dir, &aside) {
            Ok(()) => StandingPullStoreError::Corrupt { path: self.path.clone(), reason, aside: self.path.with_file_name(aside) },
            Err(source) => StandingPullStoreError::File { doing: "put aside the damaged", path: self.path.clone(), source },
        }
    }

    fn read(&self) -> Result<Vec<KeptStandingPull>, StandingPullStoreError> {
        let failed = |source| StandingPullStoreError::File { doing: "read", path: self.path.clone(), source };
        let opened = self.dir().and_then(|dir| dir.open_file(&self.name("")).map(|file| (dir, file)));
        let (dir, file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_MAX_BYTES {
            return Err(self.corrupt(&dir, format!("it is larger than {FILE_MAX_BYTES} bytes")));
        }
        match serde_json::from_slice(&bytes) {
            Ok(FileRead { version: VERSION, standing_pulls }) => Ok(standing_pulls),
            Ok(FileRead { version, .. }) => Err(self.corrupt(&dir, format!("it is of version {version}, this agent reads {VERSION}"))),
            Err(error) => Err(self.corrupt(&dir, error.to_string())),
        }
    }
}

impl StandingPullStore for StandingPullFile {
    fn load(&self) -> Result<Vec<KeptStandingPull>, StandingPullStoreError> {
        let read = self.read();
        self.unread.store(matches!(read, Err(StandingPullStoreError::File { .. })), Ordering::Relaxed);
        read
    }

    fn keep(&self, standing_pulls: &[KeptStandingPull]) -> Result<(), StandingPullStoreError> {
        if self.unread.load(Ordering::Relaxed) {
            return Err(StandingPullStoreError::Unread { path: self.path.clone() });
        }
        let (name, new) = (self.name(""), self.name(".new"));
        let failed = |doing, name: &str| {
            let path = self.path.with_file_name(name);
            move |source| StandingPullStoreError::File { doing, path, source }
        };
        let bytes = serde_json::to_vec(&FileWritten { version: VERSION, standing_pulls })
            .map_err(|error| failed("encode", &name)(io::Error::other(error)))?;
        let dir = self.dir().map_err(failed("create", &new))?;
        let mut file = create_anew(&dir, &new).map_err(failed("create", &new))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
        dir.rename(&new, &dir, &name).map_err(failed("replace", &name))?;
        // The rename must outlive a crash too.
        dir.sync().map_err(failed("sync the directory of", &name))
    }
}

/// Creates the file; a file of this name that a crash or another process left is removed first.
fn create_anew(dir: &SafeDir, name: &str) -> io::Result<File> {
    match dir.remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => dir.create_file(name, FILE_MODE),
    }
}
