//! Reads a file of logins as docker, podman and kubelet write it.
//!
//! `{"auths": {"<registry>": {"auth" | "username" + "password" | "identitytoken" | "registrytoken"}},
//!   "credHelpers": {"<registry>": "<helper>"}, "credsStore": "<helper>"}`; other keys are ignored.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Map, Value};

use super::credential::Credential;
use super::matching;

/// The content of a file, by normalised entry.
#[derive(Default)]
pub(super) struct LoginFile {
    /// Logins and helpers of each entry; searched in reverse order.
    pub(super) entries: BTreeMap<String, Vec<Login>>,
    /// The helper for every registry without an entry of its own.
    pub(super) store: Option<String>,
}

/// How to log in.
#[derive(Clone)]
pub(super) enum Login {
    Ready(Box<Credential>),
    Helper {
        name: String,
        /// The entry as written but without a login, if it names one server; docker asks the helper with this text.
        server: Option<String>,
    },
}

impl Login {
    /// The entry of a login; for a helper, the server in the question for `repository`.
    pub(super) fn server<'a>(&'a self, repository: &'a str) -> &'a str {
        match self {
            Self::Ready(credential) => credential.server_address(),
            Self::Helper { server, .. } => server.as_deref().unwrap_or_else(|| matching::server_of(repository)),
        }
    }
}

impl LoginFile {
    /// Parses a file's content. `file` is its path, for the sources.
    ///
    /// # Errors
    /// What is wrong and where, without the content.
    pub(super) fn parse(content: &[u8], file: &str) -> Result<Self, String> {
        let top: Value = serde_json::from_slice(content).map_err(|error| not_json(&error))?;
        let Value::Object(top) = top else { return Err("it is no JSON object".to_owned()) };
        let mut read = Self { entries: BTreeMap::new(), store: text(&top, "credsStore", "")? };
        // Helpers come before logins of the same entry: docker uses only the helper then.
        for (entry, helper) in section(&top, "credHelpers")? {
            let Value::String(name) = helper else { return Err(format!("credHelpers[{:?}] is no text", matching::without_login(entry))) };
            let server = (!entry.contains('*')).then(|| matching::without_login(entry).to_owned());
            read.add(entry, Login::Helper { name: name.clone(), server });
        }
        for (entry, login) in section(&top, "auths")? {
            if let Some(credential) = credential(entry, login, file)? {
                read.add(entry, Login::Ready(Box::new(credential)));
            }
        }
        Ok(read)
    }

    /// The logins for a repository, in the order of use.
    pub(super) fn logins(&self, repository: &str) -> Vec<Login> {
        let matching: Vec<Login> = self
            .entries
            .iter()
            .rev()
            .filter(|(key, _)| matching::matches(key, repository))
            .flat_map(|(_, logins)| logins.iter().cloned())
            .collect();
        if !matching.is_empty() {
            return matching;
        }
        let fallback = matching::is_default_registry(repository).then(|| self.entries.get(matching::DEFAULT_REGISTRY_KEY)).flatten();
        match (fallback, &self.store) {
            (Some(logins), _) => logins.clone(),
            (None, Some(name)) => vec![Login::Helper { name: name.clone(), server: None }],
            (None, None) => Vec::new(),
        }
    }

    fn add(&mut self, entry: &str, login: Login) {
        match matching::normalise(entry) {
            Some(key) => self.entries.entry(key).or_default().push(login),
            None => {
                let entry = matching::without_login(entry);
                tracing::warn!(entry, "an entry of the registry logins is no registry address and is left out");
            }
        }
    }
}

/// An error without serde_json's text, which may quote the file.
fn not_json(error: &serde_json::Error) -> String {
    let what = if error.is_eof() { "the JSON ends too early" } else { "it is no JSON" };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

fn section<'a>(top: &'a Map<String, Value>, name: &str) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, String> {
    match top.get(name) {
        None | Some(Value::Null) => Ok(None.into_iter().flatten()),
        Some(Value::Object(entries)) => Ok(Some(entries).into_iter().flatten()),
        Some(_) => Err(format!("{name} is no JSON object")),
    }
}

/// A text field of an object; an empty one counts as missing.
fn text(object: &Map<String, Value>, name: &str, place: &str) -> Result<Option<String>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("{place}{name} is no text")),
    }
}

/// The login of an entry of `auths`; `None` for an empty one (docker writes those for logins that a helper stores).
fn credential(entry: &str, login: &Value, file: &str) -> Result<Option<Credential>, String> {
    let place = format!("auths[{:?}]", matching::without_login(entry));
    let Value::Object(login) = login else { return Err(format!("{place} is no JSON object")) };
    let place = format!("{place}.");
    let mut credential = Credential {
        username: text(login, "username", &place)?.unwrap_or_default(),
        password: text(login, "password", &place)?.unwrap_or_default(),
        identity_token: text(login, "identitytoken", &place)?.unwrap_or_default(),
        registry_token: text(login, "registrytoken", &place)?.unwrap_or_default(),
        server_address: matching::normalise(entry).unwrap_or_default(),
        ..Credential::default()
    };
    if let Some(auth) = text(login, "auth", &place)? {
        (credential.username, credential.password) =
            user_and_password(&auth).ok_or_else(|| format!("{place}auth is not the base64 of user:password"))?;
    }
    let kind = if !credential.registry_token.is_empty() {
        "registry token"
    } else if !credential.identity_token.is_empty() {
        // The user name of such a token is a placeholder that the registry does not know.
        (credential.username, credential.password) = (String::new(), String::new());
        "identity token"
    } else if !credential.username.is_empty() {
        "login"
    } else {
        return Ok(None);
    };
    credential.source = format!("{kind} for {} in {file}", credential.server_address);
    Ok(Some(credential))
}

