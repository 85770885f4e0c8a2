//! Removes from URLs in texts what must not leave the node.

use std::borrow::Cow;

/// Separates a URL's scheme from its host.
const SCHEME_END: &str = "://";
/// Punctuation that may follow a URL without belonging to it.
const PUNCTUATION: &[char] = &[':', ',', ';', '.', '!', ')', ']', '}'];

/// Removes query, fragment and login from every URL in the text.
#[must_use]
pub fn scrub(text: &str) -> Cow<'_, str> {
    if !text.contains(SCHEME_END) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, url, after)) = split_at_url(rest) {
        kept.push_str(before);
        kept.push_str(address(url));
        if let Some(query) = url.find(['?', '#']) {
            kept.push_str(&url[query..][url[query..].trim_end_matches(PUNCTUATION).len()..]);
        }
        rest = after;
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// `host:port` of the first http or https URL in the text; in runtimes' texts this is the endpoint that failed.
#[must_use]
pub fn endpoint_in(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some((before, url, after)) = split_at_url(rest) {
        let scheme = before.trim_end_matches(SCHEME_END);
        let port = if scheme.ends_with("https") {
            "443"
        } else if scheme.ends_with("http") {
            "80"
        } else {
            rest = after;
            continue;
        };
        let address = address(url);
        let host = address[..address.find('/').unwrap_or(address.len())].trim_end_matches(':');
        return match host.rsplit_once(':') {
            _ if host.is_empty() => None,
            Some((_, port)) if !port.ends_with(']') => Some(host.to_owned()),
            _ => Some(format!("{host}:{port}")),
        };
    }
    None
}

/// The text before the first URL's host, the URL from its host on, and the rest.
pub(super) fn split_at_url(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find(SCHEME_END)? + SCHEME_END.len();
    let ends = |letter: char| letter.is_whitespace() || letter.is_control() || "\"'<>`\\".contains(letter);
    let end = text[start..].find(ends).map_or(text.len(), |length| start + length);
    Some((&text[..start], &text[start..end], &text[end..]))
}

/// Host, port and path of a URL that begins with its login or host.
fn address(url: &str) -> &str {
    let url = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let authority = url.find('/').unwrap_or(url.len());
    let host = url[..authority].rfind('@').map_or(0, |at| at + 1);
    &url[host..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_query_fragment_and_login_alone() {
        for (text, expected) in [
            ("no URL, 100% \"odd\"\n?a=b#c", "no URL, 100% \"odd\"\n?a=b#c"),
            (r#"Get "https://a.b/token?scope=x&y=z": EOF"#, r#"Get "https://a.b/token": EOF"#),
            ("to https://a.b/token?scope=x%3Ay&service=s: 401 Unauthorized", "to https://a.b/token: 401 Unauthorized"),
            ("(see https://a.b/c?d=e). And http://f/g", "(see https://a.b/c). And http://f/g"),
            (r#"Get "http://user:word@a.b:5000/v2/": EOF"#, r#"Get "http://a.b:5000/v2/": EOF"#),
            ("docker://a.b/c@sha256:d and x://y@z?", "docker://a.b/c@sha256:d and x://z"),
            (r"Get \?x \\https://a.b/?c=d\\ e", r"Get \?x \\https://a.b/\\ e"),
            ("https://a.b?X-Amz-Signature=1#frag", "https://a.b"),
            ("ends with ://", "ends with ://"),
            ("é://ü?ö ä", "é://ü ä"),
        ] {
            assert_eq!(scrub(text), expected);
            assert_eq!(scrub(expected), expected, "scrubbing twice changes nothing more");
        }
    }

    #[test]
    fn endpoint_is_the_host_of_the_first_http_url() {
        for (text, endpoint) in [
            (r#"failed to do request: Head "http://localhost:5000/v2/x": dial tcp 127.0.0.1:5000"#, Some("localhost:5000")),
            (r#"source docker://a.b/c: Get "https://registry.example/v2/?x": EOF"#, Some("registry.example:443")),
            ("from http://[::1]:", Some("[::1]:80")),
            ("to https://[::1]:5000/x?y", Some("[::1]:5000")),
            ("dial unix /run/x.sock", None),
            ("unix:///run/x.sock", None),
            ("", None),
        ] {
            assert_eq!(endpoint_in(text).as_deref(), endpoint, "{text}");
        }
    }
}
