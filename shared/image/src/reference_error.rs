//! Errors of image references.

use thiserror::Error;

use crate::digest::DigestError;
use crate::go;

/// Why a text is no image reference. The texts are exactly kubelet's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// 64 hex digits may be an image id.
    #[error("invalid repository name ({name}), cannot specify 64-byte hexadecimal strings")]
    HexIdentifier {
        /// The requested text.
        name: String,
    },
    /// Upper case between the host and the first colon after it.
    #[error("invalid reference format: repository name ({name}) must be lowercase")]
    UppercaseName {
        /// The name without host and tag, with `library/` if it is implied.
        name: String,
    },
    /// It would be a reference if all of it were in lower case.
    #[error("repository name must be lowercase")]
    Uppercase,
    /// The text does not match the grammar.
    #[error("invalid reference format")]
    InvalidFormat,
    /// The name without its host is longer than 255 bytes.
    #[error("repository name must not be more than 255 characters")]
    NameTooLong,
    /// The text after the `@` is no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl ReferenceError {
    /// Kubelet's whole message about the requested text `image`: `couldn't parse image name "...": ...`.
    #[must_use]
    pub fn kubelet_message(&self, image: &str) -> String {
        format!("couldn't parse image name {}: {self}", go::quote(image))
    }
}
