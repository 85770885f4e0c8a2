//! Checks that parsing never panics, that a parsed text has one normal form that parses to itself, and that quoting gives one line from
//! which the text can be restored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use image::{Algorithm, Digest, Platform, Reference, go};
use proptest::prelude::*;

/// References made of parts that may be wrong.
fn near_reference() -> impl Strategy<Value = String> {
    let host = prop_oneof![Just(String::new()), "[a-zA-Z0-9._-]{1,12}(:[0-9]{0,5})?/", r"\[[0-9a-f:]{0,8}\](:[0-9]{1,4})?/"];
    let digest = prop_oneof![Just(String::new()), "@sha256:[0-9a-f]{64}", "@[a-z0-9+.]{1,8}:[0-9a-fA-F]{30,66}"];
    (host, "[a-z0-9._/-]{0,20}", "(:[a-zA-Z0-9_.-]{0,12})?", digest)
        .prop_map(|(host, path, tag, digest)| [host, path, tag, digest].concat())
}

fn anything() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => near_reference(),
        1 => any::<Vec<char>>().prop_map(String::from_iter),
        1 => "[ -~]{0,80}",
        1 => prop::collection::vec(prop_oneof![any::<char>(), prop::char::ranges(vec!['-'..=':', '@'..='@', 'a'..='f'].into())], 0..5_000).prop_map(String::from_iter),
    ]
}

/// The parts of the normal form.
fn parts(reference: &Reference) -> (&str, Option<&str>, Option<&Digest>) {
    (reference.repository(), reference.tag(), reference.digest())
}

proptest! {
    #[test]
    fn parsed_reference_has_one_normal_form(text in anything()) {
        let Ok(reference) = Reference::parse(&text) else { return Ok(()) };
        let again = Reference::parse(reference.normalised()).unwrap();
        prop_assert_eq!(again.normalised(), reference.normalised());
        prop_assert_eq!(parts(&again), parts(&reference));
        prop_assert_eq!(again.runtime_reference(), reference.normalised());
    }

    #[test]
    fn reference_for_the_runtime_has_the_same_meaning(text in anything()) {
        let Ok(reference) = Reference::parse(&text) else { return Ok(()) };
        prop_assert_eq!(reference.requested(), &text);
        let given = Reference::parse(reference.runtime_reference()).unwrap();
        prop_assert_eq!(parts(&given), parts(&reference));
        prop_assert!(given.tag().is_some() || given.digest().is_some());
    }

    #[test]
    fn refusal_is_one_line_that_quotes_the_request(text in anything()) {
        if let Err(error) = Reference::parse(&text) {
            let message = error.kubelet_message(&text);
            let prefix = format!("couldn't parse image name {}: ", go::quote(&text));
            prop_assert!(message.starts_with(&prefix));
            prop_assert!(message.len() > prefix.len());
        }
    }

    #[test]
    fn quoted_text_is_one_line_and_can_be_unquoted(text in any::<Vec<char>>().prop_map(String::from_iter)) {
        let quoted = go::quote(&text);
        let one_line = quoted.chars().all(|character| !character.is_control() && !is_line_break(character));
        prop_assert!(one_line, "{}", quoted);
        prop_assert_eq!(unquote(&quoted), text);
    }

    #[test]
    fn digests_of_hashes_parse(hash in any::<[u8; 32]>()) {
        let digest = Digest::from_sha256(hash);
        prop_assert_eq!(Digest::parse(digest.as_str()), Ok(digest.clone()));
        prop_assert_eq!(Digest::from_hash(Algorithm::Sha256, &hash), Ok(digest.clone()));
        let reference = Reference::parse(&format!("x@{digest}")).unwrap();
        prop_assert_eq!(reference.digest(), Some(&digest));
    }

    #[test]
    fn rendered_platform_parses_to_itself_and_matches_itself(text in "[a-zA-Z0-9._/-]{0,16}|(linux|Windows)/(arm64|aarch64|arm|armhf|x86_64|amd64)(/v?[0-9](\\.[0-9])?)?") {
        if let Ok(platform) = Platform::parse(&text) {
            prop_assert_eq!(Platform::parse(&platform.to_string()), Ok(platform.clone()));
            prop_assert!(platform.matches(&platform));
            prop_assert_eq!(platform.best_of([&platform]), Some(0));
        }
    }
}

/// Whether the character is a line break that is no control character.
fn is_line_break(character: char) -> bool {
    matches!(character, '\u{2028}' | '\u{2029}')
}

/// Restores a text from Go's quoted form.
fn unquote(quoted: &str) -> String {
    let mut characters = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap().chars();
    let mut text = String::new();
    while let Some(character) = characters.next() {
        assert_ne!(character, '"', "a bare quote inside {quoted}");
        text.push(if character == '\\' { escaped(&mut characters) } else { character });
    }
    text
}

fn escaped(characters: &mut std::str::Chars<'_>) -> char {
    let digits = match characters.next().unwrap() {
        'a' => return '\x07',
        'b' => return '\x08',
        'f' => return '\x0c',
        'n' => return '\n',
        'r' => return '\r',
        't' => return '\t',
        'v' => return '\x0b',
        'x' => 2,
        'u' => 4,
        'U' => 8,
        same => return same,
    };
    let code: String = characters.by_ref().take(digits).collect();
    char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap()
}
