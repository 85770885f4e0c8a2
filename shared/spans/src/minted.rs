//! Ids that wait for the span that the SDK is about to start.

use std::cell::Cell;

use contract::TraceContext;

thread_local! {
    static MINTED: Cell<Option<Minted>> = const { Cell::new(None) };
}

/// What the SDK is to know of the span that it starts next on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minted {
    /// The span's ids; none: the generator chooses.
    pub own: Option<TraceContext>,
    /// The caller by which the sampler decides, where a request enters this process; none: the span goes by its parent.
    pub decide_by: Option<Caller>,
}

/// The span from which a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(pub Option<TraceContext>);

/// For the span that is being started on this thread.
#[must_use]
pub fn minted() -> Option<Minted> {
    MINTED.get()
}

/// Keeps `minted` for the span that `start` starts.
pub(crate) fn with<T>(minted: Minted, start: impl FnOnce() -> T) -> T {
    let before = MINTED.replace(Some(minted));
    let _restore = Restore(before);
    start()
}

/// A panic in between must not give these ids to another span.
struct Restore(Option<Minted>);

impl Drop for Restore {
    fn drop(&mut self) {
        MINTED.set(self.0);
    }
}
