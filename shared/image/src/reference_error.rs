//! Why a text is no image reference.

use thiserror::Error;

use crate::digest::DigestError;
use crate::go;

/// Why a text is no image reference. The words are kubelet's, letter for letter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// 64 hex digits could as well be an image id.
    #[error("invalid repository name ({name}), cannot specify 64-byte hexadecimal strings")]
    HexIdentifier {
        /// The text asked for.
        name: String,
    },
    /// Upper case before the first colon of what follows the host.
    #[error("invalid reference format: repository name ({name}) must be lowercase")]
    UppercaseName {
        /// The name without host and tag, `library/` added where it is implied.
        name: String,
    },
    /// It would be a reference if all of it were in lower case.
    #[error("repository name must be lowercase")]
    Uppercase,
    /// Outside the grammar.
    #[error("invalid reference format")]
    InvalidFormat,
    /// The name without its host is longer than 255 bytes.
    #[error("repository name must not be more than 255 characters")]
    NameTooLong,
    /// What follows the `@` is no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl ReferenceError {
    /// Kubelet's whole sentence about `image`, the text that was asked for: `couldn't parse image name "...": ...`.
    #[must_use]
    pub fn kubelet_message(&self, image: &str) -> String {
        format!("couldn't parse image name {}: {self}", go::quote(image))
    }
}
