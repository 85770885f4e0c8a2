//! Image references, digests and platforms, read and written exactly as kubelet and containerd do.
//!
//! The only place where image references are parsed. Everything here is pure: no clock, no files, no network.
//!
//! - [`Reference`]: what a pod names as its image, with kubelet's rules and kubelet's error texts.
//! - [`Digest`]: a checked `algorithm:hex`.
//! - [`Platform`]: `os/arch[/variant]`, and which entry of a manifest list suits it best.
//! - [`go`]: the two ways of Go to print a value that kubelet's messages are made of.

mod digest;
pub mod go;
mod grammar;
mod platform;
mod reference;
mod reference_error;

pub use digest::{Algorithm, Digest, DigestError};
pub use platform::{Platform, PlatformError};
pub use reference::Reference;
pub use reference_error::ReferenceError;
