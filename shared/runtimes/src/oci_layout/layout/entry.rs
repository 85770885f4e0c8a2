//! An entry of `index.json`: which of its fields are read.

use std::collections::BTreeMap;
use std::time::Duration;

use image::{Digest, Platform, Reference};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The annotation with the reference as asked for.
pub(super) const NAME_ANNOTATION: &str = "org.opencontainers.image.ref.name";
/// Our annotation with the digest that the registry resolved the reference to, if that is a list's.
pub(super) const RESOLVED_ANNOTATION: &str = "io.fleetpull.resolved-digest";
/// Our annotation with the manifest's digest if the entry is an index around the manifest.
pub(super) const MANIFEST_ANNOTATION: &str = "io.fleetpull.manifest-digest";
/// Our annotation with the time at which a pull entered the image last.
pub(super) const PULLED_ANNOTATION: &str = "io.fleetpull.pulled-at";
/// The fields of an entry that are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::oci_layout) struct Entry {
    pub(super) digest: Digest,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) platform: Option<PlatformFields>,
}

/// The platform fields of descriptors and configs.
#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::oci_layout) struct PlatformFields {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

impl PlatformFields {
    /// The platform, if the fields name one.
    pub(in crate::oci_layout) fn platform(&self) -> Option<Platform> {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref()).ok()
    }
}

impl Entry {
    pub(super) fn read(entry: &RawValue) -> Option<Self> {
        serde_json::from_str(entry.get()).ok()
    }

    /// The digest of the image's manifest.
    pub(super) fn manifest(&self) -> Digest {
        let named = self.annotations.get(MANIFEST_ANNOTATION).and_then(|digest| Digest::parse(digest).ok());
        named.unwrap_or_else(|| self.digest.clone())
    }

    /// The name that was asked for; none in an entry of another program without one.
    pub(in crate::oci_layout) fn name(&self) -> Option<&str> {
        self.annotations.get(NAME_ANNOTATION).map(String::as_str)
    }

    /// The digest of the manifest list, if the registry resolved the name to one.
    pub(super) fn list(&self) -> Option<Digest> {
        self.annotations.get(RESOLVED_ANNOTATION).and_then(|digest| Digest::parse(digest).ok())
    }

    /// The time since 1970 at which a pull entered the image last; none in an entry of another program.
    pub(in crate::oci_layout) fn pulled_at(&self) -> Option<Duration> {
        let time = OffsetDateTime::parse(self.annotations.get(PULLED_ANNOTATION)?, &Rfc3339).ok()?;
        u64::try_from(time.unix_timestamp()).ok().map(Duration::from_secs)
    }

    /// Whether this is the image: by any spelling of its name, or by its repository and a digest.
    pub(in crate::oci_layout) fn is(&self, image: &Reference) -> bool {
        let Some(name) = self.name() else { return false };
        let Ok(named) = Reference::parse(name) else { return name == image.requested() };
        let has = |digest: &Digest| *digest == self.manifest() || self.list().is_some_and(|list| list == *digest);
        named.normalised() == image.normalised() || named.repository() == image.repository() && image.digest().is_some_and(has)
    }
}

/// False if the entry is certainly not of the repository of `image`, in any spelling of its name. It looks at the text, and reads no field.
pub(super) fn may_be_of(entry: &RawValue, image: &Reference) -> bool {
    let last = image.repository().rsplit('/').next().unwrap_or_default();
    // Other programs may write a letter as an escape.
    entry.get().contains(last) || entry.get().contains("\\u")
}

/// The name and the platform of any entry, also of one that is no readable [`Entry`]; empty if it has none.
#[derive(Default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) platform: Option<Platform>,
}

impl Named {
    pub(super) fn read(entry: &RawValue) -> Self {
        if let Some(entry) = Entry::read(entry) {
            let platform = entry.platform.as_ref().and_then(PlatformFields::platform);
            return Self { name: entry.name().unwrap_or_default().to_owned(), platform };
        }
        let Ok(entry) = serde_json::from_str::<Value>(entry.get()) else { return Self::default() };
        let name = entry["annotations"][NAME_ANNOTATION].as_str().unwrap_or_default().to_owned();
        Self { name, platform: PlatformFields::deserialize(&entry["platform"]).ok().and_then(|fields| fields.platform()) }
    }
}