fn user_and_password(auth: &str) -> Option<(String, String)> {
    let auth = auth.trim();
    let decoded = if auth.ends_with('=') { STANDARD.decode(auth) } else { STANDARD_NO_PAD.decode(auth) }.ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (user, password) = decoded.split_once(':')?;
    // As docker does: old versions padded passwords with zero bytes.
    Some((user.to_owned(), password.trim_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(content: &str, repository: &str) -> Vec<String> {
        let file = LoginFile::parse(content.as_bytes(), "/a/config.json").unwrap_or_else(|problem| panic!("{problem}"));
        let name = |login: Login| match login {
            Login::Ready(credential) => credential.source.clone(),
            Login::Helper { name, server } => format!("helper {name} {server:?}"),
        };
        file.logins(repository).into_iter().map(name).collect()
    }

    #[test]
    fn all_matching_entries_are_used_and_longer_ones_first() {
        let content = r#"{"auths": {
            "registry.example": {"username": "a", "password": "x"},
            "https://registry.example/team/": {"username": "b", "password": "x"},
            "*.example": {"username": "c", "password": "x"},
            "registry.example/other": {"username": "d", "password": "x"}}}"#;
        let expected = ["registry.example/team/", "registry.example", "*.example"];
        let expected = expected.map(|entry| format!("login for {entry} in /a/config.json"));
        assert_eq!(names(content, "registry.example/team/app"), expected);
    }

    #[test]
    fn default_registry_falls_back_to_its_old_name() {
        let content = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "ZGVwbG95OmEKOmI="}}, "credsStore": "x"}"#;
        assert_eq!(names(content, "docker.io/library/busybox"), ["login for index.docker.io in /a/config.json"]);
        assert_eq!(names(content, "quay.io/app"), ["helper x None"]);
    }

    #[test]
    fn helper_comes_before_the_login_of_the_same_entry() {
        let content = r#"{"credHelpers": {"user:hunter2@registry.example": "x", "*.example": "y"}, "credsStore": "z",
            "auths": {"registry.example": {"auth": "ZGVwbG95OnB3"}, "quay.io": {}}}"#;
        assert_eq!(
            names(content, "registry.example/app"),
            [r#"helper x Some("registry.example")"#, "login for registry.example in /a/config.json", "helper y None"]
        );
        assert_eq!(names(content, "quay.io/app"), ["helper z None"]);
    }

    #[test]
    fn auth_field_is_read_with_and_without_padding_and_wins() {
        for (auth, user, password) in [("dTpw", "u", "p"), ("dTpwOg==", "u", "p:"), ("dTpwOg", "u", "p:"), ("dTpwAAA=", "u", "p")] {
            assert_eq!(user_and_password(auth), Some((user.to_owned(), password.to_owned())), "{auth}");
        }
        let content = r#"{"auths": {"a.b": {"auth": "dTpw", "username": "other", "password": "other"}}}"#;
        let file = LoginFile::parse(content.as_bytes(), "").unwrap_or_default();
        let Some(Login::Ready(credential)) = file.logins("a.b/c").pop() else { panic!("no login") };
        assert_eq!((credential.username(), credential.password()), ("u", "p"));
    }

    #[test]
    fn token_replaces_user_and_password() {
        let content = r#"{"auths": {"a.b": {"auth": "MDAwOg==", "identitytoken": "t"}, "c.d": {"registrytoken": "t"}}}"#;
        let file = LoginFile::parse(content.as_bytes(), "/a/auth.json").unwrap_or_default();
        let Some(Login::Ready(credential)) = file.logins("a.b/c").pop() else { panic!("no login") };
        assert_eq!((credential.username(), credential.password(), credential.identity_token()), ("", "", "t"));
        assert_eq!(credential.source(), "identity token for a.b in /a/auth.json");
        assert_eq!(names(content, "c.d/e"), ["registry token for c.d in /a/config.json"]);
    }

    #[test]
    fn parse_error_names_the_place_and_no_content() {
        for (content, problem) in [
            ("hunter2", "it is no JSON (line 1, column 1)"),
            (r#"{"auths": {"#, "the JSON ends too early (line 1, column 11)"),
            ("[]", "it is no JSON object"),
            (r#"{"auths": "hunter2"}"#, "auths is no JSON object"),
            (r#"{"auths": {"a.b": "hunter2"}}"#, r#"auths["a.b"] is no JSON object"#),
            (r#"{"auths": {"a.b": {"auth": "hunter2"}}}"#, r#"auths["a.b"].auth is not the base64 of user:password"#),
            (r#"{"auths": {"a.b": {"auth": "aHVudGVyMg=="}}}"#, r#"auths["a.b"].auth is not the base64 of user:password"#),
            (r#"{"auths": {"a.b": {"password": 12345678}}}"#, r#"auths["a.b"].password is no text"#),
            (r#"{"credHelpers": {"a.b": ["hunter2"]}}"#, r#"credHelpers["a.b"] is no text"#),
            (r#"{"credsStore": {"hunter2": 1}}"#, "credsStore is no text"),
            (r#"{"auths": {"https://user:hunter2@a.b/c": {"password": 1}}}"#, r#"auths["a.b/c"].password is no text"#),
            (r#"{"credHelpers": {"user:hunter2@a.b": 1}}"#, r#"credHelpers["a.b"] is no text"#),
        ] {
            assert_eq!(LoginFile::parse(content.as_bytes(), "config.json").err().as_deref(), Some(problem), "{content}");
        }
    }

    #[test]
    fn unknown_keys_are_ignored() {
        let content = r#"{"auths": null, "HttpHeaders": {"x": "y"}, "proxies": [1], "auths2": 3}"#;
        assert_eq!(names(content, "a.b/c"), [""; 0]);
    }
}
