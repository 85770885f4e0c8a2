//! Routes requests and answers them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clock::Clock;
use http::header::{ACCEPT_RANGES, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use crate::auth::{Auth, TokenRequest, Tokens, basic_login};
use crate::body::{self, Body};
use crate::catalogue::Catalogue;
use crate::counters::{Counters, LoggedRequest};
use crate::faults::{BodyFault, FaultAction, Faults};

/// The longest form that the token server reads.
const FORM_MAX_BYTES: usize = 16 * 1024;

/// State shared by all connections.
pub(crate) struct Shared {
    pub(crate) own_url: String,
    pub(crate) host: String,
    pub(crate) auth: Auth,
    /// The clock, started with the registry: its monotonic time is the registry's age.
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) catalogue: Mutex<Catalogue>,
    pub(crate) counters: Arc<Mutex<Counters>>,
    pub(crate) tokens: Mutex<Tokens>,
}

pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one request.
///
/// # Errors
/// The connection is closed without an answer.
pub(crate) async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let number = held(&shared.counters).asked(logged(&request, shared.age()));
    let traceparent = request.headers().get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let action = shared.faults.met_by(&path, traceparent);
    let answer = match &action {
        Some(FaultAction::Hang) => {
            held(&shared.counters).answered(number, None);
            std::future::pending().await
        }
        Some(FaultAction::Close) => {
            held(&shared.counters).answered(number, None);
            return Err(io::Error::other("closed by a fault"));
        }
        Some(FaultAction::Answer { status, headers, body }) => shared.given(*status, headers, body),
        Some(FaultAction::Redirect { to }) => shared.given(307, &[("location".to_owned(), format!("{to}{path}"))], ""),
        Some(FaultAction::Quota(quota)) if is_pull(&request) && !quota.takes() => {
            error(StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS", "You have reached your pull rate limit.")
        }
        Some(FaultAction::Beyond { capacity, status, headers, body }) if is_pull(&request) && !capacity.takes(shared.age()) => {
            shared.given(*status, headers, body)
        }
        _ => shared.answer(request, action.as_ref()).await,
    };
    held(&shared.counters).answered(number, Some(answer.status().as_u16()));
    Ok(match action {
        Some(FaultAction::Header { name, value }) => with_header(answer, &name, &value),
        Some(FaultAction::Quota(quota)) => quota.headers().iter().fold(answer, |answer, (name, value)| with_header(answer, name, value)),
        Some(FaultAction::Headers(headers)) => headers.iter().fold(answer, |answer, (name, value)| with_header(answer, name, value)),
        _ => answer,
    })
}

/// Whether the request counts as a pull at Docker Hub: a `GET` of a manifest.
fn is_pull(request: &Request<Incoming>) -> bool {
    request.method() == Method::GET && matches!(Route::of(request.uri().path()), Route::Manifest { .. })
}

fn logged(request: &Request<Incoming>, at: Duration) -> LoggedRequest {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let others = request.headers().iter().filter(|(name, _)| **name != AUTHORIZATION);
    LoggedRequest {
        at,
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        authorization: authorization(request.headers()).map(|value| value.split(' ').next().unwrap_or_default().to_owned()),
        headers: others.map(|(name, value)| (name.to_string(), text(value))).collect(),
        status: None,
    }
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()
}

fn with_header(mut answer: Response<Body>, name: &str, value: &str) -> Response<Body> {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

fn plain(status: StatusCode, content_type: &'static str, content: Bytes) -> Response<Body> {
    let mut answer = Response::new(body::full(content));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    with_header(answer, "docker-distribution-api-version", "registry/2.0")
}

fn error(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let content = json!({"errors": [{"code": code, "message": message, "detail": null}]}).to_string();
    plain(status, "application/json", Bytes::from(content))
}

enum Route<'a> {
    Base,
    Token,
    Manifest { repository: &'a str, reference: &'a str },
    Blob { repository: &'a str, digest: &'a str },
    Nowhere,
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Self {
        if path == "/token" {
            return Self::Token;
        }
        let Some(rest) = path.strip_prefix("/v2/") else { return Self::Nowhere };
        if rest.is_empty() {
            return Self::Base;
        }
        if let Some((repository, reference)) = rest.rsplit_once("/manifests/") {
            return Self::Manifest { repository, reference };
        }
        match rest.rsplit_once("/blobs/") {
            Some((repository, digest)) => Self::Blob { repository, digest },
            None => Self::Nowhere,
        }
    }

    fn repository(&self) -> &'a str {
        match self {
            Self::Manifest { repository, .. } | Self::Blob { repository, .. } => repository,
            _ => "",
        }
    }
}

impl Shared {
    pub(crate) fn age(&self) -> Duration {
        self.clock.now().monotonic
    }

    /// The answer of a fault.
    fn given(&self, status: u16, headers: &[(String, String)], content: &str) -> Response<Body> {
        let mut answer = Response::new(body::full(Bytes::from(content.to_owned())));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        headers.iter().fold(answer, |answer, (name, value)| with_header(answer, name, &value.replace("{host}", &self.host)))
    }

