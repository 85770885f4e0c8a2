//! What somebody looks for among what is held back: a key, the beginning of one, or an image.

use contract::messages::backoff_tracker::BackoffEntry;
use image::Reference;

/// The least of a key that names it: fewer digits could be the tag of an image.
pub const KEY_LEAST: usize = 8;

/// What is looked for, read once.
#[derive(Clone, Debug)]
pub struct EntryQuery {
    text: String,
    /// A key of what is shared, or its beginning.
    key: Option<String>,
    image: Option<Reference>,
}

impl EntryQuery {
    /// As somebody wrote it.
    #[must_use]
    pub fn of(what: &str) -> Self {
        let key = is_key(what).then(|| what.to_ascii_lowercase());
        Self { text: what.to_owned(), key, image: Reference::parse(what).ok() }
    }

    /// Whether it names this entry: the beginning of its key, or an image that it holds back.
    #[must_use]
    pub fn names(&self, entry: &BackoffEntry) -> bool {
        if entry.key == self.text {
            return true;
        }
        let Some(view) = &entry.view else {
            return self.image.as_ref().is_some_and(|image| image_of(entry).is_some_and(|word| is_same(word, image)));
        };
        let by_key = self.key.as_ref().is_some_and(|key| entry.key.starts_with(key));
        by_key || self.image.as_ref().is_some_and(|image| view.registry == image.registry() && is_about(entry, image))
    }
}

/// Whether an entry is of a registry, as images name it.
#[must_use]
pub fn is_of_registry(entry: &BackoffEntry, registry: &str) -> bool {
    match &entry.view {
        Some(view) => view.registry == registry,
        None => {
            let image = image_of(entry).and_then(|image| Reference::parse(image).ok());
            image.is_some_and(|image| image.registry() == registry)
        }
    }
}

/// The image that an entry is about, as it is written there; none: it is about more than one image.
#[must_use]
pub fn image_of(entry: &BackoffEntry) -> Option<&str> {
    if entry.view.is_none() {
        // `namespace/name image` for a pod.
        return entry.key.rsplit(' ').next();
    }
    let mut words = entry.about.split_whitespace();
    match words.next() {
        Some("image") => words.next(),
        // `content of ...`
        Some("content" | "signature") => words.nth(1),
        _ => None,
    }
}

/// Whether an entry of the image's registry is about the image: its text names what it is about.
fn is_about(entry: &BackoffEntry, image: &Reference) -> bool {
    let mut words = entry.about.split_whitespace();
    match (image_of(entry), words.next()) {
        (Some(word), _) => is_same(word, image),
        (None, Some("image" | "content" | "signature")) => false,
        (None, Some("repository")) => words.next() == Some(image.repository()),
        (None, _) => true,
    }
}

/// Whether a text can be a key or its beginning.
#[must_use]
pub fn is_key(what: &str) -> bool {
    what.len() >= KEY_LEAST && what.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_same(word: &str, image: &Reference) -> bool {
    Reference::parse(word).is_ok_and(|other| other.normalised() == image.normalised())
}

#[cfg(test)]
mod tests {
    use contract::View;

    use super::*;

    fn shared(about: &str) -> BackoffEntry {
        let view = View { registry: "registry.example".to_owned(), ..View::default() };
        BackoffEntry {
            key: "316e2d029ab1c464307b9b74a4007f6a".to_owned(),
            about: about.to_owned(),
            view: Some(view),
            ..BackoffEntry::default()
        }
    }

    fn own(image: &str) -> BackoffEntry {
        BackoffEntry { key: image.to_owned(), about: format!("image {image} on this node"), ..BackoffEntry::default() }
    }

    #[test]
    fn an_entry_is_named_by_key_or_image() {
        let known = [shared("image registry.example/a:1"), own("busybox"), own("shop/web-0 busybox:latest")];
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
    fn what_holds_all_of_a_registry_is_named_by_each_of_its_images() {
        for (about, image, expected) in [
            ("registry registry.example:443 from zone a", "registry.example/any:9", true),
            ("registry registry.example:443 from zone a", "busybox", false),
            ("repository registry.example/a of registry registry.example", "registry.example/a:2", true),
            ("repository registry.example/a of registry registry.example", "registry.example/b:2", false),
            ("content of registry.example/a:1 from m.example:443", "registry.example/a:1", true),
        ] {
            assert_eq!(EntryQuery::of(image).names(&shared(about)), expected, "{about}: {image}");
        }
    }

    #[test]
    fn an_entry_is_about_one_image_or_about_more() {
        for (entry, image) in [
            (shared("image registry.example/a:1"), Some("registry.example/a:1")),
            (shared("image registry.example/a:1 for linux/arm64"), Some("registry.example/a:1")),
            (shared("content of registry.example/a:1 from m.example:443"), Some("registry.example/a:1")),
            (shared("signature of registry.example/a:1"), Some("registry.example/a:1")),
            (shared("registry registry.example:443 from zone a"), None),
            (shared("repository registry.example/a of registry registry.example"), None),
            (own("shop/web-0 busybox"), Some("busybox")),
        ] {
            assert_eq!(image_of(&entry), image, "{}", entry.about);
        }
    }

    #[test]
    fn a_registry_is_that_of_the_view_or_of_the_image() {
        for (entry, registry, expected) in [
            (shared("registry registry.example"), "registry.example", true),
            (shared("registry registry.example"), "docker.io", false),
            (own("busybox"), "docker.io", true),
            (own("shop/web-0 r.example/a"), "r.example", true),
        ] {
            assert_eq!(is_of_registry(&entry, registry), expected, "{} {registry}", entry.key);
        }
    }
}
