//! What the actor is made of besides its core.

mod entries;
mod keep_up;
mod leave;
mod link;
mod listing;
mod news;
mod operate;
mod pausing;
mod policy;
mod recording;
mod refusals;
mod sharing;
mod wishes;

pub use entries::{CountEntries, OpenEntries};
pub use link::SharedBus;
pub(crate) use recording::Recording;
pub(crate) use sharing::Sharing;
pub(crate) use wishes::Wishes;
