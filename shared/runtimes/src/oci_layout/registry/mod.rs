//! Requests to registries, with logins, redirects, time-outs and bounds.

mod access;
mod answer;
mod challenge;
mod clients;
mod exchange;
mod external;
mod limits;
mod permits;
mod tokens;
mod traced;
mod transport;

use std::borrow::Cow;
use std::sync::Arc;

use clock::Clock;
use contract::FailureClass;
use contract::Stage;
use contract::messages::throttler::RegistryLimit;
use http::{HeaderMap, HeaderValue, StatusCode};
use image::Reference;
use metrics::Instruments;
use url::Url;

use super::failure::StepFailure;
use super::options::Timeouts;
use super::route::Endpoint;
use crate::keyring::{Audience, Keyring, Secrets};
pub(super) use access::Access;
pub(super) use answer::Answer;
use challenge::Challenges;
use clients::Clients;
use exchange::{Body, Exchange, OtherOrigin};
use permits::Permits;
use tokens::TokenCache;
pub(super) use traced::Tracing;

/// Shared by all pulls: connections, tokens, and the number of requests to one endpoint.
pub(crate) struct Registries {
    clients: Clients,
    tokens: TokenCache,
    challenges: Challenges,
    permits: Permits,
    timeouts: Timeouts,
    clock: Clock,
    instruments: Instruments,
}

/// One endpoint for one pull, with its logins and the state of authentication.
pub(super) struct Session {
    registries: Arc<Registries>,
    pub(super) endpoint: Endpoint,
    /// The image's path in the registry: `library/busybox`.
    path: String,
    access: Access,
    /// The secrets to remove from the endpoint's texts.
    secrets: Secrets,
    keyring: Keyring,
    audience: Audience,
    trace: Tracing,
}

/// A request below `/v2/<path>/`.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// `manifests` or `blobs`.
    pub(super) kind: &'a str,
    /// A tag or digest.
    pub(super) name: &'a str,
    pub(super) accept: &'a str,
    /// The first byte wanted, after an interrupted answer.
    pub(super) from: u64,
    /// Whether only the head of the answer is wanted.
    pub(super) head: bool,
}

impl Registries {
    pub(super) fn new(timeouts: Timeouts, connections_per_registry: usize, clock: Clock, instruments: Instruments) -> Self {
        Self {
            clients: Clients::new(timeouts.connect, connections_per_registry),
            tokens: TokenCache::default(),
            challenges: Challenges::default(),
            permits: Permits::new(connections_per_registry),
            timeouts,
            clock,
            instruments,
        }
    }
}

impl Session {
    /// Looks up the logins that this endpoint may get.
    pub(super) async fn open(
        registries: &Arc<Registries>,
        keyring: &Keyring,
        endpoint: Endpoint,
        reference: &Reference,
        trace: Tracing,
    ) -> Result<Self, StepFailure> {
        let audience = endpoint.audience(reference);
        let logins = keyring.lookup(&audience).await;
        let logins = logins.map_err(|error| StepFailure::here(error.to_string(), ""))?;
        let mut secrets = Secrets::of(&logins);
        endpoint.headers.values().filter_map(|value| value.to_str().ok()).for_each(|value| {
            secrets.add(value);
            // The scheme, `Basic` or `Bearer`, is no secret.
            value.split_once(' ').iter().for_each(|(_, shown)| secrets.add(shown));
        });
        Ok(Self {
            secrets,
            registries: Arc::clone(registries),
            endpoint,
            path: reference.path().to_owned(),
            access: Access::new(logins),
            keyring: keyring.clone(),
            audience,
            trace,
        })
    }

    /// The limits that an answer of this endpoint states.
    pub(super) fn limits(&self, answer: &Answer) -> Vec<RegistryLimit> {
        answer.limits(self.registries.clock.now().wall, &self.secrets)
    }

