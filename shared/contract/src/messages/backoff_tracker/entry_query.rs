//! A search among back-off entries, by a key, the beginning of a key, or an image.

use image::Reference;

use super::{BackoffEntry, EntryKind};

/// The fewest digits of a key; fewer could be the tag of an image.
const KEY_LEAST: usize = 8;

/// A parsed search.
#[derive(Clone, Debug)]
pub struct EntryQuery {
    text: String,
    /// The key of a shared entry, or its beginning.
    key: Option<String>,
    image: Option<Reference>,
}

impl EntryQuery {
    /// Parses the text of a search.
    #[must_use]
    pub fn of(what: &str) -> Self {
        let key = is_key(what).then(|| what.to_ascii_lowercase());
        Self { text: what.to_owned(), key, image: Reference::parse(what).ok() }
    }

    /// Whether it finds this entry: by the beginning of its key, or by an image that it refuses.
    #[must_use]
    pub fn names(&self, entry: &BackoffEntry) -> bool {
        if entry.key == self.text {
            return true;
        }
        let by_key = self.key.as_ref().is_some_and(|key| entry.is_shared() && entry.key.starts_with(key));
        by_key || self.image.as_ref().is_some_and(|image| holds(entry, image))
    }
}

/// Whether an entry refuses an image.
fn holds(entry: &BackoffEntry, image: &Reference) -> bool {
    let key_parts = &entry.key_parts;
    let is_of_what = || match key_parts.one_image() {
        Some(one) => is_same(one, image),
        None if matches!(key_parts.kind, EntryKind::Repository | EntryKind::Login) => key_parts.repository == image.repository(),
        None => true,
    };
    key_parts.registry == image.registry() && is_of_what()
}

/// Whether a text can be a key or its beginning.
#[must_use]
pub fn is_key(what: &str) -> bool {
    what.len() >= KEY_LEAST && what.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_same(named: &str, image: &Reference) -> bool {
    Reference::parse(named).is_ok_and(|other| other.normalised() == image.normalised())
}

#[cfg(test)]
mod tests {
    use super::super::KeyParts;
    use super::*;
    use crate::{PodRef, View};

    fn of(kind: EntryKind) -> KeyParts {
        KeyParts::of(kind, "registry.example")
    }

    fn of_image(kind: EntryKind) -> KeyParts {
        KeyParts { image: "registry.example/a:1".to_owned(), ..of(kind) }
    }

    fn of_repository(kind: EntryKind) -> KeyParts {
        KeyParts { repository: "registry.example/a".to_owned(), ..of(kind) }
    }

    fn shared(key_parts: KeyParts) -> BackoffEntry {
        let key = "316e2d029ab1c464307b9b74a4007f6a".to_owned();
        BackoffEntry { key, key_parts, view: Some(View::default()), ..BackoffEntry::default() }
    }

    fn own(pod: Option<&str>, image: &str) -> BackoffEntry {
        let pod = pod.map(|name| PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: String::new() });
        let key = pod.as_ref().map_or_else(|| image.to_owned(), |pod| format!("{pod} {image}"));
        let key_parts = KeyParts { image: image.to_owned(), pod, ..KeyParts::of(EntryKind::NodeImage, "docker.io") };
        BackoffEntry { key, key_parts, ..BackoffEntry::default() }
    }

    #[test]
    fn an_entry_is_named_by_key_or_image() {
        let known = [shared(of_image(EntryKind::Image)), own(None, "busybox"), own(Some("web-0"), "busybox:latest")];
        for (what, expected) in [
            ("316e2d02", [true, false, false]),
            ("316E2D029AB1", [true, false, false]),
            ("316e2d0", [false; 3]),
            ("registry.example/a:1", [true, false, false]),
            ("registry.example/a:2", [false; 3]),
            ("busybox", [false, true, true]),
            ("docker.io/library/busybox:latest", [false, true, true]),
            ("shop/web-0 busybox:latest", [false, false, true]),
            ("A b", [false; 3]),
        ] {
            let entry_query = EntryQuery::of(what);
            assert_eq!(known.each_ref().map(|entry| entry_query.names(entry)), expected, "{what}");
        }
    }

    #[test]
    fn entry_for_a_registry_or_repository_is_found_by_each_of_its_images() {
        for (key_parts, image, expected) in [
            (of(EntryKind::Registry), "registry.example/any:9", true),
            (of(EntryKind::Registry), "busybox", false),
            (of(EntryKind::Budget), "registry.example/any:9", true),
            (of(EntryKind::from_text("moon")), "registry.example/any:9", true),
            (of_repository(EntryKind::Repository), "registry.example/a:2", true),
            (of_repository(EntryKind::Login), "registry.example/b:2", false),
            (of_image(EntryKind::Content), "registry.example/a:1", true),
            (of_image(EntryKind::Content), "registry.example/a:2", false),
        ] {
            assert_eq!(EntryQuery::of(image).names(&shared(key_parts.clone())), expected, "{key_parts}: {image}");
        }
    }
}
