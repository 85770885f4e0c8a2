//! The cluster's keys, fetched again when a token names one that is not known.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clock::{Clock, Now};
use nats_accounts::Jwks;

use super::fetch::Endpoint;

/// Keys are fetched at most this often: anybody can name a key that there is not.
const FETCH_EVERY: Duration = Duration::from_secs(10);

/// Where keys come from.
enum Source {
    File(PathBuf),
    Url(Endpoint),
}

/// The keys as they were last fetched.
pub(super) struct Keys {
    source: Source,
    clock: Clock,
    current: RwLock<Arc<Jwks>>,
    /// When they were fetched; held while they are.
    fetched: tokio::sync::Mutex<Now>,
}

impl Keys {
    /// Fetches them once.
    ///
    /// # Errors
    /// They cannot be had: the reason says where and why.
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

    /// The keys as they are known.
    pub(super) fn current(&self) -> Arc<Jwks> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys with this one among them, if the cluster has it. Those that are known go on to count when they cannot be fetched.
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
