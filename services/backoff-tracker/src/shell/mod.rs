//! The parts of the actor besides its core.

mod clearance;
mod entries;
mod keep_up;
mod link;
mod listing;
mod news;
mod operate;
mod pausing;
mod policy;
mod recording;
mod refusals;
mod requests;
mod sharing;

pub use entries::{CountEntries, OpenEntries};
pub use link::SharedBus;
pub(crate) use requests::Requests;
pub(crate) use sharing::Sharing;
