//! Container runtimes behind one port.
//!
//! [`ImageRuntime`] is the port that a pull coordinator uses. Adapters: `oci_layout` pulls into an OCI image layout (the embedded default),
//! `cri` asks containerd or CRI-O, `scripted` answers from memory for tests and benchmarks.

mod blocking;
pub mod cri;
pub mod failure;
mod free_space;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod keyring;
pub mod oci_layout;
mod port;
mod progress;
pub mod scripted;

pub use port::{
    ImageRuntime, ImageStatus, InspectFailure, LookFor, Looked, Probe, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription,
    RuntimeRef, SizeEstimate, StoredImage,
};
pub use progress::{LayerProgress, Progress, ProgressSnapshot};
