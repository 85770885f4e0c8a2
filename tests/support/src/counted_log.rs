//! A log whose lines are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts the lines of the log down to a level. Clones count together.
#[derive(Clone, Debug)]
pub struct CountedLog {
    level: Level,
    lines: Arc<AtomicUsize>,
}

impl CountedLog {
    /// Counts the lines of this level and of more severe ones.
    #[must_use]
    pub fn down_to(level: Level) -> Self {
        Self { level, lines: Arc::new(AtomicUsize::new(0)) }
    }

    /// How many lines were logged.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }
}

impl Subscriber for CountedLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
