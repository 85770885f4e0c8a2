//! Options of the connection to NATS: several URLs, credentials, keys, TLS, contexts of the `nats` command.

use std::fmt;
use std::path::PathBuf;

use super::target::Target;

/// The options of a user. All are optional; a given value has precedence over the context's.
///
/// Of several logins the first of these counts: `creds`, `nkey`, `token_file`, the login in the URLs, the login of the context.
/// Files are read again at every connect, so that renewed ones are taken up.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NatsOptions {
    /// One URL or several with commas between. `nats://` is assumed; may hold `user:password@` or `token@`.
    pub urls: Option<String>,
    /// A credentials file (user JWT and seed).
    pub creds: Option<PathBuf>,
    /// A file with an nkey seed.
    pub nkey: Option<PathBuf>,
    /// A file with a token.
    pub token_file: Option<PathBuf>,
    /// The prefix of the subjects on which answers arrive.
    pub inbox_prefix: Option<String>,
    /// Certificates (PEM) of the authorities that the server's certificate is checked against, instead of the host's.
    pub ca: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub cert: Option<PathBuf>,
    /// The key of the client's certificate (PEM).
    pub key: Option<PathBuf>,
    /// The name of a context of the `nats` command.
    pub context: Option<String>,
    /// The folder whose `nats/context` holds the contexts.
    pub config_home: Option<PathBuf>,
    /// The folder that `~` stands for in a context.
    pub home: Option<PathBuf>,
    /// The name of the connection, as the server lists it.
    pub name: Option<String>,
    /// How many clients may connect at the same time as this one: they spread their connects over 1 s for each 120, at most 50 s. 0: at
    /// once.
    pub fleet_size: u64,
    /// What the log says of the connection's health.
    pub logged: LoggedHealth,
}

/// What the log says of a connection's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoggedHealth {
    /// Each change.
    #[default]
    Changes,
    /// Not that no server is reached at first: the caller reports that.
    ChangesOnceConnected,
    /// Nothing: the process has another connection, whose health is logged.
    Nothing,
}

impl NatsOptions {
    /// The options in the variables of the `nats` command, and the folder of its contexts. The context that is selected there is ignored:
    /// only a named one is used.
    #[must_use]
    pub fn from_env_of_nats_cli(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| get(name).filter(|value| !value.is_empty());
        let path = |name: &str| text(name).map(PathBuf::from);
        let home = path("HOME");
        Self {
            urls: text("NATS_URL"),
            creds: path("NATS_CREDS"),
            nkey: path("NATS_NKEY"),
            token_file: None,
            inbox_prefix: None,
            ca: path("NATS_CA"),
            cert: path("NATS_CERT"),
            key: path("NATS_KEY"),
            context: text("NATS_CONTEXT"),
            config_home: path("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config"))),
            home,
            name: None,
            fleet_size: 0,
            logged: LoggedHealth::default(),
        }
    }

    /// These options, with missing ones taken from `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            urls: self.urls.or(fallback.urls),
            creds: self.creds.or(fallback.creds),
            nkey: self.nkey.or(fallback.nkey),
            token_file: self.token_file.or(fallback.token_file),
            inbox_prefix: self.inbox_prefix.or(fallback.inbox_prefix),
            ca: self.ca.or(fallback.ca),
            cert: self.cert.or(fallback.cert),
            key: self.key.or(fallback.key),
            context: self.context.or(fallback.context),
            config_home: self.config_home.or(fallback.config_home),
            home: self.home.or(fallback.home),
            name: self.name.or(fallback.name),
            fleet_size: self.fleet_size.max(fallback.fleet_size),
            logged: self.logged.max(fallback.logged),
        }
    }

    /// Checks the options as [`super::NatsBus::connect`] does before it connects.
    ///
    /// # Errors
    /// No server is named, a file is missing or has the wrong contents, or a URL is invalid.
    pub fn check(self) -> Result<(), NatsOptionsError> {
        Target::resolve(self).map(drop)
    }

    /// The servers, for display: URLs without their logins, else the context.
    #[must_use]
    pub fn redacted(&self) -> String {
        match (&self.urls, &self.context) {
            (Some(urls), _) => redacted_urls(urls).join(","),
            (None, Some(context)) => format!("NATS context {context}"),
            (None, None) => "no NATS server".to_owned(),
        }
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { creds, nkey, token_file, inbox_prefix, ca, cert, key, context, config_home, home, .. } = self;
        let Self { name, fleet_size, logged, .. } = self;
        formatter
            .debug_struct("NatsOptions")
            .field("servers", &self.redacted())
            .field("creds", creds)
            .field("nkey", nkey)
            .field("token_file", token_file)
            .field("inbox_prefix", inbox_prefix)
            .field("ca", ca)
            .field("cert", cert)
            .field("key", key)
            .field("context", context)
            .field("config_home", config_home)
            .field("home", home)
            .field("name", name)
            .field("fleet_size", fleet_size)
            .field("logged", logged)
            .finish()
    }
}

