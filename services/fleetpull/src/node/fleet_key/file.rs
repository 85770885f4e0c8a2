//! The fleet's key from a file that operators put on every node.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runtimes::keyring::FLEET_KEY_BYTES;
use sha2::{Digest as _, Sha256};
use tracing::warn;

/// The largest file that is read. A key has a few dozen bytes.
const FILE_MAX_BYTES: u64 = 64 * 1024;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Why a key file was refused.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("the fleet's key cannot be read from {}: check the path in fleet.key_file and who may read it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The key is too short to be a secret.
    #[error(
        "the fleet's key in {} has {bytes} bytes, at least {FLEET_KEY_BYTES} are needed: make one with `head -c 32 /dev/urandom | base64` and put it on every node",
        path.display()
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// The length in bytes without the line end.
        bytes: usize,
    },
    /// The file is too large to be a key.
    #[error("the fleet's key in {} is larger than {FILE_MAX_BYTES} bytes: fleet.key_file names another file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the key. A file that others may read is used, with a warning.
///
/// # Errors
/// The file cannot be read, is too short, or is too large.
pub fn read_key_file(path: &Path) -> Result<[u8; FLEET_KEY_BYTES], KeyFileError> {
    let unreadable = |source| KeyFileError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    let mut content = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > FILE_MAX_BYTES {
        return Err(KeyFileError::TooLarge { path: path.to_owned() });
    }
    // A line end, which editors add, is not part of the key.
    let key = content.trim_ascii_end();
    if key.len() < FLEET_KEY_BYTES {
        return Err(KeyFileError::TooShort { path: path.to_owned(), bytes: key.len() });
    }
    if mode & OTHERS != 0 {
        warn!(file = %path.display(), "others may read the fleet's key, and with it guess at logins: chmod 600");
    }
    Ok(Sha256::digest(key).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<[u8; FLEET_KEY_BYTES], String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, content).expect("a file");
        read_key_file(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn trailing_newline_is_stripped() {
        let key = read(&[b'k'; 32]).expect("long enough");
        assert_eq!(read(&[&[b'k'; 32][..], b"\r\n"].concat()), Ok(key));
        assert_ne!(read(&[b'k'; 33]), Ok(key));
        assert!(read(&[0xff; 64]).is_ok(), "any bytes will do");
    }

    #[test]
    fn invalid_key_file_is_refused_with_advice_and_without_content() {
        let short = read(b"s3cret-but-too-short\n").expect_err("20 bytes");
        assert!(short.contains("has 20 bytes") && short.contains("/dev/urandom") && !short.contains("s3cret"), "{short}");
        assert!(read(&[b'\n'; 100]).expect_err("nothing but lines").contains("has 0 bytes"));
        assert!(read(&vec![b'k'; 70_000]).expect_err("a disk image").contains("larger than"));
        let missing = read_key_file(Path::new("/nonexistent/key")).expect_err("it is not there").to_string();
        assert!(missing.contains("/nonexistent/key") && missing.contains("fleet.key_file"), "{missing}");
        assert!(read_key_file(Path::new("/")).is_err(), "a folder");
    }
}
