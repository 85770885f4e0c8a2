//! Image references, parsed as in kubelet.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;
use crate::go;
use crate::grammar::{self, Parts};
use crate::reference_error::ReferenceError;

/// The registry of names without a host.
const DEFAULT_REGISTRY: &str = "docker.io";

/// An older name of the same registry, still in use.
const OLD_DEFAULT_REGISTRY: &str = "index.docker.io";

/// The API host of `docker.io`, which itself serves a web site.
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";

/// The namespace of names with one part on the default registry.
const DEFAULT_NAMESPACE: &str = "library/";

/// The tag of a reference with neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

/// Longest name without its host, in bytes.
const PATH_MAX_BYTES: usize = 255;

/// The number of hex digits of an image id.
const IDENTIFIER_DIGITS: usize = 64;

/// A parsed image reference, with every part completed as in kubelet.
///
/// Two references are equal if their texts are; [`Reference::normalised`] is equal for all texts with the same meaning.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// `repository[:tag][@digest]`; the fields below are offsets in it.
    normalised: Box<str>,
    domain_end: usize,
    repository_end: usize,
    /// The end of the tag; if there is no tag, the end of the repository.
    tag_end: usize,
    digest: Option<Digest>,
    /// The requested text, with the default tag if it applies.
    runtime_reference: Box<str>,
    requested_end: usize,
}

impl Reference {
    /// Parses a reference by kubelet's rules (distribution/reference 0.6 and its default tag). Linear in the text's length.
    ///
    /// # Errors
    /// Kubelet's error; [`ReferenceError::kubelet_message`] has the whole message.
    pub fn parse(requested: &str) -> Result<Self, ReferenceError> {
        if is_identifier(requested) {
            return Err(ReferenceError::HexIdentifier { name: requested.to_owned() });
        }
        let name = Name::of(requested);
        name.check_case()?;
        let (parts, path_bytes) = name.parts().ok_or_else(|| name.misfit())?;
        if path_bytes > PATH_MAX_BYTES {
            return Err(ReferenceError::NameTooLong);
        }
        let digest = parts.digest.map(Digest::parse).transpose()?;
        Ok(Self::build(requested, &name, parts, digest))
    }

    fn build(requested: &str, name: &Name<'_>, parts: Parts<'_>, digest: Option<Digest>) -> Self {
        let untagged = parts.tag.is_none() && digest.is_none();
        let tag = if untagged { Some(DEFAULT_TAG) } else { parts.tag };
        let mut normalised =
            String::with_capacity(requested.len() + DEFAULT_REGISTRY.len() + 1 + DEFAULT_NAMESPACE.len() + 1 + DEFAULT_TAG.len());
        normalised.push_str(name.domain);
        normalised.push('/');
        normalised.push_str(name.namespace());
        normalised.push_str(parts.path);
        let repository_end = normalised.len();
        if let Some(tag) = tag {
            normalised.push(':');
            normalised.push_str(tag);
        }
        let tag_end = normalised.len();
        if let Some(digest) = &digest {
            normalised.push('@');
            normalised.push_str(digest.as_str());
        }
        let runtime_reference = if untagged { [requested, ":", DEFAULT_TAG].concat() } else { requested.to_owned() };
        Self {
            normalised: normalised.into_boxed_str(),
            domain_end: name.domain.len(),
            repository_end,
            tag_end,
            digest,
            runtime_reference: runtime_reference.into_boxed_str(),
            requested_end: requested.len(),
        }
    }

