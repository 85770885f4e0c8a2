//! The blobs that running pulls need.
//!
//! Before a pull checks for any blob of its image, it writes the digests of all of them into its own file below `.fleetpull/pulls`, and
//! holds that file locked until the image is in the index. So from the moment when a pull may count a blob as present, either this file or
//! the index shows that it is needed. The lock of a killed process ends with the process.
//!
//! The store lock orders pulls and prunes. A pull holds it shared while it writes its file; a prune holds it exclusively while it reads
//! what is needed and removes some blobs. Each holds it for milliseconds: no pull waits for a whole prune, and no prune for a pull.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};

use image::Digest;
use safe_dir::SafeDir;

use super::{FILE_MODE, Layout, PULLS, found, lock, new_file_in};

/// The file that is locked while a pull writes what it needs, and while blobs are removed.
const STORE_LOCK: &str = "store.lock";
/// The longest file of a pull: 1,000 layers with the longest digests take 137 KiB.
const PULL_MAX_BYTES: u64 = 1024 * 1024;

/// The locked file of a running pull; dropping it removes the file.
pub(in crate::oci_layout) struct PullLock {
    folder: SafeDir,
    name: String,
    file: File,
}

impl Drop for PullLock {
    fn drop(&mut self) {
        let _ = self.folder.remove_file(&self.name);
    }
}

impl Layout {
    /// Keeps these blobs in the store, present or not, until the lock is dropped.
    pub(in crate::oci_layout) async fn lock_for_pull(&self, needed: &[Digest]) -> io::Result<PullLock> {
        let text: String = needed.iter().map(|digest| format!("{digest}\n")).collect();
        let own = self.own_folder()?;
        let store_lock = own.open_to_write(STORE_LOCK, FILE_MODE)?;
        lock::lock_shared(&store_lock, &own.path().join(STORE_LOCK)).await?;
        let folder = own.dir(PULLS)?;
        let (name, file) = new_file_in(&folder, "pull")?;
        let mut pull = PullLock { folder, name, file };
        lock::lock(&pull.file, &pull.folder.path().join(&pull.name), |_| {}).await?;
        pull.file.write_all(text.as_bytes())?;
        Ok(pull)
    }

    /// Locks the store until the file is dropped; no pull can begin meanwhile.
    pub(super) async fn lock_to_remove(&self) -> io::Result<File> {
        let own = self.own_folder()?;
        let store_lock = own.open_to_write(STORE_LOCK, FILE_MODE)?;
        lock::lock(&store_lock, &own.path().join(STORE_LOCK), |_| {}).await?;
        lock::touch(&store_lock);
        Ok(store_lock)
    }

    /// The blobs that running pulls need.
    pub(super) fn needed_by_pulls(&self) -> io::Result<BTreeSet<Digest>> {
        let mut needed = BTreeSet::new();
        let Some(folder) = found(self.own_folder().and_then(|own| own.dir(PULLS)))? else { return Ok(needed) };
        for name in folder.names()? {
            // The file is missing if the pull has just ended.
            let Some(file) = found(folder.open_file(&name))? else { continue };
            match file.try_lock_shared() {
                // Its process was killed.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => read_digests(&file, &mut needed)?,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(needed)
    }
}

fn read_digests(file: &File, needed: &mut BTreeSet<Digest>) -> io::Result<()> {
    let mut text = String::new();
    file.take(PULL_MAX_BYTES).read_to_string(&mut text)?;
    needed.extend(text.lines().filter_map(|line| Digest::parse(line).ok()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::oci_layout::layout::Hasher;

    #[tokio::test]
    async fn blobs_of_a_pull_are_needed_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Layout::open(folder.path(), false, Duration::ZERO).unwrap();
        let (layout, other) = (open(), open());
        let digests = [b"one", b"two"].map(|content| Hasher::sha256(content));
        let pull = layout.lock_for_pull(&digests).await.unwrap();
        assert_eq!(other.needed_by_pulls().unwrap(), BTreeSet::from(digests));
        // The file of a killed process, which nobody holds.
        std::fs::write(folder.path().join(".fleetpull/pulls/pull-1-0"), Hasher::sha256(b"three").as_str()).unwrap();
        assert_eq!(other.needed_by_pulls().unwrap().len(), 2);
        drop(pull);
        assert_eq!(other.needed_by_pulls().unwrap(), BTreeSet::new());
    }

    /// Otherwise a pull could count a blob as present between the reading of the pulls' files and the removal.
    #[tokio::test(start_paused = true)]
    async fn no_pull_begins_while_blobs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, Duration::ZERO).unwrap();
        let digest = Hasher::sha256(b"one");
        let removing = layout.lock_to_remove().await.unwrap();
        let begins = layout.lock_for_pull(std::slice::from_ref(&digest));
        let mut begins = std::pin::pin!(begins);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut begins).await.is_err());
        assert!(layout.needed_by_pulls().unwrap().is_empty());
        drop(removing);
        let _pull = begins.await.unwrap();
        assert_eq!(layout.needed_by_pulls().unwrap().len(), 1);
    }
}
