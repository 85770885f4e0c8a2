//! Registry logins for both runtimes, found and matched as in kubelet.
//!
//! Changed files are read again, so a rotated login is used at the next pull. A file that cannot be parsed, and a named helper that is
//! missing or fails, are errors: pulling without the login would hide the cause.

mod audience;
mod credential;
mod error;
mod fleet_key;
mod helper;
mod helper_cache;
mod identity;
mod login_file;
mod matching;
mod options;
mod secrets;

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use clock::Clock;
use contract::messages::pull_coordinator::EndpointLogins;

pub use audience::Audience;
pub use credential::Credential;
pub use error::KeyringError;
pub use fleet_key::{FLEET_KEY_BYTES, FleetKey};
use helper::Question;
use helper_cache::{CachedAnswer, HelperAnswer, HelperCache};
pub use identity::Identity;
use login_file::{Login, LoginFile};
pub(crate) use matching::without_login;
pub use options::{Environment, KUBELET_LOGIN_FILE, KeyringOptions};
use options::{Location, Need};
pub(crate) use secrets::Secrets;

use crate::blocking::on_disk;

/// The largest login file that is read; one with 1,000 registries has about 200 KiB.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The logins of this node. Clones share what was read.
#[derive(Clone)]
pub struct Keyring {
    shared: Arc<Shared>,
    fleet_key: FleetKey,
    credential_group: Arc<str>,
    /// Whether the caller's thread may wait for a file system.
    on_caller: bool,
}

struct Shared {
    environment: Environment,
    places: Vec<Place>,
    helper_cache: HelperCache,
    clock: Clock,
}

/// Whether helpers are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Helpers {
    /// Ask now, because the login will be used.
    Ask,
    /// Use cached answers, because only the identity matters.
    Cached,
}

struct Place {
    location: Location,
    cached: Mutex<Option<Cached>>,
}

/// The login files as they were when they were read, in the order in which they are searched.
pub(crate) struct LoginFiles(Vec<FoundFile>);

struct FoundFile {
    location: Location,
    file: Arc<LoginFile>,
}

struct Cached {
    stamp: Stamp,
    file: Arc<LoginFile>,
}

/// Shows whether a file has changed: writers replace it, or write into it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    inode: u64,
    size: u64,
}

impl Keyring {
    /// A keyring with these options. Nothing is read yet.
    #[must_use]
    pub fn new(options: KeyringOptions) -> Self {
        let places = options.locations().into_iter().map(|location| Place { location, cached: Mutex::new(None) }).collect();
        let (environment, helper_cache, clock) = (options.environment, HelperCache::default(), Clock::host());
        let shared = Arc::new(Shared { environment, places, helper_cache, clock });
        Self { shared, fleet_key: FleetKey::new(), credential_group: Arc::default(), on_caller: false }
    }

    /// Hashes identities with the fleet's key, which may be filled later; until then identities are not comparable between nodes. Nodes
    /// whose helpers give logins with the same rights have the same `credential_group`.
    #[must_use]
    pub fn shared_under(self, fleet_key: FleetKey, credential_group: &str) -> Self {
        Self { fleet_key, credential_group: credential_group.into(), ..self }
    }

    /// A keyring for threads that may wait for a file system: another thread costs more than the files.
    pub(crate) fn on_caller(&self) -> Self {
        Self { on_caller: true, ..self.clone() }
    }

    /// The logins that this audience may get, in the order of use. Empty: pull without a login.
    ///
    /// # Errors
    /// A file cannot be read or parsed, or a helper that is named for this repository gives no answer.
    pub async fn lookup(&self, audience: &Audience) -> Result<Vec<Credential>, KeyringError> {
        self.logins(&self.files().await?, audience, Helpers::Ask).await
    }

    /// The identity towards these audiences, which are used in turn. Helpers' answers may come from the cache.
    pub async fn identity(&self, audiences: &[Audience]) -> Identity {
        self.identity_in(self.files().await, audiences).await
    }

    /// As [`Keyring::identity`], with files that were read before.
    pub(crate) async fn identity_in(&self, files: Result<LoginFiles, KeyringError>, audiences: &[Audience]) -> Identity {
        // Other nodes cannot know what is wrong with the logins here.
        let Ok(files) = files else { return Identity::unknown(audiences) };
        let mut logins: Vec<Credential> = Vec::new();
        for audience in audiences {
            match self.logins(&files, audience, Helpers::Cached).await {
                Ok(found) => logins.extend(found),
                Err(_) => return Identity::unknown(audiences),
            }
        }
        Identity::of(&logins, &self.fleet_key, &self.credential_group)
    }

    /// The logins that an audience, called `endpoint`, would get. Helpers' answers may come from the cache.
    ///
    /// # Errors
    /// As [`Keyring::lookup`].
    pub async fn explain(&self, audience: &Audience, endpoint: &str) -> Result<EndpointLogins, KeyringError> {
        let files = self.files().await?;
        let found = self.logins(&files, audience, Helpers::Cached).await?;
        let none_because = if found.is_empty() { Some(self.why_none_in(&files, audience).await) } else { None };
        let logins = found.into_iter().map(|login| login.source).collect();
        Ok(EndpointLogins { endpoint: endpoint.to_owned(), logins, none_because })
    }

    /// Why an audience gets no login, for people.
    pub(crate) async fn why_none(&self, audience: &Audience) -> String {
        match self.files().await {
            Ok(files) => self.why_none_in(&files, audience).await,
            Err(error) => error.to_string(),
        }
    }

