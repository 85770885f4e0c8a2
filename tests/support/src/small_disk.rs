//! A disk that can be filled: a small tmpfs of its own.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is written at a time until nothing more fits; the last piece is shorter.
const PIECE: [u8; 4096] = [0; 4096];

/// A small disk; gone when dropped.
pub struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `place`, which is made.
    ///
    /// # Errors
    /// This user may not mount anything.
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

    /// From now on nothing more can be written to it.
    ///
    /// # Panics
    /// When it can still be written to in the end.
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

    /// There is room again.
    ///
    /// # Panics
    /// When it was not filled.
    pub fn free(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: whoever has a file open there is about to end.
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).status();
    }
}
