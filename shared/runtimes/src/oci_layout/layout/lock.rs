//! File locks between processes. Waiting for one occupies no thread, and has a limit.
//!
//! The holder of a lock shows that it is alive by touching the file. If it does not, because it was stopped or hangs, the wait ends with an
//! error that names it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens, major, minor};

/// How often a lock that another process holds is tried again; a blocking wait could not be cancelled.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How often a holder touches the file.
const TOUCH_EVERY: Duration = Duration::from_secs(10);
/// A holder that has not touched the file for this long counts as dead: six times `TOUCH_EVERY`.
const STILL_MAX: Duration = Duration::from_secs(60);

/// The file's size and modification time, which a live holder changes.
type Sign = Option<(u64, i64, i64)>;

/// Waits until the file is locked. `waiting` is called with the file's size after each failure. The new holder calls [`touch`] as soon
/// as it knows that the file still has its name.
///
/// # Errors
/// The lock cannot be taken, or its holder shows no sign of life.
pub(super) async fn lock(file: &File, path: &Path, waiting: impl FnMut(u64)) -> io::Result<()> {
    lock_by(File::try_lock, file, path, waiting).await
}

/// As [`lock`], for a holder that others may join.
///
/// # Errors
/// As [`lock`].
pub(super) async fn lock_shared(file: &File, path: &Path) -> io::Result<()> {
    lock_by(File::try_lock_shared, file, path, |_| {}).await
}

async fn lock_by(attempt: fn(&File) -> Result<(), TryLockError>, file: &File, path: &Path, mut waiting: impl FnMut(u64)) -> io::Result<()> {
    let (mut last, mut still) = (sign(file), Duration::ZERO);
    loop {
        match attempt(file) {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let now = sign(file);
        waiting(now.map_or(0, |(size, ..)| size));
        if now != last {
            (last, still) = (now, Duration::ZERO);
        } else if still >= STILL_MAX {
            return Err(in_use(file, path));
        }
        tokio::time::sleep(TRY_EVERY).await;
        still += TRY_EVERY;
    }
}

/// Runs `work` while holding the lock of `file`, and touches the file meanwhile.
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

/// Shows that the holder of the lock is alive. A failure is ignored.
pub(super) fn touch(file: &File) {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let _ = futimens(file, &Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) });
}

fn sign(file: &File) -> Sign {
    file.metadata().ok().map(|entry| (entry.len(), entry.mtime(), entry.mtime_nsec()))
}

fn in_use(file: &File, path: &Path) -> io::Error {
    let process = holder(file).map_or_else(|| "another process".to_owned(), |process| format!("process {process}"));
    let text = format!("{process} holds {} and has shown no sign of life for {} s", path.display(), STILL_MAX.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The process that holds a lock on the file, if `/proc/locks` shows it. On file systems whose files state another device than the locks
/// do, such as those of btrfs, no process is found.
fn holder(file: &File) -> Option<u32> {
    let entry = file.metadata().ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(entry.dev()), minor(entry.dev()), entry.ino());
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &place)
}

fn holder_in(locks: &str, file: &str) -> Option<u32> {
    // `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`
    let process_of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let kind = fields.next()?;
        let process = fields.nth(2)?;
        let place = fields.next()?;
        (kind == "FLOCK" && place == file).then(|| process.parse().ok()).flatten()
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

    /// On a paused clock the minute passes at once.
    #[tokio::test(start_paused = true)]
    async fn holder_without_a_sign_of_life_is_named() {
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

    #[test]
    fn holder_of_a_file_with_the_same_number_on_another_file_system_is_not_named() {
        let locks = "1: FLOCK  ADVISORY  WRITE 11 08:02:131 0 EOF\n2: POSIX  ADVISORY  WRITE 12 fe:00:131 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:131 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 fe:00:131 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:131"), Some(13));
        assert_eq!(holder_in(locks, "08:01:131"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn live_holder_is_waited_for_without_limit() {
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

    /// A process that hashes the received part of a large layer does not change the file for minutes.
    #[tokio::test(start_paused = true)]
    async fn holder_that_hashes_for_minutes_is_waited_for() {
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
        // The paused clock does not advance by itself while a blocking thread works.
        let clock = async {
            for _ in 0..(STILL_MAX * 5).as_millis() / TRY_EVERY.as_millis() {
                tokio::time::advance(TRY_EVERY).await;
            }
            drop(send);
        };
        tokio::join!(hashing, waiting, clock);
    }
}
