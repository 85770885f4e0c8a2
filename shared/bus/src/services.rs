//! The services API of NATS (ADR-32) on any bus: services describe themselves, so that `nats micro ls` lists a fleet.

mod counters;
mod responses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::select_all;
use tokio::task::AbortHandle;
use tracing::debug;

pub use self::counters::EndpointCounters;
use crate::error::BusError;
use crate::message::Message;
use crate::messaging::{MessagingRef, Subscription};
use crate::rules;

/// One instance of a service.
#[derive(Clone, Debug)]
pub struct ServiceDescription {
    /// The kind of service, the same on all nodes: `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The id of this instance, one token of a subject.
    pub id: String,
    /// A semantic version.
    pub version: String,
    /// The description for people.
    pub description: String,
    /// Other properties of the instance.
    pub metadata: BTreeMap<String, String>,
    /// The endpoints on which it takes requests.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint on which a service takes requests.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The subject of the requests.
    pub subject: String,
    /// The queue group that shares them, if there is one.
    pub queue_group: Option<String>,
    /// The counters of this endpoint, updated by the service.
    pub counters: Arc<EndpointCounters>,
}

/// Announced services, which answer questions about themselves. Dropping it ends that.
#[derive(Debug)]
pub struct Announced(AbortHandle);

impl Drop for Announced {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers questions about services: which there are, their endpoints and their counters. `root` is the first token of the subjects of the
/// services API.
///
/// # Errors
/// [`BusError::BadSubject`] for a name or id that is not allowed, and those of subscribing.
pub async fn announce(bus: &MessagingRef, root: &str, services: Vec<ServiceDescription>, clock: &Clock) -> Result<Announced, BusError> {
    // Every question is `<root>.<verb>`, followed by the name, or by the name and the id.
    let mut patterns = BTreeSet::from([format!("{root}.*")]);
    for service in &services {
        rules::check_name(&service.name)?;
        patterns.insert(format!("{root}.*.{}", service.name));
        patterns.insert(format!("{root}.*.{}.{}", service.name, service.id));
    }
    // Subscribed concurrently, because the server confirms each one.
    let questions = try_join_all(patterns.iter().map(|pattern| bus.subscribe(pattern, None))).await?;
    let answering = answer_all(Arc::clone(bus), questions, services, clock.now().wall);
    Ok(Announced(tasks::spawn("services-api", answering).abort_handle()))
}

async fn answer_all(bus: MessagingRef, questions: Vec<Subscription>, services: Vec<ServiceDescription>, started: Duration) {
    let mut questions = select_all(questions);
    while let Some(question) = questions.next().await {
        let Some(reply_to) = &question.reply_to else { continue };
        for answer in answers(&question.subject, &services, started) {
            let headers = [("content-type", "application/json")].into_iter().collect();
            let message = Message::new(reply_to.clone(), answer).with_headers(headers);
            if let Err(error) = bus.publish(message).await {
                debug!(%error, "a question about services was not answered");
            }
        }
    }
}

/// The answers to a question, one for each service that it is about.
fn answers(subject: &str, services: &[ServiceDescription], started: Duration) -> Vec<String> {
    let mut tokens = subject.split('.').skip(1);
    let verb = tokens.next().unwrap_or_default();
    let (name, id) = (tokens.next(), tokens.next());
    let is_meant = |service: &&ServiceDescription| name.is_none_or(|name| name == service.name) && id.is_none_or(|id| id == service.id);
    services.iter().filter(is_meant).filter_map(|service| responses::answer(verb, service, started)).collect()
}
