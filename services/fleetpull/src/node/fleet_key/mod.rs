//! The fleet's key, under which nodes name their logins to each other: from a file, else from the fleet's bucket `keys`.
//!
//! The key is never logged, never an event, never in a message but the one that stores it. A node without a key tells nobody whose
//! login it has.

mod file;
mod kept;

pub use file::{KeyFileError, read_key_file};
pub use kept::keep_key;
