//! Socket files whose path is longer than the kernel takes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The most bytes of a path in a socket address on Linux: `sun_path` has 108, the last one ends it.
const MAX_PATH_BYTES: usize = 107;

/// A path that the kernel takes for a socket file.
pub(super) struct Address {
    path: PathBuf,
    /// Kept open while the path is used, because the path goes through it.
    _folder: Option<File>,
}

impl Address {
    /// The path itself, or a short one to the same file through its open folder.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= MAX_PATH_BYTES {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let bad = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file in a folder");
        let (folder, name) = (path.parent().ok_or_else(bad)?, path.file_name().ok_or_else(bad)?);
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_stays_and_a_long_one_reaches_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let short = folder.path().join("a.sock");
        assert_eq!(Address::of(&short).unwrap().path(), short);
        let deep = folder.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        std::fs::write(deep.join("a.sock"), "here").unwrap();
        let address = Address::of(&deep.join("a.sock")).unwrap();
        assert!(address.path().as_os_str().len() <= MAX_PATH_BYTES);
        assert_eq!(std::fs::read_to_string(address.path()).unwrap(), "here");
    }
}
