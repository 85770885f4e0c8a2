//! The upkeep of a store by operators: lists and removes images, and prunes blobs.
//!
//! Any process may do it during pulls of others; `layout::prune` says why no image breaks.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::Clock;
use image::{ImagePattern, Reference};

use super::OpenError;
use super::layout::{Entry, IndexProblem, Layout};
use crate::port::StoredImage;

/// Why the upkeep of a store failed; says what to do.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The index cannot be read or changed.
    #[error("{0}")]
    Index(String),
    /// Another file of the store cannot be read, locked or removed.
    #[error("cannot {doing} the store {}: {source}; {}", .path.display(), what_helps(.source))]
    Store {
        /// What was being done.
        doing: &'static str,
        /// The store's folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There are blobs but no index, so every blob would count as unneeded.
    #[error("{} has blobs and no index.json, which names the images: put it back, or remove the folder if nothing in it is needed", .path.display())]
    NoIndex {
        /// The store's folder.
        path: PathBuf,
    },
}

fn what_helps(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as the user that the store belongs to, for an agent's store root",
        io::ErrorKind::TimedOut => "end that process, and run this again",
        _ => "check the store's file system",
    }
}

impl UpkeepError {
    pub(super) fn store(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Store { doing, path: path.to_owned(), source }
    }
}

impl From<IndexProblem> for UpkeepError {
    fn from(problem: IndexProblem) -> Self {
        Self::Index(problem.to_string())
    }
}

/// Files that were removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// How many.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Freed {
    pub(super) fn add(&mut self, bytes: u64) {
        *self = self.and(Self { blobs: 1, bytes });
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { blobs: self.blobs.saturating_add(other.blobs), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// Which images a prune removes. By default none: only blobs that no image needs.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    /// Removes images whose last pull is longer ago than this. Images of other programs have no such time, and are kept.
    pub older_than: Option<Duration>,
    /// Images that are kept, whatever their age.
    pub keep: Vec<ImagePattern>,
}

/// The result of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The removed images.
    pub images: Vec<StoredImage>,
    /// The removed blobs, complete and partial.
    pub freed: Freed,
}

/// A store that exists, opened for its upkeep.
pub struct StoreUpkeep {
    layout: Layout,
    clock: Clock,
}

impl StoreUpkeep {
    /// Opens the store; none if there is none at its path. Changes nothing. With `fsync` removals outlive a power failure.
    ///
    /// # Errors
    /// The folder cannot be used as a store by this process.
    pub fn open(store: &Path, fsync: bool, clock: Clock) -> Result<Option<Self>, OpenError> {
        match Layout::open_existing(store, fsync) {
            Ok(layout) => Ok(layout.map(|layout| Self { layout, clock })),
            Err(source) if source.kind() == io::ErrorKind::NotFound && store.symlink_metadata().is_err() => Ok(None),
            Err(source) => Err(OpenError::Store { path: store.to_owned(), source }),
        }
    }

    /// All images, in the order of the index.
    ///
    /// # Errors
    /// The index or a manifest cannot be read.
    pub fn images(&self) -> Result<Vec<StoredImage>, UpkeepError> {
        Ok(self.layout.images(|_| true)?)
    }

    /// The entries of an image: one for each spelling of its name and each platform.
    ///
    /// # Errors
    /// As [`Self::images`].
    pub fn find(&self, image: &Reference) -> Result<Vec<StoredImage>, UpkeepError> {
        Ok(self.layout.images(|entry| entry.is(image))?)
    }

    /// Removes the entries of an image from the index, and returns them. Their blobs stay until a prune.
    ///
    /// # Errors
    /// The index cannot be changed.
    pub async fn remove(&self, image: &Reference) -> Result<Vec<StoredImage>, UpkeepError> {
        self.remove_images(|entry| entry.is(image)).await
    }

    /// What a prune would free if these images were removed first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn prunable_without(&self, images: &[Reference]) -> Result<Freed, UpkeepError> {
        self.prunable(|entry| images.iter().any(|image| entry.is(image)))
    }

    /// What a prune would remove now.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn would_prune(&self, options: &PruneOptions) -> Result<Pruned, UpkeepError> {
        let is_old = self.is_old(options);
        Ok(Pruned { images: self.layout.images(&is_old)?, freed: self.prunable(is_old)? })
    }

    /// Removes images as `options` say, then all blobs that neither an image nor a running pull needs, and the partial blobs that no pull
    /// has resumed for a day. `on_progress` gets the sum so far.
    ///
    /// # Errors
    /// The store cannot be read or changed. Everything removed until then was unneeded.
    pub async fn prune(&self, options: &PruneOptions, on_progress: impl FnMut(Freed)) -> Result<Pruned, UpkeepError> {
        let images = if options.older_than.is_some() { self.remove_images(self.is_old(options)).await? } else { Vec::new() };
        self.make_own_folders()?;
        let blobs = self.layout.remove_unreferenced(on_progress).await?;
        Ok(Pruned { images, freed: blobs.and(self.old_partials(false)?) })
    }

    async fn remove_images(&self, is_removed: impl Fn(&Entry) -> bool) -> Result<Vec<StoredImage>, UpkeepError> {
        if self.layout.images(&is_removed)?.is_empty() {
            return Ok(Vec::new());
        }
        self.make_own_folders()?;
        let removed = self.layout.remove_entries(is_removed).await?;
        Ok(removed.iter().map(|entry| self.layout.stored_image(entry)).collect::<Result<_, _>>()?)
    }

    fn prunable(&self, is_removed: impl Fn(&Entry) -> bool) -> Result<Freed, UpkeepError> {
        let unreferenced = self.layout.unreferenced(is_removed)?;
        let mut freed = self.old_partials(true)?;
        unreferenced.blobs.values().for_each(|bytes| freed.add(*bytes));
        Ok(freed)
    }

    /// Whether a prune removes an entry.
    fn is_old<'a>(&self, options: &'a PruneOptions) -> impl Fn(&Entry) -> bool + use<'a> {
        let now = self.clock.now().wall;
        move |entry| {
            let age = entry.pulled_at().map(|pulled_at| now.saturating_sub(pulled_at));
            let is_kept = || entry.name().is_some_and(|name| options.keep.iter().any(|pattern| pattern.matches(name)));
            options.older_than.is_some_and(|older_than| age.is_some_and(|age| age > older_than)) && !is_kept()
        }
    }

    fn make_own_folders(&self) -> Result<(), UpkeepError> {
        self.layout.make_own_folders().map_err(|source| UpkeepError::store("lock", self.layout.root(), source))
    }

    fn old_partials(&self, is_dry_run: bool) -> Result<Freed, UpkeepError> {
        let partials = self.layout.old_partials(self.clock.now().wall, is_dry_run);
        partials.map_err(|source| UpkeepError::store("read", self.layout.root(), source))
    }
}
