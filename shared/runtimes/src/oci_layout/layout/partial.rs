//! A blob under way: a locked file that outlives its pull.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use image::Digest;
use safe_dir::SafeDir;

use super::checked::Stamp;
use super::hasher::{BATCH_BYTES, Hasher, hash_blocking};
use super::{FILE_MODE, Layout, lock, rename};

/// Pieces from this size on are written as they come.
const DIRECT_BYTES: usize = 64 * 1024;

/// Hashed and written at a time: a part of what a core's cache holds. Measured: larger steps are slower.
const STEP_BYTES: usize = 128 * 1024;

/// What came of asking for the right to fetch a blob.
pub(in crate::oci_layout) enum PartialLock {
    /// Someone else has fetched it meanwhile.
    Present,
    /// It is for the caller to fetch.
    Ours(Partial),
}

/// A blob being fetched, hashed as it is written. Locked as long as it lives, so that nobody fetches it twice.
pub(in crate::oci_layout) struct Partial {
    layout: Layout,
    digest: Digest,
    /// Where it lies, for people to read.
    path: PathBuf,
    folder: SafeDir,
    file: File,
    hasher: Hasher,
    /// Received and hashed; the last bytes may still stand in `batch`.
    received: u64,
    batch: Vec<u8>,
}

impl Layout {
    /// Waits until nobody else fetches the blob. `waiting` is told how many bytes the other has. What is there already is taken
    /// for it only if it is what its name says.
    pub(in crate::oci_layout) async fn lock_partial(
        &self,
        digest: &Digest,
        size: u64,
        mut waiting: impl FnMut(u64),
    ) -> io::Result<PartialLock> {
        let folder = self.partials()?;
        let name = partial_name(digest);
        loop {
            if self.is_there_and_sound(digest, size).await? {
                return Ok(PartialLock::Present);
            }
            let file = folder.open_to_write(&name, FILE_MODE)?;
            lock::lock(&file, &folder.path().join(&name), &mut waiting).await?;
            // The former holder of the lock may have renamed the file away, or removed it.
            let own = file.metadata()?.ino();
            if folder.metadata(&name)?.is_none_or(|entry| entry.ino() != own) {
                continue;
            }
            // Only now: if the file had been renamed, it would be the stored blob, and a process that hashes it would see it change.
            lock::touch(&file);
            // The former holder of the lock may have put the blob there.
            if lock::holding(&file, self.is_there_and_sound(digest, size)).await? {
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

    /// Whether the blob is there and is what its name says: large ones take their time, on a thread where that holds up nobody.
    async fn is_there_and_sound(&self, digest: &Digest, size: u64) -> io::Result<bool> {
        let Some(stamp) = self.stamp_of_size(digest, size)? else { return Ok(false) };
        let (layout, digest) = (self.clone(), digest.clone());
        tasks::blocking("hash", move || layout.is_sound(&digest, stamp)).await
    }

    /// Removes what was received of a blob, unless somebody is at it.
    pub(in crate::oci_layout) fn discard_partial(&self, digest: &Digest) {
        let Ok(folder) = self.partials() else { return };
        let name = partial_name(digest);
        let Ok(file) = folder.open_file(&name) else { return };
        // Held until the file is gone, so that nobody takes it up in between.
        if file.try_lock().is_ok() {
            let _ = folder.remove_file(&name);
        }
    }

    /// How many bytes of the blob take up room here already, whole or in part.
    pub(in crate::oci_layout) fn stored_bytes(&self, digest: &Digest, size: u64) -> u64 {
        if self.has_blob(digest, size).unwrap_or_default() {
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
    /// Takes up what an interrupted pull left, hashing it again; more than `size` bytes are none of this blob. Returns how many
    /// bytes are good to go on from.
    pub(in crate::oci_layout) async fn resume(&mut self, size: u64) -> io::Result<u64> {
        let there = self.file.metadata()?.len();
        if there > size {
            self.restart()?;
        } else if there > 0 {
            // Both handles share one position: hashing to the end leaves it where the next byte is written.
            let file = self.file.try_clone()?;
            (self.hasher, self.received) = hash_blocking(file, Hasher::new(self.digest.algorithm())).await?;
        }
        Ok(self.received)
    }

    /// Forgets all that was received.
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

    /// The file that is locked, to show on it that its holder lives.
    pub(in crate::oci_layout) fn lock_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(in crate::oci_layout) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Adds a piece: hashed at once, written in batches. A large piece is taken in steps, so that each is still in the
    /// processor's cache when it is written.
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

    /// Writes what was only gathered.
    pub(in crate::oci_layout) fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.batch);
        self.batch.clear();
        written
    }

    /// Whether what was received has the right digest.
    pub(in crate::oci_layout) fn matches(&self) -> bool {
        self.hasher.clone().finish().as_ref() == Some(&self.digest)
    }

    /// Makes the blob visible. To be called when size and digest were found right.
    pub(in crate::oci_layout) fn publish(mut self) -> io::Result<()> {
        self.flush()?;
        self.layout.sync(&self.file, &self.path)?;
        let blobs = self.layout.make_blob_folder(self.digest.algorithm())?;
        rename(&self.folder, &partial_name(&self.digest), &blobs, self.digest.hex())?;
        // Only now: a rename changes the entry.
        if let Ok(entry) = self.file.metadata() {
            self.layout.checked.add(&self.digest, Stamp::of(&entry), true);
        }
        Ok(())
    }

    /// Removes what was received.
    pub(in crate::oci_layout) fn discard(self) {
        let _ = self.folder.remove_file(&partial_name(&self.digest));
    }
}

impl Drop for Partial {
    /// What was gathered is kept for the next pull too.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci_layout::layout::hasher::tests::bytes_read_by_this_thread;

    /// A layer of many GB takes minutes: the thread that runs the pull has to show meanwhile that it lives.
    #[tokio::test]
    async fn what_was_kept_of_a_layer_is_hashed_on_another_thread() {
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

    /// Another process may be hashing the stored blob, and rejects it if its timestamps change meanwhile.
    #[tokio::test]
    async fn waiting_for_a_blob_does_not_touch_it_once_stored() {
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

    /// Another process says of nothing that it has hashed it, and may not be one of ours.
    #[tokio::test]
    async fn what_another_process_put_there_meanwhile_is_hashed() {
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
            // The first is at the lock when the other begins.
            let (locked, ()) = tokio::join!(layout.lock_partial(&digest, 5, |_| {}), other);
            assert_eq!(matches!(locked.unwrap(), PartialLock::Present), is_right);
        }
    }
}
