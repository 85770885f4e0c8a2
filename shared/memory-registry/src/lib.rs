//! A small OCI registry in the process, with generated images, request counters, and faults by path.
//!
//! For the demo, tests and benchmarks. It serves pulls (manifests, lists, blobs with ranges, tokens) and accepts no pushes. Layers are real
//! gzipped tar files, generated from a seed while they are sent, so a layer of 1 GB takes no memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use memory_registry::{MadeImage, MemoryRegistry, Options};
//! let registry = MemoryRegistry::start(Options::default()).await?;
//! let added = registry.add_image("demo/app", "1.0", &MadeImage::of_layers([10_000, 20_000]));
//! assert!(added.digest.starts_with("sha256:"));
//! assert_eq!(registry.counts().requests, 0);
//! # Ok(())
//! # }
//! ```

mod answer;
mod auth;
mod body;
mod capacity;
mod catalogue;
mod counters;
mod crc;
mod faults;
mod layer;
mod made_image;
mod quota;
mod server;
mod tls;

pub use auth::{Auth, TokenAuth};
pub use capacity::Capacity;
pub use catalogue::{AddedImage, AddedManifest, BlobInfo};
pub use counters::{Counts, LoggedRequest};
pub use faults::{BodyFault, Fault, FaultAction, Faults};
pub use made_image::{Flavour, MadeImage};
pub use quota::Quota;
pub use server::{MemoryRegistry, Options};
pub use tls::Tls;

/// `sha256:` and the hash in lower-case hex.
fn digest_of(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    written(&Sha256::digest(content))
}

fn written(hash: &[u8]) -> String {
    use std::fmt::Write;
    hash.iter().fold(String::from("sha256:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
