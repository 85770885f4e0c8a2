//! The parts of the key of a back-off entry.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{BudgetOwner, PodRef};

/// The parts of the key of a back-off entry: a back-off key, or for a node's own image its local key. Only the fields of its kind are set;
/// `Display` gives its only text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyParts {
    /// The kind.
    pub kind: EntryKind,
    /// The registry, as images name it; every kind has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub registry: String,
    /// `host:port` that was contacted. For a registry, token server, blobs, content.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The zone from which it was contacted, whose nodes share the network to it. For a registry, token server, blobs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// For a budget: its owner.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// With its registry. For a repository, login.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// For an image, platform, content, signature: normalised. For a node's own image: as it was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// For a platform: `linux/arm64`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// For a login: none was sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
    /// For a node's own image: its pod; none: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

/// The kinds of things that an entry can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// The registry itself, or the network to it from a zone.
    Registry,
    /// The token server that a registry names.
    TokenServer,
    /// The blobs of a registry.
    Blobs,
    /// A registry's limit for one login or address.
    Budget,
    /// All images of a repository.
    Repository,
    /// All images of a repository, with the login for them.
    Login,
    /// One image.
    Image,
    /// One image for one platform.
    Platform,
    /// What an endpoint sent for one image.
    Content,
    /// The signature of one image.
    Signature,
    /// One image on one node, by that node's own rule.
    NodeImage,
    /// A kind of a newer version.
    Unknown(UnknownText),
}

open_text!(EntryKind);

impl Default for EntryKind {
    fn default() -> Self {
        Self::Unknown(UnknownText::new(""))
    }
}

impl EntryKind {
    /// Every kind that this version writes.
    pub const ALL: [Self; 11] = [
        Self::Registry,
        Self::TokenServer,
        Self::Blobs,
        Self::Budget,
        Self::Repository,
        Self::Login,
        Self::Image,
        Self::Platform,
        Self::Content,
        Self::Signature,
        Self::NodeImage,
    ];

    /// The kind as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Registry => "registry",
            Self::TokenServer => "token_server",
            Self::Blobs => "blobs",
            Self::Budget => "budget",
            Self::Repository => "repository",
            Self::Login => "login",
            Self::Image => "image",
            Self::Platform => "platform",
            Self::Content => "content",
            Self::Signature => "signature",
            Self::NodeImage => "node_image",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

impl KeyParts {
    /// A key of this kind without other parts.
    #[must_use]
    pub fn of(kind: EntryKind, registry: &str) -> Self {
        Self { kind, registry: registry.to_owned(), ..Self::default() }
    }

    /// The one image that it is about; none if there are several.
    #[must_use]
    pub fn one_image(&self) -> Option<&str> {
        Some(self.image.as_str()).filter(|image| !image.is_empty())
    }

    /// The host that was contacted, or the registry.
    fn place(&self) -> &str {
        if self.endpoint.is_empty() { &self.registry } else { &self.endpoint }
    }

    /// The first name that is set; the best name for a kind of a newer version.
    fn any_name(&self) -> &str {
        let names = [&self.image, &self.repository, &self.endpoint, &self.registry];
        names.into_iter().find(|name| !name.is_empty()).map_or("something", String::as_str)
    }

