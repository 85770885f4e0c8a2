//! File locks between processes, waited for without holding a thread, and not for ever.
//!
//! The holder of a lock shows that it lives by touching the file. A holder that was stopped or hangs does not, and is named
//! after a while instead of being waited for.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};

/// How often a lock that another process holds is tried again. The system has no way to wait that can be given up.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How often a holder shows that it lives.
const TOUCH_EVERY: Duration = Duration::from_secs(10);
/// A holder that has shown nothing for so long does not live: six times in which it could have.
const STILL_MAX: Duration = Duration::from_secs(60);

/// What a holder changes while it lives: size and time of the last change.
type Sign = Option<(u64, i64, i64)>;

/// Waits until the file is locked. `waiting` is called with its size each time that it is not yet. The new holder calls [`touch`] as soon
/// as it knows that the file still has its name.
///
/// # Errors
/// The lock cannot be had, or its holder shows no sign of life.
pub(super) async fn lock(file: &File, path: &Path, mut waiting: impl FnMut(u64)) -> io::Result<()> {
    let (mut last, mut still) = (sign(file), Duration::ZERO);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let now = sign(file);
        waiting(now.map_or(0, |(size, ..)| size));
        if now != last {
            (last, still) = (now, Duration::ZERO);
        } else if still >= STILL_MAX {
            return Err(held(file, path));
        }
        tokio::time::sleep(TRY_EVERY).await;
        still += TRY_EVERY;
    }
}

/// Does the work of who holds the lock of `file`, and shows meanwhile that it lives.
pub(in crate::oci_layout) async fn holding<T>(file: &File, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(TOUCH_EVERY) => touch(file),
        }
    }
}

/// Shows that the holder of the lock lives. If the time cannot be set, the work goes on all the same.
pub(super) fn touch(file: &File) {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let _ = futimens(file, &Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) });
}

fn sign(file: &File) -> Sign {
    file.metadata().ok().map(|entry| (entry.len(), entry.mtime(), entry.mtime_nsec()))
}

fn held(file: &File, path: &Path) -> io::Error {
    let who = holder(file).map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
    let text = format!("{who} holds {} and has shown no sign of life for {} s", path.display(), STILL_MAX.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The process that holds a lock on the file, if the system tells.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`
    let process_of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let kind = fields.next()?;
        let process = fields.nth(2)?;
        let place = fields.next()?;
        (kind == "FLOCK" && place.rsplit(':').next() == Some(&inode)).then(|| process.parse().ok()).flatten()
    };
    locks.lines().find_map(process_of).filter(|process| *process > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use image::Algorithm;

    use super::*;
    use crate::oci_layout::layout::hasher::tests::SlowSource;
    use crate::oci_layout::layout::hasher::{Hasher, hash_blocking};

    fn two_holders(folder: &Path) -> (File, File) {
        let open = || File::options().write(true).create(true).truncate(false).open(folder.join("lock")).unwrap();
        (open(), open())
    }

    /// On a paused clock the minute is over at once.
    #[tokio::test(start_paused = true)]
    async fn a_holder_without_a_sign_of_life_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = two_holders(folder.path());
        one.try_lock().unwrap();
        let path = folder.path().join("lock");
        let error = lock(&two, &path, |_| {}).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("for 60 s"), "{text}");
        assert!(text.contains(&format!("process {} ", std::process::id())), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_lives_is_waited_for_as_long_as_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = two_holders(folder.path());
        one.try_lock().unwrap();
        let work = async {
            tokio::time::sleep(STILL_MAX * 20).await;
            one.unlock().unwrap();
        };
        let waiting = async {
            lock(&two, &folder.path().join("lock"), |_| {}).await.unwrap();
        };
        tokio::join!(holding(&one, work), waiting);
    }

    /// A process that hashes what it has of a large layer adds nothing to the file for minutes.
    #[tokio::test(start_paused = true)]
    async fn a_holder_that_hashes_for_minutes_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = two_holders(folder.path());
        one.try_lock().unwrap();
        let (send, source) = mpsc::channel();
        let hashing = async {
            holding(&one, hash_blocking(SlowSource(source), Hasher::new(Algorithm::Sha256))).await.unwrap();
            one.unlock().unwrap();
        };
        let path = folder.path().join("lock");
        let waiting = async { lock(&two, &path, |_| {}).await.unwrap() };
        // The clock does not run by itself while a thread is at work.
        let clock = async {
            for _ in 0..(STILL_MAX * 5).as_millis() / TRY_EVERY.as_millis() {
                tokio::time::advance(TRY_EVERY).await;
            }
            drop(send);
        };
        tokio::join!(hashing, waiting, clock);
    }
}
