//! Secrets in the forms in which they may leak.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use regex::bytes::{Regex, RegexSet};

/// The secrets to search for.
pub(crate) struct Secrets {
    names: Vec<String>,
    patterns: Vec<String>,
    forms: RegexSet,
}

impl Secrets {
    /// Named secrets. A secret is found by its core of at least 12 letters and digits, which no escaping of the rest changes.
    pub(crate) fn of(cores: &[(String, String)]) -> Self {
        let (mut names, mut patterns) = (Vec::new(), Vec::new());
        for (name, core) in cores {
            assert!(core.len() >= 12 && core.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{core} is no core");
            for (form, text) in forms(core) {
                names.push(format!("{name} {form}"));
                patterns.push(regex::escape(&text));
            }
        }
        Self { names, forms: RegexSet::new(&patterns).unwrap(), patterns }
    }

    /// The secrets in these bytes, each with its first place.
    pub(crate) fn places_in(&self, bytes: &[u8]) -> Vec<(&str, Range<usize>)> {
        let place = |form: usize| Regex::new(&self.patterns[form]).unwrap().find(bytes).unwrap().range();
        self.forms.matches(bytes).into_iter().map(|form| (self.names[form].as_str(), place(form))).collect()
    }

    /// The names and forms of the secrets in these bytes.
    pub(crate) fn found_in(&self, bytes: &[u8]) -> Vec<&str> {
        self.forms.matches(bytes).into_iter().map(|form| self.names[form].as_str()).collect()
    }
}

fn forms(core: &str) -> Vec<(String, String)> {
    let hex: String = core.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = core.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut forms = vec![
        ("as it is".to_owned(), core.to_owned()),
        ("in capitals".to_owned(), core.to_uppercase()),
        ("in hex".to_owned(), hex.clone()),
        ("in capital hex".to_owned(), hex.to_uppercase()),
        ("percent-encoded".to_owned(), percent.clone()),
        ("percent-encoded in capitals".to_owned(), percent.to_uppercase()),
    ];
    for (alphabet, kind) in [(&BASE64_STANDARD, "base64"), (&BASE64_URL_SAFE, "base64url")] {
        for before in 0..3 {
            let encoded = alphabet.encode([&b"xxx"[..before], core.as_bytes()].concat());
            let (first, last) = ((8 * before).div_ceil(6), 8 * (before + core.len()) / 6);
            forms.push((format!("in {kind} at {before}"), encoded[first..last].to_owned()));
        }
    }
    forms
}

#[test]
fn a_secret_is_found_in_each_form_and_at_each_place() {
    let secrets = Secrets::of(&[("password".to_owned(), "hunter2horse".to_owned())]);
    for before in ["", "a", "ab", "abc", "user:"] {
        for encoded in [
            BASE64_STANDARD.encode(format!("{before}hunter2horse!~?>/")),
            BASE64_URL_SAFE.encode(format!("{before}hunter2horse")),
            format!("{before}hunter2horse"),
            format!("{before}68756e7465723268 6f727365").replace(' ', ""),
            format!("{before}%68%75%6e%74%65%72%32%68%6f%72%73%65"),
        ] {
            assert!(!secrets.found_in(encoded.as_bytes()).is_empty(), "{encoded}");
        }
    }
    assert_eq!(secrets.found_in(b"hunter2hors aHVudGVy"), Vec::<&str>::new());
}