    async fn why_none_in(&self, files: &LoginFiles, audience: &Audience) -> String {
        let withheld = self.logins(files, &Audience::runtime(audience.repository()), Helpers::Cached).await.unwrap_or_default();
        if let Some(login) = withheld.iter().find(|login| !audience.may_see(login.server_address())) {
            return format!("the {} is sent to Docker Hub's own hosts alone, over TLS", login.source());
        }
        if files.0.is_empty() {
            return "there is no file of registry logins".to_owned();
        }
        let names: Vec<String> = files.0.iter().map(|found| found.location.describe()).collect();
        format!("none for {} in {}", audience.registry(), names.join(", "))
    }

    async fn logins(&self, files: &LoginFiles, audience: &Audience, helpers: Helpers) -> Result<Vec<Credential>, KeyringError> {
        let mut found: Vec<Credential> = Vec::new();
        for FoundFile { location, file } in &files.0 {
            let logins = file.logins(audience.repository()).into_iter();
            for login in logins.filter(|login| audience.may_see(login.server(audience.repository()))) {
                let credential = self.resolve(login, location, audience.repository(), helpers).await?;
                // An equal login from another file would only be refused again.
                found.extend(credential.filter(|new| !found.iter().any(|known| known.same_login(new))));
            }
        }
        Ok(found)
    }

    /// The login files. A home directory may be on a server that hangs, so another thread reads them unless the caller's may wait.
    async fn files(&self) -> Result<LoginFiles, KeyringError> {
        if self.on_caller {
            return self.read();
        }
        let keyring = self.clone();
        on_disk(move || keyring.read()).await
    }

    /// Reads every login file, all in one call: a thread for each costs more than the files.
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub(crate) fn read(&self) -> Result<LoginFiles, KeyringError> {
        let read = |place: &Place| {
            let found = |file| FoundFile { location: place.location.clone(), file };
            place.read().map(|file| file.map(found)).transpose()
        };
        self.shared.places.iter().filter_map(read).collect::<Result<_, _>>().map(LoginFiles)
    }

    /// The existing files, in the order in which they are searched.
    #[must_use]
    pub fn sources(&self) -> Vec<String> {
        let exists = |location: &&Location| matches!(location.need, Need::Named(_)) || location.path.is_file();
        self.shared.places.iter().map(|place| &place.location).filter(exists).map(Location::describe).collect()
    }

    async fn resolve(&self, login: Login, location: &Location, repository: &str, helpers: Helpers) -> HelperAnswer {
        match &login {
            Login::Ready(credential) => Ok(Some(Credential::clone(credential))),
            Login::Helper { name, .. } => {
                let (server, environment) = (login.server(repository), &self.shared.environment);
                self.ask(&Question { name, named_in: &location.path, server, environment }, helpers).await
            }
        }
    }

    async fn ask(&self, question: &Question<'_>, helpers: Helpers) -> HelperAnswer {
        let slot = self.shared.helper_cache.slot(question.name, question.server);
        if helpers == Helpers::Ask {
            let answer = question.ask().await;
            // If it is locked, the concurrent request caches its own answer.
            if let Ok(mut remembered) = slot.try_lock() {
                *remembered = Some(CachedAnswer::new(answer.clone(), self.shared.clock.now().monotonic));
            }
            return answer;
        }
        let mut remembered = slot.lock().await;
        if let Some(answer) = remembered.as_ref().and_then(|remembered| remembered.at(self.shared.clock.now().monotonic)) {
            return answer;
        }
        let answer = question.ask().await;
        *remembered = Some(CachedAnswer::new(answer.clone(), self.shared.clock.now().monotonic));
        answer
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Keyring").field(&self.sources()).finish()
    }
}

impl Place {
    /// The file's content, cached while the file is unchanged. `None` if it is missing and optional.
    fn read(&self) -> Result<Option<Arc<LoginFile>>, KeyringError> {
        let path = &self.location.path;
        let Some(stamp) = self.allow_missing(std::fs::metadata(path).map(|entry| Stamp::of(&entry)))? else { return Ok(None) };
        if let Some(file) = self.remembered(stamp) {
            return Ok(Some(file));
        }
        let Some(content) = self.allow_missing(read_bounded(path))? else { return Ok(None) };
        let file = LoginFile::parse(&content, &path.display().to_string())
            .map_err(|problem| KeyringError::Malformed { path: path.clone(), problem })?;
        let file = Arc::new(file);
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cached { stamp, file: Arc::clone(&file) });
        Ok(Some(file))
    }

    fn remembered(&self, stamp: Stamp) -> Option<Arc<LoginFile>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|cached| cached.stamp == stamp).map(|cached| Arc::clone(&cached.file))
    }

    fn allow_missing<T>(&self, read: io::Result<T>) -> Result<Option<T>, KeyringError> {
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
}

impl Stamp {
    fn of(entry: &Metadata) -> Self {
        Self { modified: (entry.mtime(), entry.mtime_nsec()), inode: entry.ino(), size: entry.size() }
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {FILE_MAX_BYTES} bytes")));
    }
    Ok(content)
}

/// Parses a login file and looks up a repository.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_login_file(content: &[u8], repository: &str) {
    if let Ok(file) = login_file::LoginFile::parse(content, "fuzzed") {
        drop(file.logins(repository));
    }
}
