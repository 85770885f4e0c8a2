//! Quotes text as Go's `%q` does.

use std::fmt::Write as _;

use super::printable::EDGES;

/// Go's `%q` of a string (`strconv.Quote`): one line in double quotes, in which characters that Go counts as not printable are escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        push_escaped(&mut quoted, character);
    }
    quoted.push('"');
    quoted
}

/// Whether Go prints the character unescaped (`strconv.IsPrint`, Unicode 15.0.0): letters, marks, numbers, punctuation, symbols and the
/// ASCII space.
pub(super) fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{a0}' => false,
        _ => EDGES.partition_point(|edge| *edge <= u32::from(character)) % 2 == 1,
    }
}

fn push_escaped(quoted: &mut String, character: char) {
    let escape = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        _ if is_printable(character) => return quoted.push(character),
        _ => return push_code(quoted, u32::from(character)),
    };
    quoted.push_str(escape);
}

fn push_code(quoted: &mut String, code: u32) {
    // Writing to a String cannot fail.
    let _ = match code {
        ..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
        ..0x1_0000 => write!(quoted, "\\u{code:04x}"),
        _ => write!(quoted, "\\U{code:08x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_in_go() {
        let cases = [
            ("", r#""""#),
            ("busybox", r#""busybox""#),
            ("say \"hi\" \\", r#""say \"hi\" \\""#),
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("\u{80}\u{a0}\u{ad}\u{2028}", r#""\u0080\u00a0\u00ad\u2028""#),
            ("\u{10ffff}", r#""\U0010ffff""#),
            ("100% é 日本 🦀", r#""100% é 日本 🦀""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quote(text), expected);
        }
    }
}
