//! Checks that no credential can be logged or sent by mistake: a type with a credential writes its own `Debug` and is not serialised.

use super::Violation;
use super::workspace::{Source, Workspace};

/// Names of fields that are secret if they contain text or bytes.
const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "bearer",
    "access_token",
    "identity_token",
    "refresh_token",
    "registry_token",
    "authorization",
    "private_key",
    "seed",
    "jwt",
];
/// Names of tuple structs that are secrets themselves.
const SECRET_TYPES: [&str; 3] = ["Password", "Secret", "Seed"];
/// Types that show their content.
const OPEN_TYPES: [&str; 6] = ["String", "str", "u8", "Bytes", "Value", "OsString"];
/// Traits that show the content of a type.
const SHOWING: [&str; 2] = ["Debug", "Serialize"];

/// The memory registry, whose logins are for tests only.
const MADE_UP: &str = "shared/memory-registry";

/// Checks that no type with a secret derives `Debug` or `Serialize`.
pub(super) fn hidden(workspace: &Workspace) -> Vec<Violation> {
    workspace.sources.iter().filter(|source| source.folder() != MADE_UP).flat_map(in_source).collect()
}

fn in_source(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let text = source.without_comments();
    for (at, _) in text.match_indices("#[derive(") {
        let item = &text[at..];
        let Some(derived) = derived(item) else { continue };
        if let Some(secret) = secret_of(item) {
            let line = 1 + text[..at].matches('\n').count();
            found.push(Violation::new(
                format!("{}:{line}", source.path),
                format!("derives {derived} but holds {secret}: write {derived} by hand, without it"),
            ));
        }
    }
    found
}

/// The first derived trait that shows content.
fn derived(item: &str) -> Option<&'static str> {
    let list = item.strip_prefix("#[derive(")?.split(')').next()?;
    SHOWING.into_iter().find(|name| list.split(',').any(|word| word.trim().rsplit("::").next() == Some(name)))
}

/// The secret in the struct or enum after the derive; none if there is none.
fn secret_of(item: &str) -> Option<String> {
    let head_end = item.find(['{', ';'])?;
    let tuple = item[..head_end].split_once("struct ").and_then(|(_, declaration)| declaration.split_once('('));
    if let Some((name, content)) = tuple {
        let is_secret = SECRET_TYPES.iter().any(|secret| name.contains(secret)) && is_open(content);
        return is_secret.then(|| name.to_owned());
    }
    body(&item[head_end..])?.lines().flat_map(|line| line.split(',')).find_map(secret_field)
}

/// The text between the first brace and its closing brace.
fn body(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return text.get(1..at),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The name of the field, if it is a secret that its type shows.
fn secret_field(field: &str) -> Option<String> {
    let (name, kind) = field.split_once(": ")?;
    let name = name.rsplit([' ', '{']).next().unwrap_or(name);
    (SECRETS.iter().any(|secret| name.contains(secret)) && is_open(kind)).then(|| name.to_owned())
}

/// Whether a type shows its content. The path of a secret is not a secret.
fn is_open(kind: &str) -> bool {
    kind.split(|c: char| !c.is_alphanumeric()).any(|word| OPEN_TYPES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::workspace::made_up::file;
    use super::*;

    #[test]
    fn secrets_that_would_be_shown_are_found() {
        for (text, expected) in [
            ("#[derive(Clone, Debug)]\npub struct Login {\n    pub user: String,\n    pub password: String,\n}", Some("password")),
            ("#[derive(serde::Serialize)]\nstruct Answer { identity_token: Option<String> }", Some("identity_token")),
            ("#[derive(Debug)]\nenum Auth {\n    Basic { user: String, password: Box<str> },\n}", Some("password")),
            ("#[derive(Debug, Clone)]\npub struct Password(String);", Some("Password")),
            ("#[derive(Debug)]\n/// Doc {\nstruct Keys {\n    seed: Vec<u8>,\n}", Some("seed")),
            ("#[derive(Clone, Deserialize)]\nstruct Login {\n    password: String,\n}", None),
            ("#[derive(Debug)]\nstruct Options {\n    secret: Option<PathBuf>,\n    password_given: bool,\n}", None),
            ("#[derive(Debug)]\nstruct Login {\n    password: Hidden,\n}", None),
            ("#[derive(Debug)]\nstruct Random {\n    // password: String,\n    word: String,\n}", None),
        ] {
            let found = hidden(&file("shared/runtimes/src/keyring/x.rs", text));
            assert_eq!(found.len(), usize::from(expected.is_some()), "{text}: {found:?}");
            if let (Some(violation), Some(secret)) = (found.first(), expected) {
                assert!(violation.what.contains(secret), "{violation:?}");
            }
        }
    }
}
