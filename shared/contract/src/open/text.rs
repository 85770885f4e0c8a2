//! Enums that are written as one word.

use std::fmt;

/// A word of a newer version: printable ASCII, at most [`UnknownText::MAX_BYTES`]; longer text is cut, other characters become `?`.
///
/// It has a fixed size, so that the enums that hold it stay `Copy` and no message can make them large.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnknownText {
    bytes: [u8; Self::MAX_BYTES],
    length: u8,
}

impl UnknownText {
    /// The longest reason that kubelet has is 26 bytes (`SignatureValidationFailed` and the like); half as much again fits.
    pub const MAX_BYTES: usize = 39;

    /// Keeps the printable part of `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; Self::MAX_BYTES];
        let mut length = 0;
        for (place, character) in bytes.iter_mut().zip(text.chars()) {
            *place = if character.is_ascii_graphic() { character as u8 } else { b'?' };
            length += 1;
        }
        Self { bytes, length }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // All of it is ASCII by construction.
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for UnknownText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

/// Implements `Serialize`, `Deserialize` and `Display` for an enum with `ALL`, `as_str` and a variant `Unknown(UnknownText)`: it is written
/// as its word, and a word that is not in `ALL` is read as `Unknown`.
macro_rules! open_text {
    ($name:ident) => {
        impl $name {
            /// Reads a word; an unknown one becomes `Unknown`.
            #[must_use]
            pub fn from_text(text: &str) -> Self {
                Self::ALL
                    .into_iter()
                    .find(|known| known.as_str() == text)
                    .unwrap_or_else(|| Self::Unknown($crate::open::UnknownText::new(text)))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;
                impl serde::de::Visitor<'_> for Word {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str(concat!("the word of a ", stringify!($name)))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        Ok($name::from_text(text))
                    }
                }
                deserializer.deserialize_str(Word)
            }
        }
    };
}
pub(crate) use open_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_newer_version_is_kept_as_far_as_it_can_be_shown() {
        for (given, kept) in [("", ""), ("PullDeferred", "PullDeferred"), ("a b\u{1b}[31m\u{e9}", "a?b?[31m?")] {
            assert_eq!(UnknownText::new(given).as_str(), kept, "{given:?}");
        }
        assert_eq!(UnknownText::new(&"x".repeat(1_000)).as_str(), "x".repeat(UnknownText::MAX_BYTES));
    }
}
