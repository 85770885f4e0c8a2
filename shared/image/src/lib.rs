//! Image references, digests and platforms, read and written exactly as kubelet and containerd do.
//!
//! The only place where image references are parsed. Everything here is pure: no clock, no files, no network.
//!
//! - [`Reference`]: the image of a pod, with kubelet's rules and error texts.
//! - [`Digest`]: a checked `algorithm:hex`.
//! - [`ImagePattern`]: one image, or all whose names have a form.
//! - [`Platform`]: `os/arch[/variant]`, and the best matching entry of a manifest list.
//! - [`go`]: Go's formats for values in kubelet's messages.
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
mod pattern;
mod platform;
mod reference;
mod reference_error;

pub use digest::{Algorithm, Digest, DigestError, with_short_digests};
pub use pattern::ImagePattern;
pub use platform::{Platform, PlatformError};
pub use reference::Reference;
pub use reference_error::ReferenceError;
