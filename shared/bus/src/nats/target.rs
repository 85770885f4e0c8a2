//! The servers to connect to, and how: options and their files, read and checked.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use async_nats::ServerAddr;
use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use url::Url;

use super::context::Context;
use super::login::Login;
use super::options::{NatsOptions, NatsOptionsError, redacted_urls};
use crate::rules::check_subject;

/// The server that the `nats` command uses if a context names none.
const DEFAULT_URL: &str = "nats://127.0.0.1:4222";

/// Options prepared for connecting.
pub(super) struct Target {
    pub(super) servers: Vec<ServerAddr>,
    pub(super) login: Login,
    pub(super) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) tls_first: bool,
    pub(super) inbox_prefix: Option<String>,
    /// The prefix of JetStream's API subjects.
    pub(super) api_prefix: String,
    /// Whether JetStream belongs to another domain, so that its buckets are written through its API.
    pub(super) foreign_domain: bool,
    pub(super) name: Option<String>,
}

impl Target {
    /// Reads contexts and checks that every file exists and has the right contents.
    pub(super) fn resolve(mut options: NatsOptions) -> Result<Self, NatsOptionsError> {
        let context = match options.context.take() {
            Some(name) => Some(Context::fill(&name, &mut options)?),
            None => None,
        };
        // The client library does not check it, and the server would end each connection that uses it.
        if let Some(prefix) = options.inbox_prefix.as_deref().filter(|prefix| check_subject(prefix).is_err()) {
            return Err(NatsOptionsError::BadInboxPrefix { prefix: prefix.to_owned() });
        }
        let urls = match (&options.urls, &context) {
            (Some(urls), _) => urls.clone(),
            (None, Some(context)) if context.url.is_empty() => DEFAULT_URL.to_owned(),
            (None, Some(context)) => context.url.clone(),
            (None, None) => return Err(NatsOptionsError::NoServer),
        };
        let context = context.unwrap_or_default();
        let (servers, login_of_urls) = read_urls(&urls)?;
        let login = login(&options, login_of_urls, &context);
        login.check()?;
        if let Some(ca) = &options.ca {
            check_certificates("NATS CA file", ca)?;
        }
        let certificate = match (options.cert, options.key) {
            (Some(cert), Some(key)) => {
                check_certificates("NATS client certificate", &cert)?;
                check_key(&key)?;
                Some((cert, key))
            }
            (None, None) => None,
            _ => return Err(NatsOptionsError::HalfCertificate),
        };
        Ok(Self {
            servers,
            login,
            ca: options.ca,
            certificate,
            tls_first: context.tls_first,
            inbox_prefix: options.inbox_prefix,
            api_prefix: api_prefix(&context),
            foreign_domain: !context.jetstream_domain.is_empty() || !context.jetstream_api_prefix.is_empty(),
            name: options.name,
        })
    }

    /// The servers, for display.
    pub(super) fn shown(&self) -> String {
        self.servers.iter().map(shown_server).collect::<Vec<_>>().join(",")
    }
}

/// A server, for display; its address holds no login any more.
pub(super) fn shown_server(server: &ServerAddr) -> String {
    let host = server.host();
    // An IPv6 address is written in brackets.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{}://{host}:{}", server.scheme(), server.port())
}

fn api_prefix(context: &Context) -> String {
    match (context.jetstream_api_prefix.as_str(), context.jetstream_domain.as_str()) {
        ("", "") => "$JS.API".to_owned(),
        ("", domain) => format!("$JS.{domain}.API"),
        (prefix, _) => prefix.trim_end_matches('.').to_owned(),
    }
}

fn login(options: &NatsOptions, of_urls: Login, context: &Context) -> Login {
    if let Some(creds) = &options.creds {
        return Login::Credentials(creds.clone());
    }
    if let Some(nkey) = &options.nkey {
        return Login::Nkey(nkey.clone());
    }
    if let Some(file) = &options.token_file {
        return Login::TokenFile(file.clone());
    }
    if of_urls != Login::Nobody {
        return of_urls;
    }
    if !context.user.is_empty() {
        return Login::Password { user: context.user.clone(), password: context.password.clone() };
    }
    if !context.token.is_empty() {
        return Login::Token(context.token.clone());
    }
    Login::Nobody
}

/// The addresses without logins, and the login that they share.
fn read_urls(urls: &str) -> Result<(Vec<ServerAddr>, Login), NatsOptionsError> {
    let mut servers = Vec::new();
    let mut login = Login::Nobody;
    for (index, text) in urls.split(',').map(str::trim).enumerate().filter(|(_, text)| !text.is_empty()) {
        let bad_url = |why| NatsOptionsError::BadUrl { url: redacted_urls(urls).swap_remove(index), why };
        let (server, this) = read_url(text).map_err(bad_url)?;
        if this != Login::Nobody {
            if login != Login::Nobody && login != this {
                return Err(NatsOptionsError::DifferentLogins);
            }
            login = this;
        }
        servers.push(server);
    }
    if servers.is_empty() {
        return Err(NatsOptionsError::NoServer);
    }
    Ok((servers, login))
}

fn read_url(text: &str) -> Result<(ServerAddr, Login), String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("nats://{text}") };
    let mut url = Url::from_str(&with_scheme).map_err(|error| error.to_string())?;
    if !["nats", "tls"].contains(&url.scheme()) {
        return Err(format!("the scheme {} is not supported", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it names no host".to_owned());
    }
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let login = match (url.username(), url.password()) {
        ("", _) => Login::Nobody,
        (token, None) => Login::Token(decode(token)),
        (user, Some(password)) => Login::Password { user: decode(user), password: decode(password) },
    };
    // The client library would show the address with its login in its own messages.
    let removed = url.set_password(None).and_then(|()| url.set_username(""));
    removed.map_err(|()| "it cannot hold a login".to_owned())?;
    let server = ServerAddr::from_url(url).map_err(|error| error.to_string())?;
    Ok((server, login))
}

fn check_certificates(what: &'static str, path: &Path) -> Result<(), NatsOptionsError> {
    let text = read(what, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(()),
        _ => Err(unusable(what, path, "it holds no certificate in PEM")),
    }
}

fn check_key(path: &Path) -> Result<(), NatsOptionsError> {
    const WHAT: &str = "key of the NATS client certificate";
    let text = read(WHAT, path)?;
    PrivateKeyDer::from_pem_slice(&text).map(|_| ()).map_err(|_| unusable(WHAT, path, "it holds no private key in PEM"))
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, NatsOptionsError> {
    std::fs::read(path).map_err(|error| NatsOptionsError::Unreadable { what, path: path.to_owned(), error })
}

fn unusable(what: &'static str, path: &Path, why: &str) -> NatsOptionsError {
    NatsOptionsError::Unusable { what, path: path.to_owned(), why: why.to_owned() }
}
