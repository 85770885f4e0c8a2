//! Reads a store without changing anything, and checks whether one could be created.

use std::io;
use std::path::Path;

use contract::FailureClass;
use image::{Platform, Reference};
use rustix::fs::{Access, AtFlags, CWD, PROC_SUPER_MAGIC, accessat, statfs};
use rustix::io::Errno;

use super::OpenError;
use super::layout::{Layout, StatusCache};
use crate::port::{ImageStatus, InspectFailure};

/// A store opened for reading.
pub struct StoreView(Layout);

impl StoreView {
    /// Opens the store for reading; none if there is nothing at its path.
    ///
    /// # Errors
    /// The folder cannot be used as a store by this process.
    pub fn open(store: &Path) -> Result<Option<Self>, OpenError> {
        match Layout::open_read_only(store) {
            Ok(layout) => Ok(Some(Self(layout))),
            Err(source) if source.kind() == io::ErrorKind::NotFound && store.symlink_metadata().is_err() => Ok(None),
            Err(source) => Err(OpenError::Store { path: store.to_owned(), source }),
        }
    }

    /// The status of an image, as the embedded runtime would answer.
    ///
    /// # Errors
    /// The store's index cannot be read.
    pub fn image_status(&self, reference: &Reference, platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        let status = StatusCache::default().status(&self.0, reference, platform);
        status.map_err(|problem| InspectFailure { text: problem.to_string(), class: FailureClass::NodeLocal })
    }
}

/// Checks that a pull could write into the store or create it, without doing so. Quotas and failing disks are not noticed.
///
/// # Errors
/// It could not.
pub fn check_writable(store: &Path) -> Result<(), OpenError> {
    let whole = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    let there = whole.ancestors().find(|place| place.symlink_metadata().is_ok()).unwrap_or(&whole);
    let below = [".fleetpull", ".fleetpull/partial", ".fleetpull/pulls", "blobs", "blobs/sha256"].map(|name| whole.join(name));
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
        // By its mode root may write to `/proc`, but nothing can be created there.
        Ok(system) if system.f_type == PROC_SUPER_MAGIC => Err(explained(Errno::PERM)),
        _ => Ok(()),
    }
}
