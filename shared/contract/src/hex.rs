//! Ids in text form: lower-case hex digits.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// The value of each byte as a digit; [`NONE`] if it is not a digit.
const DIGITS: [u8; 256] = digits();
/// Not a digit. It has upper bits, which no digit has.
const NONE: u8 = 0xff;

const fn digits() -> [u8; 256] {
    let mut digits = [NONE; 256];
    let mut digit = 0;
    while digit < 16 {
        digits[b"0123456789abcdef"[digit as usize] as usize] = digit;
        digit += 1;
    }
    digits
}

/// Parses up to 32 lower-case hex digits; none if there is any other character.
pub(crate) fn hex(digits: &[u8]) -> Option<u128> {
    let (high, low) = digits.split_at(digits.len().saturating_sub(16));
    Some(u128::from(word(high)?) << 64 | u128::from(word(low)?))
}

/// Parses up to 16 digits. All are read before they are checked, because this is faster and ids are most of what is read.
fn word(digits: &[u8]) -> Option<u64> {
    let (mut number, mut seen) = (0, 0);
    for byte in digits {
        let digit = DIGITS[usize::from(*byte)];
        seen |= digit;
        number = number << 4 | u64::from(digit & 0xf);
    }
    (seen < 16 && digits.len() <= 16).then_some(number)
}

/// All 32 digits of a number. Not `format!`, which is too slow: ids are written several times for each message.
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
    digits[..8].copy_from_slice(&eight((number >> 32) as u32).to_be_bytes());
    digits[8..].copy_from_slice(&eight(number as u32).to_be_bytes());
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
}

/// The eight digits of a number, one in each byte and the first in the highest byte, computed together.
fn eight(number: u32) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut digits = u64::from(number);
    for (apart, kept) in [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f)] {
        digits = (digits | digits << apart) & kept;
    }
    // Adding six sets the fifth bit of letters only.
    let letters = (digits + 6 * EACH) >> 4 & EACH;
    digits + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'0' - 10)
}

/// Parses exactly 32 lower-case hex digits.
pub(crate) fn of_128(text: &str) -> Option<u128> {
    if text.len() == 32 { hex(text.as_bytes()) } else { None }
}

/// Deserialises a text without copying it.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_written_as_format_writes_it_and_read_again(number: u128) {
            let text = text_of(number);
            prop_assert_eq!(&text, &format!("{number:032x}"));
            prop_assert_eq!(of_128(&text), Some(number));
        }

        #[test]
        fn non_hex_digit_is_rejected(number: u128, place in 0_usize..32, other: u8) {
            let mut digits = text_of(number).into_bytes();
            digits[place] = other;
            let is_digit = other.is_ascii_digit() || (b'a'..=b'f').contains(&other);
            prop_assert_eq!(hex(&digits).is_some(), is_digit);
        }
    }

    #[test]
    fn too_many_hex_digits_are_rejected() {
        for (digits, number) in [("", Some(0)), ("0", Some(0)), ("7f", Some(0x7f)), ("10000000000000000", Some(1 << 64)), ("F", None)] {
            assert_eq!(hex(digits.as_bytes()), number, "{digits}");
        }
        assert_eq!(hex(&[b'0'; 33]), None);
    }
}
