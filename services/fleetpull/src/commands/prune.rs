//! `fleetpull prune`

use anyhow::Result;
use runtimes::oci_layout::{Freed, PruneOptions, Pruned};
use serde_json::json;

use super::store::{self, Store};
use crate::cli::{OutputFormat, PruneArgs};
use crate::exit::Exit;
use crate::output::{self, live};

/// Removes the blobs that no image needs, and on request old images.
pub(super) fn carry_out(args: &PruneArgs) -> Result<Exit> {
    let Store { path, upkeep } = Store::to_change(&args.place)?;
    let options = PruneOptions { older_than: args.older_than, keep: args.keep.clone() };
    let pruned = match &upkeep {
        None => {
            remark(args, &store::no_store_at(&path));
            Pruned::default()
        }
        Some(upkeep) if args.dry_run => upkeep.would_prune(&options)?,
        Some(upkeep) => {
            let shows = output::is_terminal() && !args.place.output.quiet;
            let progress = |freed| {
                if shows {
                    show(freed)
                }
            };
            let pruned = actix::System::new().block_on(upkeep.prune(&options, progress));
            live::clear();
            pruned?
        }
    };
    match args.place.output.format {
        OutputFormat::Json => print_json(args, &pruned),
        OutputFormat::Text => print_text(args, &pruned),
    }
    Ok(Exit::Success)
}

fn show(freed: Freed) {
    live::show(&[format!("freed {} so far", store::freed(freed))]);
}

fn remark(args: &PruneArgs, sentence: &str) {
    if !args.place.output.quiet {
        output::remark(sentence);
    }
}

fn print_text(args: &PruneArgs, pruned: &Pruned) {
    let would = if args.dry_run { "would " } else { "" };
    let [remove, free] = if args.dry_run { ["remove", "free"] } else { ["removed", "freed"] };
    for image in &pruned.images {
        output::fact(&format!("{would}{remove} {} ({})", store::name(image), store::digest(image, false)));
    }
    output::fact(&format!("{would}{free} {}", store::freed(pruned.freed)));
}

fn print_json(args: &PruneArgs, pruned: &Pruned) {
    for image in &pruned.images {
        let mut row = store::row(image);
        row["removed"] = json!(!args.dry_run);
        output::json(&row);
    }
    let Freed { blobs, bytes } = pruned.freed;
    output::json(
        &json!({"kind": "summary", "removed": pruned.images.len(), "blobs": blobs, "freed_bytes": bytes, "dry_run": args.dry_run}),
    );
}
