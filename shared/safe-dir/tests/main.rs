//! Directories that others may write to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod safe_dir;
