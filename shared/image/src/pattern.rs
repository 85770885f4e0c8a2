//! Patterns of image names.

use std::str::FromStr;

use crate::{Reference, ReferenceError};

/// Stands for any text in a pattern, slashes and colons included.
const ANY: char = '*';

/// Images by name: one image as everywhere (`busybox` is `docker.io/library/busybox:latest`), or all whose name has this form, with `*` for
/// any text (`registry.example/team/*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePattern {
    text: String,
    /// None if the pattern has a `*`.
    image: Option<Reference>,
}

impl FromStr for ImagePattern {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let image = if text.contains(ANY) { None } else { Some(Reference::parse(text)?) };
        Ok(Self { text: text.to_owned(), image })
    }
}

impl ImagePattern {
    /// Whether an image of this name is meant, as the name was asked for or in full.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let named = Reference::parse(name).ok();
        let full = named.as_ref().map(Reference::normalised);
        match &self.image {
            Some(image) => full == Some(image.normalised()),
            None => fits(&self.text, name) || full.is_some_and(|full| fits(&self.text, full)),
        }
    }
}

/// Whether a text has the form of a pattern. Linear in the text for each piece of the pattern.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, others)) = pattern.split_once(ANY) else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = others.split(ANY).collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        // The first place is as good as any other, since what follows may begin at once.
        let Some(place) = text.find(piece) else { return false };
        text = &text[place + piece.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_means_one_image_or_all_of_a_form() {
        for (pattern, name, matches) in [
            ("busybox", "docker.io/library/busybox:latest", true),
            ("docker.io/library/busybox", "busybox", true),
            ("busybox", "busybox:1", false),
            ("registry.example/team/*", "registry.example/team/app:v1", true),
            ("registry.example/team/*", "registry.example/other/app:v1", false),
            ("docker.io/*", "busybox", true),
            ("busybox:*", "busybox:1", true),
            ("*:v1", "registry.example/team/app:v1", true),
            ("*:v1", "registry.example/team/app:v10", false),
            ("*/app:*1*", "registry.example/team/app:v10", true),
            ("a*b*b", "ab", false),
            ("*", "anything at all", true),
        ] {
            assert_eq!(pattern.parse::<ImagePattern>().unwrap().matches(name), matches, "{pattern} {name}");
        }
        assert!("Not:A:Name".parse::<ImagePattern>().is_err());
        assert!(String::new().parse::<ImagePattern>().is_err());
    }
}
