//! Writes the files of accounts. It checks all of them before it writes one.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use nkeys::{KeyPair, KeyPairType};
use tempfile::NamedTempFile;

/// Only the owner may read a secret.
const SECRET_FILE: u32 = 0o600;
const SECRET_FOLDER: u32 = 0o700;
const SHARED_FOLDER: u32 = 0o755;
/// Everybody may read public keys, permissions and contexts.
const SHARED_FILE: u32 = 0o644;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Who owns a file's content after it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Fleetpull's: the file is made again if it differs.
    Ours,
    /// The operator's: the file is made once.
    Theirs,
}

/// The result for a file, or in a dry run the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Made,
    Changed,
    Unchanged,
    /// The file exists and is kept, whatever it contains.
    Kept,
    /// The file does not exist and was not written.
    Missing,
    /// The file exists with other content and was not written.
    Differs,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Kept => "kept",
            Self::Missing => "missing",
            Self::Differs => "differs",
        }
    }
}

/// A file and its result.
pub(super) struct Done {
    pub(super) path: PathBuf,
    pub(super) state: State,
    /// The name and the role of the user.
    pub(super) user: Option<(String, String)>,
}

/// The planned content of a file. It may hold a secret, so it implements neither Debug nor Serialize.
struct Planned {
    path: PathBuf,
    text: String,
    secret: bool,
    content: Content,
    user: Option<(String, String)>,
}

/// The files below one folder.
pub(super) struct Files<'a> {
    folder: &'a Path,
    dry_run: bool,
    planned: Vec<Planned>,
    kept: Vec<Done>,
}

impl<'a> Files<'a> {
    pub(super) fn new(folder: &'a Path, dry_run: bool) -> Self {
        Self { folder, dry_run, planned: Vec::new(), kept: Vec::new() }
    }

    /// The public key of an existing seed, or of a new one.
    ///
    /// # Errors
    /// The existing file contains no seed of this kind, or others may read it.
    pub(super) fn key(&mut self, path: PathBuf, kind: KeyPairType, name: &str, role: &str) -> Result<String> {
        let full = self.folder.join(&path);
        let user = Some((name.to_owned(), role.to_owned()));
        match fs::read_to_string(&full) {
            Ok(text) => {
                let wanted = prefix(&kind);
                let seed = text.lines().map(str::trim).find(|line| line.starts_with(wanted));
                let pair = seed.and_then(|seed| KeyPair::from_seed(seed).ok());
                let pair = pair.ok_or_else(|| anyhow!("{} holds no seed ({wanted}...): remove it to make a new one", full.display()))?;
                if fs::metadata(&full)?.mode() & OTHERS != 0 {
                    bail!(
                        "others may read the secret {}: make a new one (remove it), or `chmod 600` it if nobody else has",
                        full.display()
                    );
                }
                self.kept.push(Done { path, state: State::Kept, user });
                Ok(pair.public_key())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let pair = KeyPair::new(kind);
                let text = pair.seed().map_err(|error| anyhow!("a key cannot be made: {error}"))? + "\n";
                self.planned.push(Planned { path, text, secret: true, content: Content::Theirs, user });
                Ok(pair.public_key())
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", full.display())),
        }
    }

    /// Plans a file without secrets.
    pub(super) fn text(&mut self, path: PathBuf, text: String, content: Content, user: Option<(&str, &str)>) {
        let user = user.map(|(name, role)| (name.to_owned(), role.to_owned()));
        self.planned.push(Planned { path, text, secret: false, content, user });
    }

    /// Writes missing files, and with `force` those that differ. Writes nothing if a file differs and may not be changed.
    pub(super) fn write(mut self, force: bool) -> Result<Vec<Done>> {
        let planned = std::mem::take(&mut self.planned);
        let mut states = Vec::new();
        for one in &planned {
            states.push(self.found(one)?);
        }
        let stop = self.dry_run || (states.contains(&State::Differs) && !force);
        for (one, state) in planned.into_iter().zip(states) {
            let state = match state {
                State::Missing if !stop => self.put(&one).map(|()| State::Made)?,
                State::Differs if !stop => self.put(&one).map(|()| State::Changed)?,
                other => other,
            };
            self.kept.push(Done { path: one.path, state, user: one.user });
        }
        Ok(self.kept)
    }

    fn found(&self, one: &Planned) -> Result<State> {
        let path = self.folder.join(&one.path);
        match fs::read_to_string(&path) {
            Ok(_) if one.content == Content::Theirs => Ok(State::Kept),
            Ok(text) if text == one.text => Ok(State::Unchanged),
            Ok(_) => Ok(State::Differs),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::Missing),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    fn put(&self, one: &Planned) -> Result<()> {
        let path = self.folder.join(&one.path);
        let written = if one.secret { secret(&path, &one.text) } else { shared(&path, &one.text) };
        written.with_context(|| format!("{} cannot be written", path.display()))
    }
}

fn prefix(kind: &KeyPairType) -> &'static str {
    if matches!(kind, KeyPairType::Account) { "SA" } else { "SU" }
}

/// Makes a file that nobody else can read at any time.
fn secret(path: &Path, text: &str) -> io::Result<()> {
    folder_of(path, SECRET_FOLDER)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(SECRET_FILE).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Writes a whole file, or none.
fn shared(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder_of(path, SHARED_FOLDER)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(SHARED_FILE))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn folder_of(path: &Path, mode: u32) -> io::Result<&Path> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder),
    }
}