    async fn answer(&self, request: Request<Incoming>, action: Option<&FaultAction>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let route = Route::of(&path);
        if matches!(route, Route::Token) {
            return self.token(request).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return error(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is read-only");
        }
        let checked = self.auth.check(authorization(request.headers()), route.repository(), &self.own_url, &held(&self.tokens));
        if let Err(refusal) = checked {
            let answer = error(StatusCode::UNAUTHORIZED, refusal.code, "authentication required");
            return with_header(answer, WWW_AUTHENTICATE.as_str(), &refusal.challenge);
        }
        let spoilt = if let Some(FaultAction::Body(fault)) = action { Some(*fault) } else { None };
        match route {
            Route::Base => plain(StatusCode::OK, "application/json", Bytes::from_static(b"{}")),
            Route::Manifest { repository, reference } => self.manifest(repository, reference, spoilt),
            Route::Blob { repository, digest } => {
                let range = if action == Some(&FaultAction::IgnoreRange) { None } else { request.headers().get(RANGE) };
                self.blob(repository, digest, range, spoilt)
            }
            Route::Token | Route::Nowhere => error(StatusCode::NOT_FOUND, "UNSUPPORTED", "no such endpoint"),
        }
    }

    fn manifest(&self, repository: &str, reference: &str, fault: Option<BodyFault>) -> Response<Body> {
        let catalogue = held(&self.catalogue);
        let Some(repository) = catalogue.repository(repository) else {
            return error(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry");
        };
        let Some((digest, manifest)) = repository.manifest(reference) else {
            return error(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown");
        };
        let mut answer = plain(StatusCode::OK, "application/json", manifest.content.clone());
        if let Some(fault) = fault {
            let length = body::announced(manifest.content.len() as u64, Some(fault));
            *answer.body_mut() = body::spoilt(manifest.content.clone(), fault);
            if let Some(length) = length {
                answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        with_header(with_header(answer, "content-type", &manifest.media_type), "docker-content-digest", digest)
    }

    fn blob(&self, repository: &str, digest: &str, range: Option<&HeaderValue>, fault: Option<BodyFault>) -> Response<Body> {
        let blob = held(&self.catalogue).repository(repository).and_then(|repository| repository.blob(digest).cloned());
        let Some(blob) = blob else {
            return error(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown to registry");
        };
        let size = blob.size();
        let (status, range) = match range.map(|value| read_range(value, size)) {
            None => (StatusCode::OK, 0..size),
            Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
            Some(None) => {
                let answer = error(StatusCode::RANGE_NOT_SATISFIABLE, "RANGE_INVALID", "no such range");
                return with_header(answer, CONTENT_RANGE.as_str(), &format!("bytes */{size}"));
            }
        };
        let length = body::announced(range.end - range.start, fault);
        let sent = match fault {
            Some(BodyFault::ShortBy(bytes)) => range.start..range.end.saturating_sub(bytes).max(range.start),
            _ => range.clone(),
        };
        let mut answer = Response::new(body::of_blob(blob, sent, digest, &self.counters, fault));
        *answer.status_mut() = status;
        answer.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if let Some(length) = length {
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        if status == StatusCode::PARTIAL_CONTENT {
            let value = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            answer = with_header(answer, CONTENT_RANGE.as_str(), &value);
        }
        with_header(with_header(answer, "docker-content-digest", digest), "docker-distribution-api-version", "registry/2.0")
    }

    async fn token(&self, request: Request<Incoming>) -> Response<Body> {
        let Auth::Token(server) = &self.auth else {
            return error(StatusCode::NOT_FOUND, "UNSUPPORTED", "no token server here");
        };
        let mut fields = fields(request.uri().query().unwrap_or_default());
        let login = basic_login(authorization(request.headers()));
        if request.method() == Method::POST {
            let Ok(form) = Limited::new(request.into_body(), FORM_MAX_BYTES).collect().await else {
                return error(StatusCode::BAD_REQUEST, "UNSUPPORTED", "form too long");
            };
            fields = self::fields(&String::from_utf8_lossy(&form.to_bytes()));
        }
        let (status, content) = server.answer(&TokenRequest { login, fields }, &mut held(&self.tokens));
        plain(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), "application/json", Bytes::from(content))
    }
}

/// Parses `bytes=a-` and `bytes=a-b`; none if the range cannot be satisfied.
fn read_range(value: &HeaderValue, size: u64) -> Option<Range<u64>> {
    let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let start: u64 = first.parse().ok()?;
    let end = if last.is_empty() { size } else { last.parse::<u64>().ok()?.checked_add(1)?.min(size) };
    (start < end).then_some(start..end)
}

/// The fields of a query or form.
fn fields(text: &str) -> BTreeMap<String, String> {
    text.split('&').filter_map(|field| field.split_once('=')).map(|(name, value)| (unescaped(name), unescaped(value))).collect()
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(escaped.unwrap_or(if bytes[at] == b'+' { b' ' } else { bytes[at] }));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_in_the_standard() {
        for (text, expected) in [
            ("bytes=0-", Some(0..10)),
            ("bytes=4-", Some(4..10)),
            ("bytes=4-5", Some(4..6)),
            ("bytes=4-99", Some(4..10)),
            ("bytes=10-", None),
            ("bytes=5-4", None),
            ("bytes=x-", None),
            ("items=0-", None),
        ] {
            assert_eq!(read_range(&HeaderValue::from_static(text), 10), expected, "{text}");
        }
    }

    #[test]
    fn fields_are_unescaped() {
        let fields = fields("scope=repository%3Aa%2Fb%3Apull&service=x+y&odd=%zz");
        assert_eq!(fields["scope"], "repository:a/b:pull");
        assert_eq!(fields["service"], "x y");
        assert_eq!(fields["odd"], "%zz");
    }
}
