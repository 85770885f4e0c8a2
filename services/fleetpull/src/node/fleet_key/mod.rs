//! The fleet's key, with which nodes identify their logins to each other: from a file, else from the fleet's bucket `keys`.
//!
//! The key is never logged and never part of an event or a message, except the one that stores it. A node without a key does not share
//! which login it uses.

mod bucket;
mod file;

pub use bucket::keep_key;
pub use file::{KeyFileError, read_key_file};
