//! Lower case as in Go's `strings.ToLower`.

use super::quote::is_printable;

/// Whether Go's `strings.ToLower` changes the text.
pub(crate) fn lower_case_changes(text: &str) -> bool {
    if text.is_ascii() {
        return text.bytes().any(|byte| byte.is_ascii_uppercase());
    }
    text.chars().any(has_lower_case)
}

/// Go's `strings.ToLower` where the result is ASCII; other characters are unchanged.
pub(crate) fn lower_case(text: &str) -> String {
    let lower = |character| match character {
        // The two non-ASCII characters whose lower case is ASCII.
        '\u{130}' => 'i',
        '\u{212a}' => 'k',
        _ => character.to_ascii_lowercase(),
    };
    text.chars().map(lower).collect()
}

/// Whether the character has a different lower case.
///
/// Rust's Unicode is newer than Go's. Letters that Go does not know are not printable for Go either.
fn has_lower_case(character: char) -> bool {
    is_printable(character) && character.to_lowercase().next() != Some(character)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use sha2::{Digest as _, Sha256};

    use super::*;

    const GOLDEN: &str = include_str!("../../tests/golden/code_points.txt");

    #[test]
    fn lower_case_equals_gos_for_every_code_point() {
        let mut changed = String::new();
        for character in '\0'..=char::MAX {
            if lower_case_changes(character.encode_utf8(&mut [0; 4])) {
                writeln!(changed, "{:x}", u32::from(character)).unwrap();
            }
        }
        let line = format!("lowered {:x}", Sha256::digest(&changed));
        assert!(GOLDEN.lines().any(|golden| golden == line), "{line}");
    }

    #[test]
    fn exactly_two_non_ascii_characters_lower_to_ascii() {
        let into_ascii: Vec<char> =
            ('\u{80}'..=char::MAX).filter(|character| lower_case(character.encode_utf8(&mut [0; 4])).is_ascii()).collect();
        assert_eq!(into_ascii, ['\u{130}', '\u{212a}']);
    }
}
