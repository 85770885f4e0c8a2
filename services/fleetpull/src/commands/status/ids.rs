//! The ids of rows: the beginning of a stable hash, long enough to be unique among the rows.

use sha2::{Digest as _, Sha256};

/// The shortest id, in hex digits.
const LEAST: usize = 4;
/// The whole hash, in hex digits.
const WHOLE: usize = 32;

/// True if a text can be the id of a row.
pub(in crate::commands) fn is_id(text: &str) -> bool {
    (LEAST..=WHOLE).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hash for a row without a key.
pub(super) fn hash(kind: &str, name: &str) -> String {
    let hash = Sha256::digest(format!("{kind}\n{name}"));
    hash.iter().take(WHOLE / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The shortest unique beginning of each of `keys`.
pub(super) fn shortest(keys: &[&str]) -> Vec<String> {
    let mut sorted: Vec<&str> = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let common = |one: &str, other: &str| one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let length = |key: &str| {
        let Ok(place) = sorted.binary_search(&key) else { return LEAST };
        let before = place.checked_sub(1).and_then(|place| sorted.get(place)).map_or(0, |other| common(key, other));
        let after = sorted.get(place + 1).map_or(0, |other| common(key, other));
        LEAST.max(before.max(after) + 1)
    };
    keys.iter().map(|key| key.chars().take(length(key)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_shortest_unique_prefix() {
        assert_eq!(shortest(&["7f3a0000", "7f3b0000", "91c0"]), ["7f3a", "7f3b", "91c0"]);
        assert_eq!(shortest(&["91c0", "7f3a1200", "7f3a1300"]), ["91c0", "7f3a12", "7f3a13"]);
        assert_eq!(shortest(&["ab", "ab"]), ["ab", "ab"], "the same twice is the same");
        assert_eq!(shortest(&[]), [""; 0]);
    }

    #[test]
    fn id_never_changes_and_differs_from_most_image_names() {
        assert_eq!(hash("budget", "hub"), hash("budget", "hub"));
        assert_ne!(hash("budget", "hub"), hash("image", "hub"));
        assert_eq!((hash("budget", "hub").len(), is_id(&hash("budget", "hub"))), (WHOLE, true));
        for (text, expected) in [("7f3a", true), ("7f3", false), ("7F3A", false), ("busybox", false), ("7f3a:1", false), ("", false)] {
            assert_eq!(is_id(text), expected, "{text}");
        }
    }
}
