//! Directories that a privileged process can use although others may write nearby.
//!
//! Everything below a [`SafeDir`] is opened through its handle, one name at a time: no symbolic link is followed there, whichever user made
//! it, and only regular files are opened. Links above the directory are followed as usual. A process of root also refuses directories that
//! another user owns or may write, because that user could exchange what the process reads and writes.

mod refusal;

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

pub use refusal::Refusal;
use refusal::{judge, judge_file};

/// Everybody may read, only the owner may write.
pub const PUBLIC_MODE: u32 = 0o755;
/// Only the owner may read and write.
pub const PRIVATE_MODE: u32 = 0o700;

/// A directory, held open. Clones share the handle. Errors of kind [`io::ErrorKind::InvalidData`] carry a [`Refusal`].
#[derive(Clone, Debug)]
pub struct SafeDir {
    path: PathBuf,
    handle: Arc<OwnedFd>,
}

impl SafeDir {
    /// Opens a directory.
    ///
    /// # Errors
    /// It does not exist or is not a directory, or it is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = without_trailing_slash(path);
        let follow = if !is_root() || is_link_of_root(&path) { OFlags::empty() } else { OFlags::NOFOLLOW };
        Self::open_at(CWD, &path, &path, follow)
    }

    /// Opens a directory. If it does not exist, makes it with `mode`, and missing directories above it readable for everybody.
    ///
    /// # Errors
    /// It cannot be made, is not a directory, or is refused.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        let path = without_trailing_slash(path);
        match Self::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(PUBLIC_MODE).create(above)?;
        }
        match DirBuilder::new().mode(mode).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        Self::open(&path)
    }

    /// The path by which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// As [`SafeDir::open`]; a symbolic link is refused whichever user made it.
    pub fn dir(&self, name: &str) -> io::Result<Self> {
        Self::open_at(&self.handle, Path::new(name), &self.path.join(name), OFlags::NOFOLLOW)
    }

    /// Opens a directory in this one. If it does not exist, makes it with `mode`.
    ///
    /// # Errors
    /// As [`SafeDir::dir`], or it cannot be made.
    pub fn make_dir(&self, name: &str, mode: u32) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => self.dir(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or is not a regular file.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        self.open_regular(name, OFlags::RDONLY, 0)
    }

    /// Opens a file for reading and writing. If it does not exist, makes it with `mode`.
    ///
    /// # Errors
    /// It cannot be made or opened, is not a regular file, has another name too, or, for root, belongs to another user.
    pub fn open_to_write(&self, name: &str, mode: u32) -> io::Result<File> {
        let file = self.open_regular(name, OFlags::RDWR | OFlags::CREATE, mode)?;
        let found = file.metadata()?;
        judge_file(is_root(), found.uid(), found.nlink(), &self.path.join(name))?;
        Ok(file)
    }

    /// Makes a new file for writing.
    ///
    /// # Errors
    /// It already exists ([`io::ErrorKind::AlreadyExists`]) or cannot be made.
    pub fn create_file(&self, name: &str, mode: u32) -> io::Result<File> {
        self.open_regular(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// The metadata of a name, or of the symbolic link itself; none if it does not exist.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn metadata(&self, name: &str) -> io::Result<Option<Metadata>> {
        match rustix::fs::openat(&self.handle, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => File::from(found).metadata().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames a file, in this directory or into another one, and replaces an existing one.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn rename(&self, name: &str, to: &Self, to_name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, name, &to.handle, to_name)?)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// It does not exist or cannot be removed.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// The names in the directory, in no order. Names that are not UTF-8 are left out, because this project makes none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            names.extend(name.into_string().ok().filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }

    /// Syncs the directory, so that its names survive a loss of power.
    ///
    /// # Errors
    /// The file system does not support it.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.handle)?)
    }

    fn open_at(at: impl std::os::fd::AsFd, name: &Path, path: &Path, follow: OFlags) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        let handle = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(error @ (Errno::LOOP | Errno::NOTDIR)) => return Err(Self::link_or(at, name, path, error)),
            Err(error) => return Err(error.into()),
        };
        let handle = File::from(handle);
        let found = handle.metadata()?;
        judge(is_root(), found.uid(), found.mode(), path)?;
        Ok(Self { path: path.to_owned(), handle: Arc::new(handle.into()) })
    }

    fn open_regular(&self, name: &str, how: OFlags, mode: u32) -> io::Result<File> {
        let path = || self.path.join(name);
        // Non-blocking, because opening a pipe would wait before it is recognised as one.
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(Refusal::Link { path: path() }.into()),
            Err(error) => return Err(error.into()),
        };
        match file.metadata()?.file_type() {
            kind if kind.is_file() => Ok(file),
            kind if kind.is_dir() => Err(Errno::ISDIR.into()),
            _ => Err(Refusal::NoFile { path: path() }.into()),
        }
    }

    /// If a directory is a link that is not allowed, the error says so instead of "not a directory".
    fn link_or(at: impl std::os::fd::AsFd, name: &Path, path: &Path, error: Errno) -> io::Error {
        let found = rustix::fs::openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let is_link = found.is_ok_and(|found| File::from(found).metadata().is_ok_and(|found| found.is_symlink()));
        if is_link { Refusal::Link { path: path.to_owned() }.into() } else { error.into() }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether root made this link where nobody else can exchange it; such a link is followed.
fn is_link_of_root(path: &Path) -> bool {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_fixed = std::fs::metadata(above).is_ok_and(|above| above.uid() == 0 && refusal::keeps_others_from_entries(above.mode()));
    is_fixed && path.symlink_metadata().is_ok_and(|link| link.is_symlink() && link.uid() == 0)
}

/// With a trailing slash a path names the target of a link.
fn without_trailing_slash(path: &Path) -> PathBuf {
    path.components().collect()
}
