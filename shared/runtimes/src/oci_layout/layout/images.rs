//! Lists the images of the index, for people.

use std::io;

use super::Layout;
use super::entry::Entry;
use super::index::IndexProblem;
use crate::oci_layout::manifest::{ImageManifest, MANIFEST_MAX_BYTES};
use crate::port::StoredImage;

impl Layout {
    /// The images for which this holds, in the order of the index.
    pub(in crate::oci_layout) fn images(&self, is_listed: impl Fn(&Entry) -> bool) -> Result<Vec<StoredImage>, IndexProblem> {
        let index = self.read_index()?;
        index.entries().filter(|entry| is_listed(entry)).map(|entry| self.stored_image(&entry)).collect()
    }

    /// The image of an entry. The size is unknown if the manifest is missing, damaged or another program's list.
    pub(in crate::oci_layout) fn stored_image(&self, entry: &Entry) -> Result<StoredImage, IndexProblem> {
        let manifest = entry.manifest();
        let unreadable = |source: io::Error| IndexProblem::Unreadable { path: self.blob_path(&manifest), source };
        let text = self.read_blob(&manifest, MANIFEST_MAX_BYTES).map_err(unreadable)?;
        let size_bytes = text.and_then(|text| ImageManifest::parse(&text).ok()).map(|image| image.size_bytes());
        let platform = entry.platform.as_ref().and_then(super::PlatformFields::platform);
        Ok(StoredImage {
            name: entry.name().map(str::to_owned),
            digest: Some(entry.list().unwrap_or(manifest).to_string()),
            platform: platform.map(|platform| platform.to_string()),
            size_bytes,
            pulled_at: entry.pulled_at(),
        })
    }
}
