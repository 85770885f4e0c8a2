//! A small tmpfs that a test can fill.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The piece that is written until the disk is full; the last write is shorter.
const PIECE: [u8; 4096] = [0; 4096];

/// A small disk; unmounted when dropped.
pub struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// Creates the folder `place` and mounts a small disk there.
    ///
    /// # Errors
    /// When this user may not mount file systems.
    ///
    /// # Panics
    /// When the folder cannot be made.
    pub fn mount(place: &Path, bytes: u64) -> Result<Self, String> {
        fs::create_dir_all(place).expect("a folder can be made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(place).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self { place: place.to_owned() }),
            Ok(output) => {
                Err(format!("no small disk can be mounted, which takes root: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => Err(format!("no small disk can be mounted: {error}")),
        }
    }

    /// Fills the disk, so that every further write fails.
    ///
    /// # Panics
    /// When the disk cannot be filled.
    pub fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("the disk can be written");
        let mut piece = PIECE.len();
        while piece > 0 {
            match filler.write(&PIECE[..piece]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => piece /= 2,
                Err(error) => panic!("the disk cannot be filled: {error}"),
            }
        }
    }

    /// Frees the space again.
    ///
    /// # Panics
    /// When the disk was not filled.
    pub fn free(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy, because a process that still has a file open there is about to end.
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).status();
    }
}
