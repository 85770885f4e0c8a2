//! Image references, digests and platforms, read and written exactly as kubelet and containerd do.
//!
//! The only place where image references are parsed. Everything here is pure: no clock, no files, no network.
//!
//! - [`Reference`]: what a pod names as its image, with kubelet's rules and kubelet's error texts.
//! - [`Digest`]: a checked `algorithm:hex`.
//! - [`Platform`]: `os/arch[/variant]`, and which entry of a manifest list suits it best.
//! - [`go`]: the two ways of Go to print a value that kubelet's messages are made of.
//!
//! ```
//! use image::Reference;
//!
//! let reference = Reference::parse("busybox")?;
//! assert_eq!(reference.normalised(), "docker.io/library/busybox:latest");
//! assert_eq!(reference.runtime_reference(), "busybox:latest");
//! assert_eq!(reference.registry_host(), "registry-1.docker.io");
//!
//! let refused = Reference::parse("Busybox").unwrap_err();
//! assert_eq!(
//!     refused.kubelet_message("Busybox"),
//!     r#"couldn't parse image name "Busybox": invalid reference format: repository name (library/Busybox) must be lowercase"#,
//! );
//! # Ok::<(), image::ReferenceError>(())
//! ```

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
