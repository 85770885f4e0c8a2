//! Gets tokens from token servers, and caches them for their lifetime.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::FailureClass;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::exchange::{Body, Exchange, OtherOrigin};
use super::{Question, Registries};
use crate::keyring::{Credential, Secrets};
use crate::oci_layout::failure::StepFailure;
use crate::oci_layout::route::{Endpoint, host_label, is_loopback};

/// The most cached tokens, one for each repository; the one that expires first is dropped first.
const TOKENS_MAX: usize = 256;
/// The longest answer of a token server, in bytes. Tokens with many groups have some 10 KiB.
const ANSWER_MAX_BYTES: u64 = 256 * 1024;
/// The lifetime of a token if the server states none, by the standard.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(60);
/// The longest time that a token is cached. A revoked login stays usable until then.
const LIFETIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// A token is renewed this long before its end, because clocks differ and a request takes time.
const LIFETIME_MARGIN: Duration = Duration::from_secs(10);
/// Our client id at token servers.
const CLIENT_ID: &str = "fleetpull";

/// The key of a cached token.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TokenKey {
    pub(super) realm: String,
    pub(super) service: String,
    pub(super) scope: String,
    /// None for an anonymous token.
    pub(super) login: Option<Credential>,
}

struct Kept {
    key: TokenKey,
    header: HeaderValue,
    /// When it expires, on the monotonic clock.
    ends: Duration,
}

#[derive(Default)]
pub(super) struct TokenCache(Mutex<Vec<Kept>>);

impl TokenCache {
    pub(super) fn get(&self, key: &TokenKey, now: Duration) -> Option<HeaderValue> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|kept| kept.key == *key && kept.ends > now).map(|kept| kept.header.clone())
    }

    pub(super) fn forget(&self, key: &TokenKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|kept| kept.key != *key);
    }

    fn keep(&self, key: TokenKey, header: HeaderValue, now: Duration, lifetime: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.ends > now && kept.key != key);
        if kept.len() >= TOKENS_MAX
            && let Some(first) = kept.iter().enumerate().min_by_key(|(_, kept)| kept.ends).map(|(place, _)| place)
        {
            kept.swap_remove(first);
        }
        kept.push(Kept { key, header, ends: now.saturating_add(lifetime.saturating_sub(LIFETIME_MARGIN)) });
    }
}

/// A token server's answer, with one of these fields. The lifetime is parsed separately, so that a malformed one does not lose the token.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenLifetime {
    expires_in: Value,
}

/// The lifetime of an answer's token: the default if it is no number of seconds, and at most `LIFETIME_MAX`.
fn lifetime(body: &[u8]) -> Duration {
    let seconds = match serde_json::from_slice::<TokenLifetime>(body).map(|read| read.expires_in) {
        Ok(Value::Number(seconds)) => seconds.as_f64(),
        Ok(Value::String(seconds)) => seconds.trim().parse().ok(),
        _ => None,
    };
    // A negative number or NaN is no lifetime.
    let seconds = seconds.filter(|seconds| *seconds >= 0.0);
    seconds.map_or(LIFETIME_DEFAULT, |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(LIFETIME_MAX).min(LIFETIME_MAX))
}

/// Why there is no token.
pub(super) enum NoToken {
    /// The server refuses this login.
    Refused(StepFailure),
    /// The failure does not depend on the login.
    Failed(StepFailure),
}

impl Registries {
    /// A `Bearer` header for `key`, cached or requested. `registry` is the endpoint that named the token server.
    pub(super) async fn token(&self, key: TokenKey, registry: &Endpoint) -> Result<HeaderValue, NoToken> {
        if let Some(header) = self.tokens.get(&key, self.clock.now().monotonic) {
            return Ok(header);
        }
        let (header, lifetime) = self.fetch(&key, registry).await?;
        self.tokens.keep(key, header.clone(), self.clock.now().monotonic, lifetime);
        Ok(header)
    }

    /// A cached token, if it has not expired.
    pub(super) fn kept_token(&self, key: &TokenKey) -> Option<HeaderValue> {
        self.tokens.get(key, self.clock.now().monotonic)
    }

    pub(super) fn forget_token(&self, key: &TokenKey) {
        self.tokens.forget(key);
    }