    fn of_place(&self, part: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{part}registry {}", self.place())?;
        if self.zone.is_empty() { Ok(()) } else { write!(out, " from zone {}", self.zone) }
    }
}

impl fmt::Display for KeyParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { registry, endpoint, owner, repository, image, platform, .. } = self;
        match self.kind {
            EntryKind::Registry => self.of_place("", out),
            EntryKind::TokenServer => self.of_place("token server of ", out),
            EntryKind::Blobs => self.of_place("blobs of ", out),
            EntryKind::Budget => match BudgetOwner::read(owner) {
                Some(owner) => write!(out, "budget of registry {}", owner.in_words()),
                None => write!(out, "budget {owner} of registry {registry}"),
            },
            EntryKind::Repository => write!(out, "repository {repository}"),
            EntryKind::Login if self.anonymous => write!(out, "repository {repository} without a login"),
            EntryKind::Login => write!(out, "repository {repository} with the present login"),
            EntryKind::Image => write!(out, "image {image}"),
            EntryKind::Platform => write!(out, "image {image} for {platform}"),
            EntryKind::Content => write!(out, "content of {image} from {endpoint}"),
            EntryKind::Signature => write!(out, "signature of {image}"),
            EntryKind::NodeImage => match &self.pod {
                Some(pod) => write!(out, "image {image} on this node for pod {pod}"),
                None => write!(out, "image {image} on this node"),
            },
            EntryKind::Unknown(kind) if kind.as_str().is_empty() => out.write_str(self.any_name()),
            EntryKind::Unknown(kind) => write!(out, "{} of {}", kind.as_str(), self.any_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_worded_from_its_fields() {
        let of = |kind| KeyParts::of(kind, "r.example");
        let endpoint = |kind, zone: &str| KeyParts { endpoint: "r.example:443".to_owned(), zone: zone.to_owned(), ..of(kind) };
        let image = |kind| KeyParts { image: "r.example/a:1".to_owned(), ..of(kind) };
        let repository = |kind| KeyParts { repository: "r.example/a".to_owned(), ..of(kind) };
        let pod = Some(PodRef { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: String::new() });
        let table = [
            (of(EntryKind::Registry), "registry r.example"),
            (endpoint(EntryKind::Registry, "a"), "registry r.example:443 from zone a"),
            (endpoint(EntryKind::Registry, ""), "registry r.example:443"),
            (endpoint(EntryKind::TokenServer, "a"), "token server of registry r.example:443 from zone a"),
            (endpoint(EntryKind::Blobs, ""), "blobs of registry r.example:443"),
            (KeyParts { owner: "o".to_owned(), ..of(EntryKind::Budget) }, "budget o of registry r.example"),
            (
                KeyParts { owner: "s|r.example|||anonymous|nat-1".to_owned(), ..of(EntryKind::Budget) },
                "budget of registry r.example without login from egress nat-1",
            ),
            (repository(EntryKind::Repository), "repository r.example/a"),
            (repository(EntryKind::Login), "repository r.example/a with the present login"),
            (KeyParts { anonymous: true, ..repository(EntryKind::Login) }, "repository r.example/a without a login"),
            (image(EntryKind::Image), "image r.example/a:1"),
            (KeyParts { platform: "linux/arm64".to_owned(), ..image(EntryKind::Platform) }, "image r.example/a:1 for linux/arm64"),
            (KeyParts { endpoint: "m.example:443".to_owned(), ..image(EntryKind::Content) }, "content of r.example/a:1 from m.example:443"),
            (image(EntryKind::Signature), "signature of r.example/a:1"),
            (image(EntryKind::NodeImage), "image r.example/a:1 on this node"),
            (KeyParts { pod, ..image(EntryKind::NodeImage) }, "image r.example/a:1 on this node for pod shop/web-0"),
            (of(EntryKind::from_text("moon")), "moon of r.example"),
            (image(EntryKind::from_text("moon")), "moon of r.example/a:1"),
            (KeyParts::default(), "something"),
        ];
        for (key_parts, text) in table {
            assert_eq!(key_parts.to_string(), text);
        }
    }

    #[test]
    fn a_kind_of_a_newer_version_reads_as_unknown_with_its_text() {
        for kind in EntryKind::ALL {
            assert_eq!(EntryKind::from_text(kind.as_str()), kind);
        }
        let newer = rmp_serde::to_vec_named(&serde_json::json!({ "kind": "moon", "registry": "r.example", "phase": 3 }));
        let read: KeyParts = rmp_serde::from_slice(&newer.unwrap_or_default()).unwrap_or_default();
        assert_eq!((read.kind.as_str(), read.registry.as_str()), ("moon", "r.example"));
    }
}
