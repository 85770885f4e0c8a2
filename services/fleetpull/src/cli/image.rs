//! An image on the command line, also in the forms of other tools: skopeo and podman write `docker://registry/name:tag`.

use ::image::Reference;

/// The prefix of an image in a registry. It adds nothing to the name.
const REGISTRY: &str = "docker://";
/// The prefix of an OCI image layout.
const LAYOUT: &str = "oci:";
/// The prefixes of other places that are not registries.
const ELSEWHERE: [&str; 5] = ["oci-archive:", "docker-archive:", "docker-daemon:", "containers-storage:", "dir:"];

/// Reads an image, or another value that the argument accepts: removes `docker://`, and refuses places that are not registries.
pub(super) fn image(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix(REGISTRY) {
        return if name.is_empty() { Err(format!("no image is named: write {REGISTRY}busybox, or busybox")) } else { Ok(name.to_owned()) };
    }
    let place = [LAYOUT].into_iter().chain(ELSEWHERE).find(|place| text.starts_with(place));
    place.map_or_else(|| Ok(text.to_owned()), |place| Err(refusal(place, text)))
}

fn refusal(place: &str, text: &str) -> String {
    let advice = match place {
        LAYOUT => format!(
            "give the image's name alone, and --store DIR if a folder is meant; `skopeo copy {text} {REGISTRY}REGISTRY/NAME:TAG` brings it to a registry"
        ),
        _ => format!("bring it to a registry with `skopeo copy {text} {REGISTRY}REGISTRY/NAME:TAG` and name it so"),
    };
    // The text may also be a valid image name.
    let way_out = if Reference::parse(text).is_ok() { format!(" (an image that is called so: {REGISTRY}{text})") } else { String::new() };
    format!("{place} is a place on one machine, and images come from registries: {advice}{way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_of_skopeo_is_a_name_and_other_places_are_refused_with_what_to_do() {
        for (text, name) in [
            ("docker://registry.example/team/app:v2", "registry.example/team/app:v2"),
            ("docker://oci:v1", "oci:v1"),
            ("docker.io/library/busybox", "docker.io/library/busybox"),
            ("docker:27", "docker:27"),
            ("localhost:5000/oci:v1", "localhost:5000/oci:v1"),
            ("316e2d02", "316e2d02"),
            ("", ""),
        ] {
            assert_eq!(image(text).as_deref(), Ok(name), "{text}");
        }
        for (text, expected) in [
            ("docker://", "write docker://busybox"),
            ("oci:./images:busybox", "--store DIR"),
            ("oci-archive:app.tar", "skopeo copy oci-archive:app.tar docker://REGISTRY/NAME:TAG"),
            ("docker-archive:app.tar:app:v1", "skopeo copy docker-archive:app.tar:app:v1 docker://"),
            ("docker-daemon:app:v1", "skopeo copy docker-daemon:app:v1 docker://REGISTRY/NAME:TAG"),
            ("oci:v1", "called so: docker://oci:v1)"),
        ] {
            let refused = image(text).expect_err(text);
            assert!(refused.contains(expected), "{text}: {refused}");
            assert_eq!(refused.contains("called so"), Reference::parse(text).is_ok(), "{text}: {refused}");
        }
    }
}
