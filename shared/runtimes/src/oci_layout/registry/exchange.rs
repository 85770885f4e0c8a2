//! One question and its answer, redirects followed.

use http::{HeaderMap, StatusCode};
use url::Url;

use super::answer::Answer;
use super::{Registries, transport};
use crate::oci_layout::failure::StepFailure;
use crate::oci_layout::route::{Proxies, TlsProfile, host_label};
use contract::FailureClass;

/// Redirects followed for one question: registries need one, two where a blob host has moved.
const REDIRECTS_MAX: usize = 5;

/// A question on its way.
pub(super) struct Exchange<'a> {
    pub(super) registries: &'a Registries,
    pub(super) url: Url,
    /// Sent to whoever answers in the end.
    pub(super) headers: HeaderMap,
    /// Sent to the host asked first and to no other: logins above all.
    pub(super) own_headers: HeaderMap,
    /// How TLS is spoken to the host asked first.
    pub(super) tls: &'a TlsProfile,
    pub(super) body: Body,
}

/// What is sent and wanted beside headers.
pub(super) enum Body {
    /// The answer's: a GET.
    Wanted,
    /// None: a HEAD.
    Unwanted,
    /// This form is sent, and the answer's is wanted: a POST.
    Form(String),
}

impl Exchange<'_> {
    /// Asks until somebody answers with something else than a redirect.
    pub(super) async fn run(self) -> Result<Answer, StepFailure> {
        let mut url = self.url.clone();
        let mut visited = Vec::new();
        loop {
            let response = self.send(&url).await?;
            let Some(next) = redirect(&response, &url)? else {
                return Ok(Answer::new(response, url, self.registries.timeouts.no_progress));
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
            url = next;
        }
    }

    async fn send(&self, url: &Url) -> Result<reqwest::Response, StepFailure> {
        let host = host_label(url);
        let own = url.origin() == self.url.origin();
        let strangers = TlsProfile { skip_verify: self.tls.skip_verify, ..TlsProfile::default() };
        let client = self.registries.clients.of(url, if own { self.tls } else { &strangers })?;
        let mut request = match &self.body {
            Body::Wanted => client.get(url.clone()),
            Body::Unwanted => client.head(url.clone()),
            Body::Form(form) => {
                client.post(url.clone()).header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.clone())
            }
        };
        request = request.headers(self.headers.clone());
        if own {
            request = request.headers(self.own_headers.clone());
        }
        let timeouts = self.registries.timeouts;
        match tokio::time::timeout(timeouts.first_byte, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let proxy = Proxies::of_process().of(url);
                Err(transport::failure(&host, url.scheme(), proxy.as_ref(), timeouts.connect, &error))
            }
            Err(_) => Err(StepFailure::connection(&host, format!("no answer within {:?}", timeouts.first_byte))),
        }
    }
}

/// Where a redirect leads; none if the answer is no redirect. A form is never sent on.
fn redirect(response: &reqwest::Response, from: &Url) -> Result<Option<Url>, StepFailure> {
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
        Some(next) => Ok(Some(next)),
        None => {
            Err(StepFailure::at(&host_label(from), FailureClass::Unknown, "redirects to nowhere").advising("ask who runs the registry"))
        }
    }
}
