//! What a back-off entry refuses and its scope, as a row names them.

use contract::FailureClass;
use contract::messages::backoff_tracker::{EntryKind, KeyParts};

use super::row::What;

/// The subject of an entry, and its scope.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WhatAndScope {
    pub(super) what: What,
    pub(super) scope: String,
}

/// The subject and scope of an entry.
pub(super) fn what_and_scope(entry: &KeyParts) -> WhatAndScope {
    let in_zone = |part: &str| if entry.zone.is_empty() { part.to_owned() } else { format!("{part}, zone {}", entry.zone) };
    let scope = match entry.kind {
        EntryKind::Registry if entry.zone.is_empty() => "registry".to_owned(),
        EntryKind::Registry => format!("zone {}", entry.zone),
        EntryKind::TokenServer => in_zone("token server"),
        EntryKind::Blobs => in_zone("blobs"),
        EntryKind::Budget => "rate".to_owned(),
        EntryKind::Login if entry.anonymous => "no login".to_owned(),
        EntryKind::Platform => entry.platform.clone(),
        EntryKind::NodeImage => "node".to_owned(),
        EntryKind::Unknown(_) if entry.kind.as_str().is_empty() => "-".to_owned(),
        EntryKind::Repository | EntryKind::Login | EntryKind::Image | EntryKind::Content | EntryKind::Signature | EntryKind::Unknown(_) => {
            entry.kind.as_str().to_owned()
        }
    };
    WhatAndScope { what: what(entry), scope }
}

/// The image or repository of an entry, or its registry if the entry is about the whole registry.
fn what(entry: &KeyParts) -> What {
    match (entry.one_image(), entry.repository.as_str()) {
        (Some(image), _) => What::Image(image.to_owned()),
        (None, "") => What::Registry(entry.registry.clone()),
        (None, repository) => What::Image(repository.to_owned()),
    }
}

/// The registry, image or repository of an entry.
pub(in crate::commands) fn name(entry: &KeyParts) -> String {
    let (What::Registry(name) | What::Image(name)) = what(entry);
    name
}

/// A failure class as a state in words.
pub(in crate::commands) fn state_in_words(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimited => "rate limited",
        FailureClass::RegistryUnavailable => "unavailable",
        FailureClass::NotFound => "not found",
        FailureClass::Denied => "denied",
        FailureClass::ContentInvalid => "bad content",
        FailureClass::SignatureInvalid => "bad signature",
        FailureClass::NodeLocal => "node fails",
        FailureClass::Unknown => "fails",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_about_a_registry_or_an_image() {
        let (registry, image) = (|| What::Registry("r.example".to_owned()), |image: &str| What::Image(image.to_owned()));
        let of = |kind| KeyParts::of(kind, "r.example");
        let zone = |kind| KeyParts { endpoint: "r.example:443".to_owned(), zone: "a".to_owned(), ..of(kind) };
        let repository = |kind| KeyParts { repository: "r.example/a".to_owned(), ..of(kind) };
        let tag = |kind| KeyParts { image: "r.example/a:1".to_owned(), ..of(kind) };
        for (entry, what, scope) in [
            (zone(EntryKind::Registry), registry(), "zone a"),
            (of(EntryKind::Registry), registry(), "registry"),
            (zone(EntryKind::TokenServer), registry(), "token server, zone a"),
            (of(EntryKind::Blobs), registry(), "blobs"),
            (of(EntryKind::Budget), registry(), "rate"),
            (repository(EntryKind::Repository), image("r.example/a"), "repository"),
            (KeyParts { anonymous: true, ..repository(EntryKind::Login) }, image("r.example/a"), "no login"),
            (repository(EntryKind::Login), image("r.example/a"), "login"),
            (tag(EntryKind::Image), image("r.example/a:1"), "image"),
            (KeyParts { platform: "linux/arm64".to_owned(), ..tag(EntryKind::Platform) }, image("r.example/a:1"), "linux/arm64"),
            (tag(EntryKind::Content), image("r.example/a:1"), "content"),
            (tag(EntryKind::Signature), image("r.example/a:1"), "signature"),
            (tag(EntryKind::NodeImage), image("r.example/a:1"), "node"),
            (of(EntryKind::from_text("moon")), registry(), "moon"),
            (KeyParts::default(), What::Registry(String::new()), "-"),
        ] {
            assert_eq!(what_and_scope(&entry), WhatAndScope { what, scope: scope.to_owned() }, "{entry}");
        }
    }
}
