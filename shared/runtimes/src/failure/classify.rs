//! Derives the failure class from a runtime's error text.
//!
//! The links of the error chain are read from the outermost to the cause; the first one that is known decides. A registry's own message
//! comes after its status or code, so it decides nothing.

use contract::FailureClass;
use contract::FailureClass::{ContentInvalid, Denied, NodeLocal, NotFound, RateLimited, RegistryUnavailable, SignatureInvalid, Unknown};

use super::GrpcCode;
use super::segments;
use super::status;

/// Prefixes of a text for which kubelet reports a reason, with their classes.
const PREFIXES: [(&str, FailureClass); 2] = [("SignatureValidationFailed", SignatureInvalid), ("RegistryUnavailable", RegistryUnavailable)];

/// Links that decide if they match as a whole.
const WHOLE: [(&str, FailureClass); 26] = [
    // Codes of the distribution specification, as Go's registry client writes them.
    ("manifest unknown", NotFound),
    ("name unknown", NotFound),
    ("blob unknown", NotFound),
    ("unauthorized", Denied),
    ("denied", Denied),
    ("toomanyrequests", RateLimited),
    ("too many requests", RateLimited),
    ("too many requests to registry", RateLimited),
    ("manifest invalid", ContentInvalid),
    ("digest invalid", ContentInvalid),
    ("size invalid", ContentInvalid),
    ("json", ContentInvalid),
    // Errors of the operating system.
    ("no space left on device", NodeLocal),
    ("disk quota exceeded", NodeLocal),
    ("read-only file system", NodeLocal),
    ("input/output error", NodeLocal),
    ("cannot allocate memory", NodeLocal),
    ("too many open files", NodeLocal),
    ("permission denied", NodeLocal),
    ("operation not permitted", NodeLocal),
    ("no such file or directory", NodeLocal),
    ("eof", RegistryUnavailable),
    ("connection refused", RegistryUnavailable),
    ("connection reset by peer", RegistryUnavailable),
    ("broken pipe", RegistryUnavailable),
    ("i/o timeout", RegistryUnavailable),
];

/// Links that decide by their prefix.
const BEGINNING: [(&str, FailureClass); 64] = [
    // The runtime itself is not running, or not ready.
    ("connection error", NodeLocal),
    ("error reading from server", NodeLocal),
    ("server is not initialized yet", NodeLocal),
    ("unknown service", NodeLocal),
    ("unknown method", NodeLocal),
    // The connection to the registry.
    ("read tcp", RegistryUnavailable),
    ("write tcp", RegistryUnavailable),
    ("tls handshake timeout", RegistryUnavailable),
    ("timeout awaiting response headers", RegistryUnavailable),
    ("request canceled while waiting for connection", RegistryUnavailable),
    ("request canceled (client.timeout", RegistryUnavailable),
    ("client.timeout", RegistryUnavailable),
    ("server closed idle connection", RegistryUnavailable),
    ("stream error", RegistryUnavailable),
    ("server sent goaway", RegistryUnavailable),
    // A refused login, in the runtimes' words.
    ("pull access denied", Denied),
    ("authorization failed", Denied),
    ("no basic auth credentials", Denied),
    ("insufficient scope", Denied),
    ("authentication required", Denied),
    ("invalid username", Denied),
    ("requested access to the resource is denied", Denied),
    // Wrong or broken content.
    ("no match for platform", ContentInvalid),
    ("no image found in image index", ContentInvalid),
    ("no image found in manifest list", ContentInvalid),
    ("unexpected commit digest", ContentInvalid),
    ("unexpected commit size", ContentInvalid),
    ("failed size validation", ContentInvalid),
    ("digest did not match", ContentInvalid),
    ("digest of source image", ContentInvalid),
    ("download config.json digest", ContentInvalid),
    ("parse manifest", ContentInvalid),
    ("exceeded maximum allowed size", ContentInvalid),
    ("manifest does not match provided manifest digest", ContentInvalid),
    ("failed to read expected number of bytes", ContentInvalid),
    ("invalid desc", ContentInvalid),
    ("invalid character", ContentInvalid),
    ("unexpected end of json input", ContentInvalid),
    ("no signatures", ContentInvalid),
    ("unable to fetch descriptor", ContentInvalid),
    ("unsupported manifest", ContentInvalid),
    ("unsupported schema version", ContentInvalid),
    ("unsupported image-specific operation", ContentInvalid),
    ("invalid tar header", ContentInvalid),
    ("invalid header", ContentInvalid),
    ("invalid checksum", ContentInvalid),
    ("wrong diff id calculated on extraction", ContentInvalid),
    ("unexpected eof", ContentInvalid),
    // Refused by the node's signature policy.
    ("source image rejected", SignatureInvalid),
    ("a signature was required", SignatureInvalid),
    ("image verifier", SignatureInvalid),
    // Causes on this node: certificates, plain HTTP instead of TLS or the reverse, its own settings.
    ("x509", NodeLocal),
    ("server gave http response to https client", NodeLocal),
    ("first record does not look like a tls handshake", NodeLocal),
    ("malformed http response", NodeLocal),
    ("certificate required", NodeLocal),
    ("bad certificate", NodeLocal),
    ("unknown certificate authority", NodeLocal),
    ("unable to read ca cert", NodeLocal),
    ("executable file not found", NodeLocal),
    ("executable not found", NodeLocal),
    ("short-name", NodeLocal),
    ("getting username and password", NodeLocal),
    ("invalid policy in", NodeLocal),
];

