//! Lower case as Go's `strings.ToLower` has it.

use super::quote::is_printable;

/// Whether Go's `strings.ToLower` changes the text.
pub(crate) fn lower_case_changes(text: &str) -> bool {
    if text.is_ascii() {
        return text.bytes().any(|byte| byte.is_ascii_uppercase());
    }
    text.chars().any(has_lower_case)
}

/// Go's `strings.ToLower`, as far as its outcome is ASCII; other characters stay as they are.
pub(crate) fn lower_case(text: &str) -> String {
    let lower = |character| match character {
        // The two characters beyond ASCII whose lower case is in ASCII.
        '\u{130}' => 'i',
        '\u{212a}' => 'k',
        _ => character.to_ascii_lowercase(),
    };
    text.chars().map(lower).collect()
}

/// Whether the character has another one for its lower case.
///
/// Rust's Unicode is newer than Go's; letters that Go does not know yet are not printable to it either.
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
    fn agrees_with_go_on_every_code_point() {
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
    fn lowers_into_ascii_from_exactly_two_characters_beyond_it() {
        let into_ascii: Vec<char> =
            ('\u{80}'..=char::MAX).filter(|character| lower_case(character.encode_utf8(&mut [0; 4])).is_ascii()).collect();
        assert_eq!(into_ascii, ['\u{130}', '\u{212a}']);
    }
}
