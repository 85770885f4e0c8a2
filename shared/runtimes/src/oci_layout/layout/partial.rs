//! A partial blob: a locked file that outlives its pull.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use image::Digest;
use safe_dir::SafeDir;

use super::checked::Stamp;
use super::hasher::{BATCH_BYTES, Hasher, hash_blocking};
use super::{FILE_MODE, Layout, has_name, lock, rename};

/// Pieces of at least this size are written directly, without the batch.
const DIRECT_BYTES: usize = 64 * 1024;

/// How many bytes are hashed and written at a time. They stay in the core's cache; larger steps were measured to be slower.
const STEP_BYTES: usize = 128 * 1024;

/// The result of locking a partial blob.
pub(in crate::oci_layout) enum PartialLock {
    /// Another pull has fetched the blob meanwhile.
    Present,
    /// The caller fetches it.
    Ours(Partial),
}

/// A blob being fetched, hashed as it is written. Its file is locked, so that no other pull fetches the blob too.
pub(in crate::oci_layout) struct Partial {
    layout: Layout,
    digest: Digest,
    /// Its path, for texts.
    path: PathBuf,
    folder: SafeDir,
    file: File,
    hasher: Hasher,
    /// The bytes received and hashed; the last ones may still be in `batch`.
    received: u64,
    batch: Vec<u8>,
}

impl Layout {
    /// Waits until no other pull fetches the blob. `waiting` gets the number of bytes that the other has received. A stored blob counts as
    /// present only if it matches its digest.
    pub(in crate::oci_layout) async fn lock_partial(
        &self,
        digest: &Digest,
        size: u64,
        mut waiting: impl FnMut(u64),
    ) -> io::Result<PartialLock> {
        let folder = self.partials()?;
        let name = partial_name(digest);
        loop {
            if self.is_present_and_intact(digest, size).await? {
                return Ok(PartialLock::Present);
            }
            let file = folder.open_to_write(&name, FILE_MODE)?;
            lock::lock(&file, &folder.path().join(&name), &mut waiting).await?;
            if !has_name(&file, &folder, &name)? {
                continue;
            }
            // Not earlier: a renamed file would be the stored blob, and a process that hashes it would see it change.
            lock::touch(&file);
            // The former holder of the lock may have stored the blob.
            if lock::holding(&file, self.is_present_and_intact(digest, size)).await? {
                let _ = folder.remove_file(&name);
                return Ok(PartialLock::Present);
            }
            return Ok(PartialLock::Ours(Partial {
                path: folder.path().join(&name),
                layout: self.clone(),
                digest: digest.clone(),
                folder,
                file,
                hasher: Hasher::new(digest.algorithm()),
                received: 0,
                batch: Vec::new(),
            }));
        }
    }

    /// Whether the blob is present and matches its digest; hashed on a thread that may block. Dropping the future does not stop the thread:
    /// otherwise a pull whose time limit is shorter than the hashing would never end.
    async fn is_present_and_intact(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        let hashing = self.checked.lock_to_hash(digest).await;
        let Some(stamp) = self.stamp_of_size(digest, size)? else { return Ok(false) };
        let (layout, digest) = (self.clone(), digest.clone());
        let hash = move || {
            let _hashing = hashing;
            layout.is_intact(&digest, stamp)
        };
        tasks::blocking("hash", hash).await
    }

    /// Removes a partial blob, unless a pull uses it.
    pub(in crate::oci_layout) fn discard_partial(&self, digest: &Digest) {
        let Ok(folder) = self.partials() else { return };
        let name = partial_name(digest);
        let Ok(file) = folder.open_file(&name) else { return };
        // Locked until the file is removed, so that no pull resumes it in between.
        if file.try_lock().is_ok() && has_name(&file, &folder, &name).unwrap_or_default() {
            let _ = folder.remove_file(&name);
        }
    }

    /// How many bytes of the blob are stored, complete or partial.
    pub(in crate::oci_layout) fn stored_bytes(&self, digest: &Digest, size: u64) -> u64 {
        if self.stamp_of_size(digest, size).is_ok_and(|stamp| stamp.is_some()) {
            return size;
        }
        let partial = self.partials().and_then(|folder| folder.metadata(&partial_name(digest)));
        partial.ok().flatten().map_or(0, |partial| partial.len().min(size))
    }
}

fn partial_name(digest: &Digest) -> String {
    format!("{}-{}", digest.algorithm().name(), digest.hex())
}

impl Partial {
    /// Resumes an interrupted pull's partial blob, which it hashes again; discards it if it has more than `size` bytes. Returns the number
    /// of usable bytes.
    pub(in crate::oci_layout) async fn resume(&mut self, size: u64) -> io::Result<u64> {
        let there = self.file.metadata()?.len();
        if there > size {
            self.restart()?;
        } else if there > 0 {
            // Both handles share one position, so after hashing it is where the next byte is written.
            let file = self.file.try_clone()?;
            (self.hasher, self.received) = hash_blocking(file, Hasher::new(self.digest.algorithm())).await?;
        }
        Ok(self.received)
    }

    /// Discards all received bytes.
    pub(in crate::oci_layout) fn restart(&mut self) -> io::Result<()> {
        self.batch.clear();
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = Hasher::new(self.digest.algorithm());
        self.received = 0;
        Ok(())
    }

    /// Bytes received so far.
    pub(in crate::oci_layout) fn received(&self) -> u64 {
        self.received
    }

