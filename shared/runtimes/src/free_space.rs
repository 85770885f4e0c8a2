//! How much room a file system has.

use std::path::Path;

/// Bytes that this process may still write below `path`, as the file system counts them now.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    match rustix::fs::statvfs(path) {
        Ok(system) => Some(system.f_bavail.saturating_mul(system.f_frsize)),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the free space cannot be told");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_no_room_that_could_be_told() {
        assert_eq!(free_bytes(Path::new("/nonexistent")), None);
        assert!(free_bytes(Path::new("/")).is_some());
    }
}
