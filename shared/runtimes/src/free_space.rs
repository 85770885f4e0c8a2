//! The free space of a file system.

use std::path::Path;

/// The bytes that this process may still write below `path`.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    match rustix::fs::statvfs(path) {
        Ok(system) => Some(system.f_bavail.saturating_mul(system.f_frsize)),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the free space cannot be determined");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folder_has_no_free_space() {
        assert_eq!(free_bytes(Path::new("/nonexistent")), None);
        assert!(free_bytes(Path::new("/")).is_some());
    }
}
