//! The blobs that no image of the index refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use image::Digest;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::entry::MANIFEST_ANNOTATION;
use super::{ALGORITHMS, Hasher, Index, Layout};
use crate::oci_layout::manifest::MANIFEST_MAX_BYTES;

/// Blobs of the store to which no reference was found so far.
pub(in crate::oci_layout) struct Unreferenced {
    /// The blobs, with their sizes in bytes.
    pub(in crate::oci_layout) blobs: BTreeMap<Digest, u64>,
    /// The manifests whose references were all found.
    walked: BTreeSet<Digest>,
}

impl Layout {
    /// All blobs of the store, before any reference is read.
    pub(super) fn all_blobs(&self) -> io::Result<Unreferenced> {
        let mut blobs = BTreeMap::new();
        for algorithm in ALGORITHMS {
            let Some(folder) = self.blob_folder(algorithm)? else { continue };
            for name in folder.names()? {
                let Ok(digest) = Digest::parse(&format!("{}:{name}", algorithm.name())) else { continue };
                if let Some(entry) = folder.metadata(&name)?.filter(std::fs::Metadata::is_file) {
                    blobs.insert(digest, entry.len());
                }
            }
        }
        Ok(Unreferenced { blobs, walked: BTreeSet::new() })
    }
}

impl Unreferenced {
    /// Leaves out these blobs.
    pub(super) fn leave_out<'a>(&mut self, needed: impl IntoIterator<Item = &'a Digest>) {
        for digest in needed {
            self.blobs.remove(digest);
        }
    }

    /// Leaves out the blobs that the index refers to, also through manifests and lists of other programs. A manifest that was read before
    /// is not read again.
    pub(super) fn leave_out_referenced(&mut self, layout: &Layout, index: &Index) -> io::Result<()> {
        let (mut manifests, mut seen) = (Vec::new(), BTreeSet::new());
        for entry in index.descriptors() {
            self.leave_out_named(&entry?, &mut manifests);
        }
        while let Some(digest) = manifests.pop() {
            if self.walked.contains(&digest) || !seen.insert(digest.clone()) {
                continue;
            }
            let Some(text) = layout.read_blob(&digest, MANIFEST_MAX_BYTES)? else { continue };
            // A damaged manifest may be repaired later, and then name other blobs.
            if Hasher::verifies(&text, &digest) {
                self.walked.insert(digest);
            }
            // An unreadable manifest refers to nothing: its image already counts as missing.
            if let Ok(manifest) = serde_json::from_slice(&text) {
                self.leave_out_named(&manifest, &mut manifests);
            }
        }
        Ok(())
    }

    /// Leaves out every digest in a document, and collects the manifests among them.
    fn leave_out_named(&mut self, document: &Value, manifests: &mut Vec<Digest>) {
        match document {
            Value::Array(items) => items.iter().for_each(|item| self.leave_out_named(item, manifests)),
            Value::Object(fields) => {
                for name in ["digest", MANIFEST_ANNOTATION] {
                    let Some(digest) = fields.get(name).and_then(|digest| Digest::deserialize(digest).ok()) else { continue };
                    self.blobs.remove(&digest);
                    if may_be_manifest(fields) {
                        manifests.push(digest);
                    }
                }
                fields.values().for_each(|field| self.leave_out_named(field, manifests));
            }
            _ => {}
        }
    }
}

/// Whether a descriptor may be of a document that names other blobs. One without a media type may.
fn may_be_manifest(descriptor: &Map<String, Value>) -> bool {
    let media_type = descriptor.get("mediaType").and_then(Value::as_str);
    media_type.is_none_or(|media_type| ["manifest", "index"].iter().any(|kind| media_type.contains(kind)))
}
