//! Redirects of requests with a secret.
//!
//! Checks each kind of secret, each redirect status and each kind of target. A secret is sent only to the origin (scheme, host and port)
//! that it belongs to; blobs may come from any host, without a login.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::oci_support::tls::certificates;
use super::oci_support::{Node, keyring};
use contract::FailureClass;
use memory_registry::{Auth, Fault, LoggedRequest, MadeImage, MemoryRegistry, Options, Tls, TokenAuth};

const PASSWORD: &str = "correct-horse";
const REFRESH_TOKEN: &str = "refresh-me";
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// A request with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    /// A form with a refresh token, posted to the token server.
    RefreshToken,
    /// Name and password for the token server.
    TokenBasic,
    /// Name and password for the registry.
    Basic,
    /// A token for the registry.
    Bearer,
}

const SECRETS: [Secret; 4] = [Secret::RefreshToken, Secret::TokenBasic, Secret::Basic, Secret::Bearer];

impl Secret {
    fn auth(self) -> Auth {
        let (user, password) = ("deploy".to_owned(), PASSWORD.to_owned());
        match self {
            Self::Basic => Auth::Basic { user, password },
            _ => Auth::Token(TokenAuth {
                user,
                password,
                identity_token: REFRESH_TOKEN.to_owned(),
                anonymous: false,
                expires_in: "300".to_owned(),
            }),
        }
    }

