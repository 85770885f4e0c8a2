//! Helpers of several modules.

use std::collections::BTreeMap;
use std::path::Path;

use memory_registry::MadeImage;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The fields of every row of `pull --output json`.
pub(crate) const FIELDS: [&str; 20] = [
    "image",
    "node",
    "outcome",
    "reason",
    "message",
    "class",
    "image_ref",
    "digest",
    "platform",
    "size_bytes",
    "duration_ms",
    "waiting_ms",
    "next_attempt_ms",
    "auth",
    "trace_id",
    "learned_by",
    "learned_at",
    "learned_trace_id",
    "next_by",
    "standing_pull",
];
/// The longest failure text of the embedded runtime, in characters.
pub(crate) const TEXT_MAX: usize = 1_500;
/// An address of this host without a server: the kernel refuses the connection at once.
pub(crate) const NOBODY: &str = "127.0.0.1:1";

/// An image of three small layers.
pub(crate) fn small() -> MadeImage {
    MadeImage::of_layers([40_000, 20_000, 3_000])
}

/// Asserts the rules of every row; returns `outcome reason class` as one text.
pub(crate) fn check_row(row: &Value) -> String {
    for field in FIELDS {
        assert!(row.get(field).is_some(), "{field} is missing: {row}");
    }
    // An absent value is null.
    let word = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let (outcome, reason, class, message) = (word("outcome"), word("reason"), word("class"), word("message"));
    let there = outcome == "pulled" || outcome == "present";
    assert_eq!(reason.is_empty() && class.is_empty(), there, "a reason and a class for failures alone: {row}");
    assert_eq!(word("image_ref").is_empty(), !there, "{row}");
    assert!(there || !message.is_empty(), "a failure names what failed: {row}");
    assert!(message.chars().count() < TEXT_MAX && !message.contains("<html"), "{row}");
    let trace = word("trace_id");
    assert!(trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit()) && trace.bytes().any(|byte| byte != b'0'), "{row}");
    for number in ["size_bytes", "duration_ms", "waiting_ms"] {
        assert!(row[number].is_u64(), "{number} is a number: {row}");
    }
    format!("{outcome} {reason} {class}").trim_end().to_owned()
}

/// The entries of a store's index by reference name.
pub(crate) fn entries(store: &Path) -> BTreeMap<String, Vec<Value>> {
    let Ok(text) = std::fs::read(store.join("index.json")) else { return BTreeMap::new() };
    let index: Value = serde_json::from_slice(&text).expect("the index is JSON");
    let mut entries: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in index["manifests"].as_array().expect("the index has a list") {
        let name = entry["annotations"]["org.opencontainers.image.ref.name"].as_str().expect("an entry has a name");
        entries.entry(name.to_owned()).or_default().push(entry.clone());
    }
    entries
}

/// Every visible blob of a store and its size; asserts that each hashes to its name.
pub(crate) fn sound_blobs(store: &Path) -> BTreeMap<String, u64> {
    let mut blobs = BTreeMap::new();
    let Ok(folder) = std::fs::read_dir(store.join("blobs/sha256")) else { return blobs };
    for entry in folder {
        let path = entry.expect("a folder can be read").path();
        let content = std::fs::read(&path).expect("a blob can be read");
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(path.file_name().unwrap().to_string_lossy(), hash, "a visible blob hashes to its name");
        blobs.insert(format!("sha256:{hash}"), content.len() as u64);
    }
    blobs
}
