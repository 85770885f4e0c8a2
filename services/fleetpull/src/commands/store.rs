//! The embedded store of this machine, and the format of its images.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clock::Clock;
use image::with_short_digests;
use runtimes::StoredImage;
use runtimes::oci_layout::{Freed, StoreUpkeep};
use serde_json::{Value, json};
use settings::RuntimeKind;

use crate::cli::StoreArgs;
use crate::configuration::Configuration;
use crate::exit::UsageError;
use crate::output::table::Cell;
use crate::output::units;

/// The given store, or this user's default one.
pub(crate) struct Store {
    /// The absolute path.
    pub(super) path: PathBuf,
    /// None if there is no store at the path.
    pub(crate) upkeep: Option<StoreUpkeep>,
}

impl Store {
    /// Opens the store to change it.
    ///
    /// # Errors
    /// A container runtime is configured, or the store cannot be used.
    pub(super) fn to_change(args: &StoreArgs) -> Result<Self> {
        let configuration = Configuration::load(&args.settings, args.flags())?;
        configuration.start_log("warn");
        if configuration.settings().runtime.kind == RuntimeKind::Cri {
            let usage = "runtime.kind is cri, and a container runtime removes its own images (crictl rmi IMAGE, crictl rmi --prune): \
                         for an embedded store give --store DIR";
            return Err(UsageError(usage.to_owned()).into());
        }
        Self::of(&configuration)
    }

    /// Opens the configured store.
    ///
    /// # Errors
    /// The store cannot be used, or its path cannot be determined.
    pub(crate) fn of(configuration: &Configuration) -> Result<Self> {
        let settings = configuration.settings();
        let path = settings.store.dir_on(&configuration.host)?;
        let path = std::path::absolute(&path).unwrap_or(path);
        let upkeep = StoreUpkeep::open(&path, settings.store.fsync, Clock::host())?;
        Ok(Self { path, upkeep })
    }
}

/// The message about a folder that contains no store.
pub(super) fn no_store_at(path: &Path) -> String {
    format!("there is no image store at {} (--store names another one)", path.display())
}

/// The name as text.
pub(super) fn name(image: &StoredImage) -> &str {
    image.name.as_deref().unwrap_or("<none>")
}

/// The digest as text, shortened unless `is_whole`.
pub(super) fn digest(image: &StoredImage, is_whole: bool) -> String {
    let digest = image.digest.as_deref().unwrap_or("-");
    if is_whole { digest.to_owned() } else { with_short_digests(digest) }
}

/// The first cells of an image's row.
pub(super) fn cells(image: &StoredImage, is_wide: bool) -> [Cell; 4] {
    let size = image.size_bytes.map_or_else(Cell::nothing, |bytes| Cell::from(units::bytes(bytes)).sorted_by(bytes));
    let platform = image.platform.as_deref().unwrap_or_default();
    [Cell::from(name(image)), Cell::from(digest(image, is_wide)), Cell::from(platform), size]
}

/// An image in JSON.
pub(super) fn row(image: &StoredImage) -> Value {
    let pulled_at = image.pulled_at.map(|time| units::rfc_3339(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
    json!({
        "kind": "image",
        "image": image.name,
        "digest": image.digest,
        "platform": image.platform,
        "size_bytes": image.size_bytes,
        "pulled_at": pulled_at,
    })
}

/// `1.2 GiB in 31 blobs`
pub(super) fn freed(freed: Freed) -> String {
    format!("{} in {} blob{}", units::bytes(freed.bytes), freed.blobs, if freed.blobs == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_written_with_what_is_known_of_it() {
        let unknown = StoredImage::default();
        assert_eq!((name(&unknown), digest(&unknown, false).as_str()), ("<none>", "-"));
        let whole = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let known = StoredImage { digest: Some(whole.clone()), pulled_at: Some(std::time::Duration::from_secs(60)), ..unknown };
        assert_eq!((digest(&known, false).as_str(), digest(&known, true)), ("sha256:0123456789ab", whole));
        assert_eq!((&row(&known)["pulled_at"], &row(&known)["image"]), (&json!("1970-01-01T00:01:00Z"), &Value::Null));
        assert_eq!(freed(Freed { blobs: 1, bytes: 5 }), "5 B in 1 blob");
        assert_eq!(freed(Freed { blobs: 31, bytes: 1_288_490_189 }), "1.2 GiB in 31 blobs");
    }
}
