//! One question and its answer, redirects followed.

use http::{HeaderMap, StatusCode};
use metrics::Status;
use url::Url;

use super::answer::Answer;
use super::{Registries, Tracing, traced, transport};
use crate::keyring::Secrets;
use crate::oci_layout::failure::{StepFailure, bounded};
use crate::oci_layout::route::{Endpoint, Proxies, TlsProfile, host_label};
use contract::FailureClass;

/// Redirects followed for one question: registries need one, two where a blob host has moved.
const REDIRECTS_MAX: usize = 5;
/// Longest host of a redirect that is quoted: no name of a host is longer. Bytes.
const HOST_MAX_BYTES: usize = 260;

/// A question on its way.
pub(super) struct Exchange<'a> {
    pub(super) registries: &'a Registries,
    pub(super) url: Url,
    /// Sent to each host that redirects lead to.
    pub(super) headers: HeaderMap,
    /// Sent to the origin asked first (scheme, host and port) and to no other: logins above all. Once a redirect has led
    /// elsewhere they are not sent any more, also if another one leads back.
    pub(super) own_headers: HeaderMap,
    /// On whose behalf: says how TLS is spoken to itself, and how to the other hosts that it names. None: nobody's; certificates
    /// are checked.
    pub(super) endpoint: Option<&'a Endpoint>,
    pub(super) body: Body,
    pub(super) elsewhere: Elsewhere,
    /// Sent only to the origin asked first; none: it is not sent.
    pub(super) trace: Option<&'a Tracing>,
    /// What must not be seen of addresses, beside what `own_headers` show; none: nothing.
    pub(super) secrets: Option<&'a Secrets>,
}

/// What a redirect to another origin means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// It is followed, without `own_headers`.
    Followed,
    /// It is a failure: without its secret the request would be another.
    Refused,
}

/// What is sent and wanted beside headers.
pub(super) enum Body {
    /// The answer's: a GET.
    Wanted,
    /// None: a HEAD.
    Unwanted,
    /// This form, which may hold a secret, is sent, and the answer's is wanted: a POST. Needs [`Elsewhere::Refused`].
    Form(String),
}

/// Where a redirect leads.
struct Redirect {
    to: Url,
    status: StatusCode,
}

impl Exchange<'_> {
    /// Asks until somebody answers with something else than a redirect.
    pub(super) async fn run(mut self) -> Result<Answer, StepFailure> {
        let mut url = self.url.clone();
        let mut visited = Vec::new();
        let mut at_home = true;
        loop {
            let response = self.send_traced(&url, at_home, visited.len()).await?;
            let Some(Redirect { to: next, status }) = redirect(&response, &url)? else {
                return Ok(Answer::new(response, url, at_home, self.registries.timeouts.no_progress));
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
            at_home &= next.origin() == self.url.origin();
            if !at_home && self.elsewhere == Elsewhere::Refused {
                let to = bounded(&host_label(&next), HOST_MAX_BYTES).to_owned();
                return wrong(&format!("redirects a request with a login to another address, {to}, where it is not sent"));
            }
            if status == StatusCode::SEE_OTHER && matches!(self.body, Body::Form(_)) {
                self.body = Body::Wanted;
            }
            url = next;
        }
    }

    /// One request as a span. `resent` is how many redirects came before.
    async fn send_traced(&self, url: &Url, at_home: bool, resent: usize) -> Result<reqwest::Response, StepFailure> {
        let method = match &self.body {
            Body::Wanted => "GET",
            Body::Unwanted => "HEAD",
            Body::Form(_) => "POST",
        };
        let span = traced::request_span(self.trace, method, url, resent, || self.secrets());
        let outgoing = self.trace.filter(|_| at_home).map(|trace| trace.headers(&span)).unwrap_or_default();
        let answered = self.send(url, at_home, outgoing).await;
        traced::end(&span, &answered);
        answered
    }

    /// What the one who is asked knows and may say again in an address that it redirects to.
    fn secrets(&self) -> Secrets {
        let mut secrets = self.secrets.cloned().unwrap_or_default();
        // `Basic` or `Bearer` before it is no secret.
        let authorization = self.own_headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        authorization.iter().for_each(|(_, shown)| secrets.add(shown));
        secrets
    }

    /// `at_home` if no redirect has led to another origin so far.
    async fn send(&self, url: &Url, at_home: bool, outgoing: HeaderMap) -> Result<reqwest::Response, StepFailure> {
        let host = host_label(url);
        // A host that a redirect came back to is the same host, whoever chose the address.
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
        if at_home {
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

/// Where a redirect leads; none if the answer is no redirect.
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
