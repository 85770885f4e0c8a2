//! Removes blobs that nothing needs.
//!
//! Blobs are removed a few at a time. Each time the store is locked, and the needs of the running pulls and then of the index are read
//! again, in this order because a pull that has ended since is in the index. An image leaves the index before its blobs are removed, so a
//! killed process leaves whole images and perhaps blobs for the next prune.

use std::io;
use std::time::Duration;

use super::unreferenced::Unreferenced;
use super::{Entry, Layout, PARTIALS, for_each_forgotten, found};
use crate::oci_layout::upkeep::{Freed, UpkeepError};

/// The most blobs that are removed during one lock of the store, so that a pull that begins waits only for milliseconds.
const BLOBS_AT_ONCE: usize = 16;
/// How long the store stays unlocked in between: long enough for every waiting pull, which tries again every 20 ms.
const PAUSE: Duration = Duration::from_millis(50);
/// A partial blob that has not grown for this long is removed; a younger one can be resumed.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Layout {
    /// Removes the blobs that neither an image nor a running pull needs. `on_progress` gets the sum after each batch.
    pub(in crate::oci_layout) async fn remove_unreferenced(&self, mut on_progress: impl FnMut(Freed)) -> Result<Freed, UpkeepError> {
        let failed = |doing: &'static str| move |source: io::Error| UpkeepError::store(doing, self.root(), source);
        let mut freed = Freed::default();
        let mut unreferenced = self.unreferenced(|_| false)?;
        while !unreferenced.blobs.is_empty() {
            let store_lock = self.lock_to_remove().await.map_err(failed("lock"))?;
            let needed = self.needed_by_pulls().map_err(failed("read"))?;
            unreferenced.leave_out(&needed);
            self.leave_out_referenced(&mut unreferenced, |_| false)?;
            for _ in 0..BLOBS_AT_ONCE {
                let Some((digest, bytes)) = unreferenced.blobs.pop_first() else { break };
                let folder = self.blob_folder(digest.algorithm()).map_err(failed("read"))?;
                // The folder is missing if another prune runs.
                let removed = folder.map(|folder| folder.remove_file(digest.hex())).transpose();
                if found(removed).map_err(failed("remove a blob of"))?.flatten().is_some() {
                    freed.add(bytes);
                }
            }
            drop(store_lock);
            on_progress(freed);
            if !unreferenced.blobs.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(freed)
    }

    /// The blobs that neither a running pull nor an image needs, if the entries for which `is_removed` holds were removed.
    pub(in crate::oci_layout) fn unreferenced(&self, is_removed: impl Fn(&Entry) -> bool) -> Result<Unreferenced, UpkeepError> {
        let failed = |source| UpkeepError::store("read", self.root(), source);
        let mut unreferenced = self.all_blobs().map_err(failed)?;
        unreferenced.leave_out(&self.needed_by_pulls().map_err(failed)?);
        self.leave_out_referenced(&mut unreferenced, is_removed)?;
        Ok(unreferenced)
    }

    /// Leaves out blobs that the index refers to. Without an index it is unknown which blobs are needed, so none may be removed.
    fn leave_out_referenced(&self, unreferenced: &mut Unreferenced, is_removed: impl Fn(&Entry) -> bool) -> Result<(), UpkeepError> {
        match self.read_existing_index()? {
            Some(mut index) => {
                index.remove(is_removed);
                let left_out = unreferenced.leave_out_referenced(self, &index);
                left_out.map_err(|source| UpkeepError::store("read a manifest in", self.root(), source))
            }
            None if unreferenced.blobs.is_empty() => Ok(()),
            None => Err(UpkeepError::NoIndex { path: self.root().to_owned() }),
        }
    }

    /// Removes, or only counts, partial blobs that no pull has resumed for a day.
    pub(in crate::oci_layout) fn old_partials(&self, wall: Duration, is_dry_run: bool) -> io::Result<Freed> {
        let mut freed = Freed::default();
        let Some(folder) = found(self.own_folder().and_then(|own| own.dir(PARTIALS)))? else { return Ok(freed) };
        for_each_forgotten(&folder, wall, PARTIAL_AGE_MAX, |name, bytes| {
            if is_dry_run || folder.remove_file(name).is_ok() {
                freed.add(bytes);
            }
        })?;
        Ok(freed)
    }
}
