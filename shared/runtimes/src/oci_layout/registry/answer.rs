//! An HTTP answer: its body in pieces or as a whole, and the failure that an error status means.

use std::time::Duration;

use bytes::Bytes;
use contract::messages::throttler::RegistryLimit;
use contract::{FailureClass, RETRY_AFTER_MAX};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use url::Url;

use super::{Question, limits, transport};
use crate::keyring::Secrets;
use crate::oci_layout::failure::{StepFailure, bounded, quotable};
use crate::oci_layout::route::host_label;

/// The longest error body that is read, in bytes.
const ERROR_BODY_MAX_BYTES: u64 = 64 * 1024;
/// The longest message of a registry that is quoted, in bytes.
const MESSAGE_MAX_BYTES: usize = 300;
/// The longest error code that is quoted, in bytes; the standard's longest has 21.
const CODE_MAX_BYTES: usize = 64;
/// The header that identifies registries.
const REGISTRY_HEADER: &str = "docker-distribution-api-version";

/// An answer.
pub(in crate::oci_layout) struct Answer {
    response: reqwest::Response,
    /// The address that answered, after redirects.
    url: Url,
    /// Whether all redirects stayed within the origin of the first request.
    same_origin: bool,
    no_progress: Duration,
    received: u64,
    /// Counts as a connection to the endpoint until the body is read.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub(super) fn new(response: reqwest::Response, url: Url, same_origin: bool, no_progress: Duration) -> Self {
        Self { response, url, same_origin, no_progress, received: 0, _permit: None }
    }

    pub(super) fn holding(self, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { _permit: permit, ..self }
    }

    pub(in crate::oci_layout) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// `host:port` of the server that answered.
    pub(in crate::oci_layout) fn host(&self) -> String {
        host_label(&self.url)
    }

    /// Whether the endpoint itself answered, to a request with its own headers such as logins.
    pub(super) fn is_of_endpoint(&self) -> bool {
        self.same_origin
    }

    /// A header's text; empty if there is none.
    pub(in crate::oci_layout) fn header(&self, name: &str) -> &str {
        self.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(in crate::oci_layout) fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE.as_str())
    }

    /// The announced length of the body.
    pub(in crate::oci_layout) fn announced(&self) -> Option<u64> {
        self.header(CONTENT_LENGTH.as_str()).parse().ok()
    }

    /// The first byte of a partial answer (`bytes 5-9/10`).
    pub(in crate::oci_layout) fn range_start(&self) -> Option<u64> {
        self.header(CONTENT_RANGE.as_str()).strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
    }

    /// The next piece of the body; none at its end.
    pub(in crate::oci_layout) async fn piece(&mut self) -> Result<Option<Bytes>, StepFailure> {
        match tokio::time::timeout(self.no_progress, self.response.chunk()).await {
            Ok(Ok(piece)) => {
                self.received += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                Ok(piece)
            }
            Ok(Err(error)) => {
                let what = format!("the connection broke after {} bytes of the body: {}", self.received, transport::root_cause(&error));
                Err(StepFailure::connection(&self.host(), what))
            }
            Err(_) => {
                let what = format!("no data for {:?} after {} bytes of the body", self.no_progress, self.received);
                Err(StepFailure::connection(&self.host(), what))
            }
        }
    }

    /// The whole body, if it is not longer than `limit`.
    pub(in crate::oci_layout) async fn whole(&mut self, limit: u64) -> Result<Option<Vec<u8>>, StepFailure> {
        let mut body = Vec::new();
        if self.announced().is_some_and(|length| length > limit) {
            return Ok(None);
        }
        while let Some(piece) = self.piece().await? {
            if (body.len() + piece.len()) as u64 > limit {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(body))
    }

    /// Whether this is a web page, which no registry sends. XML is not one: blob hosts send errors as XML.
    pub(in crate::oci_layout) fn is_web_page(&self, body: &[u8]) -> bool {
        let body = body.trim_ascii_start();
        let page = body.starts_with(b"<") && !body.starts_with(b"<?xml");
        page || self.content_type().trim_start().to_ascii_lowercase().starts_with("text/html")
    }

    /// The failure that an error status means. `wall` is the time since 1970, for dates in headers; `secrets` are removed from quotes.
    pub(super) async fn failure(mut self, question: Question<'_>, wall: Duration, secrets: &Secrets) -> StepFailure {
        // If the body breaks off, never ends or takes too long, the status still counts.
        let body = tokio::time::timeout(self.no_progress, self.whole(ERROR_BODY_MAX_BYTES)).await;
        let body = body.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let error = RegistryError::read(&body, secrets);
        let retry_after = retry_after(self.header(RETRY_AFTER.as_str()), wall);
        let web_page = self.is_web_page(&body);
        let status = self.status();
        if status == StatusCode::BAD_REQUEST && self.url.scheme() == "http" && wants_tls(&body) {
            let what = format!("{status}: the server speaks TLS, but the request was plain HTTP");
            return StepFailure::at(&self.host(), FailureClass::NodeLocal, what).advising(transport::SPEAK_TLS);
        }
        let limits = self.limits(wall, secrets);
        // A proxy before the registry may add the registry's header to its own web page.
        let of_registry = self.headers().contains_key(REGISTRY_HEADER) && !web_page;
        let authoritative = error.is_some() || of_registry || retry_after.is_some() || status == StatusCode::TOO_MANY_REQUESTS;
        let class = classify(status, error.as_ref().map(|error| error.code.as_str()), authoritative);
        let detail = match &error {
            Some(error) => format!(" ({error})"),
            None if web_page => " (with a web page: this is no registry's answer)".to_owned(),
            None => String::new(),
        };
        let subject = secrets.redact(question.name);
        let subject = bounded(&subject, 140);
        let asked =
            retry_after.filter(|after| after.as_secs() > 0).map(|after| format!(", Retry-After {}s", after.as_secs())).unwrap_or_default();
        let what = format!("{status}{detail} for {} {subject}{asked}", question.kind.trim_end_matches('s'));
        let failure = StepFailure { retry_after, authoritative, limits, ..StepFailure::at(&self.host(), class, what) };
        let bare = status == StatusCode::BAD_REQUEST && self.url.scheme() == "http" && !authoritative;
        if bare { failure.advising(transport::SPEAK_TLS) } else { failure }
    }

    /// The limits that the registry states. `wall` is as in [`Answer::failure`].
    pub(super) fn limits(&self, wall: Duration, secrets: &Secrets) -> Vec<RegistryLimit> {
        let mut limits = limits::limits(self.headers(), wall);
        for source in limits.iter_mut().filter_map(|limit| limit.source.as_mut()) {
            *source = secrets.redact(source).into_owned();
        }
        limits
    }
}

