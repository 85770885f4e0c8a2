//! Finds HTTP statuses in texts.

use contract::FailureClass;

/// Words before a status, at the end of its own link or of the previous link.
const ANNOUNCED_BY: [&str; 8] = [
    "unexpected status",
    "unexpected status code …",
    "unexpected status code",
    "failed with status code []",
    "received unexpected http status",
    "unexpected http status",
    "statuscode",
    "request to …",
];
/// Words before a status in the same link.
const LEADING: [&str; 2] = ["invalid status code from registry ", "error parsing http "];

/// containers/image's word before a status whose body is not a registry's error.
const WITHOUT_ERROR_BODY: &str = "statuscode";
/// The beginning of a web page after a status, plain or quoted.
const PAGE: [&str; 2] = [", <", ", \"<\""];
/// Requests before the one for the image. A 404 for them means that the server is no registry or token server.
const BEFORE_AN_IMAGE: [&str; 4] =
    ["pinging container registry", "error pinging docker registry", "requesting bearer token", "failed to authorize"];

/// Statuses that are recognised by their usual reason phrase alone.
const USUAL: [&str; 9] = [
    "401 unauthorized",
    "403 forbidden",
    "404 not found",
    "407 proxy authentication required",
    "429 too many requests",
    "500 internal server error",
    "502 bad gateway",
    "503 service unavailable",
    "504 gateway timeout",
];

/// The class of the status in the link at `at`, if there is one.
pub(super) fn class_of_status(links: &[&str], at: usize) -> Option<FailureClass> {
    let link = links[at];
    let leading = LEADING.iter().find_map(|words| link.strip_prefix(words));
    let announced = || at > 0 && ANNOUNCED_BY.iter().any(|words| links[at - 1].ends_with(words));
    let usual = || USUAL.iter().any(|words| link.starts_with(words));
    let status = match leading {
        Some(rest) => number(rest)?,
        None if announced() || usual() => number(link)?,
        None => return None,
    };
    // A web page comes from a proxy or a portal, not from a registry.
    let page =
        PAGE.iter().any(|words| link.contains(words)) || links.get(at + 1).is_some_and(|next| next.starts_with("invalid character '<'"));
    let no_image_was_asked_for = links[..at].iter().any(|before| BEFORE_AN_IMAGE.iter().any(|words| before.starts_with(words)));
    match class_of_number(status, page) {
        Some(FailureClass::NotFound) if no_image_was_asked_for => Some(FailureClass::Unknown),
        class => class,
    }
}

/// Whether the status in the link at `at` came without a registry's error body. A proxy may have answered then.
pub(super) fn is_bare(links: &[&str], at: usize) -> bool {
    at > 0 && links[at - 1].ends_with(WITHOUT_ERROR_BODY)
}

/// The number if the text begins with three digits and no letter or digit follows.
fn number(text: &str) -> Option<u16> {
    let digits = text.get(..3)?;
    let ends = !text[3..].starts_with(|next: char| next.is_alphanumeric());
    (ends && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

fn class_of_number(status: u16, page: bool) -> Option<FailureClass> {
    match status {
        429 => Some(FailureClass::RateLimited),
        407 => Some(FailureClass::NodeLocal),
        408 | 500..=599 => Some(FailureClass::RegistryUnavailable),
        401 | 403 | 404 if page => Some(FailureClass::Unknown),
        401 | 403 => Some(FailureClass::Denied),
        404 => Some(FailureClass::NotFound),
        _ => None,
    }
}
