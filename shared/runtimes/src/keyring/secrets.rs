//! Removes secrets that a registry got from the registry's texts, because those texts get into logs, events, traces and other nodes'
//! answers.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};

use super::credential::Credential;

/// Replaces a secret.
const REDACTED: &str = "(secret)";
/// A shorter secret is not removed: it occurs in any text, and its removal would reveal it.
const LENGTH_MIN: usize = 4;
/// The shortest part of letters and digits that is removed by itself; `LONG_PART_MIN` if it has letters alone.
const PART_MIN: usize = 8;
const LONG_PART_MIN: usize = 16;
/// The shortest secret that is recognisable within longer base64.
const WITHIN_BASE64_MIN: usize = 8;

/// Secrets in all forms that a text may have them in. Neither printed nor serialised.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// The secrets of these logins.
    pub(crate) fn of<'a>(logins: impl IntoIterator<Item = &'a Credential>) -> Self {
        let mut secrets = Self::default();
        for login in logins {
            if !login.password.is_empty() {
                // As a whole, so that no remaining part shows the beginning of the password.
                secrets.0.extend(in_base64(&format!("{}:{}", login.username, login.password)));
            }
            for secret in [&login.password, &login.identity_token, &login.registry_token] {
                secrets.add(secret);
            }
        }
        secrets
    }

    /// Adds a secret: a token, or the value of a header.
    pub(crate) fn add(&mut self, secret: &str) {
        if secret.len() < LENGTH_MIN {
            return;
        }
        let hex = secret.bytes().fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let escaped = serde_json::to_string(secret).unwrap_or_default();
        let percent: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        self.0.extend([
            secret.to_owned(),
            hex.to_uppercase(),
            hex,
            escaped.trim_matches('"').to_owned(),
            percent.replace('+', "%20"),
            percent,
        ]);
        self.0.extend(in_base64(secret));
        // Parts of letters and digits stay the same however the rest is escaped.
        for part in secret.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| is_recognisable(part)) {
            self.0.push(part.to_owned());
            self.0.extend(in_base64(part));
        }
        // Longer forms come first, because they may contain shorter ones.
        self.0.retain(|form| form.len() >= LENGTH_MIN);
        self.0.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.0.dedup();
    }

    /// The text with every secret replaced.
    pub(crate) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for form in &self.0 {
            if text.contains(form.as_str()) {
                text = Cow::Owned(text.replace(form.as_str(), REDACTED));
            }
        }
        text
    }
}

/// Whether a part of a secret is not an ordinary word.
fn is_recognisable(part: &str) -> bool {
    part.len() >= LONG_PART_MIN || part.len() >= PART_MIN && part.bytes().any(|byte| byte.is_ascii_digit())
}

/// The secret in base64, alone and at every offset within a longer text, in both alphabets.
fn in_base64(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for alphabet in [&BASE64_STANDARD, &BASE64_URL_SAFE] {
        forms.push(alphabet.encode(secret));
        if secret.len() < WITHIN_BASE64_MIN {
            continue;
        }
        for before in 0..3 {
            let encoded = alphabet.encode([&b"xxx"[..before], secret.as_bytes()].concat());
            let (first, last) = ((8 * before).div_ceil(6), 8 * (before + secret.len()) / 6);
            forms.push(encoded[first..last].to_owned());
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> Credential {
        let (username, password) = ("puller".to_owned(), "hunter2\"/+ horse".to_owned());
        Credential { username, password, identity_token: "refresh-me-0".to_owned(), ..Credential::default() }
    }

    #[test]
    fn secret_is_removed_in_each_of_its_forms() {
        let secrets = Secrets::of([&login()]);
        for text in [
            "hunter2\"/+ horse".to_owned(),
            "hunter2\\\"/+ horse".to_owned(),
            "hunter2%22%2F%2B+horse".to_owned(),
            "hunter2%22%2F%2B%20horse".to_owned(),
            "68756e74657232222f2b20686f727365".to_owned(),
            "68756E74657232222F2B20686F727365".to_owned(),
            BASE64_STANDARD.encode("puller:hunter2\"/+ horse"),
            BASE64_STANDARD.encode("hunter2\"/+ horse"),
            "refresh-me-0".to_owned(),
        ] {
            assert_eq!(secrets.redact(&format!("a {text} b")), "a (secret) b", "{text}");
        }
        for before in ["", "a", "ab", "abc"] {
            let text = BASE64_URL_SAFE.encode(format!("{before}hunter2\"/+ horse&more"));
            assert!(secrets.redact(&text).contains("(secret)"), "{before}: {text}");
        }
    }

    #[test]
    fn recognisable_part_is_removed_in_any_escaping() {
        let secrets = Secrets::of(&[Credential { password: "pa55word4711\"/& registry.example".to_owned(), ..Credential::default() }]);
        let text = "pa55word4711\\\\\"/&amp; registry.example";
        assert_eq!(secrets.redact(text), "(secret)\\\\\"/&amp; registry.example", "an ordinary word stays");
    }

    #[test]
    fn text_without_a_secret_is_unchanged() {
        let secrets = Secrets::of([&login()]);
        for text in ["", "denied: puller may not pull", "404 Not Found"] {
            assert!(matches!(secrets.redact(text), Cow::Borrowed(same) if same == text));
        }
        let short = Secrets::of([&Credential { password: "a".to_owned(), ..Credential::default() }]);
        assert_eq!(short.redact("a manifest"), "a manifest");
    }
}
