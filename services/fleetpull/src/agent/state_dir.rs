//! The directory with an agent's own files, and the lock that keeps other agents out.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use safe_dir::{PRIVATE_MODE, SafeDir};

use crate::node::SOCKET_FILE;

/// The file that the running agent locks. It contains the agent's process id.
const LOCK_FILE: &str = "lock";
/// The standing pulls that the agent resumes after a restart.
const STANDING_PULLS_FILE: &str = "standing-pulls.json";
const LOCK_MODE: u32 = 0o600;
/// Reads at most this much of the lock file. A process id has at most 7 digits.
const LOCK_TEXT_MAX_BYTES: u64 = 32;

/// The state directory, locked. The kernel frees the lock when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Locks the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// Another agent has locked the directory, or it cannot be used.
    pub(super) fn lock(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).with_context(|| format!("the state directory {} has no absolute path", path.display()))?;
        let shown = path.display();
        let advice = "check its permissions, or give another one with --state-dir DIR";
        let dir = SafeDir::make(&path, PRIVATE_MODE);
        let dir = dir.with_context(|| format!("the state directory {shown} cannot be made or used: {advice}"))?;
        let opened = dir.open_to_write(LOCK_FILE, LOCK_MODE);
        let mut lock = opened.with_context(|| format!("the lock in the state directory {shown} cannot be opened: {advice}"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&lock);
                bail!(
                    "the state directory {shown} is in use by another agent ({holder}): stop that one, or start this one with another --node or --state-dir"
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error)
                    .with_context(|| format!("the state directory {shown} cannot be locked: it must lie on a file system with locks"));
            }
        }
        sign(&mut lock).with_context(|| format!("the state directory {shown} cannot be written to: {advice}"))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET_FILE)
    }

    /// The directory itself, in which events wait for the fleet's stream.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn standing_pulls(&self) -> PathBuf {
        self.path.join(STANDING_PULLS_FILE)
    }
}

fn sign(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    writeln!(lock, "{}", std::process::id())
}

/// The process that holds the lock, as it wrote in the file.
fn holder(lock: &File) -> String {
    let mut text = String::new();
    // An unreadable or empty file is reported as an unknown process.
    let _ = lock.take(LOCK_TEXT_MAX_BYTES).read_to_string(&mut text);
    text.trim().parse::<u32>().map_or_else(|_| "its process id is not known".to_owned(), |process| format!("process {process}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn second_agent_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/n1");
        let first = StateDir::lock(&path).expect("nobody has it");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
        let refused = StateDir::lock(&path).expect_err("the first has it").to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())) && refused.contains("--state-dir"), "{refused}");
        drop(first);
        StateDir::lock(&path).expect("it is free again");
    }

    #[test]
    fn symlink_as_lock_file_is_refused_and_its_target_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("state"), folder.path().join("other"));
        std::fs::create_dir(&path).expect("a directory");
        std::fs::write(&other, "precious").expect("a file");
        std::os::unix::fs::symlink(&other, path.join("lock")).expect("a link");
        let refused = format!("{:#}", StateDir::lock(&path).expect_err("a link is in the way"));
        assert!(refused.contains("state/lock is a symbolic link") && refused.contains("--state-dir"), "{refused}");
        assert_eq!(std::fs::read_to_string(&other).expect("it is there"), "precious");
    }

    #[test]
    fn root_refuses_a_state_directory_that_others_may_write() {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        let required = if is_root { Ok(()) } else { Err("a directory of another user needs root".to_owned()) };
        let Some(()) = support::requirement::met(required) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        std::fs::create_dir(&path).expect("a directory");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777)).expect("its mode");
        let refused = format!("{:#}", StateDir::lock(&path).expect_err("others may write"));
        assert!(refused.contains("others may write") && refused.contains("chmod go-w") && refused.contains("--state-dir"), "{refused}");
        std::os::unix::fs::chown(&path, Some(1000), None).expect("another owner");
        let refused = format!("{:#}", StateDir::lock(&path).expect_err("it is another user's"));
        assert!(refused.contains("belongs to user 1000") && refused.contains("chown root"), "{refused}");
        assert!(!path.join("lock").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("a file");
        let refused = StateDir::lock(&folder.path().join("file/state")).expect_err("a file is in the way").to_string();
        assert!(refused.contains("file/state") && refused.contains("--state-dir"), "{refused}");
    }
}