    /// The requested text, unchanged, as kubelet's messages quote it.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.runtime_reference[..self.requested_end]
    }

    /// The text for a runtime: the requested text, with `:latest` if it has neither tag nor digest. Never expanded otherwise.
    #[must_use]
    pub fn runtime_reference(&self) -> &str {
        &self.runtime_reference
    }

    /// `repository[:tag][@digest]`, equal for all texts that mean the same image, so usable as a key.
    #[must_use]
    pub fn normalised(&self) -> &str {
        &self.normalised
    }

    /// Host and path without tag and digest: `docker.io/library/busybox`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.normalised[..self.repository_end]
    }

    /// Everything before the first `/` of the repository: `docker.io`, `localhost:5000`, `[::1]:5000`.
    ///
    /// It may have an underscore (`foo_bar.com/app`): by the grammar that name is a path without a host, but runtimes connect to its first
    /// part.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.normalised[..self.domain_end]
    }

    /// The repository without its domain: `library/busybox`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.normalised[self.domain_end + 1..self.repository_end]
    }

    /// The tag; `latest` if neither tag nor digest was asked for.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        (self.tag_end > self.repository_end).then(|| &self.normalised[self.repository_end + 1..self.tag_end])
    }

    /// The digest asked for.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The registry's name, `host[:port]`, by which credentials, budgets and back-off are kept.
    #[must_use]
    pub fn registry(&self) -> &str {
        self.domain()
    }

    /// The registry's `host[:port]` to connect to: `registry-1.docker.io` for `docker.io`, else [`Reference::registry`].
    #[must_use]
    pub fn registry_host(&self) -> &str {
        match self.domain() {
            DEFAULT_REGISTRY => DEFAULT_REGISTRY_HOST,
            domain => domain,
        }
    }

    /// Whether the tag is `latest`, requested or by default. Then the pull policy defaults to Always, also if there is a digest too, else
    /// to IfNotPresent.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.tag() == Some(DEFAULT_TAG)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.normalised)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Reference({} as {:?})", self.normalised, self.requested())
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Self::parse(text)
    }
}

/// The requested text, split after its host; without a host the default one is used.
struct Name<'a> {
    domain: &'a str,
    /// Whether `library/` is implied before `rest`.
    in_default_namespace: bool,
    /// Path, tag and digest as requested.
    rest: &'a str,
}

impl<'a> Name<'a> {
    fn of(requested: &'a str) -> Self {
        let (domain, rest) = match requested.split_once('/') {
            Some((OLD_DEFAULT_REGISTRY, rest)) => (DEFAULT_REGISTRY, rest),
            Some((first, rest)) if names_a_host(first) => (first, rest),
            _ => (DEFAULT_REGISTRY, requested),
        };
        let in_default_namespace = domain == DEFAULT_REGISTRY && !rest.contains('/');
        Self { domain, in_default_namespace, rest }
    }

    fn namespace(&self) -> &'static str {
        if self.in_default_namespace { DEFAULT_NAMESPACE } else { "" }
    }

    /// Refuses upper case before the first colon; this check comes first.
    fn check_case(&self) -> Result<(), ReferenceError> {
        let name = self.rest.split(':').next().unwrap_or_default();
        if go::lower_case_changes(name) {
            return Err(ReferenceError::UppercaseName { name: [self.namespace(), name].concat() });
        }
        Ok(())
    }

    /// The parts, and the length of the bounded path; none if the text does not match the grammar.
    fn parts(&self) -> Option<(Parts<'a>, usize)> {
        let parts = grammar::split(self.rest)?;
        let path_bytes = self.namespace().len() + parts.path.len();
        if grammar::is_host(self.domain) {
            return Some((parts, path_bytes));
        }
        // With an underscore it is no host, but may be the first part of a path.
        grammar::is_path_component(self.domain).then_some((parts, self.domain.len() + 1 + path_bytes))
    }

    /// Which of two errors kubelet has for a text that does not match the grammar.
    fn misfit(&self) -> ReferenceError {
        let (domain, rest) = (go::lower_case(self.domain), go::lower_case(self.rest));
        let lowered = Name { domain: &domain, in_default_namespace: self.in_default_namespace, rest: &rest };
        if lowered.parts().is_some() { ReferenceError::Uppercase } else { ReferenceError::InvalidFormat }
    }
}

/// Whether the text before the first `/` is a host, and not the first part of a path on the default registry.
fn names_a_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || go::lower_case_changes(first)
}

fn is_identifier(text: &str) -> bool {
    text.len() == IDENTIFIER_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
