//! One request and its answer, with redirects followed.

use http::{HeaderMap, StatusCode};
use metrics::Status;
use url::Url;

use super::answer::Answer;
use super::{Registries, Tracing, traced, transport};
use crate::keyring::Secrets;
use crate::oci_layout::failure::{StepFailure, bounded};
use crate::oci_layout::route::{Endpoint, Proxies, TlsProfile, host_label};
use contract::FailureClass;

/// The most redirects for one request; registries need one, or two if a blob host has moved.
const REDIRECTS_MAX: usize = 5;
/// The longest host of a redirect that is quoted, in bytes; no host name is longer.
const HOST_MAX_BYTES: usize = 260;

/// A request.
pub(super) struct Exchange<'a> {
    pub(super) registries: &'a Registries,
    pub(super) url: Url,
    /// Sent to every host, also after redirects.
    pub(super) headers: HeaderMap,
    /// Sent only to the origin of the first request (scheme, host and port), such as logins. After a redirect to another origin they are
    /// not sent any more, even if a later redirect leads back.
    pub(super) own_headers: HeaderMap,
    /// The endpoint whose TLS settings apply, for itself and for the hosts that it names. None: certificates are checked.
    pub(super) endpoint: Option<&'a Endpoint>,
    pub(super) body: Body,
    pub(super) elsewhere: OtherOrigin,
    /// The trace, sent only to the origin of the first request; none: it is not sent.
    pub(super) trace: Option<&'a Tracing>,
    /// Secrets to remove from shown addresses, besides those in `own_headers`.
    pub(super) secrets: Option<&'a Secrets>,
}

/// What happens at a redirect to another origin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherOrigin {
    /// It is followed without `own_headers`.
    Followed,
    /// It is a failure, because the request makes no sense without its secret.
    Refused,
}

/// The method and body.
pub(super) enum Body {
    /// A GET.
    Wanted,
    /// A HEAD.
    Unwanted,
    /// A POST of this form, which may have a secret. Needs [`OtherOrigin::Refused`].
    Form(String),
}

/// A redirect's target.
struct Redirect {
    to: Url,
    status: StatusCode,
}

impl Exchange<'_> {
    /// Sends the request, and follows redirects to the final answer.
    pub(super) async fn run(mut self) -> Result<Answer, StepFailure> {
        let mut url = self.url.clone();
        let mut visited = Vec::new();
        let mut same_origin = true;
        loop {
            let response = self.send_traced(&url, same_origin, visited.len()).await?;
            let Some(Redirect { to: next, status }) = redirect(&response, &url)? else {
                return Ok(Answer::new(response, url, same_origin, self.registries.timeouts.no_progress));
            };
            visited.push(url);
            let host = host_label(&visited[0]);
            let wrong = |what: &str| Err(StepFailure::at(&host, FailureClass::Unknown, what).advising("ask who runs the registry"));
            if visited.contains(&next) {
                return wrong("redirects in a circle");
            }
            if visited.len() > REDIRECTS_MAX {
                return wrong("more than 5 redirects");
            }
            if self.url.scheme() == "https" && next.scheme() != "https" {
                return wrong("redirects from https to plain http, which is not followed");
            }
            same_origin &= next.origin() == self.url.origin();
            if !same_origin && self.elsewhere == OtherOrigin::Refused {
                let to = bounded(&host_label(&next), HOST_MAX_BYTES).to_owned();
                return wrong(&format!("redirects a request with a login to another address, {to}, where it is not sent"));
            }
            if status == StatusCode::SEE_OTHER && matches!(self.body, Body::Form(_)) {
                self.body = Body::Wanted;
            }
            url = next;
        }
    }

    /// Sends one request with a span. `resent` is the number of redirects before it.
    async fn send_traced(&self, url: &Url, same_origin: bool, resent: usize) -> Result<reqwest::Response, StepFailure> {
        let method = match &self.body {
            Body::Wanted => "GET",
            Body::Unwanted => "HEAD",
            Body::Form(_) => "POST",
        };
        let span = traced::request_span(self.trace, method, url, resent, || self.secrets());
        let outgoing = self.trace.filter(|_| same_origin).map(|trace| trace.headers(&span)).unwrap_or_default();
        let answered = self.send(url, same_origin, outgoing).await;
        traced::end(&span, &answered);
        answered
    }

    /// The secrets that the server got, and may repeat in a redirect's address.
    fn secrets(&self) -> Secrets {
        let mut secrets = self.secrets.cloned().unwrap_or_default();
        // The scheme, `Basic` or `Bearer`, is no secret.
        let authorization = self.own_headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        authorization.iter().for_each(|(_, shown)| secrets.add(shown));
        secrets
    }

    /// Sends one request; `same_origin` if no redirect has led to another origin so far.
    async fn send(&self, url: &Url, same_origin: bool, outgoing: HeaderMap) -> Result<reqwest::Response, StepFailure> {
        let host = host_label(url);
        // The endpoint's own TLS settings apply to its host also after redirects.
        let is_endpoint = self.endpoint.is_some_and(|endpoint| url.origin() == endpoint.base.origin());
        let client = match self.endpoint {
            Some(endpoint) if is_endpoint => self.registries.clients.of(url, &endpoint.tls)?,
            Some(endpoint) => self.registries.clients.of(url, &endpoint.tls_elsewhere)?,
            None => self.registries.clients.of(url, &TlsProfile::default())?,
        };
        let mut request = match &self.body {
            Body::Wanted => client.get(url.clone()),
            Body::Unwanted => client.head(url.clone()),
            Body::Form(form) => {
                client.post(url.clone()).header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.clone())
            }
        };
        request = request.headers(self.headers.clone());
        if same_origin {
            request = request.headers(self.own_headers.clone()).headers(outgoing);
        }
        let timeouts = self.registries.timeouts;
        let answered = tokio::time::timeout(timeouts.first_byte, request.send()).await;
        let status =
            answered.as_ref().ok().and_then(|sent| sent.as_ref().ok()).map_or(Status::NONE, |answer| Status::of(answer.status().as_u16()));
        let registry = self.endpoint.map_or("", |endpoint| endpoint.registry.as_str());
        self.registries.instruments.registry_asked(registry, status);
        match answered {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let proxy = Proxies::of_process().of(url);
                let failure = transport::failure(&host, url.scheme(), proxy.as_ref(), timeouts.connect, &error);
                Err(if is_endpoint { failure } else { transport::without_hosts_file(failure) })
            }
            Err(_) => Err(StepFailure::connection(&host, format!("no answer within {:?}", timeouts.first_byte))),
        }
    }
}

/// The redirect's target; none if the answer is no redirect.
fn redirect(response: &reqwest::Response, from: &Url) -> Result<Option<Redirect>, StepFailure> {
    let followed = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    if !followed.contains(&response.status()) {
        return Ok(None);
    }
    let location = response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| from.join(location).ok()).filter(|url| matches!(url.scheme(), "http" | "https"));
    match next {
        Some(to) => Ok(Some(Redirect { to, status: response.status() })),
        None => {
            Err(StepFailure::at(&host_label(from), FailureClass::Unknown, "redirects to nowhere").advising("ask who runs the registry"))
        }
    }
}
