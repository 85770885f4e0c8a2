//! Contexts of the `nats` command: one JSON file each.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::options::{NatsOptions, NatsOptionsError};

/// The fields of a context that affect the connection. It holds secrets, so it can be neither printed nor serialised.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) url: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) token: String,
    creds: String,
    nkey: String,
    ca: String,
    cert: String,
    key: String,
    pub(super) tls_first: bool,
    inbox_prefix: String,
    pub(super) jetstream_domain: String,
    pub(super) jetstream_api_prefix: String,
    nsc: String,
    socks_proxy: String,
}

impl Context {
    /// Reads the named context and sets the options that are not set.
    pub(super) fn fill(name: &str, options: &mut NatsOptions) -> Result<Self, NatsOptionsError> {
        if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(NatsOptionsError::BadContextName { name: name.to_owned() });
        }
        let Some(config_home) = &options.config_home else {
            return Err(NatsOptionsError::NoHome { name: name.to_owned() });
        };
        let path = config_home.join("nats/context").join(format!("{name}.json"));
        let context = Self::read(name, &path)?;
        let home = options.home.clone();
        let file = |text: &str| (!text.is_empty()).then(|| expand(text, home.as_deref()));
        let files = NatsOptions {
            creds: file(&context.creds),
            nkey: file(&context.nkey),
            ca: file(&context.ca),
            cert: file(&context.cert),
            key: file(&context.key),
            inbox_prefix: Some(context.inbox_prefix.clone()).filter(|prefix| !prefix.is_empty()),
            ..NatsOptions::default()
        };
        *options = std::mem::take(options).or(files);
        Ok(context)
    }

    fn read(name: &str, path: &Path) -> Result<Self, NatsOptionsError> {
        const WHAT: &str = "NATS context";
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(NatsOptionsError::NoContext { name: name.to_owned(), path: path.to_owned() });
            }
            Err(error) => return Err(NatsOptionsError::Unreadable { what: WHAT, path: path.to_owned(), error }),
        };
        let unusable = |why: String| NatsOptionsError::Unusable { what: WHAT, path: path.to_owned(), why };
        // The message of a wrong value could quote a password, so only line and column are reported.
        let context: Self = serde_json::from_slice(&text)
            .map_err(|error| unusable(format!("line {}, column {} is not as expected", error.line(), error.column())))?;
        for (key, value, advice) in [
            ("nsc", &context.nsc, "export a credentials file with `nsc generate creds` and name it in `creds`"),
            ("socks_proxy", &context.socks_proxy, "connect without a proxy"),
        ] {
            if !value.is_empty() {
                return Err(unusable(format!("`{key}` is not supported: {advice}")));
            }
        }
        Ok(context)
    }
}

/// A path of a context; `~` stands for the home folder.
fn expand(text: &str, home: Option<&Path>) -> PathBuf {
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}