/// Causes of a failed connection that are this node's own.
const OWN_SIDE: [&str; 5] =
    ["too many open files", "cannot assign requested address", "no buffer space available", "operation not permitted", "permission denied"];

/// Refusals of a proxy's CONNECT; Go gives only the words of the status.
const PROXY_STATUS: [(&str, FailureClass); 4] = [
    ("proxy authentication required", NodeLocal),
    ("bad gateway", RegistryUnavailable),
    ("service unavailable", RegistryUnavailable),
    ("gateway timeout", RegistryUnavailable),
];

/// Prefixes of texts which state that an image lacks the platform.
const NO_SUCH_PLATFORM: [&str; 3] = ["no match for platform", "no image found in image index", "no image found in manifest list"];

/// containerd's separator between a status and the registry's error body.
const SERVER_MESSAGE: &str = "- server message";

/// The information in a failure's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The failure's class.
    pub class: FailureClass,
    /// Whether the text shows a registry's own answer.
    pub authoritative: bool,
    /// The image has no manifest for the platform.
    pub no_such_platform: bool,
}

/// The class of a failure, from the runtime's text and the code of its call, if there is one.
#[must_use]
pub fn classify_text(text: &str, code: Option<GrpcCode>) -> FailureClass {
    read_text(text, code).class
}

/// Reads a failure's text.
#[must_use]
pub fn read_text(text: &str, code: Option<GrpcCode>) -> Reading {
    let prefix = PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix)).map(|(_, class)| *class);
    let chain = segments::links(text);
    let links: Vec<&str> = chain.iter().map(|link| link.strip_prefix("code = ").map_or(link.as_str(), after_code)).collect();
    let stated = (0..links.len()).find_map(|at| class_of_link(&links, at).map(|class| (at, class)));
    let class = match (prefix, stated.map(|(_, class)| class)) {
        // CRI-O says "registry unavailable" for several causes; two of them belong to another class.
        (Some(RegistryUnavailable), Some(closer @ (RateLimited | NodeLocal))) => closer,
        (Some(prefix), _) => prefix,
        (None, Some(class)) => class,
        (None, None) => class_of_code(code),
    };
    let decided_at = stated.filter(|(_, stated)| *stated == class).map(|(at, _)| at);
    let deciding = decided_at.map(|at| links[at]);
    let no_such_platform = deciding.is_some_and(|link| NO_SUCH_PLATFORM.iter().any(|words| link.starts_with(words)));
    let authoritative = match class {
        // The runtimes report this only for a registry's answer; a web page was classed as unknown.
        RateLimited => deciding.is_some(),
        NotFound | Denied => decided_at.is_some_and(|at| !status::is_bare(&links, at)),
        // A status without an error body may come from a proxy.
        RegistryUnavailable => deciding.is_some_and(|link| link.contains(SERVER_MESSAGE)),
        ContentInvalid => no_such_platform,
        _ => false,
    };
    Reading { class, authoritative, no_such_platform }
}

