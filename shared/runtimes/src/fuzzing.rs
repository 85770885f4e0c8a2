//! Entry points for fuzzing the parsers. They return nothing; a failure is a panic.

use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use image::Platform;

use crate::{keyring, oci_layout};

/// Parses a login file and looks up a repository.
pub fn login_file(content: &[u8]) {
    keyring::fuzz_login_file(content, "registry.example/team/app");
}

/// Parses a `hosts.toml`; the files that it names are missing.
pub fn hosts_file(text: &str) {
    oci_layout::fuzz_hosts_file(text, Path::new("/nonexistent"));
}

/// Parses a manifest or a list, and chooses the entry for this platform.
pub fn manifest(content: &[u8]) {
    oci_layout::fuzz_manifest(content, &Platform::host());
}

/// Parses `WWW-Authenticate` headers, one per line.
pub fn challenge(text: &str) {
    let mut headers = HeaderMap::new();
    for value in text.lines().filter_map(|line| HeaderValue::from_str(line).ok()) {
        headers.append(http::header::WWW_AUTHENTICATE, value);
    }
    oci_layout::fuzz_challenge(&headers);
}

/// Parses headers about limits, one `name: value` per line.
pub fn rate_limits(text: &str) {
    let mut headers = HeaderMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
    oci_layout::fuzz_rate_limits(&headers, Duration::from_secs(1_790_000_000));
}
