//! Compares references, platforms and digests with kubelet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod golden;
mod kubelet_table;
mod properties;
