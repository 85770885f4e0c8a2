//! The images of this machine's store or runtime.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clock::Clock;
use runtimes::StoredImage;
use settings::RuntimeKind;

use crate::cli::{ImagesArgs, RegistryArgs};
use crate::commands::pull::advice;
use crate::commands::store::{self, Store};
use crate::commands::watch::column_to_sort_by;
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::open_runtime;
use crate::output::json_line;
use crate::output::listing::{Listing, Manner};
use crate::output::table::{Cell, Column, Table};

/// The columns for the images of this machine.
static COLUMNS: [Column; 5] =
    [Column::name("IMAGE", 20), Column::new("DIGEST"), Column::new("PLATFORM"), Column::new("SIZE"), Column::new("PULLED")];

pub(super) fn list(args: &ImagesArgs) -> Result<Exit> {
    let sorted_by = column_to_sort_by(&args.table, &COLUMNS)?;
    let configuration = Configuration::load(&args.asked.question.settings, args.flags())?;
    configuration.start_log("warn");
    let (mut images, nothing) = match configuration.settings().runtime.kind {
        RuntimeKind::OciLayout => of_store(&configuration)?,
        RuntimeKind::Cri => (of_runtime(&configuration)?, "no images in the container runtime".to_owned()),
    };
    images.sort_by(|one, other| (&one.name, &one.platform).cmp(&(&other.name, &other.platform)));
    let manner = Manner::of(args.asked.question.output, &args.table);
    let mut listing = listing(&images, manner.is_wide(), Clock::host().now().wall_ms());
    if let Some(column) = sorted_by {
        listing.table.sort_by(column);
    }
    if manner.has_objects() {
        listing.objects = images.iter().filter_map(|image| json_line(&store::row(image))).collect();
    }
    if images.is_empty() {
        listing.remarks.push(nothing);
    }
    listing.write(&manner);
    Ok(Exit::Success)
}

fn listing(images: &[StoredImage], is_wide: bool, now_ms: u64) -> Listing {
    // The sentence for an empty list names the store, so it is a remark.
    let mut listing = Listing::new(Table::new(&COLUMNS), "");
    for image in images {
        let age = |pulled_at: Duration| now_ms.saturating_sub(u64::try_from(pulled_at.as_millis()).unwrap_or(u64::MAX));
        let pulled = Cell::age_if(image.pulled_at.map(age));
        listing.table.add(store::name(image), store::cells(image, is_wide).into_iter().chain([pulled]).collect());
    }
    listing
}

/// The images, and the sentence to print if there are none.
fn of_store(configuration: &Configuration) -> Result<(Vec<StoredImage>, String)> {
    let Store { path, upkeep } = Store::of(configuration)?;
    match upkeep {
        None => Ok((Vec::new(), store::no_store_at(&path))),
        Some(upkeep) => Ok((upkeep.images()?, format!("no images in the store {}", path.display()))),
    }
}

fn of_runtime(configuration: &Configuration) -> Result<Vec<StoredImage>> {
    actix::System::new().block_on(async {
        let runtime = open_runtime(configuration, RegistryArgs::default(), &Clock::host())?;
        runtime.images().await.map_err(|failure| match advice::of_socket(&failure.text) {
            Some(advice) => anyhow!("{failure}; {advice}"),
            None => anyhow!("the container runtime does not list its images: {failure}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::Look;

    #[test]
    fn images_fit_80_columns_and_are_sorted_by_figures() {
        let image = |name: &str, size_bytes, pulled_s| StoredImage {
            name: Some(name.to_owned()),
            digest: Some(format!("sha256:{}", "ab".repeat(32))),
            platform: Some("linux/amd64".to_owned()),
            size_bytes: Some(size_bytes),
            pulled_at: Some(Duration::from_secs(pulled_s)),
        };
        let images = [image("registry.example/team/platform/application:v2.14.0", 9_000, 40), image("busybox", 10_000, 10)];
        let mut listing = listing(&images, false, 100_000);
        listing.table.sort_by(4);
        let lines = listing.table.lines(&Look::of_width(Some(79)));
        assert!(lines.iter().all(|line| line.len() <= 79), "{lines:#?}");
        assert!(
            lines[1].starts_with("regist") && lines[1].ends_with("tion:v2.14.0  sha256:abababababab  linux/amd64  8.8 KiB  60s"),
            "{lines:#?}"
        );
        assert!(lines[2].ends_with("  9.8 KiB  90s"), "{lines:#?}");
    }
}
