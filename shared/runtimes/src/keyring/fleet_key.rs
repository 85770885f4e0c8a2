//! The fleet's key for hashes of logins: nodes with the key see that two logins are equal, and nobody without it can guess a login.

use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use clock::Random;
use ring::hmac;

/// Bytes of a key: the length of the hash.
pub const FLEET_KEY_BYTES: usize = 32;
/// How many bytes of a keyed hash are used; enough to avoid collisions.
const HASH_BYTES: usize = 16;

/// The key of this process, used while there is no fleet's key.
static PROCESS_KEY: LazyLock<hmac::Key> = LazyLock::new(|| {
    let mut random = Random::from_system();
    let bytes: Vec<u8> = (0..FLEET_KEY_BYTES / 8).flat_map(|_| random.word().to_be_bytes()).collect();
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
});

/// A handle to the fleet's key. Clones share it; it may be filled later. Its content is never printed.
#[derive(Clone, Default)]
pub struct FleetKey(Arc<RwLock<Option<hmac::Key>>>);

impl FleetKey {
    /// An empty handle.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key for all clones.
    pub fn fill(&self, key: &[u8; FLEET_KEY_BYTES]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(hmac::Key::new(hmac::HMAC_SHA256, key));
    }

    /// Whether there is a key.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A hasher with the key; none before the key was filled.
    pub(super) fn hasher(&self) -> Option<KeyedHash> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().map(KeyedHash)
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_filled() { "FleetKey(filled)" } else { "FleetKey(empty)" })
    }
}

/// Hashes with a key.
pub(super) struct KeyedHash(hmac::Key);

impl KeyedHash {
    /// A hasher with a key that only this process has.
    pub(super) fn of_process() -> Self {
        Self(PROCESS_KEY.clone())
    }

    /// HMAC-SHA-256 of the parts, each with its length so that their boundaries count; the first `HASH_BYTES` in hexadecimal.
    pub(super) fn hash<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        context.sign().as_ref().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_filled_later_is_shared_by_all_clones_and_never_printed() {
        let key = FleetKey::new();
        let given_away = key.clone();
        assert!(given_away.hasher().is_none());
        assert_eq!(format!("{given_away:?}"), "FleetKey(empty)");
        key.fill(&[65; FLEET_KEY_BYTES]);
        assert!(given_away.is_filled());
        assert_eq!(format!("{given_away:?}"), "FleetKey(filled)");
    }

    #[test]
    fn hashes_equal_the_standards_and_depend_on_part_boundaries() {
        let key = FleetKey::new();
        key.fill(&[0x0b; FLEET_KEY_BYTES]);
        let hash = key.hasher().expect("it is filled");
        assert_eq!(hash.hash(["a", "bc"]).len(), 2 * HASH_BYTES);
        assert_ne!(hash.hash(["a", "bc"]), hash.hash(["ab", "c"]));
        assert_ne!(hash.hash(["a", "bc"]), KeyedHash::of_process().hash(["a", "bc"]));
        assert_eq!(hash.hash(["a", "bc"]), key.hasher().expect("it is filled").hash(["a", "bc"]));
    }
}
