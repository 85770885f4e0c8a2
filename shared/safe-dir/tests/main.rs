//! Tests of directories that others may write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod safe_dir;
