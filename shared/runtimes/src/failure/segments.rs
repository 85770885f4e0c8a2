//! Splits a text into links, and removes names that users and registries chose.
//!
//! Go's programs chain errors with `: ` from the outermost call to the cause. References, paths, URLs, digests and quoted texts are names
//! that users and registries chose: an image may be called `x/404`. They are removed before anything is compared.

/// Replaces a removed name.
const NAME: &str = "…";
/// Replaces a quoted text.
const QUOTED: &str = "\"\"";
/// Replaces a quoted web page. XML is not one: blob hosts send it.
const QUOTED_PAGE: &str = "\"<\"";
/// Go's spellings of the space before a page.
const QUOTED_SPACE: [&str; 5] = [" ", r"\n", r"\r", r"\t", r"\ufeff"];
/// CRI-O's separator (since 1.33) between the failure as an image and the second one as an artifact.
const SECOND_ATTEMPT: &str = "; artifact err: ";
/// Words with a slash that are no names.
const WORDS_WITH_SLASH: [&str; 2] = ["i/o", "input/output"];

/// The links of an error's chain, in lower case, outermost first, without names.
pub(super) fn links(text: &str) -> Vec<String> {
    let unquoted = without_brackets(&without_quotes(text)).replace(SECOND_ATTEMPT, ": ");
    let links = unquoted.lines().flat_map(|line| line.split(": "));
    let plain = |link: &str| without_exit_status(&without_names(link.trim_start_matches(QUOTED))).to_lowercase().replace('_', " ");
    links.map(plain).filter(|link| !link.is_empty()).collect()
}

/// Empties Go's quoted texts; an unclosed quote is left alone.
fn without_quotes(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        let Some(length) = quoted_length(&rest[start + 1..]) else { break };
        kept.push_str(&rest[..start]);
        kept.push_str(if is_page(&rest[start + 1..]) { QUOTED_PAGE } else { QUOTED });
        rest = &rest[start + 1 + length + 1..];
    }
    kept + rest
}

/// Bytes up to the closing quote that belongs to an opening one.
fn quoted_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, letter)| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends.then_some(at)
    })
}

fn is_page(quoted: &str) -> bool {
    let mut start = quoted;
    while let Some(rest) = QUOTED_SPACE.iter().find_map(|space| start.strip_prefix(space)) {
        start = rest;
    }
    start.starts_with('<') && !start.starts_with("<?xml")
}

/// Empties brackets: containerd's `[manifests <tag>]`, and CRI-O's `(Mirrors also failed: [...])` with the mirrors' errors, which comes
/// before the registry's own.
fn without_brackets(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let Some(length) = bracketed_length(after) else { break };
        kept.push_str(before);
        kept.push_str("[]");
        rest = &after[length + 1..];
    }
    kept + rest
}

/// Bytes up to the closing bracket that belongs to an opening one.
fn bracketed_length(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    text.bytes().position(|byte| {
        match byte {
            b'[' => open += 1,
            b']' => open -= 1,
            _ => {}
        }
        open == 0
    })
}

/// Removes ` exit status 1`, which CRI-O appends to the text of its unpacking process.
fn without_exit_status(link: &str) -> &str {
    let ended = link.rsplit_once(" exit status ").filter(|(_, status)| status.bytes().all(|byte| byte.is_ascii_digit()));
    ended.map_or(link, |(text, _)| text)
}

fn without_names(link: &str) -> String {
    let words: Vec<&str> = link.split_whitespace().map(|word| if is_name(word) { NAME } else { word }).collect();
    words.join(" ")
}

fn is_name(word: &str) -> bool {
    if WORDS_WITH_SLASH.contains(&word) || word.starts_with('<') {
        return false;
    }
    word.contains(['/', '@']) || word.starts_with("sha256:") || word.starts_with("sha512:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_removed_from_links() {
        for (text, expected) in [
            (r#"failed to resolve "x/404:1": a.b/404:1: not found"#, &[r#"failed to resolve """#, "…", "not found"][..]),
            ("failed with status code [manifests 404]: 401 Unauthorized", &["failed with status code []", "401 unauthorized"]),
            ("reading manifest 404 in a.b/denied: manifest unknown", &["reading manifest 404 in …", "manifest unknown"]),
            ("unexpected digest sha256:429, expected sha256:404", &["unexpected digest … expected …"]),
            (r#"say "a \" b": c"#, &[r#"say """#, "c"]),
            (r#"an open " quote: c"#, &["an open \" quote", "c"]),
            ("errors:\ndenied: no\nunauthorized: x", &["errors:", "denied", "no", "unauthorized", "x"]),
            ("a: manifest unknown; artifact err: b: eof", &["a", "manifest unknown", "b", "eof"]),
            (
                "(Mirrors also failed: [a.b/404:1: [::1]:443: denied]\n[c: eof]): d: denied",
                &["(mirrors also failed", "[]", "[])", "d", "denied"],
            ),
            ("an open [ bracket: eof", &["an open [ bracket", "eof"]),
            (r#"404, "\n<html>""#, &[r#"404, "<""#]),
            (r#"404, "<?xml?>""#, &[r#"404, """#]),
            ("write /f1: no space left on device exit status 1", &["write …", "no space left on device"]),
            ("exit status x", &["exit status x"]),
            ("read x: i/o timeout: MANIFEST_UNKNOWN", &["read x", "i/o timeout", "manifest unknown"]),
        ] {
            assert_eq!(links(text), expected, "{text}");
        }
    }
}
