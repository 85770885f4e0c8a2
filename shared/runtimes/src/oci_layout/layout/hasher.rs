//! Computes digests.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use image::{Algorithm, Digest};
use sha2::{Sha256, Sha384, Sha512};

/// The bytes that are read or written at a time. Larger batches are no faster and need more memory for each connection.
pub(super) const BATCH_BYTES: usize = 256 * 1024;

/// A digest being computed.
#[derive(Clone)]
pub(in crate::oci_layout) enum Hasher {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    pub(in crate::oci_layout) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::default()),
            Algorithm::Sha384 => Self::Sha384(Sha384::default()),
            Algorithm::Sha512 => Self::Sha512(Sha512::default()),
        }
    }

    pub(in crate::oci_layout) fn update(&mut self, piece: &[u8]) {
        use sha2::Digest as _;
        match self {
            Self::Sha256(hasher) => hasher.update(piece),
            Self::Sha384(hasher) => hasher.update(piece),
            Self::Sha512(hasher) => hasher.update(piece),
        }
    }

    pub(super) fn finish(self) -> Option<Digest> {
        use sha2::Digest as _;
        match self {
            Self::Sha256(hasher) => Digest::from_hash(Algorithm::Sha256, &hasher.finalize()).ok(),
            Self::Sha384(hasher) => Digest::from_hash(Algorithm::Sha384, &hasher.finalize()).ok(),
            Self::Sha512(hasher) => Digest::from_hash(Algorithm::Sha512, &hasher.finalize()).ok(),
        }
    }

    /// Whether `content` has this digest.
    pub(in crate::oci_layout) fn verifies(content: &[u8], digest: &Digest) -> bool {
        let mut hasher = Self::new(digest.algorithm());
        hasher.update(content);
        hasher.finish().as_ref() == Some(digest)
    }

    /// The SHA-256 of `content`.
    pub(in crate::oci_layout) fn sha256(content: &[u8]) -> Digest {
        use sha2::Digest as _;
        Digest::from_sha256(Sha256::digest(content).into())
    }
}

/// Hashes a source to its end. Returns its number of bytes.
///
/// # Errors
/// The source cannot be read, or `stop` was set.
pub(super) fn hash_to_end(mut source: impl Read, hasher: &mut Hasher, stop: &AtomicBool) -> io::Result<u64> {
    let mut batch = vec![0; BATCH_BYTES];
    let mut total = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for the digest any more"));
        }
        match source.read(&mut batch)? {
            0 => return Ok(total),
            read => {
                hasher.update(&batch[..read]);
                total += read as u64;
            }
        }
    }
}

/// As [`hash_to_end`], on a thread that may block. Dropping the future stops it after the current batch.
///
/// # Errors
/// The source cannot be read.
pub(super) async fn hash_blocking(source: impl Read + Send + 'static, mut hasher: Hasher) -> io::Result<(Hasher, u64)> {
    let guard = StopOnDrop::default();
    let stop = Arc::clone(&guard.0);
    tasks::blocking("hash", move || hash_to_end(source, &mut hasher, &stop).map(|total| (hasher, total))).await
}

#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
pub(super) mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The bytes that this thread has read from files so far.
    pub(in crate::oci_layout) fn bytes_read_by_this_thread() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        line.parse().unwrap()
    }

    /// A source whose bytes are sent by the test; it ends when the sender is dropped.
    pub(in crate::oci_layout) struct SlowSource(pub(in crate::oci_layout) mpsc::Receiver<Vec<u8>>);

    impl Read for SlowSource {
        fn read(&mut self, batch: &mut [u8]) -> io::Result<usize> {
            match self.0.recv_timeout(Duration::from_secs(20)) {
                Ok(bytes) => {
                    batch[..bytes.len()].copy_from_slice(&bytes);
                    Ok(bytes.len())
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => Ok(0),
                Err(mpsc::RecvTimeoutError::Timeout) => Err(io::Error::other("the thread of the test was held up")),
            }
        }
    }

    #[tokio::test]
    async fn source_is_hashed_to_its_end() {
        let (send, receive) = mpsc::channel();
        send.send(b"one".to_vec()).unwrap();
        send.send(b"two".to_vec()).unwrap();
        drop(send);
        let (hasher, total) = hash_blocking(SlowSource(receive), Hasher::new(Algorithm::Sha256)).await.unwrap();
        assert_eq!((total, hasher.finish()), (6, Some(Hasher::sha256(b"onetwo"))));
    }

    #[tokio::test]
    async fn hashing_stops_when_its_future_is_dropped() {
        let (send, receive) = mpsc::channel();
        let hashing = tokio::spawn(hash_blocking(SlowSource(receive), Hasher::new(Algorithm::Sha256)));
        tokio::task::yield_now().await;
        hashing.abort();
        assert!(hashing.await.is_err_and(|error| error.is_cancelled()));
        let ends = async {
            while send.send(b"more".to_vec()).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ends).await.expect("the source is let go");
    }
}