/// The URLs of a list without their logins, whether they can be parsed or not.
pub(super) fn redacted_urls(urls: &str) -> Vec<String> {
    let parts: Vec<&str> = urls.split(',').map(str::trim).collect();
    // A password may contain a comma, so a part before the last login may be part of it.
    let last_login = parts.iter().rposition(|part| part.contains('@')).unwrap_or(0);
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let redacted = |(index, part): (usize, &&str)| {
        let (scheme, rest) = part.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("nats", *part));
        match rest.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}://***@{place}"),
            None if index < last_login => "***".to_owned(),
            None => format!("{scheme}://{rest}"),
        }
    };
    parts.iter().enumerate().map(redacted).collect()
}

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NatsOptionsError {
    /// No server is named.
    #[error("no NATS server is named: give its URL (--nats nats://host:4222) or a context (--nats-context NAME)")]
    NoServer,
    /// A URL cannot be parsed.
    #[error("{url:?} is not the URL of a NATS server: {why}; write nats://host:4222 or tls://host:4222")]
    BadUrl {
        /// The URL without its login.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The URLs hold different logins.
    #[error("the NATS URLs hold different logins: give the same one in all, or only once")]
    DifferentLogins,
    /// A file cannot be read.
    #[error("the {what} {path} cannot be read: {error}; check the path and its permissions")]
    Unreadable {
        /// What the file is for.
        what: &'static str,
        /// The path that was tried.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// A file has the wrong contents.
    #[error("the {what} {path} cannot be used: {why}")]
    Unusable {
        /// What the file is for.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// A client certificate without its key, or the other way round.
    #[error("a NATS client certificate needs both files: give --nats-cert and --nats-key together")]
    HalfCertificate,
    /// Answers could not arrive there.
    #[error(
        "{prefix:?} is no prefix of subjects for answers: write one such as _INBOX_n1 (nats.inbox_prefix, or inbox_prefix of the NATS context)"
    )]
    BadInboxPrefix {
        /// The prefix as given.
        prefix: String,
    },
    /// There is no such context.
    #[error("there is no NATS context {name} at {path}: `nats context ls` lists those that are there")]
    NoContext {
        /// The name as given.
        name: String,
        /// The path that was tried.
        path: PathBuf,
    },
    /// The name of a context is no file name.
    #[error("{name:?} is not the name of a NATS context")]
    BadContextName {
        /// The name as given.
        name: String,
    },
    /// Neither `XDG_CONFIG_HOME` nor `HOME` is set.
    #[error("the NATS context {name} cannot be found: set HOME or XDG_CONFIG_HOME, or give the URL instead")]
    NoHome {
        /// The name of the context.
        name: String,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_a_url_is_shown_nowhere() {
        for (urls, shown) in [
            ("nats://ann:hunter2@a:4222,tls://tok-hunter2@b", "nats://***@a:4222,tls://***@b"),
            ("ann:hunter2@a", "nats://***@a"),
            ("nats://ann:hunter2@x@a:4222", "nats://***@a:4222"),
            ("nats://ann:hun ter2@", "nats://***@"),
            ("a:4222, b", "nats://a:4222,nats://b"),
            ("ann:hunter2://x@a", "nats://***@a"),
            ("nats://ann:hunter2,x@a", "***,nats://***@a"),
            ("nats://ann:1,hunter2,3@a,b", "***,***,nats://***@a,nats://b"),
            ("nats://[::1]:4222/,[::1]", "nats://[::1]:4222/,nats://[::1]"),
        ] {
            let options = NatsOptions { urls: Some(urls.to_owned()), ..NatsOptions::default() };
            assert_eq!(options.redacted(), shown);
            assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
        }
    }

    #[test]
    fn the_variables_of_the_nats_command_are_read_and_empty_ones_are_not_there() {
        let get = |name: &str| match name {
            "NATS_CREDS" => Some(String::new()),
            "XDG_CONFIG_HOME" => None,
            "HOME" => Some("/home/ann".to_owned()),
            other => Some(format!("of {other}")),
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let expected = NatsOptions {
            urls: Some("of NATS_URL".to_owned()),
            creds: None,
            nkey: path("of NATS_NKEY"),
            token_file: None,
            inbox_prefix: None,
            ca: path("of NATS_CA"),
            cert: path("of NATS_CERT"),
            key: path("of NATS_KEY"),
            context: Some("of NATS_CONTEXT".to_owned()),
            config_home: path("/home/ann/.config"),
            home: path("/home/ann"),
            name: None,
            fleet_size: 0,
            logged: LoggedHealth::default(),
        };
        assert_eq!(NatsOptions::from_env_of_nats_cli(get), expected);
    }

    #[test]
    fn inbox_prefix_that_is_no_subject_is_refused() {
        for (prefix, fits) in
            [("_INBOX_n1", true), ("_INBOX.n1", true), ("_INBOX_n1.", false), ("_INBOX n1", false), ("_INBOX.>", false), ("*", false)]
        {
            let (urls, inbox_prefix) = (Some("nats://a".to_owned()), Some(prefix.to_owned()));
            let checked = NatsOptions { urls, inbox_prefix, ..NatsOptions::default() }.check();
            assert!(if fits { checked.is_ok() } else { matches!(checked, Err(NatsOptionsError::BadInboxPrefix { .. })) }, "{prefix}");
        }
    }

    #[test]
    fn a_missing_option_comes_from_the_fallback() {
        let one = NatsOptions { urls: Some("a".to_owned()), ..NatsOptions::default() };
        let two = NatsOptions { urls: Some("b".to_owned()), context: Some("c".to_owned()), ..NatsOptions::default() };
        let merged = one.or(two);
        assert_eq!((merged.urls.unwrap(), merged.context.unwrap()), ("a".to_owned(), "c".to_owned()));
    }
}
