//! Looking at a store, or at where one would be made, without making or changing anything.

use std::io;
use std::path::Path;

use contract::FailureClass;
use image::{Platform, Reference};
use rustix::fs::{Access, AtFlags, CWD, PROC_SUPER_MAGIC, accessat, statfs};
use rustix::io::Errno;

use super::OpenError;
use super::layout::{Layout, StatusCache};
use crate::port::{ImageStatus, InspectFailure};

/// A store that is only looked at.
pub struct StoreView(Layout);

impl StoreView {
    /// Opens the store for a look; none if there is nothing at its path.
    ///
    /// # Errors
    /// What is there cannot be used as a store by this process.
    pub fn open(store: &Path) -> Result<Option<Self>, OpenError> {
        match Layout::open_as_it_is(store) {
            Ok(layout) => Ok(Some(Self(layout))),
            Err(source) if source.kind() == io::ErrorKind::NotFound && store.symlink_metadata().is_err() => Ok(None),
            Err(source) => Err(OpenError::Store { path: store.to_owned(), source }),
        }
    }

    /// Whether the image is there, as the embedded runtime would find it.
    ///
    /// # Errors
    /// The store's index cannot be read.
    pub fn image_status(&self, reference: &Reference, platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        let status = StatusCache::default().status(&self.0, reference, platform);
        status.map_err(|problem| InspectFailure { text: problem.to_string(), class: FailureClass::NodeLocal })
    }
}

/// Checks that a pull could write into the store, or could make it, as far as that can be told without doing so: quotas and disks that
/// fail show only when something is written.
///
/// # Errors
/// It could not.
pub fn check_that_it_can_be_written(store: &Path) -> Result<(), OpenError> {
    let whole = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    let there = whole.ancestors().find(|place| place.symlink_metadata().is_ok()).unwrap_or(&whole);
    let below = [".fleetpull", ".fleetpull/partial", "blobs", "blobs/sha256"].map(|name| whole.join(name));
    let folders = below.iter().map(std::path::PathBuf::as_path).filter(|folder| folder.symlink_metadata().is_ok());
    std::iter::once(there).chain(folders).try_for_each(|folder| {
        let written = can_be_written(folder);
        written.map_err(|source| OpenError::Store { path: store.to_owned(), source })
    })
}

fn can_be_written(folder: &Path) -> io::Result<()> {
    let explained = |error: Errno| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("nothing can be made in {}: {error}", folder.display()))
    };
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no folder", folder.display())));
    }
    accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(explained)?;
    match statfs(folder) {
        // Root may write everything there by its mode, and still nothing can be made.
        Ok(system) if system.f_type == PROC_SUPER_MAGIC => Err(explained(Errno::PERM)),
        _ => Ok(()),
    }
}