    /// The locked file, for [`lock::holding`].
    pub(in crate::oci_layout) fn lock_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(in crate::oci_layout) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Adds a piece, which is hashed at once and written in batches. A large piece is processed in steps, so that each is still in the
    /// core's cache when it is written.
    pub(in crate::oci_layout) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.received += piece.len() as u64;
        if self.batch.is_empty() && piece.len() >= DIRECT_BYTES {
            return piece.chunks(STEP_BYTES).try_for_each(|step| {
                self.hasher.update(step);
                self.file.write_all(step)
            });
        }
        self.hasher.update(piece);
        self.batch.extend_from_slice(piece);
        if self.batch.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the batch.
    pub(in crate::oci_layout) fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.batch);
        self.batch.clear();
        written
    }

    /// Whether the received bytes match the digest.
    pub(in crate::oci_layout) fn matches(&self) -> bool {
        self.hasher.clone().finish().as_ref() == Some(&self.digest)
    }

    /// Stores the blob. Call it when size and digest were checked.
    pub(in crate::oci_layout) fn publish(mut self) -> io::Result<()> {
        self.flush()?;
        self.layout.sync(&self.file, &self.path)?;
        let blobs = self.layout.make_blob_folder(self.digest.algorithm())?;
        rename(&self.folder, &partial_name(&self.digest), &blobs, self.digest.hex())?;
        // After the rename, which changes the inode.
        if let Ok(entry) = self.file.metadata() {
            self.layout.checked.add(&self.digest, Stamp::of(&entry), true);
        }
        Ok(())
    }

    /// Removes the partial blob.
    pub(in crate::oci_layout) fn discard(self) {
        let _ = self.folder.remove_file(&partial_name(&self.digest));
    }
}

impl Drop for Partial {
    /// Writes the batch, for the next pull to resume.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci_layout::layout::hasher::tests::bytes_read_by_this_thread;

    /// Hashing a layer of many GB takes minutes, in which the pull's thread must touch the lock file.
    #[tokio::test]
    async fn resumed_bytes_are_hashed_on_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let content = vec![7; 8 * 1024 * 1024];
        let digest = Hasher::sha256(&content);
        std::fs::write(layout.partials().unwrap().path().join(partial_name(&digest)), &content).unwrap();
        let size = content.len() as u64;
        let PartialLock::Ours(mut partial) = layout.lock_partial(&digest, size, |_| {}).await.unwrap() else { panic!("it is not whole") };
        let before = bytes_read_by_this_thread();
        assert_eq!(partial.resume(size).await.unwrap(), size);
        let read = bytes_read_by_this_thread() - before;
        assert!(read < size / 2, "{read} bytes were read by the thread that waits");
        assert!(partial.matches());
    }

    /// Another process may be hashing the stored blob, and would reject it if its timestamps changed.
    #[tokio::test]
    async fn stored_blob_is_not_touched_by_a_waiting_pull() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let digest = Hasher::sha256(b"right");
        let PartialLock::Ours(mut partial) = layout.lock_partial(&digest, 5, |_| {}).await.unwrap() else { panic!("nobody has it") };
        partial.write(b"right").unwrap();
        let put = async {
            partial.publish().unwrap();
            layout.stamp_of(&digest).unwrap()
        };
        // `lock_partial` waits for the lock when `put` begins.
        let (locked, stamp) = tokio::join!(layout.lock_partial(&digest, 5, |_| {}), put);
        assert!(matches!(locked.unwrap(), PartialLock::Present) && stamp.is_some());
        assert_eq!(layout.stamp_of(&digest).unwrap(), stamp);
    }

    /// Hashing a layer of many GB can take longer than a pull may.
    #[tokio::test(start_paused = true)]
    async fn retried_pull_waits_for_the_thread_that_hashes_the_blob_and_uses_its_result() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let digest = Hasher::sha256(b"right");
        std::fs::write(layout.blob_path(&digest), b"right").unwrap();
        let stamp = layout.stamp_of(&digest).unwrap().unwrap();
        // The thread of a cancelled pull holds this until it is done.
        let hashing = layout.checked.lock_to_hash(&digest).await;
        for _ in 0..3 {
            let retried = layout.lock_partial(&digest, 5, |_| {});
            let ended = tokio::time::timeout(std::time::Duration::from_secs(10), retried).await;
            assert!(ended.is_err(), "another thread has hashed the blob");
        }
        // If the blob were hashed again, the result would be that it is intact.
        layout.checked.add(&digest, stamp, false);
        drop(hashing);
        assert!(matches!(layout.lock_partial(&digest, 5, |_| {}).await.unwrap(), PartialLock::Ours(_)));
    }

    /// Another process may have stored the blob without hashing it.
    #[tokio::test]
    async fn blob_stored_by_another_process_meanwhile_is_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::open(folder.path(), false, std::time::Duration::ZERO).unwrap();
        let digest = Hasher::sha256(b"right");
        for (content, is_right) in [(b"wrong", false), (b"right", true)] {
            let partials = layout.partials().unwrap();
            let held = partials.open_to_write(&partial_name(&digest), FILE_MODE).unwrap();
            held.try_lock().unwrap();
            let other = async {
                std::fs::write(layout.blob_path(&digest), content).unwrap();
                held.unlock().unwrap();
            };
            // The first waits for the lock when the other begins.
            let (locked, ()) = tokio::join!(layout.lock_partial(&digest, 5, |_| {}), other);
            assert_eq!(matches!(locked.unwrap(), PartialLock::Present), is_right);
        }
    }
}
