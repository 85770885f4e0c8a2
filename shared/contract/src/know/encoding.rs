//! The encoding of values: MessagePack with named fields, preceded by a number if the version is not the first.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MAX_STORED_BYTES;
use crate::version::{FIRST, READS};

/// The deepest nesting that is read; our values have three levels.
const MAX_DEPTH: usize = 16;
/// The last version whose number takes one byte in MessagePack.
const LAST_VERSION: u8 = 0x7f;

/// Why a value could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnowError {
    /// It is larger than [`MAX_STORED_BYTES`].
    #[error("a value of {bytes} bytes is over the limit of {MAX_STORED_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Its version is one that this program does not read, or does not write.
    #[error("the value is of version {0}, which this program does not know: upgrade all agents to compatible versions")]
    Version(u32),
    /// It has another form.
    #[error("the value cannot be read or written: {0}")]
    Malformed(String),
}

/// Writes a value in the first version, which every agent reads.
///
/// # Errors
/// [`KnowError`] when it is too large.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, KnowError> {
    encode_as(FIRST, value)
}

/// Writes a value in a version that all agents read; see [`crate::version::to_write`].
///
/// # Errors
/// [`KnowError`] if it is too large.
pub fn encode_as<T: Serialize>(version: u32, value: &T) -> Result<Vec<u8>, KnowError> {
    let mut bytes = match version {
        FIRST => Vec::new(),
        version => vec![u8::try_from(version).ok().filter(|number| *number <= LAST_VERSION).ok_or(KnowError::Version(version))?],
    };
    let mut writer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    value.serialize(&mut writer).map_err(|error| KnowError::Malformed(error.to_string()))?;
    if bytes.len() > MAX_STORED_BYTES { Err(KnowError::TooLarge { bytes: bytes.len() }) } else { Ok(bytes) }
}

/// Reads a value.
///
/// # Errors
/// [`KnowError`] if it is too large, of another version or malformed.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, KnowError> {
    decode_of(READS, bytes)
}

pub(super) fn decode_of<T: DeserializeOwned>(reads: &[u32], bytes: &[u8]) -> Result<T, KnowError> {
    if bytes.len() > MAX_STORED_BYTES {
        return Err(KnowError::TooLarge { bytes: bytes.len() });
    }
    let (version, fields) = version_of(bytes);
    if !reads.contains(&version) {
        return Err(KnowError::Version(version));
    }
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(fields);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).map_err(|error| KnowError::Malformed(error.to_string()))
}

/// The version of a value if this program cannot read it; else none.
#[must_use]
pub fn other_version(bytes: &[u8]) -> Option<u32> {
    Some(version_of(bytes).0).filter(|version| !READS.contains(version))
}

/// The version of a value, and the bytes of its fields.
fn version_of(bytes: &[u8]) -> (u32, &[u8]) {
    // In the first version the fields are a map, short or long.
    match bytes {
        [number @ 1..=LAST_VERSION, 0x80..=0x8f | 0xde..=0xdf, ..] => (u32::from(*number), &bytes[1..]),
        fields => (FIRST, fields),
    }
}
