//! Failures of pulls: kubelet's reason and our class.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};

/// The longest `Retry-After` of a registry that is obeyed; a registry that states a longer one is asked once an hour, because its mistake
/// must not stop a fleet for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// The class of a failure. It decides how far the knowledge of it is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The registry asks for fewer requests: 429, `TOOMANYREQUESTS`.
    RateLimited,
    /// The registry cannot be reached or cannot answer: connect, DNS, no first byte, 5xx.
    RegistryUnavailable,
    /// The registry states that the image does not exist: `MANIFEST_UNKNOWN`, `NAME_UNKNOWN`.
    NotFound,
    /// The registry refuses this login, or requires one: 401, 403.
    Denied,
    /// The registry sent wrong content: wrong digest, short body, bad manifest, no such platform.
    ContentInvalid,
    /// The node's signature policy refuses the image.
    SignatureInvalid,
    /// The cause is the node itself: disk full, runtime down, unknown CA, credential helper missing.
    NodeLocal,
    /// Any other failure, and any class of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl FailureClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::RateLimited,
        Self::RegistryUnavailable,
        Self::NotFound,
        Self::Denied,
        Self::ContentInvalid,
        Self::SignatureInvalid,
        Self::NodeLocal,
        Self::Unknown,
    ];

    /// The class, as written in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::RegistryUnavailable => "registry_unavailable",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
            Self::ContentInvalid => "content_invalid",
            Self::SignatureInvalid => "signature_invalid",
            Self::NodeLocal => "node_local",
            Self::Unknown => "unknown",
        }
    }
}

/// How often each class occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassCounts {
    /// See [`FailureClass::RateLimited`].
    pub rate_limited: u64,
    /// See [`FailureClass::RegistryUnavailable`].
    pub registry_unavailable: u64,
    /// See [`FailureClass::NotFound`].
    pub not_found: u64,
    /// See [`FailureClass::Denied`].
    pub denied: u64,
    /// See [`FailureClass::ContentInvalid`].
    pub content_invalid: u64,
    /// See [`FailureClass::SignatureInvalid`].
    pub signature_invalid: u64,
    /// See [`FailureClass::NodeLocal`].
    pub node_local: u64,
    /// See [`FailureClass::Unknown`].
    pub unknown: u64,
}

impl ClassCounts {
    /// Counts one failure.
    pub fn count(&mut self, class: FailureClass) {
        *self.of_mut(class) += 1;
    }

    /// How often this class occurred.
    #[must_use]
    pub fn of(mut self, class: FailureClass) -> u64 {
        *self.of_mut(class)
    }

    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        FailureClass::ALL.into_iter().for_each(|class| *self.of_mut(class) += other.of(class));
        self
    }

    fn of_mut(&mut self, class: FailureClass) -> &mut u64 {
        match class {
            FailureClass::RateLimited => &mut self.rate_limited,
            FailureClass::RegistryUnavailable => &mut self.registry_unavailable,
            FailureClass::NotFound => &mut self.not_found,
            FailureClass::Denied => &mut self.denied,
            FailureClass::ContentInvalid => &mut self.content_invalid,
            FailureClass::SignatureInvalid => &mut self.signature_invalid,
            FailureClass::NodeLocal => &mut self.node_local,
            FailureClass::Unknown => &mut self.unknown,
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The stages of an attempt at a registry. Each is answered by itself: an answered manifest does not mean that blobs can be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The token server, if the registry names one; answered when it has issued a token.
    Token,
    /// Blobs, from the registry or the hosts that it redirects to; answered at the first byte of a blob that the node lacked.
    Blob,
    /// All content was verified and stored.
    Whole,
    /// The manifest. Also stands for stages of a newer version.
    #[default]
    #[serde(other)]
    Manifest,
}

impl Stage {
    /// All stages in the order of a pull.
    pub const ALL: [Self; 4] = [Self::Token, Self::Manifest, Self::Blob, Self::Whole];

    /// Whether it is the value that messages leave out.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Ord for Stage {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |stage: &Self| Self::ALL.iter().position(|one| one == stage);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Stage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Kubelet's reason for an outcome, as in `state.waiting.reason` of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The pull was tried and failed.
    ErrImagePull,
    /// Not attempted, because the last failure of the image is too recent.
    ImagePullBackOff,
    /// The image is absent, and the policy is Never.
    ErrImageNeverPull,
    /// The reference cannot be parsed.
    InvalidImageName,
    /// The runtime could not determine whether the image is present.
    ImageInspectError,
    /// The pull failed and the error states that the registry is unavailable.
    RegistryUnavailable,
    /// The pull failed and the error states that the signature is not valid.
    SignatureValidationFailed,
    /// A reason of a newer version.
    Unknown(UnknownText),
}

open_text!(Reason);

impl Reason {
    /// Every reason that this version writes.
    pub const ALL: [Self; 7] = [
        Self::ErrImagePull,
        Self::ImagePullBackOff,
        Self::ErrImageNeverPull,
        Self::InvalidImageName,
        Self::ImageInspectError,
        Self::RegistryUnavailable,
        Self::SignatureValidationFailed,
    ];

    /// The word, as kubelet writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unknown(text) => text.as_str(),
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
        }
    }
}
