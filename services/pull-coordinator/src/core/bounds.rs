//! Limits for the texts of a request, so that one request cannot fill messages, events and the memory of a node.

use contract::PodRef;

/// Longest image string, in bytes: several times the longest that a registry could serve.
const IMAGE_MAX_BYTES: usize = 4 * 1024;
/// How many bytes of a longer image string are shown.
const IMAGE_SHOWN_BYTES: usize = 64;
/// Longest namespace, name or uid of a pod and longest platform, in bytes: the length of a DNS name, as in Kubernetes.
const NAME_MAX_BYTES: usize = 253;

/// A text of a request is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {bytes} bytes is too long: at most {limit} bytes are read")]
pub struct TooLong {
    what: &'static str,
    bytes: usize,
    limit: usize,
}

/// Checks the length of an image string.
///
/// # Errors
/// It is too long.
pub fn check_image(image: &str) -> Result<(), TooLong> {
    check("an image name", image, IMAGE_MAX_BYTES)
}

/// Checks the lengths of the pod's names and of the platform.
///
/// # Errors
/// One of them is too long.
pub fn check_names(pod: Option<&PodRef>, platform: Option<&str>) -> Result<(), TooLong> {
    check("a platform", platform.unwrap_or_default(), NAME_MAX_BYTES)?;
    let Some(PodRef { namespace, name, uid }) = pod else { return Ok(()) };
    check("a pod's namespace", namespace, NAME_MAX_BYTES)?;
    check("a pod's name", name, NAME_MAX_BYTES)?;
    check("a pod's uid", uid, NAME_MAX_BYTES)
}

fn check(what: &'static str, text: &str, limit: usize) -> Result<(), TooLong> {
    if text.len() > limit { Err(TooLong { what, bytes: text.len(), limit }) } else { Ok(()) }
}

/// The beginning of an image string that is too long.
pub(super) fn shortened(image: &str) -> String {
    format!("{}...", &image[..image.floor_char_boundary(IMAGE_SHOWN_BYTES)])
}

/// The beginning of a `user@host`, at most `NAME_MAX_BYTES` long.
pub(super) fn shown_user(by: &str) -> &str {
    &by[..by.floor_char_boundary(NAME_MAX_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_longest_length_pass_and_one_byte_more_is_refused() {
        assert_eq!(check_image(&"x".repeat(4_096)), Ok(()));
        let too_long = check_image(&"x".repeat(4_097)).expect_err("is too long");
        assert_eq!(too_long.to_string(), "an image name of 4097 bytes is too long: at most 4096 bytes are read");
        let pod = |bytes| PodRef { uid: "x".repeat(bytes), ..PodRef::default() };
        assert_eq!(check_names(Some(&pod(253)), Some(&"x".repeat(253))), Ok(()));
        assert!(check_names(Some(&pod(254)), None).is_err());
        assert!(check_names(None, Some(&"x".repeat(254))).is_err());
    }

    #[test]
    fn shortened_image_ends_between_characters() {
        assert_eq!(shortened(&format!("x{}", "é".repeat(100))), format!("x{}...", "é".repeat(31)));
    }
}