    fn login(self, host: &str) -> String {
        match self {
            Self::RefreshToken => format!(r#"{{"auths":{{"{host}":{{"identitytoken":"{REFRESH_TOKEN}"}}}}}}"#),
            _ => format!(r#"{{"auths":{{"{host}":{{"username":"deploy","password":"{PASSWORD}"}}}}}}"#),
        }
    }

    fn goes_to_token_server(self) -> bool {
        matches!(self, Self::RefreshToken | Self::TokenBasic)
    }

    /// The path of the request with the secret.
    fn path(self) -> &'static str {
        if self.goes_to_token_server() { "/token" } else { "/v2/demo/app/manifests/1" }
    }
}

/// Whether a request had a secret, in a header or a form.
fn has_secret(request: &LoggedRequest) -> bool {
    let has_form = request.headers.get("content-length").is_some_and(|length| length != "0");
    request.authorization.is_some() || has_form
}

async fn filled(auth: Auth, tls: Option<Tls>) -> MemoryRegistry {
    let registry = MemoryRegistry::start(Options { auth, tls, ..Options::default() }).await.unwrap();
    registry.add_image("demo/app", "1", &MadeImage::of_layers([5_000, 6_000]));
    registry
}

/// A registry that redirects the first request with the secret, and a node with that login. Certificates are not checked, so that a request
/// to any target would arrive.
async fn redirecting(secret: Secret, status: u16, location: impl Fn(&MemoryRegistry) -> String) -> (MemoryRegistry, Node) {
    let registry = filled(secret.auth(), None).await;
    // The first request to the registry has no secret: it gets the challenge.
    let before = u64::from(!secret.goes_to_token_server());
    let fault = Fault::answer(secret.path(), status, &[("location", &location(&registry))], "");
    registry.faults().add(fault.after(before).times(1));
    let node = Node::with(|options| {
        options.keyring = keyring(options.store.parent().unwrap(), Some(&secret.login(registry.host())));
        options.tls_verify = false;
    });
    (registry, node)
}

fn image(registry: &MemoryRegistry) -> String {
    format!("{}/demo/app:1", registry.host())
}

#[tokio::test]
async fn secret_is_sent_after_a_redirect_within_its_origin() {
    for secret in SECRETS {
        for status in REDIRECTS {
            let case = format!("{secret:?} {status}");
            let (registry, node) = redirecting(secret, status, |registry| {
                format!("{}{}?again=1&scope=repository:demo/app:pull", registry.url(), secret.path())
            })
            .await;
            let pulled = node.pull(&image(&registry)).await;
            let again: Vec<_> = registry.requests().into_iter().filter(|request| request.query.contains("again=1")).collect();
            assert_eq!(again.len(), 1, "{case}");
            if (secret, status) == (Secret::RefreshToken, 303) {
                assert_eq!((again[0].method.as_str(), has_secret(&again[0])), ("GET", false), "{case}: 303 asks for a GET");
            } else {
                pulled.unwrap_or_else(|failure| panic!("{case}: {failure}"));
                assert!(has_secret(&again[0]), "{case}");
            }
        }
    }
}

#[tokio::test]
async fn secret_is_not_sent_to_another_origin() {
    let plain = filled(Auth::None, None).await;
    let secure = filled(Auth::None, Some(certificates(|_| {}).tls)).await;
    let targets = [
        ("other port", plain.url().to_owned()),
        ("other scheme", secure.url().to_owned()),
        ("other host", format!("http://localhost:{}", plain.port())),
    ];
    for secret in SECRETS {
        for status in REDIRECTS {
            for (kind, target) in &targets {
                let case = format!("{secret:?} {status} {kind}");
                let (registry, node) = redirecting(secret, status, |_| format!("{target}{}", secret.path())).await;
                let pulled = node.pull(&image(&registry)).await;
                let arrived = [plain.requests(), secure.requests()].concat();
                plain.reset_counts();
                secure.reset_counts();
                if secret.goes_to_token_server() {
                    let failure = pulled.expect_err(&case);
                    assert!(failure.text.contains("redirects a request with a login to another address"), "{case}: {failure}");
                    assert_eq!((failure.class, arrived.len()), (FailureClass::Unknown, 0), "{case}");
                } else {
                    pulled.unwrap_or_else(|failure| panic!("{case}: {failure}"));
                    assert_eq!(arrived.len(), 1, "{case}");
                    assert!(arrived.iter().all(|request| !has_secret(request)), "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn blobs_are_fetched_from_other_hosts_without_a_login() {
    let storage = filled(Auth::None, None).await;
    for secret in SECRETS {
        for status in REDIRECTS {
            let registry = filled(secret.auth(), None).await;
            for blob in registry.add_image("demo/app", "1", &MadeImage::of_layers([5_000, 6_000])).manifests[0].blobs() {
                let location = format!("{}/v2/demo/app/blobs/{}?X-Signature=abc", storage.url(), blob.digest);
                registry.faults().add(Fault::answer(&blob.digest, status, &[("location", &location)], ""));
            }
            let node = Node::with(|options| {
                options.keyring = keyring(options.store.parent().unwrap(), Some(&secret.login(registry.host())));
            });
            node.pull(&image(&registry)).await.unwrap_or_else(|failure| panic!("{secret:?} {status}: {failure}"));
            let arrived = storage.requests();
            storage.reset_counts();
            assert_eq!(arrived.len(), 3, "{secret:?} {status}");
            assert!(arrived.iter().all(|request| !has_secret(request)), "{secret:?} {status}");
        }
    }
}

#[tokio::test]
async fn login_is_not_sent_after_a_redirect_away_and_back() {
    for secret in [Secret::Basic, Secret::Bearer] {
        let stranger = filled(Auth::None, None).await;
        let (registry, node) = redirecting(secret, 307, |_| format!("{}/detour", stranger.url())).await;
        let back = format!("{}/v2/demo/app/manifests/1?chosen-by=stranger", registry.url());
        stranger.faults().add(Fault::answer("/detour", 307, &[("location", &back)], ""));
        let failure = node.pull(&image(&registry)).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Denied, "{failure}");
        let chosen: Vec<_> = registry.requests().into_iter().filter(|request| request.query.contains("chosen-by")).collect();
        assert_eq!(chosen.len(), 1, "{chosen:?}");
        assert_eq!(chosen[0].authorization, None);
    }
}
