//! Directories in which a privileged process works although others may write nearby.
//!
//! What lies below a [`SafeDir`] is reached through its handle, one name at a time: no symbolic link is followed there, whichever user put it,
//! and nothing but regular files is opened. Links above the directory are followed as always. A process of root also refuses
//! directories that another user owns or may write, since that user could exchange what the process reads and writes.

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

/// Everybody may look in, only the owner may write.
pub const PUBLIC_MODE: u32 = 0o755;
/// Only the owner may look in.
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
    /// It is not there or no directory, or it is refused.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = without_trailing_slash(path);
        let follow = if !is_root() || is_link_of_root(&path) { OFlags::empty() } else { OFlags::NOFOLLOW };
        Self::open_at(CWD, &path, &path, follow)
    }

    /// Opens a directory, making it with `mode` if it is not there, and those above it for everybody to read.
    ///
    /// # Errors
    /// It cannot be made, is no directory, or is refused.
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

    /// As it was named when it was opened.
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

    /// Opens a directory in this one, making it with `mode` if it is not there.
    ///
    /// # Errors
    /// As [`SafeDir::dir`], or it cannot be made.
    pub fn make_dir(&self, name: &str, mode: u32) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => self.dir(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is no regular file.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        self.open_regular(name, OFlags::RDONLY, 0)
    }

    /// Opens a file to read and write it, making it with `mode` if it is not there.
    ///
    /// # Errors
    /// It cannot be made or opened, is no regular file, is known under another name too, or, for root, belongs to somebody else.
    pub fn open_to_write(&self, name: &str, mode: u32) -> io::Result<File> {
        let file = self.open_regular(name, OFlags::RDWR | OFlags::CREATE, mode)?;
        let found = file.metadata()?;
        judge_file(is_root(), found.uid(), found.nlink(), &self.path.join(name))?;
        Ok(file)
    }

    /// Makes a file that is not there yet, to write it.
    ///
    /// # Errors
    /// It is there already ([`io::ErrorKind::AlreadyExists`]) or cannot be made.
    pub fn create_file(&self, name: &str, mode: u32) -> io::Result<File> {
        self.open_regular(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// What stands under a name, a symbolic link as itself; none if there is nothing.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn metadata(&self, name: &str) -> io::Result<Option<Metadata>> {
        match rustix::fs::openat(&self.handle, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => File::from(found).metadata().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file another name, in this directory or another, in the place of what stood there.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn rename(&self, name: &str, to: &Self, to_name: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, name, &to.handle, to_name)?)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// It is not there or cannot be removed.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// What is in the directory, in no order. Names that are no UTF-8 are left out: this project makes none.
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

    /// Has the names in the directory kept over a loss of power.
    ///
    /// # Errors
    /// The file system cannot.
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
        // A pipe must not hold up who opens it before it is seen to be one.
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

    /// A directory that is a link and may not be reads as one, not as something that is no directory.
    fn link_or(at: impl std::os::fd::AsFd, name: &Path, path: &Path, error: Errno) -> io::Error {
        let found = rustix::fs::openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let is_link = found.is_ok_and(|found| File::from(found).metadata().is_ok_and(|found| found.is_symlink()));
        if is_link { Refusal::Link { path: path.to_owned() }.into() } else { error.into() }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A link that root made where nobody else can exchange it is root's own word.
fn is_link_of_root(path: &Path) -> bool {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_fixed = std::fs::metadata(above).is_ok_and(|above| above.uid() == 0 && refusal::keeps_others_from_entries(above.mode()));
    is_fixed && path.symlink_metadata().is_ok_and(|link| link.is_symlink() && link.uid() == 0)
}

/// With a slash at its end a path names what a link points at.
fn without_trailing_slash(path: &Path) -> PathBuf {
    path.components().collect()
}
