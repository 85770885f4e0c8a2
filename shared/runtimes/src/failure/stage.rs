//! Derives the stage of the registry that failed from a runtime's text.
//!
//! containerd and CRI-O name the failed request by its URL, by the action, or both. A text with neither counts as the manifest's, which is
//! requested first.

use contract::Stage;

/// Parts of containerd's and CRI-O's (containers/image's) texts about a failed token request.
const TOKEN: [&str; 6] = [
    "failed to fetch anonymous token",
    "failed to fetch oauth token",
    "failed to authorize",
    "requesting bearer token",
    "unable to retrieve auth token",
    "error getting auth token",
];

/// Parts of their texts about a failed blob.
const BLOB: [&str; 11] = [
    "/blobs/",
    "httpreadseeker",
    "fetching blob",
    "reading blob",
    "writing blob",
    "copying blob",
    "storing blob",
    "unexpected commit digest",
    "unexpected commit size",
    "failed size validation",
    "failed to copy",
];

/// The stage that failed, from the text that a runtime gave.
#[must_use]
pub fn stage_in(text: &str) -> Stage {
    let text = text.to_ascii_lowercase();
    let holds = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // A token may be requested during a blob's fetch; then the token server has failed.
    if holds(&TOKEN) {
        Stage::Token
    } else if holds(&BLOB) {
        Stage::Blob
    } else {
        Stage::Manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_is_read_from_the_failed_request() {
        let table = [
            // containerd 1.7 and 2.
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to resolve reference \"r.example/a:1\": failed to authorize: \
                 failed to fetch anonymous token: unexpected status from GET request to https://auth.r.example/token?scope=x: 503 Service \
                 Unavailable",
                Stage::Token,
            ),
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to resolve reference \"r.example/a:1\": unexpected status from \
                 HEAD request to https://r.example/v2/a/manifests/1: 503 Service Unavailable",
                Stage::Manifest,
            ),
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to copy: httpReadSeeker: failed open: unexpected status code \
                 https://cdn.example/blobs/sha256/ab: 503 Service Unavailable",
                Stage::Blob,
            ),
            (
                "failed to pull and unpack image \"r.example/a:1\": failed to copy: httpReadSeeker: failed open: failed to do request: Get \
                 \"https://cdn.example/x\": dial tcp 192.0.2.1:443: connect: connection refused",
                Stage::Blob,
            ),
            (
                "failed to pull and unpack image \"r.example/a:1\": unexpected commit digest sha256:aa, expected sha256:bb: failed precondition",
                Stage::Blob,
            ),
            ("rpc error: code = Unknown desc = failed to resolve image: connection reset by peer", Stage::Manifest),
            // CRI-O.
            (
                "initializing source docker://r.example/a:1: Requesting bearer token: invalid status code from registry 503 (Service Unavailable)",
                Stage::Token,
            ),
            (
                "initializing source docker://r.example/a:1: reading manifest 1 in r.example/a: received unexpected HTTP status: 503",
                Stage::Manifest,
            ),
            (
                "copying system image from manifest list: reading blob sha256:ab: fetching blob: received unexpected HTTP status: 503 \
                 Service Unavailable",
                Stage::Blob,
            ),
            ("", Stage::Manifest),
        ];
        for (text, stage) in table {
            assert_eq!(stage_in(text), stage, "{text}");
        }
    }
}
