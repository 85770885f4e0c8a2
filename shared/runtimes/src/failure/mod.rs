//! Reads class, stage and endpoint of a failure from the texts of containerd, CRI-O and the embedded runtime.

mod classify;
mod scrub;
mod segments;
mod stage;
mod status;

pub use classify::{Reading, classify_text, read_text};
pub use scrub::{endpoint_in, scrub};
pub use stage::stage_in;
pub use tonic::Code as GrpcCode;