/// The first error in a registry's error body.
struct RegistryError {
    code: String,
    message: String,
}

#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl RegistryError {
    fn read(body: &[u8], secrets: &Secrets) -> Option<Self> {
        let ErrorEntry { code, message } = serde_json::from_slice::<ErrorBody>(body).ok()?.errors.into_iter().next()?;
        // Removed before the text is cut, because a part of a secret would not be found.
        let quoted = |text: &str, limit| quotable(&secrets.redact(text), limit);
        Some(Self { code: quoted(&code, CODE_MAX_BYTES), message: quoted(&message, MESSAGE_MAX_BYTES) })
    }
}

impl std::fmt::Display for RegistryError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            (code, "") => formatter.write_str(code),
            ("", message) => formatter.write_str(message),
            (code, message) => write!(formatter, "{code}: {message}"),
        }
    }
}

/// Whether the body says that the server expects TLS, in the words of Go or nginx.
fn wants_tls(body: &[u8]) -> bool {
    let body = String::from_utf8_lossy(body);
    ["HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port"].iter().any(|words| body.contains(words))
}

/// The class of an answer. One that is not a registry's own is classed like one only if the status is unambiguous.
fn classify(status: StatusCode, code: Option<&str>, authoritative: bool) -> FailureClass {
    match code {
        Some("TOOMANYREQUESTS") => return FailureClass::RateLimited,
        Some("MANIFEST_INVALID") => return FailureClass::ContentInvalid,
        _ => {}
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS => FailureClass::RateLimited,
        // A proxy wants a login from this node.
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => FailureClass::NodeLocal,
        StatusCode::REQUEST_TIMEOUT => FailureClass::RegistryUnavailable,
        status if status.is_server_error() => FailureClass::RegistryUnavailable,
        StatusCode::NOT_FOUND if authoritative => FailureClass::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if authoritative => FailureClass::Denied,
        _ => FailureClass::Unknown,
    }
}

