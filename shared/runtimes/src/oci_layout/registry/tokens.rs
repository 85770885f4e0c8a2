//! Tokens of registries' token servers, kept as long as they are good.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::FailureClass;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use url::Url;

use super::exchange::{Body, Exchange};
use super::{Question, Registries};
use crate::keyring::Credential;
use crate::oci_layout::failure::StepFailure;
use crate::oci_layout::route::{TlsProfile, host_label};

/// Tokens kept. One is made for each repository; the one that ends first goes first.
const TOKENS_MAX: usize = 256;
/// Longest answer of a token server. Tokens with many groups in them reach some 10 KiB.
const ANSWER_MAX_BYTES: u64 = 256 * 1024;
/// How long a token is good whose server does not say, as the standard has it.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(60);
/// A token is renewed so long before its end, since clocks differ and a request takes its time.
const LIFETIME_MARGIN: Duration = Duration::from_secs(10);
/// How token servers know us.
const CLIENT_ID: &str = "fleetpull";

/// What a token is good for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TokenKey {
    pub(super) realm: String,
    pub(super) service: String,
    pub(super) scope: String,
    /// None for a token without a login.
    pub(super) login: Option<Credential>,
}

struct Kept {
    key: TokenKey,
    header: HeaderValue,
    /// Monotonic.
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
        kept.push(Kept { key, header, ends: now + lifetime.saturating_sub(LIFETIME_MARGIN) });
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
    expires_in: Option<u64>,
}

/// Why there is no token.
pub(super) enum NoToken {
    /// The server does not take this login.
    Refused(StepFailure),
    /// Another login would not help.
    Failed(StepFailure),
}

impl Registries {
    /// A `Bearer` header for `key`: kept, or asked for. `registry` is who named the token server.
    pub(super) async fn token(&self, key: TokenKey, registry: &Url, tls: &TlsProfile) -> Result<HeaderValue, NoToken> {
        if let Some(header) = self.tokens.get(&key, self.clock.now().monotonic) {
            return Ok(header);
        }
        let (header, lifetime) = self.fetch(&key, registry, tls).await?;
        self.tokens.keep(key, header.clone(), self.clock.now().monotonic, lifetime);
        Ok(header)
    }

    /// A token that is kept and still good.
    pub(super) fn kept_token(&self, key: &TokenKey) -> Option<HeaderValue> {
        self.tokens.get(key, self.clock.now().monotonic)
    }

    pub(super) fn forget_token(&self, key: &TokenKey) {
        self.tokens.forget(key);
    }

    async fn fetch(&self, key: &TokenKey, registry: &Url, tls: &TlsProfile) -> Result<(HeaderValue, Duration), NoToken> {
        let registry_host = host_label(registry);
        let odd = |what: String| {
            NoToken::Failed(StepFailure::at(&registry_host, FailureClass::Unknown, what).advising("ask who runs the registry"))
        };
        let realm = Url::parse(&key.realm).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(realm) = realm else { return Err(odd("names a token server that is no address".to_owned())) };
        if registry.scheme() == "https" && realm.scheme() != "https" {
            return Err(odd("names a token server without TLS, which is not asked".to_owned()));
        }
        let host = host_label(&realm);
        let own = realm.origin() == registry.origin();
        let strangers = TlsProfile { skip_verify: tls.skip_verify, ..TlsProfile::default() };
        let mut answer = self.token_request(key, realm, if own { tls } else { &strangers }).run().await.map_err(NoToken::Failed)?;
        let question = Question { kind: "token", name: &key.scope, accept: "", from: 0, head: false };
        match answer.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // The registry sent us there, so its refusal counts as the registry's, unless a proxy's page stands in for it.
                let mut failure = answer.failure(question, self.clock.now().wall).await;
                if failure.class == FailureClass::Unknown && !failure.what.contains("web page") {
                    failure = StepFailure { authoritative: true, ..StepFailure::at(&host, FailureClass::Denied, failure.what) };
                }
                return Err(NoToken::Refused(failure));
            }
            _ => return Err(NoToken::Failed(answer.failure(question, self.clock.now().wall).await)),
        }
        let body = answer.whole(ANSWER_MAX_BYTES).await.map_err(NoToken::Failed)?.unwrap_or_default();
        let unusable = || NoToken::Failed(StepFailure::at(&host, FailureClass::Unknown, "the token server's answer holds no token"));
        let read: TokenAnswer = serde_json::from_slice(&body).map_err(|_| unusable())?;
        let token = if read.token.is_empty() { read.access_token } else { read.token };
        let header = bearer(&token).filter(|_| !token.is_empty()).ok_or_else(unusable)?;
        Ok((header, read.expires_in.map_or(LIFETIME_DEFAULT, Duration::from_secs)))
    }

    /// A GET with name and password, as docker does; a POST where a refresh token stands for them.
    fn token_request<'a>(&'a self, key: &TokenKey, mut realm: Url, tls: &'a TlsProfile) -> Exchange<'a> {
        let mut own_headers = HeaderMap::new();
        let mut fields = vec![("service", key.service.as_str()), ("scope", key.scope.as_str())];
        let refresh = key.login.as_ref().map(Credential::identity_token).filter(|token| !token.is_empty());
        if let Some(refresh) = refresh {
            fields.extend([("grant_type", "refresh_token"), ("client_id", CLIENT_ID), ("refresh_token", refresh)]);
            let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
            return Exchange { registries: self, url: realm, headers: HeaderMap::new(), own_headers, tls, body: Body::Form(form) };
        }
        if let Some(login) = &key.login {
            fields.push(("account", login.username()));
            own_headers.extend(basic(login).map(|value| (http::header::AUTHORIZATION, value)));
        }
        realm.query_pairs_mut().extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
        Exchange { registries: self, url: realm, headers: HeaderMap::new(), own_headers, tls, body: Body::Wanted }
    }
}

/// `Basic` for a login with a name and password.
pub(super) fn basic(login: &Credential) -> Option<HeaderValue> {
    if login.username().is_empty() && login.password().is_empty() {
        return None;
    }
    secret(&format!("Basic {}", STANDARD.encode(format!("{}:{}", login.username(), login.password()))))
}

/// `Bearer` for a token.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    secret(&format!("Bearer {token}"))
}

/// A header that is never printed.
fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
