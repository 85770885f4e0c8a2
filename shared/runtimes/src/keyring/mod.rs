//! Registry logins, found and matched as kubelet does, for both runtimes.
//!
//! Files are read anew when they change, so a rotated login is used at the next pull. A file that cannot be understood and a
//! helper that is named but missing or failing are errors: pulling without the login would hide the cause.

mod credential;
mod error;
mod helper;
mod login_file;
mod matching;
mod options;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncReadExt;

pub use credential::Credential;
pub use error::KeyringError;
use helper::Question;
use login_file::{Login, LoginFile};
pub use options::{Environment, KUBELET_LOGIN_FILE, KeyringOptions};
use options::{Location, Need};

/// A node with a thousand registries has a file of about 200 KiB; more than this is no file of logins.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The logins of this node. Clones share what was read.
#[derive(Clone)]
pub struct Keyring(Arc<Shared>);

struct Shared {
    environment: Environment,
    places: Vec<Place>,
}

struct Place {
    location: Location,
    cached: Mutex<Option<Cached>>,
}

struct Cached {
    stamp: Stamp,
    file: Arc<LoginFile>,
}

/// Tells whether a file is the one that was read: writers replace it, or write into it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    inode: u64,
    size: u64,
}

impl Keyring {
    /// A keyring that looks where `options` say. Nothing is read yet.
    #[must_use]
    pub fn new(options: KeyringOptions) -> Self {
        let places = options.locations().into_iter().map(|location| Place { location, cached: Mutex::new(None) }).collect();
        Self(Arc::new(Shared { environment: options.environment, places }))
    }

    /// The logins for a repository (registry and path, completed, without tag: `docker.io/library/busybox`), in the order to
    /// try. None: pull without a login.
    ///
    /// # Errors
    /// A file cannot be read or understood, or a helper that is named for this repository gives no answer.
    pub async fn lookup(&self, repository: &str) -> Result<Vec<Credential>, KeyringError> {
        let mut found: Vec<Credential> = Vec::new();
        for place in &self.0.places {
            let Some(file) = place.read().await? else { continue };
            for login in file.logins(repository) {
                let credential = self.resolve(login, place, repository).await?;
                // The same login in two files would only be refused twice.
                found.extend(credential.filter(|new| !found.iter().any(|known| known.same_login(new))));
            }
        }
        Ok(found)
    }

    /// The files that are there now, in the order in which they are looked through.
    #[must_use]
    pub fn sources(&self) -> Vec<String> {
        self.0.places.iter().filter_map(|place| place.describe()).collect()
    }

    async fn resolve(&self, login: Login, place: &Place, repository: &str) -> Result<Option<Credential>, KeyringError> {
        match login {
            Login::Ready(credential) => Ok(Some(*credential)),
            Login::Helper { name, server } => {
                let server = server.as_deref().unwrap_or_else(|| matching::server_of(repository));
                Question { name: &name, named_in: &place.location.path, server, environment: &self.0.environment }.ask().await
            }
        }
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Keyring").field(&self.sources()).finish()
    }
}

impl Place {
    /// What the file holds, from memory while it is unchanged. `None` if it is not there and need not be.
    async fn read(&self) -> Result<Option<Arc<LoginFile>>, KeyringError> {
        let path = &self.location.path;
        let Some(stamp) = self.allow_missing(tokio::fs::metadata(path).await.map(|entry| Stamp::of(&entry)))? else { return Ok(None) };
        if let Some(file) = self.remembered(stamp) {
            return Ok(Some(file));
        }
        let Some(content) = self.allow_missing(read_bounded(path).await)? else { return Ok(None) };
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let file = LoginFile::parse(&content, &name).map_err(|problem| KeyringError::Malformed { path: path.clone(), problem })?;
        let file = Arc::new(file);
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cached { stamp, file: Arc::clone(&file) });
        Ok(Some(file))
    }

    fn remembered(&self, stamp: Stamp) -> Option<Arc<LoginFile>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|cached| cached.stamp == stamp).map(|cached| Arc::clone(&cached.file))
    }

    fn allow_missing<T>(&self, read: std::io::Result<T>) -> Result<Option<T>, KeyringError> {
        match (read, self.location.need) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(error), Need::Usual) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            (Err(error), Need::Foreign)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied) =>
            {
                Ok(None)
            }
            (Err(error), _) => Err(KeyringError::Unreadable { path: self.location.path.clone(), problem: error.to_string() }),
        }
    }

    fn describe(&self) -> Option<String> {
        let path = self.location.path.display();
        match self.location.need {
            Need::Named(by) => Some(format!("{path} ({by})")),
            Need::Usual | Need::Foreign => self.location.path.is_file().then(|| path.to_string()),
        }
    }
}

impl Stamp {
    fn of(entry: &std::fs::Metadata) -> Self {
        Self { modified: (entry.mtime(), entry.mtime_nsec()), inode: entry.ino(), size: entry.size() }
    }
}

async fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    tokio::fs::File::open(path).await?.take(FILE_MAX_BYTES + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {FILE_MAX_BYTES} bytes")));
    }
    Ok(content)
}