/// `Retry-After` in seconds or as a date, [`RETRY_AFTER_MAX`] at most.
fn retry_after(value: &str, wall: Duration) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is a long time too.
        return Some(value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(wall).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_follows_the_status_and_the_registrys_error_code() {
        use FailureClass::{ContentInvalid, Denied, NodeLocal, NotFound, RateLimited, RegistryUnavailable, Unknown};
        for (status, code, authoritative, class) in [
            (429, None, false, RateLimited),
            (429, Some("TOOMANYREQUESTS"), true, RateLimited),
            (403, Some("TOOMANYREQUESTS"), true, RateLimited),
            (404, Some("MANIFEST_UNKNOWN"), true, NotFound),
            (404, Some("NAME_UNKNOWN"), true, NotFound),
            (404, None, true, NotFound),
            (404, None, false, Unknown),
            (401, Some("UNAUTHORIZED"), true, Denied),
            (403, Some("DENIED"), true, Denied),
            (403, None, false, Unknown),
            (407, None, false, NodeLocal),
            (408, None, false, RegistryUnavailable),
            (500, None, true, RegistryUnavailable),
            (503, None, false, RegistryUnavailable),
            (400, Some("MANIFEST_INVALID"), true, ContentInvalid),
            (400, None, true, Unknown),
        ] {
            assert_eq!(classify(StatusCode::from_u16(status).unwrap(), code, authoritative), class, "{status} {code:?} {authoritative}");
        }
    }

    /// On a paused clock the seconds pass at once.
    #[tokio::test(start_paused = true)]
    async fn error_body_that_takes_too_long_does_not_hold_up_the_failure() {
        let second = Duration::from_secs(1);
        let drip = futures::stream::unfold((), move |()| async move {
            tokio::time::sleep(second).await;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")), ()))
        });
        let mut response = http::Response::new(reqwest::Body::wrap_stream(drip));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let url = Url::parse("https://r.example/v2/app/manifests/1").unwrap();
        let answer = Answer::new(response.into(), url, true, second * 10);
        let question = Question { kind: "manifests", name: "1", accept: "", from: 0, head: false };
        let secrets = Secrets::default();
        let failure = answer.failure(question, Duration::ZERO, &secrets);
        let failure = tokio::time::timeout(second * 20, failure).await.expect("it ends in time");
        assert_eq!((failure.class, failure.what.as_str()), (FailureClass::RateLimited, "429 Too Many Requests for manifest 1"));
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let wall = Duration::from_secs(784_111_777);
        for (value, expected) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("86400", Some(3_600)),
            ("99999999999999999999999", Some(3_600)),
            ("Mon, 06 Nov 1995 08:50:37 GMT", Some(3_600)),
            ("soon", None),
            ("-5", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, wall), expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn registrys_error_is_quoted_within_bounds() {
        let read = |text: &str| RegistryError::read(text.as_bytes(), &Secrets::default()).map(|error| error.to_string());
        assert_eq!(read(r#"{"errors":[{"code":"DENIED","message":"no\naccess","detail":{"x":1}}]}"#).as_deref(), Some("DENIED: no access"));
        assert_eq!(read(r#"{"errors":[{"code":"DENIED"}]}"#).as_deref(), Some("DENIED"));
        assert_eq!(read(r#"{"errors":[]}"#), None);
        assert_eq!(read("<html>"), None);
        let long = format!(r#"{{"errors":[{{"code":"X","message":"{}"}}]}}"#, "y".repeat(5_000));
        assert!(read(&long).is_some_and(|text| text.len() < 400));
    }
}
