//! Registries that repeat the login they were shown in every answer, one for each kind of login and way to fail.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use memory_registry::{Auth, Fault, FaultAction, MemoryRegistry, Options, TokenAuth};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

/// A text in the name of each image. It must be found in each place, which proves that the place was searched.
pub(crate) const CANARY: &str = "canary471147";
const USER: &str = "puller";

/// How a login is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `auth` of docker's file.
    Auth,
    /// `username` and `password` of docker's file.
    Fields,
    /// Under a host and a path, as kubelet matches it.
    OfPath,
    Helper,
    /// A helper that gives an identity token.
    HelperToken,
    IdentityToken,
    RegistryToken,
    /// A password for a token server.
    TokenServer,
    /// A header of a `hosts.toml`.
    HostsFile,
}

const KINDS: [Kind; 9] = [
    Kind::Auth,
    Kind::Fields,
    Kind::OfPath,
    Kind::Helper,
    Kind::HelperToken,
    Kind::IdentityToken,
    Kind::RegistryToken,
    Kind::TokenServer,
    Kind::HostsFile,
];

impl Kind {
    /// The part of the secret that no escaping changes.
    pub(crate) fn core(self) -> String {
        format!("leaks{self:?}7q2w9e").to_lowercase()
    }

    fn secret(self) -> String {
        // The characters that a header may contain; quotes and blanks are for passwords alone.
        if self.is_password() { format!("{}\"/+ &%é", self.core()) } else { format!("{}/+=.~", self.core()) }
    }

    fn is_password(self) -> bool {
        matches!(self, Self::Auth | Self::Fields | Self::OfPath | Self::Helper | Self::TokenServer)
    }

    fn has_token_server(self) -> bool {
        matches!(self, Self::HelperToken | Self::IdentityToken | Self::RegistryToken | Self::TokenServer)
    }

    fn auth(self) -> Auth {
        let (user, password) = (USER.to_owned(), self.secret());
        if self == Self::HostsFile {
            return Auth::None;
        }
        if !self.has_token_server() {
            return Auth::Basic { user, password };
        }
        let identity_token = if self.is_password() { String::new() } else { self.secret() };
        Auth::Token(TokenAuth { user, password, identity_token, anonymous: false, expires_in: String::new() })
    }

    /// A text with the secret in all forms in which a registry can repeat it.
    fn echo(self) -> String {
        let secret = self.secret();
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let percent = secret.replace('%', "%25").replace('"', "%22").replace('/', "%2F").replace('+', "%2B").replace(' ', "%20");
        let login = BASE64_STANDARD.encode(format!("{USER}:{secret}"));
        format!("{secret} {login} {} {hex} {percent} {}", BASE64_STANDARD.encode(&secret), json!(secret))
    }
}

/// How a registry fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Unauthorized,
    Forbidden,
    NotFound,
    TooMany,
    Unavailable,
    WebPage,
    Redirect,
    Hanging,
    Closing,
    Manifest,
    Challenge,
    TokenRefused,
    TokenUnavailable,
    NoToken,
    /// It does not fail.
    Not,
}

const FAILINGS: [Failing; 15] = [
    Failing::Unauthorized,
    Failing::Forbidden,
    Failing::NotFound,
    Failing::TooMany,
    Failing::Unavailable,
    Failing::WebPage,
    Failing::Redirect,
    Failing::Hanging,
    Failing::Closing,
    Failing::Manifest,
    Failing::Challenge,
    Failing::TokenRefused,
    Failing::TokenUnavailable,
    Failing::NoToken,
    Failing::Not,
];

