//! How much is read of what a caller writes. Beyond it one request could fill messages, events and the memory of a node.

use contract::PodRef;

/// Longest image string, in bytes: several times the longest that a registry could serve.
const IMAGE_MAX_BYTES: usize = 4 * 1024;
/// How much of a longer one is shown.
const IMAGE_SHOWN_BYTES: usize = 64;
/// Longest namespace, name or uid of a pod and longest platform, in bytes: that of a DNS name, as in Kubernetes.
const NAME_MAX_BYTES: usize = 253;

/// Something is too long to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {bytes} bytes is too long: at most {limit} bytes are read")]
pub struct TooLong {
    what: &'static str,
    bytes: usize,
    limit: usize,
}

/// Whether an image string may be read.
///
/// # Errors
/// It is too long.
pub fn check_image(image: &str) -> Result<(), TooLong> {
    check("an image name", image, IMAGE_MAX_BYTES)
}

/// Whether what stands beside the image may be read.
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

/// The beginning of an image string that is too long, for showing.
pub(super) fn beginning(image: &str) -> String {
    format!("{}...", &image[..image.floor_char_boundary(IMAGE_SHOWN_BYTES)])
}

/// As much of a `user@host` as is shown.
pub(super) fn person(by: &str) -> &str {
    &by[..by.floor_char_boundary(NAME_MAX_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_long_as_allowed_is_read_and_a_byte_more_is_not() {
        assert_eq!(check_image(&"x".repeat(4_096)), Ok(()));
        let too_long = check_image(&"x".repeat(4_097)).expect_err("is too long");
        assert_eq!(too_long.to_string(), "an image name of 4097 bytes is too long: at most 4096 bytes are read");
        let pod = |bytes| PodRef { uid: "x".repeat(bytes), ..PodRef::default() };
        assert_eq!(check_names(Some(&pod(253)), Some(&"x".repeat(253))), Ok(()));
        assert!(check_names(Some(&pod(254)), None).is_err());
        assert!(check_names(None, Some(&"x".repeat(254))).is_err());
    }

    #[test]
    fn a_beginning_ends_between_letters() {
        assert_eq!(beginning(&format!("x{}", "é".repeat(100))), format!("x{}...", "é".repeat(31)));
    }
}
