//! Where the images are stored, and a command that reads one of them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use contract::messages::pull_coordinator::OutcomeKind;
use serde::Deserialize;
use settings::RuntimeKind;

use crate::configuration::Configuration;
use crate::output;
use crate::output::outcome::Row;

/// The prefix of the media types in an image index that every reader of layouts accepts.
const OCI_MANIFEST: &str = "application/vnd.oci.image.";

/// Where the images of this process are stored.
pub(super) enum Place {
    /// In this image layout.
    Layout(PathBuf),
    /// In a container runtime.
    Runtime,
}

/// The part of a layout's `index.json` that is read.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name")]
    name: Option<String>,
}

impl Place {
    /// The configured place. A layout gets its absolute path, because users copy the advice to other terminals.
    ///
    /// # Errors
    /// The directory of the store cannot be determined.
    pub(super) fn of(configuration: &Configuration) -> Result<Self> {
        match configuration.settings().runtime.kind {
            RuntimeKind::OciLayout => {
                let layout = configuration.settings().store.dir_on(&configuration.host)?;
                Ok(Self::Layout(std::path::absolute(&layout).unwrap_or(layout)))
            }
            RuntimeKind::Cri => Ok(Self::Runtime),
        }
    }

    /// Says on stderr where the images are stored, and how to read the first available one.
    pub(super) fn print_advice(&self, rows: &[Row]) {
        let Some(row) = rows.iter().find(|row| matches!(row.outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present)) else { return };
        match self {
            Self::Layout(layout) => {
                output::remark(&format!("The images lie in the OCI image layout {}. To read one:", layout.display()));
                output::remark(&format!("  {}", read_from(layout, row)));
            }
            Self::Runtime => {
                output::remark("The images lie in the container runtime. To read one:");
                output::remark(&format!("  crictl inspecti {}", quoted(&row.image)));
            }
        }
    }
}

/// The command for an image of the layout. An image that was already present may have another name than the requested one.
fn read_from(layout: &Path, row: &Row) -> String {
    let index = std::fs::read(layout.join("index.json")).ok().and_then(|text| serde_json::from_slice::<Index>(&text).ok());
    let entries = index.map(|index| index.manifests).unwrap_or_default();
    let named = |entry: &&Entry| entry.annotations.name.as_deref() == Some(&row.image);
    let same = |entry: &&Entry| row.outcome.image_ref.ends_with(&entry.digest);
    let entry = entries.iter().find(|entry| named(entry) && same(entry)).or_else(|| entries.iter().find(same));
    command(&layout.display().to_string(), entry, &row.image)
}

/// Skopeo finds only OCI manifests by name, and takes a colon for the end of the layout's path. In other cases the command reads the
/// manifest itself.
fn command(layout: &str, entry: Option<&Entry>, image: &str) -> String {
    match entry {
        Some(entry) if layout.contains(':') || !entry.media_type.starts_with(OCI_MANIFEST) => {
            format!("cat {}", quoted(&format!("{layout}/blobs/{}", entry.digest.replacen(':', "/", 1))))
        }
        None if layout.contains(':') => format!("cat {}", quoted(&format!("{layout}/index.json"))),
        entry => {
            let name = entry.and_then(|entry| entry.annotations.name.as_deref()).unwrap_or(image);
            format!("skopeo inspect {}", quoted(&format!("oci:{layout}:{name}")))
        }
    }
}

/// Quotes any text as one word for a shell.
pub(in crate::commands) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_command_matches_the_stored_manifest_type() {
        let entry = |media_type: &str, name: &str| Entry {
            media_type: media_type.to_owned(),
            digest: "sha256:abc".to_owned(),
            annotations: Annotations { name: Some(name.to_owned()) },
        };
        let oci = entry("application/vnd.oci.image.manifest.v1+json", "busybox");
        let docker = entry("application/vnd.docker.distribution.manifest.v2+json", "busybox");
        assert_eq!(command("/s", Some(&oci), "busybox@sha256:abc"), "skopeo inspect 'oci:/s:busybox'");
        assert_eq!(command("/s", Some(&docker), "busybox"), "cat '/s/blobs/sha256/abc'");
        assert_eq!(command("/s", None, "busybox"), "skopeo inspect 'oci:/s:busybox'");
        assert_eq!(command("/with:colon", Some(&oci), "busybox"), "cat '/with:colon/blobs/sha256/abc'");
        assert_eq!(command("/with:colon", None, "busybox"), "cat '/with:colon/index.json'");
        assert_eq!(command("/it's", Some(&oci), "busybox"), r"skopeo inspect 'oci:/it'\''s:busybox'");
    }
}