    /// A text with the endpoint's words, without the secrets that it got.
    pub(super) fn without_secrets<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.secrets.redact(text)
    }

    /// The source of the login that was used last.
    pub(super) async fn auth(&self) -> String {
        self.access.source().await
    }

    /// Whether a token server has given a token for this pull.
    pub(super) async fn has_token(&self) -> bool {
        self.access.has_token().await
    }

    /// Sends a request, and meets challenges. Returns a successful answer, or 416 if a range was asked for.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answer, StepFailure> {
        let answered = self.answer(question).await.map_err(|failure| {
            let what = self.without_secrets(&failure.what).into_owned();
            StepFailure { what, ..failure }
        });
        match answered {
            Err(failure) if failure.class == FailureClass::Denied => Err(self.with_login(failure).await),
            answered => answered,
        }
    }

    /// Adds the login that was refused to a failure; otherwise a missing and a wrong login would read the same.
    async fn with_login(&self, failure: StepFailure) -> StepFailure {
        let sent = self.access.sent().await;
        let (what, advice) = if sent.is_empty() {
            let why = self.keyring.why_none(&self.audience).await;
            (format!("{}, and no login was sent ({why})", failure.what), "log in with an account that may pull it, or check the name")
        } else {
            let sent = sent.join(", then the ");
            (format!("{}, though the {sent} was sent", failure.what), "check the name, and that this login is right and may pull it")
        };
        StepFailure { what, advice, ..failure }
    }

    async fn answer(&self, question: Question<'_>) -> Result<Answer, StepFailure> {
        let permit = self.registries.permits.acquire(&self.endpoint.host).await;
        let url = self.url(question)?;
        let mut pass = self.access.current(self).await;
        let mut rounds_left = self.access.rounds();
        loop {
            let answer = self.exchange(&url, question, pass.header.clone()).run().await?;
            let status = answer.status();
            let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && answer.is_of_endpoint();
            if !refused {
                self.access.accepted(&pass).await;
            }
            if status.is_success() || question.from > 0 && status == StatusCode::RANGE_NOT_SATISFIABLE {
                return Ok(answer.holding(permit));
            }
            rounds_left -= 1;
            let next = if refused && rounds_left > 0 {
                self.access.after_refusal(self, &pass, &answer).await.map_err(|failure| failure.at_stage(Stage::Token))?
            } else {
                None
            };
            match next {
                Some(next) => pass = next,
                None => {
                    let mut secrets = self.secrets.clone();
                    let shown = pass.header.as_ref().and_then(|header| header.to_str().ok()?.split_once(' '));
                    shown.iter().for_each(|(_, shown)| secrets.add(shown));
                    return Err(answer.failure(question, self.registries.clock.now().wall, &secrets).await);
                }
            }
        }
    }

    /// The key of cached challenges.
    fn repository(&self) -> (String, String) {
        (self.endpoint.base.to_string(), self.path.clone())
    }

    fn url(&self, question: Question<'_>) -> Result<Url, StepFailure> {
        let mut url = self.endpoint.base.clone();
        url.set_path(&format!("{}/{}/{}/{}", url.path().trim_end_matches('/'), self.path, question.kind, question.name));
        if let Some(registry) = &self.endpoint.stands_for {
            url.query_pairs_mut().append_pair("ns", registry);
        }
        Ok(url)
    }

    fn exchange(&self, url: &Url, question: Question<'_>, authorization: Option<HeaderValue>) -> Exchange<'_> {
        let mut headers = HeaderMap::new();
        if let Ok(accept) = HeaderValue::from_str(question.accept) {
            headers.insert(http::header::ACCEPT, accept);
        }
        if question.from > 0 {
            headers.insert(
                http::header::RANGE,
                HeaderValue::from_str(&format!("bytes={}-", question.from)).unwrap_or(HeaderValue::from_static("bytes=0-")),
            );
        }
        Exchange {
            registries: &self.registries,
            url: url.clone(),
            headers,
            own_headers: self.own_headers(authorization),
            endpoint: Some(&self.endpoint),
            body: if question.head { Body::Unwanted } else { Body::Wanted },
            elsewhere: OtherOrigin::Followed,
            trace: Some(&self.trace),
            secrets: Some(&self.secrets),
        }
    }

    /// The headers for the endpoint alone, not for hosts that it redirects to.
    fn own_headers(&self, authorization: Option<HeaderValue>) -> HeaderMap {
        let mut headers = self.endpoint.headers.clone();
        if let Some(authorization) = authorization {
            headers.insert(http::header::AUTHORIZATION, authorization);
        }
        headers
    }
}

#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_challenge(headers: &HeaderMap) {
    drop(challenge::Challenge::of(headers));
}

#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_rate_limits(headers: &HeaderMap, wall: std::time::Duration) {
    for limit in limits::limits(headers, wall) {
        assert!(limit.remaining <= limit.limit || limit.limit == 0, "more is left than there is: {limit:?}");
    }
}
