//! The grammar of image references, parsed by hand in one pass over each part.
//!
//! `reference = [host [":" port] "/"] path [":" tag] ["@" digest]`, as the distribution project defines it (reference 0.6).
//! No character can belong to two parts: a path has neither `:` nor `@`, a tag has no `@`. So each part is found by its
//! first separator and checked alone, and the time is linear in the length of the text.

/// Longest tag, in bytes.
const TAG_MAX_BYTES: usize = 128;

/// The fewest hex digits after the `:` of a digest in the grammar; the digest's own checks follow.
const DIGEST_MIN_DIGITS: usize = 32;

/// The parts after the host, checked by the grammar alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) path: &'a str,
    pub(crate) tag: Option<&'a str>,
    pub(crate) digest: Option<&'a str>,
}

/// Splits the text after the host; none if it does not match the grammar.
pub(crate) fn split(rest: &str) -> Option<Parts<'_>> {
    let (name, digest) = cut(rest, b'@');
    let (path, tag) = cut(name, b':');
    let fits = is_path(path) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    fits.then_some(Parts { path, tag, digest })
}

/// `host[:port]`: names joined by dots, or an IPv6 address in brackets.
pub(crate) fn is_host(text: &str) -> bool {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = cut(bracketed, b']');
        return !address.is_empty()
            && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && port.is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (name, port) = cut(text, b':');
    name.split('.').all(is_host_label) && port.is_none_or(is_port)
}

/// Words of lower-case letters and digits, joined by `.`, `_`, `__` or any number of `-`.
pub(crate) fn is_path_component(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut word_ended_at = None;
    for (at, byte) in bytes.iter().enumerate() {
        if !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-') {
            return false;
        }
        let in_word = !matches!(byte, b'.' | b'_' | b'-');
        match (in_word, word_ended_at) {
            (false, None) => word_ended_at = Some(at),
            (true, Some(start)) => {
                if !is_separator(&bytes[start..at]) || start == 0 {
                    return false;
                }
                word_ended_at = None;
            }
            _ => {}
        }
    }
    !bytes.is_empty() && word_ended_at.is_none()
}

fn is_separator(bytes: &[u8]) -> bool {
    matches!(bytes, b"." | b"_" | b"__") || bytes.iter().all(|byte| *byte == b'-')
}

fn is_path(text: &str) -> bool {
    text.split('/').all(is_path_component)
}

fn is_host_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && bytes.first().is_some_and(|byte| *byte != b'-')
        && bytes.last().is_some_and(|byte| *byte != b'-')
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_tag(text: &str) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = text.as_bytes();
    bytes.len() <= TAG_MAX_BYTES && bytes.first().is_some_and(word) && bytes.iter().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(text: &str) -> bool {
    let (algorithm, digits) = cut(text, b':');
    algorithm.split(['-', '_', '+', '.']).all(is_algorithm_word)
        && digits.is_some_and(|digits| digits.len() >= DIGEST_MIN_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_algorithm_word(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Splits at the first `separator`, an ASCII character.
fn cut(text: &str, separator: u8) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_components_follow_the_grammar() {
        for good in ["a", "0", "a.b", "a_b", "a__b", "a-b", "a-----b", "a.b_c__d-e"] {
            assert!(is_path_component(good), "{good}");
        }
        for bad in ["", ".", "_", "-", "a.", "a_", "a-", ".a", "_a", "-a", "a..b", "a___b", "a.-b", "a-_b", "a_.b", "A", "é", "a b"] {
            assert!(!is_path_component(bad), "{bad}");
        }
    }

    #[test]
    fn hosts_are_names_or_bracketed_addresses() {
        for good in ["a", "A.b-c.D", "localhost:5000", "1.2.3.4:1", "[::1]", "[2001:db8::1]:5000", "[:]"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "-a", "a-", "a_b", "a:", "a:b", "a:1:2", "[]", "[::1", "[::1]x", "[::1]:", "[g]", "é.com"]
        {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
