//! References, platforms and digests beside what kubelet does with them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod golden;
mod kubelet_table;
mod properties;