    async fn fetch(&self, key: &TokenKey, registry: &Endpoint) -> Result<(HeaderValue, Duration), NoToken> {
        let odd = |what: String| {
            NoToken::Failed(StepFailure::at(&registry.host, FailureClass::Unknown, what).advising("ask who runs the registry"))
        };
        let realm = Url::parse(&key.realm).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(realm) = realm else { return Err(odd("names a token server that is no address".to_owned())) };
        if registry.base.scheme() == "https" && realm.scheme() != "https" {
            return Err(odd("names a token server without TLS, which is not asked".to_owned()));
        }
        if let Some(problem) = key.login.as_ref().and_then(|login| withheld(login, &realm, &registry.base)) {
            return Err(odd(format!("names the token server {} {problem}", host_label(&realm))));
        }
        let host = host_label(&realm);
        let secrets = Secrets::of(&key.login);
        let mut answer = self.token_request(key, realm, registry, &secrets).run().await.map_err(NoToken::Failed)?;
        let question = Question { kind: "token", name: &key.scope, accept: "", from: 0, head: false };
        match answer.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // The registry named this server, so its refusal counts as the registry's own, unless it is a web page of a proxy.
                let mut failure = answer.failure(question, self.clock.now().wall, &secrets).await;
                if failure.class == FailureClass::Unknown && !failure.what.contains("web page") {
                    failure = StepFailure { authoritative: true, ..StepFailure::at(&host, FailureClass::Denied, failure.what) };
                }
                return Err(NoToken::Refused(failure));
            }
            _ => {
                let failure = answer.failure(question, self.clock.now().wall, &secrets).await;
                return Err(NoToken::Failed(match failure.class {
                    // A token server knows no images: its 404 means that it is none.
                    FailureClass::NotFound => {
                        StepFailure::at(&host, FailureClass::Unknown, failure.what).advising("ask who runs the registry")
                    }
                    _ => failure,
                }));
            }
        }
        let body = answer.whole(ANSWER_MAX_BYTES).await.map_err(NoToken::Failed)?.unwrap_or_default();
        let unusable = || NoToken::Failed(StepFailure::at(&host, FailureClass::Unknown, "the token server's answer holds no token"));
        let read: TokenAnswer = serde_json::from_slice(&body).map_err(|_| unusable())?;
        let token = [read.token, read.access_token].into_iter().flatten().find(|token| !token.is_empty());
        let header = token.and_then(|token| bearer(&token)).ok_or_else(unusable)?;
        Ok((header, lifetime(&body)))
    }

    /// A GET with name and password, as docker does, or a POST with a refresh token.
    fn token_request<'a>(&'a self, key: &TokenKey, realm: Url, registry: &'a Endpoint, secrets: &'a Secrets) -> Exchange<'a> {
        // Without its login the request would get an anonymous token.
        let elsewhere = if key.login.is_some() { OtherOrigin::Refused } else { OtherOrigin::Followed };
        let (headers, own_headers) = (HeaderMap::new(), HeaderMap::new());
        let mut request = Exchange {
            registries: self,
            url: realm,
            headers,
            own_headers,
            endpoint: Some(registry),
            body: Body::Wanted,
            elsewhere,
            trace: None,
            secrets: Some(secrets),
        };
        let mut fields = vec![("service", key.service.as_str()), ("scope", key.scope.as_str())];
        let refresh = key.login.as_ref().map(Credential::identity_token).filter(|token| !token.is_empty());
        if let Some(refresh) = refresh {
            fields.extend([("grant_type", "refresh_token"), ("client_id", CLIENT_ID), ("refresh_token", refresh)]);
            let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
            request.body = Body::Form(form);
            return request;
        }
        if let Some(login) = &key.login {
            fields.push(("account", login.username()));
            request.own_headers.extend(basic(login).map(|value| (http::header::AUTHORIZATION, value)));
        }
        request.url.query_pairs_mut().extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
        request
    }
}

/// Why a login for `registry` is not sent to the token server at `realm`; none if it is sent. As with docker and containerd, any other
/// token server gets the login of the registry that names it.
fn withheld(login: &Credential, realm: &Url, registry: &Url) -> Option<&'static str> {
    let is_here = |url: &Url| is_loopback(url.host_str().unwrap_or_default());
    // A login that goes unencrypted to this host only is not sent unencrypted over a network.
    let leaves_in_the_clear = realm.scheme() == "http" && !is_here(realm) && (registry.scheme() != "http" || is_here(registry));
    if !login.may_be_sent_to(realm) {
        Some("that is not Docker Hub's, where its login is not sent")
    } else if leaves_in_the_clear {
        Some("without TLS on another host, where the login is not sent")
    } else {
        None
    }
}

/// A `Basic` header for a login with name and password.
pub(super) fn basic(login: &Credential) -> Option<HeaderValue> {
    if login.username().is_empty() && login.password().is_empty() {
        return None;
    }
    secret(&format!("Basic {}", STANDARD.encode(format!("{}:{}", login.username(), login.password()))))
}

/// A `Bearer` header for a token.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    secret(&format!("Bearer {token}"))
}

/// A header that is never printed.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
