//! Ids as they travel: lower-case hex digits in a text.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// The number that up to 32 lower-case hex digits stand for; none if there is anything else.
pub(crate) fn hex(digits: &[u8]) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    digits.iter().try_fold(0, |number: u128, byte| Some(number << 4 | u128::from(digit(*byte)?)))
}

/// The number that exactly 32 lower-case hex digits stand for.
pub(crate) fn of_128(text: &str) -> Option<u128> {
    if text.len() == 32 { hex(text.as_bytes()) } else { None }
}

/// Reads a text without keeping it.
pub(crate) fn read<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<F>(&'static str, F);

    impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            let Self(expected, parse) = self;
            parse(text).ok_or_else(|| E::custom(format_args!("not {expected}")))
        }
    }

    deserializer.deserialize_str(Text(expected, parse))
}
