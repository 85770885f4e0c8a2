//! The reference of all instruments, `config/metrics.md`, made from the table.

use crate::table::{ALL, Instrument, Scope};
use crate::{SERIES_MAX, registries};

/// The text of the whole file.
#[must_use]
pub fn render_reference() -> String {
    let mut text = format!(
        "# Metrics\n\n\
        <!-- Written by `UPDATE_REFERENCE=1 cargo test -p metrics reference` from shared/metrics/src/table.rs. -->\n\n\
        Every instrument of an agent, at `/metrics` of `metrics.address` and by `fleetpull nodes NAME --metrics`. An agent exports at most\n\
        {SERIES_MAX} series: no label names an image, a pod or a node, and `registry` is one of the first {} registries that the agent asked, or `{}`.\n\
        Durations and waits carry the trace of one observation as exemplar. Sizes and times are in bytes and seconds.\n\
        `fleetpull nodes NAME --counters` has the same number under the name in the last column; an instrument without one is listed there under its own\n\
        name without `fleetpull_` and with its labels, unless it is 0.\n",
        registries::NAMED,
        registries::OTHER,
    );
    for (scope, title) in [
        (Scope::Node, "Of every agent"),
        (Scope::Sharing, "Of every agent that shares with a fleet (`nats.url` is set, and `fleet.share` is not `off`)"),
        (Scope::Leader, "Of the fleet: exported by the agent that leads it alone, the registrar or the leader of a budget"),
    ] {
        text.push_str(&format!("\n## {title}\n\n| metric | type | labels | what | `nodes NAME --counters` |\n|---|---|---|---|---|\n"));
        ALL.iter().filter(|instrument| instrument.scope == scope).for_each(|instrument| text.push_str(&row(instrument)));
    }
    text.push_str("\n## Buckets\n\n| histogram | upper bounds |\n|---|---|\n");
    for instrument in ALL.iter().filter(|instrument| !instrument.bounds().is_empty()) {
        let bounds: Vec<String> = instrument.bounds().iter().map(f64::to_string).collect();
        text.push_str(&format!("| `{}` | {} |\n", instrument.name, bounds.join(", ")));
    }
    text.push_str(
        "\nDurations of pulls have the buckets of `kubelet_image_pull_duration_seconds`, attempts those of\n\
        `kubelet_runtime_operations_duration_seconds`, sizes the bounds of kubelet's label `image_size_in_bytes`; the buckets of waits are ours.\n",
    );
    text
}

fn row(instrument: &Instrument) -> String {
    let Instrument { name, kind, labels, help, counter, .. } = instrument;
    let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
    let counter = counter.map(|counter| format!("`{counter}`")).unwrap_or_default();
    format!("| `{name}` | {} | {} | {help} | {counter} |\n", kind.as_str(), labels.join(", "))
}
