//! Spans of requests, and the trace headers that are sent.

use std::sync::Arc;

use contract::{Carried, TraceContext, headers};
use http::{HeaderMap, HeaderValue};
use spans::{Kind, Span};
use url::Url;

use crate::keyring::Secrets;
use crate::oci_layout::failure::{StepFailure, bounded};
use crate::port::PullRequest;

/// The longest address in a span, in bytes; a registry may redirect to one of 400 KiB.
const ADDRESS_MAX_BYTES: usize = 2_048;

/// The trace that requests belong to.
#[derive(Clone, Debug)]
pub(in crate::oci_layout) struct Tracing {
    span: TraceContext,
    carried: Option<Arc<Carried>>,
}

impl From<TraceContext> for Tracing {
    fn from(span: TraceContext) -> Self {
        Self { span, carried: None }
    }
}

impl From<&PullRequest> for Tracing {
    fn from(request: &PullRequest) -> Self {
        Self { span: request.trace, carried: request.carried.clone() }
    }
}

impl Tracing {
    /// The trace headers for a registry. They have no baggage, which may be private to the caller.
    pub(super) fn headers(&self, span: &Span) -> HeaderMap {
        let above = span.context().unwrap_or(self.span);
        let traceparent = if above.has_span() { above.traceparent() } else { String::new() };
        let tracestate = self.carried.as_ref().map(|carried| carried.tracestate.as_str());
        let sent = [(headers::TRACEPARENT, Some(traceparent.as_str())), (headers::TRACESTATE, tracestate)];
        let value = |(name, value): (&'static str, Option<&str>)| {
            let value = value.filter(|value| !value.is_empty())?;
            Some((name, HeaderValue::from_str(value).ok()?))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in sent.into_iter().filter_map(value) {
            headers.insert(name, value);
        }
        headers
    }
}

/// A request's span, a child of the current span (a layer's) or else of the attempt. `secrets` are removed from the address.
pub(super) fn request_span(
    trace: Option<&Tracing>,
    method: &'static str,
    url: &Url,
    resent: usize,
    secrets: impl FnOnce() -> Secrets,
) -> Span {
    let above = Span::current().context().or(trace.map(|trace| trace.span));
    let Some(above) = above.filter(|_| spans::enabled()) else { return Span::none() };
    let span = Span::start(method, Kind::Client, above, None);
    span.set("http.request.method", method);
    span.set("url.full", shown(url, &secrets()));
    span.set_some("server.address", url.host_str().map(str::to_owned));
    span.set_some("server.port", url.port_or_known_default().map(i64::from));
    if resent > 0 {
        span.set("http.request.resend_count", i64::try_from(resent).unwrap_or(i64::MAX));
    }
    span
}

pub(super) fn end(span: &Span, answered: &Result<reqwest::Response, StepFailure>) {
    match answered {
        Ok(response) => {
            let status = response.status();
            span.set("http.response.status_code", i64::from(status.as_u16()));
            if status.is_client_error() || status.is_server_error() {
                span.fail(status.as_u16().to_string(), "");
            }
        }
        Err(failure) => span.fail(failure.class.as_str(), &failure.what),
    }
}

/// The beginning of an address, without its login and query, which may have a signature, and without the secrets that the registry got.
fn shown(url: &Url, secrets: &Secrets) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // Fails only for addresses that cannot have a login.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    bounded(&secrets.redact(shown.as_str()), ADDRESS_MAX_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_shown_without_login_query_and_fragment() {
        let url: Url = "https://user:secret@r.example:5000/v2/a/blobs/sha256:1?X-Amz-Signature=secret#x".parse().expect("a URL");
        assert_eq!(shown(&url, &Secrets::default()), "https://r.example:5000/v2/a/blobs/sha256:1");
    }

    #[test]
    fn long_address_is_cut() {
        let url: Url = format!("https://r.example/{}", "x".repeat(100_000)).parse().expect("a URL");
        assert_eq!(shown(&url, &Secrets::default()).len(), ADDRESS_MAX_BYTES);
    }

    #[test]
    fn secrets_are_removed_from_the_path_of_a_redirect() {
        let mut secrets = Secrets::default();
        secrets.add("pa55 word/4711");
        let url: Url = "https://cdn.example/pa55%20word%2F4711/blob?sig=pa55".parse().expect("a URL");
        assert_eq!(shown(&url, &secrets), "https://cdn.example/(secret)/blob");
    }
}