/// The text after `code = X desc = ` in `rpc error: code = X desc = ...`.
fn after_code(link: &str) -> &str {
    link.split_once(" desc = ").map_or("", |(_, description)| description)
}

fn class_of_link(links: &[&str], at: usize) -> Option<FailureClass> {
    let link = links[at];
    if let Some(class) = status::class_of_status(links, at) {
        return Some(class);
    }
    if let Some((_, class)) = WHOLE.iter().find(|(words, _)| link == *words) {
        return Some(*class);
    }
    if let Some(class) = class_in_context(links, at) {
        return Some(class);
    }
    BEGINNING.iter().find(|(words, _)| link.starts_with(words)).map(|(_, class)| *class)
}

/// The class of a link whose meaning depends on the links around it.
fn class_in_context(links: &[&str], at: usize) -> Option<FailureClass> {
    let (before, link, after) = (&links[..at], links[at], &links[at + 1..]);
    let resolving = || before.iter().any(|link| link.starts_with("failed to resolve"));
    let requested = || before.last().is_some_and(|link| is_request(link));
    match link {
        // Otherwise "not found" may be about a snapshot, lease or content on this node.
        "not found" if resolving() => Some(NotFound),
        "not found" => Some(NodeLocal),
        "context deadline exceeded" if before.iter().all(|link| *link == "rpc error") => Some(NodeLocal),
        _ if link.starts_with("context deadline exceeded") => Some(RegistryUnavailable),
        _ if link.starts_with("dial tcp") || link.starts_with("proxyconnect tcp") => {
            let own = after.iter().any(|cause| OWN_SIDE.contains(cause));
            Some(if own { NodeLocal } else { RegistryUnavailable })
        }
        // Harbor's own code, which Go's registry client does not know.
        _ if link.ends_with(" not found") && is_of_harbor(before, link) => Some(NotFound),
        _ if link.starts_with("could not fetch content descriptor") && link.ends_with("from remote") => Some(NotFound),
        _ if link.starts_with("content at") && link.ends_with("not found") => Some(NotFound),
        _ if link.starts_with("layer ") && link.contains("does not match config's diffid") => Some(ContentInvalid),
        _ if link.starts_with("registry ") && link.contains(" is blocked in ") => Some(NodeLocal),
        // The connection ended before the headers came.
        "unexpected eof" if requested() => Some(RegistryUnavailable),
        _ if requested() => PROXY_STATUS.iter().find(|(words, _)| link == *words).map(|(_, class)| *class),
        _ => None,
    }
}

/// `Get "<URL>"`, and without quotes in older texts. A runtime also says `get manifest`.
fn is_request(link: &str) -> bool {
    link.split_once(' ').is_some_and(|(verb, url)| ["get", "head", "post"].contains(&verb) && ["\"\"", "…"].contains(&url))
}

/// `reading manifest T in R: unknown: artifact N:T not found`.
fn is_of_harbor(before: &[&str], link: &str) -> bool {
    let [.., reading, code] = before else { return false };
    reading.starts_with("reading manifest") && *code == "unknown" && ["artifact ", "repository "].iter().any(|what| link.starts_with(what))
}

/// The class by the call's code, for a text without a known link.
fn class_of_code(code: Option<GrpcCode>) -> FailureClass {
    match code {
        Some(GrpcCode::PermissionDenied | GrpcCode::Unauthenticated) => Denied,
        Some(GrpcCode::Unavailable | GrpcCode::Unimplemented | GrpcCode::DeadlineExceeded) => NodeLocal,
        _ => Unknown,
    }
}
