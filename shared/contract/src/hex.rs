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

/// All 32 digits of a number. Ids are written several times for each message, by which `format!` shows.
pub(crate) fn text_of(number: u128) -> String {
    let mut text = String::with_capacity(32);
    push_128(&mut text, number);
    text
}

/// Appends the 32 digits of a number.
pub(crate) fn push_128(text: &mut String, number: u128) {
    push(text, (number >> 64) as u64);
    push(text, number as u64);
}

/// Appends the 16 digits of a number.
pub(crate) fn push(text: &mut String, number: u64) {
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
    }
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
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
