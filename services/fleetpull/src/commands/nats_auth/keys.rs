//! The cluster's keys. They are fetched again when a token names an unknown key.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clock::{Clock, Now};
use nats_accounts::Jwks;

use super::fetch::Endpoint;

/// The least time between two fetches, because anybody can name a key that does not exist.
const FETCH_EVERY: Duration = Duration::from_secs(10);

/// Where the keys come from.
enum Source {
    File(PathBuf),
    Url(Endpoint),
}

/// The keys of the last fetch.
pub(super) struct Keys {
    source: Source,
    clock: Clock,
    current: RwLock<Arc<Jwks>>,
    /// The time of the last fetch. Locked during a fetch.
    fetched: tokio::sync::Mutex<Now>,
}

impl Keys {
    /// Fetches the keys for the first time.
    ///
    /// # Errors
    /// The keys cannot be fetched; the error says where and why.
    pub(super) async fn open(source: &str, ca: Option<&Path>, token_file: Option<PathBuf>, clock: Clock) -> Result<Self> {
        let source = if source.contains("://") {
            Source::Url(Endpoint::new(source, ca, token_file).with_context(|| format!("the keys cannot be fetched from {source}"))?)
        } else {
            Source::File(source.into())
        };
        let first = read(&source).await?;
        let fetched = tokio::sync::Mutex::new(clock.now());
        Ok(Self { source, clock, current: RwLock::new(Arc::new(first)), fetched })
    }

    /// The keys of the last fetch.
    pub(super) fn current(&self) -> Arc<Jwks> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys, fetched again if this one is unknown. If that fails, the previous keys stay valid.
    pub(super) async fn with(&self, id: &str) -> Arc<Jwks> {
        let known = self.current();
        if known.knows(id) {
            return known;
        }
        let mut fetched = self.fetched.lock().await;
        let (known, now) = (self.current(), self.clock.now());
        if known.knows(id) || now < fetched.after(FETCH_EVERY) {
            return known;
        }
        match read(&self.source).await {
            Ok(keys) => *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the cluster's keys could not be fetched again"),
        }
        *fetched = self.clock.now();
        self.current()
    }
}

async fn read(source: &Source) -> Result<Jwks> {
    let (text, place) = match source {
        Source::File(path) => {
            let place = path.display().to_string();
            (tokio::fs::read(path).await.with_context(|| format!("the keys {place} cannot be read"))?, place)
        }
        Source::Url(endpoint) => {
            (endpoint.fetch().await.with_context(|| format!("the keys cannot be fetched from {endpoint}"))?, endpoint.to_string())
        }
    };
    Jwks::read(&text).with_context(|| format!("the keys of {place} cannot be used"))
}
