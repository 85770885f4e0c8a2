//! Names and digests of the images that the runtime has.

use image::Reference;

use super::proto::runtime::Image;
use crate::port::StoredImage;

/// One for each tag; an image without a tag is named by its digest.
pub(super) fn stored_images(image: Image) -> Vec<StoredImage> {
    let untagged = if image.repo_tags.is_empty() { image.repo_digests.first() } else { None };
    let names = image.repo_tags.iter().chain(untagged).map(|name| Some(name.clone()));
    let names = if image.repo_tags.is_empty() && image.repo_digests.is_empty() { vec![None] } else { names.collect() };
    let stored = |name: Option<String>| {
        let reference = name.as_ref().and_then(|name| Reference::parse(name).ok());
        let digest = reference.and_then(|reference| digest_of(&image, &reference));
        StoredImage { name, digest, size_bytes: (image.size > 0).then_some(image.size), ..StoredImage::default() }
    };
    names.into_iter().map(stored).collect()
}

/// The digest under which the runtime knows the image in the reference's repository.
pub(super) fn digest_of(image: &Image, reference: &Reference) -> Option<String> {
    let digests = image.repo_digests.iter().filter_map(|name| name.split_once('@'));
    let mut digests = digests.filter(|(repository, _)| *repository == reference.repository()).map(|(_, digest)| digest);
    match reference.digest() {
        Some(asked) => digests.find(|digest| *digest == asked.as_str()),
        None => digests.next(),
    }
    .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_of_several_tags_is_listed_by_each_and_one_without_a_tag_by_its_digest() {
        let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
        let image = |tags: &[&str], digests: &[String]| Image {
            id: digest("f"),
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            repo_digests: digests.to_vec(),
            size: 5,
            ..Image::default()
        };
        let listed = |image: Image| -> Vec<(Option<String>, Option<String>)> {
            stored_images(image).into_iter().map(|image| (image.name, image.digest)).collect()
        };
        let of_app = format!("registry.example/app@{}", digest("a"));
        let expected = |name: &str| (Some(name.to_owned()), Some(digest("a")));
        let tags = ["registry.example/app:1", "registry.example/app:2"];
        assert_eq!(listed(image(&tags, std::slice::from_ref(&of_app))), tags.map(expected));
        assert_eq!(listed(image(&[], std::slice::from_ref(&of_app))), [expected(&of_app)]);
        assert_eq!(listed(image(&[], &[])), [(None, None)]);
    }
}
