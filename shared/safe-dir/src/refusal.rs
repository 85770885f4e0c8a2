//! Refusals of directories and files.

use std::io;
use std::path::{Path, PathBuf};

/// Write permission for the group and for others.
const OTHERS_WRITE: u32 = 0o022;
/// In a directory with this bit only the owner can remove an entry, even if others may write the directory.
const STICKY: u32 = 0o1000;

/// Why a directory or file is refused. The text says what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another user owns a directory or file that root would use.
    #[error("{} belongs to user {uid}, who could exchange what this process of root keeps there: run `chown root {}`, or run this as that user", .path.display(), .path.display())]
    ForeignOwner {
        /// The path.
        path: PathBuf,
        /// The owner.
        uid: u32,
    },
    /// Others may write a directory that root would use.
    #[error("others may write {} (mode {mode:04o}) and could exchange what this process of root keeps there: run `chmod go-w {}`", .path.display(), .path.display())]
    WritableByOthers {
        /// The path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A link, where no link is followed.
    #[error("{} is a symbolic link, which is not followed there: put what it points at in its place, or remove it", .path.display())]
    Link {
        /// The path.
        path: PathBuf,
    },
    /// Not a regular file: a pipe, a device or the like.
    #[error("{} is no regular file: remove it", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A file to be written that has other names too.
    #[error("{} has {links} names (hard links), so writing it could change another file: remove it", .path.display())]
    HardLinked {
        /// The path.
        path: PathBuf,
        /// The number of its names.
        links: u64,
    },
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::InvalidData, refusal)
    }
}

/// Checks whether a process may use a directory.
pub(crate) fn judge(is_root: bool, uid: u32, mode: u32, path: &Path) -> Result<(), Refusal> {
    match () {
        () if !is_root => Ok(()),
        () if uid != 0 => Err(Refusal::ForeignOwner { path: path.to_owned(), uid }),
        () if mode & OTHERS_WRITE != 0 => Err(Refusal::WritableByOthers { path: path.to_owned(), mode: mode & 0o7777 }),
        () => Ok(()),
    }
}

/// Checks whether a process may write an existing file.
pub(crate) fn judge_file(is_root: bool, uid: u32, links: u64, path: &Path) -> Result<(), Refusal> {
    match () {
        // 0 links: it was removed in the meantime, which does no harm.
        () if links > 1 => Err(Refusal::HardLinked { path: path.to_owned(), links }),
        () if is_root && uid != 0 => Err(Refusal::ForeignOwner { path: path.to_owned(), uid }),
        () => Ok(()),
    }
}

/// Whether only its owner, or each entry's owner, can remove or exchange entries of a directory.
pub(crate) fn keeps_others_from_entries(mode: u32) -> bool {
    mode & OTHERS_WRITE == 0 || mode & STICKY != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_works_where_nobody_else_may_write() {
        let path = Path::new("/x");
        let foreign = Err(Refusal::ForeignOwner { path: path.to_owned(), uid: 1000 });
        let writable = |mode| Err(Refusal::WritableByOthers { path: path.to_owned(), mode });
        for (is_root, uid, mode, expected) in [
            (true, 0, 0o40755, Ok(())),
            (true, 0, 0o40700, Ok(())),
            (true, 0, 0o40775, writable(0o775)),
            (true, 0, 0o40757, writable(0o757)),
            // Others could take the store's names before the store does.
            (true, 0, 0o41777, writable(0o1777)),
            (true, 1000, 0o40755, foreign),
            (false, 1000, 0o40777, Ok(())),
            (false, 0, 0o41777, Ok(())),
        ] {
            assert_eq!(judge(is_root, uid, mode, path), expected, "{is_root} {uid} {mode:o}");
        }
    }

    #[test]
    fn a_file_that_is_written_has_one_name_and_no_foreign_owner() {
        let path = Path::new("/x");
        for (is_root, uid, links, fits) in [
            (true, 0, 1, true),
            (true, 0, 0, true),
            (true, 0, 2, false),
            (true, 1000, 1, false),
            (false, 1000, 1, true),
            (false, 1000, 2, false),
        ] {
            assert_eq!(judge_file(is_root, uid, links, path).is_ok(), fits, "{is_root} {uid} {links}");
        }
    }

    #[test]
    fn a_refusal_has_advice() {
        let path = PathBuf::from("/x");
        for (refusal, advice) in [
            (Refusal::ForeignOwner { path: path.clone(), uid: 1000 }, "run `chown root /x`, or run this as that user"),
            (Refusal::WritableByOthers { path: path.clone(), mode: 0o1777 }, "(mode 1777)"),
            (Refusal::WritableByOthers { path: path.clone(), mode: 0o777 }, "run `chmod go-w /x`"),
            (Refusal::Link { path: path.clone() }, "remove it"),
            (Refusal::NoFile { path: path.clone() }, "remove it"),
            (Refusal::HardLinked { path, links: 2 }, "2 names"),
        ] {
            assert!(refusal.to_string().contains(advice), "{refusal}");
        }
    }
}