impl Failing {
    fn fault(self, kind: Kind) -> Option<Fault> {
        let (echo, core) = (kind.echo(), kind.core());
        let error = |code: &str| json!({"errors": [{"code": code, "message": echo, "detail": echo}]}).to_string();
        let basic = ("www-authenticate", "Basic realm=\"memory\"");
        let own = format!("Bearer realm=\"http://{{host}}/token\",service=\"memory\",scope=\"repository:shop/{CANARY}:pull\"");
        let asks = if kind.has_token_server() { ("www-authenticate", own.as_str()) } else { basic };
        let manifests = |status, headers: &[(&str, &str)], body: &str| Some(Fault::answer("/manifests/", status, headers, body));
        let of_token = |fault: Fault| Some(fault).filter(|_| kind.has_token_server());
        let fault = match self {
            Self::Unauthorized => manifests(401, &[asks], &error("UNAUTHORIZED")),
            Self::Forbidden => manifests(403, &[asks], &error("DENIED")),
            Self::NotFound => manifests(404, &[], &error("MANIFEST_UNKNOWN")),
            Self::TooMany => {
                let limits = [("retry-after", "20"), ("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "0;w=21600")];
                let source = kind.secret().replace([' ', 'é'], "");
                manifests(429, &[&limits[..], &[("docker-ratelimit-source", &source)]].concat(), &error("TOOMANYREQUESTS"))
            }
            Self::Unavailable => manifests(503, &[("x-error", &core)], &error("UNAVAILABLE")),
            Self::WebPage => {
                let page = format!("<html><body><pre>Authorization: Basic {echo}</pre></body></html>");
                manifests(403, &[("content-type", "text/html")], &page)
            }
            Self::Redirect => {
                let to = format!("http://{USER}:{core}@127.0.0.1:1/{core}/blob?token={core}&X-Amz-Signature={core}#{core}");
                manifests(307, &[("location", &to)], "")
            }
            Self::Hanging => Some(Fault::new("/manifests/", FaultAction::Hang)),
            Self::Closing => Some(Fault::new("/manifests/", FaultAction::Close)),
            Self::Manifest => {
                let manifest = json!({"schemaVersion": echo, "mediaType": echo, "config": echo}).to_string();
                manifests(200, &[("content-type", "application/json")], &manifest)
            }
            Self::Challenge => {
                let asks =
                    format!("Bearer realm=\"http://{USER}:{core}@{{host}}/token?password={core}\",service=\"{core}\",scope=\"{core}\"");
                return manifests(401, &[("www-authenticate", &asks)], &error("UNAUTHORIZED"));
            }
            Self::TokenRefused => return of_token(Fault::answer("/token", 401, &[], &error("UNAUTHORIZED"))),
            Self::TokenUnavailable => return of_token(Fault::answer("/token", 500, &[], &error("UNKNOWN"))),
            Self::NoToken => return of_token(Fault::answer("/token", 200, &[], &json!({"token": 5, "details": echo}).to_string())),
            Self::Not => return None,
        };
        // The first request has no login, and the registry asks for one.
        let first = u64::from(kind != Kind::HostsFile);
        fault.map(|fault| fault.after(first))
    }
}

/// All hostile registries.
pub(crate) struct Hostile {
    registries: Vec<(Kind, MemoryRegistry)>,
    // Dropped last: the registries serve on it.
    _runtime: Runtime,
}

impl Hostile {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut registries = Vec::new();
        for kind in KINDS {
            for failing in FAILINGS {
                let fault = failing.fault(kind);
                if fault.is_none() && failing != Failing::Not {
                    continue;
                }
                let registry = runtime.block_on(MemoryRegistry::start(Options { auth: kind.auth(), ..Options::default() })).unwrap();
                fault.into_iter().for_each(|fault| registry.faults().add(fault));
                registries.push((kind, registry));
            }
        }
        Self { registries, _runtime: runtime }
    }

    /// One image of each registry.
    pub(crate) fn images(&self) -> Vec<String> {
        self.registries.iter().map(|(_, registry)| format!("{}/shop/{CANARY}:v1", registry.host())).collect()
    }

    /// An image whose login is `auth` of docker's file.
    pub(crate) fn image_of_auth(&self) -> String {
        self.images().remove(0)
    }

    /// A runtime's error text of a pull with that login.
    pub(crate) fn words_of_a_runtime() -> String {
        let (echo, core) = (Kind::Auth.echo(), Kind::Auth.core());
        format!(
            "failed to authorize: failed to fetch oauth token: unexpected status from GET request to \
             https://{USER}:{core}@auth.example/token?account={USER}&password={core}: 401 Unauthorized - Server message: {echo}"
        )
    }

    /// How many registries were shown their login, or a token that it was exchanged for.
    pub(crate) fn shown(&self) -> usize {
        let with_login = |registry: &MemoryRegistry| {
            registry.requests().iter().any(|request| request.authorization.is_some() || request.headers.contains_key("x-secret"))
        };
        self.registries.iter().filter(|(_, registry)| with_login(registry)).count()
    }

    /// Docker's file with all logins.
    pub(crate) fn login_file(&self) -> String {
        let (mut auths, mut helpers) = (Map::new(), Map::new());
        for (kind, registry) in &self.registries {
            let (host, secret) = (registry.host(), kind.secret());
            let auth = BASE64_STANDARD.encode(format!("{USER}:{secret}"));
            match kind {
                Kind::Auth | Kind::TokenServer => drop(auths.insert(host.to_owned(), json!({"auth": auth}))),
                Kind::Fields => drop(auths.insert(host.to_owned(), json!({"username": USER, "password": secret}))),
                Kind::OfPath => drop(auths.insert(format!("{host}/shop"), json!({"auth": auth}))),
                Kind::Helper => drop(helpers.insert(host.to_owned(), json!("password"))),
                Kind::HelperToken => drop(helpers.insert(host.to_owned(), json!("token"))),
                Kind::IdentityToken => drop(auths.insert(host.to_owned(), json!({"identitytoken": secret}))),
                Kind::RegistryToken => drop(auths.insert(host.to_owned(), json!({"registrytoken": secret}))),
                Kind::HostsFile => {}
            }
        }
        json!({"auths": auths, "credHelpers": helpers}).to_string()
    }

    /// The answers of the `docker-credential-<name>` helpers.
    pub(crate) fn helpers() -> [(&'static str, Value); 2] {
        let of = |user: &str, kind: Kind| json!({"ServerURL": "", "Username": user, "Secret": kind.secret()});
        [("password", of(USER, Kind::Helper)), ("token", of("<token>", Kind::HelperToken))]
    }

    /// Each `hosts.toml`, with its folder.
    pub(crate) fn hosts_files(&self) -> Vec<(String, String)> {
        let of_hosts = self.registries.iter().filter(|(kind, _)| *kind == Kind::HostsFile);
        let file = |(kind, registry): &(Kind, MemoryRegistry)| {
            let (url, secret) = (registry.url(), kind.secret());
            let text = format!("server = \"{url}\"\n[header]\nauthorization = \"Bearer {secret}\"\nx-secret = [\"{secret}\"]\n");
            (registry.host().to_owned(), text)
        };
        of_hosts.map(file).collect()
    }

    /// The secrets, each with its name.
    pub(crate) fn cores() -> Vec<(String, String)> {
        KINDS.iter().map(|kind| (format!("{kind:?}"), kind.core())).collect()
    }
}
