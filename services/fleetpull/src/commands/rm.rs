//! `fleetpull rm`

use anyhow::Result;
use image::Reference;
use runtimes::StoredImage;
use runtimes::oci_layout::{Freed, StoreUpkeep};
use serde_json::json;

use super::store::{self, Store};
use crate::cli::{OutputFormat, RmArgs};
use crate::exit::Exit;
use crate::output;

/// Other images of the repository that are named if an image does not exist.
const OTHERS_SHOWN: usize = 5;

/// Removes images from the index of the embedded store.
pub(super) fn carry_out(args: &RmArgs) -> Result<Exit> {
    let store = Store::to_change(&args.place)?;
    let Some(upkeep) = &store.upkeep else { anyhow::bail!(store::no_store_at(&store.path)) };
    actix::System::new().block_on(async {
        let (mut removed, mut missing) = (0, 0);
        for image in &args.images {
            let found = if args.dry_run { upkeep.find(image)? } else { upkeep.remove(image).await? };
            if found.is_empty() {
                missing += 1;
                print_missing(args, upkeep, image, &store)?;
            }
            found.iter().for_each(|found| print_removed(args, found));
            removed += found.len();
        }
        let without = if args.dry_run { args.images.as_slice() } else { &[] };
        print_sum(args, removed, upkeep.prunable_without(without)?);
        Ok(if missing == 0 { Exit::Success } else { Exit::Failure })
    })
}

fn print_removed(args: &RmArgs, image: &StoredImage) {
    match args.place.output.format {
        OutputFormat::Json => {
            let mut row = store::row(image);
            row["removed"] = json!(!args.dry_run);
            output::json(&row);
        }
        OutputFormat::Text => {
            let done = if args.dry_run { "would remove" } else { "removed" };
            let platform = image.platform.as_deref().map(|platform| format!(", {platform}")).unwrap_or_default();
            output::fact(&format!("{done} {} ({}{platform})", store::name(image), store::digest(image, false)));
        }
    }
}

/// Names other images of the repository, because most often the tag was wrong.
fn print_missing(args: &RmArgs, upkeep: &StoreUpkeep, image: &Reference, store: &Store) -> Result<()> {
    let images = upkeep.images()?;
    let names = images.iter().filter_map(|image| image.name.as_deref());
    let of_repository = |name: &&str| Reference::parse(name).is_ok_and(|other| other.repository() == image.repository());
    let others: Vec<&str> = names.filter(of_repository).take(OTHERS_SHOWN).collect();
    let asked = image.requested();
    let advice = match others.as_slice() {
        [] => "`fleetpull images` lists what is there".to_owned(),
        others => format!("of this repository there is {}", others.join(", ")),
    };
    let latest = if asked == image.runtime_reference() { "" } else { " with the tag latest, which is meant without a tag" };
    let message = format!("{asked} is not in the store {}{latest}: {advice}", store.path.display());
    if args.place.output.format == OutputFormat::Json {
        output::json(&json!({"kind": "image", "image": asked, "removed": false, "error": message}));
    }
    output::remark(&format!("fleetpull: {message}"));
    Ok(())
}

fn print_sum(args: &RmArgs, removed: usize, freed: Freed) {
    let wanted = args.place.output;
    if wanted.format == OutputFormat::Json {
        let (blobs, bytes) = (freed.blobs, freed.bytes);
        output::json(
            &json!({"kind": "summary", "removed": removed, "prunable_blobs": blobs, "prunable_bytes": bytes, "dry_run": args.dry_run}),
        );
    } else if freed.blobs > 0 && !wanted.quiet {
        let then = if args.dry_run { " then" } else { "" };
        output::remark(&format!("`fleetpull prune` would{then} free {}", store::freed(freed)));
    }
}
