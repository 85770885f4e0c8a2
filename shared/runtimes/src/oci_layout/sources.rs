//! The endpoints of one pull, and which of them have failed.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::FailureClass;
use tokio::sync::OnceCell;

use super::failure::StepFailure;
use super::pull::Pull;
use super::registry::Session;
use super::route::Endpoint;

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To resolve a tag.
    Resolve,
    /// To get content by its digest.
    Pull,
}

/// All endpoints in the order of the route.
pub(super) struct Sources(Vec<Source>);

/// One endpoint.
pub(super) struct Source {
    endpoint: Endpoint,
    session: OnceCell<Session>,
    /// It could not be reached, refused or lacks the image; not asked again in this pull while there are others.
    down: AtomicBool,
}

impl Sources {
    pub(super) fn new(endpoints: Vec<Endpoint>) -> Self {
        Self(endpoints.into_iter().map(|endpoint| Source { endpoint, session: OnceCell::new(), down: AtomicBool::new(false) }).collect())
    }

    /// The endpoints to ask, in order.
    pub(super) fn candidates(&self, purpose: Purpose) -> Vec<&Source> {
        let able = |source: &&Source| match purpose {
            Purpose::Resolve => source.endpoint.resolve,
            Purpose::Pull => source.endpoint.pull,
        };
        let up: Vec<_> = self.0.iter().filter(able).filter(|source| !source.down.load(Ordering::Relaxed)).collect();
        if up.is_empty() { self.0.iter().filter(able).collect() } else { up }
    }

    /// The login that was used with the last endpoint asked.
    pub(super) async fn auth(&self) -> String {
        match self.0.iter().rev().find_map(|source| source.session.get()) {
            Some(session) => session.auth().await,
            None => "anonymous".to_owned(),
        }
    }
}

impl Source {
    /// The endpoint's session; logins are looked up when first needed.
    pub(super) async fn session(&self, pull: &Pull) -> Result<&Session, StepFailure> {
        self.session.get_or_try_init(|| self.open(pull)).await
    }

    async fn open(&self, pull: &Pull) -> Result<Session, StepFailure> {
        let (shared, request) = (&pull.shared, &pull.request);
        // A download thread waits for the store and the route's files too. `look` has read the login files before the pull on a thread that
        // may block, so a home directory that already hangs is met there.
        let keyring = shared.keyring.on_caller();
        Session::open(&shared.registries, &keyring, self.endpoint.clone(), &request.reference, request.into()).await
    }

    /// Marks the endpoint as down if a blob's failure shows that.
    pub(super) fn note(&self, failure: &StepFailure) {
        if failure.transport || matches!(failure.class, FailureClass::RegistryUnavailable | FailureClass::RateLimited) {
            self.pass_over();
        }
    }

    /// Marks the endpoint as down because it did not give the manifest: it will lack the blobs too.
    pub(super) fn pass_over(&self) {
        self.down.store(true, Ordering::Relaxed);
    }
}
