//! `fleetpull backoff explain`, and the same part of `fleetpull explain`.

use anyhow::Result;
use contract::NodeName;
use contract::messages::backoff_tracker::ListBackoffs;

use super::GatheredEntries;
use crate::cli::{BackoffExplainArgs, OutputFormat};
use crate::commands::{holds, status};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output;
use crate::output::known_failures::{self, Known};
use crate::output::table::Look;

/// Entries that fit on a screen.
const SHOWN: usize = 5;
/// Entries with other names that are shown if the name is not found.
const OTHERS_SHOWN: usize = 10;

pub(super) fn carry_out(args: &BackoffExplainArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let mut gathered = GatheredEntries::by(&client, &nodes, &super::named(&args.what)).await;
        // A row of the status may be a budget without an entry.
        if gathered.known.is_empty()
            && status::may_name_rows(&args.what)
            && let Some(exit) = status::explain(&client, &args.asked.question, &args.what).await?
        {
            return Ok(exit);
        }
        holds::delay(&client, &nodes, &mut gathered.known).await;
        if gathered.known.is_empty() {
            list_other_entries(&client, &args.what, &gathered, args.asked.question.output.quiet).await;
            return Ok(Exit::Failure);
        }
        let now_ms = client.clock().now().wall_ms();
        match args.asked.question.output.format {
            OutputFormat::Json => gathered.known.iter().for_each(|known| output::json(&known.json(now_ms))),
            OutputFormat::Text => show(&gathered.known, now_ms),
        }
        Ok(gathered.exit())
    })
}

/// All entries that delay an image, shared or not.
pub(in crate::commands) async fn of_image(client: &FleetClient, nodes: &[NodeName], image: &str) -> Vec<Known> {
    GatheredEntries::by(client, nodes, &super::named(image)).await.known
}

/// Shows all details of the first entries.
pub(in crate::commands) fn show(named: &[Known], now_ms: u64) {
    for known in named.iter().take(SHOWN) {
        known.details(now_ms).iter().for_each(|line| output::fact(line));
    }
    if named.len() > SHOWN {
        output::fact(&format!("and {} more: `fleetpull backoff list` shows them", named.len() - SHOWN));
    }
}

/// Says that no entry has this name, and lists others so that a typing error is noticed.
pub(super) async fn list_other_entries(client: &FleetClient, what: &str, gathered: &GatheredEntries, quiet: bool) {
    let holders: Vec<NodeName> = gathered.members.iter().filter(|member| member.others > 0).map(|member| member.node.clone()).collect();
    if gathered.members.is_empty() {
        return;
    }
    if holders.is_empty() {
        return output::remark(&format!("no back-off entry for {what}: there are no back-off entries on the nodes that answered"));
    }
    let few = ListBackoffs { limit: Some(OTHERS_SHOWN as u64 + 1), ..ListBackoffs::default() };
    let mut known = GatheredEntries::by(client, &holders, &few).await.known;
    holds::delay(client, &holders, &mut known).await;
    let shown = known.get(..OTHERS_SHOWN).unwrap_or(&known);
    let others = match (known.len(), shown.len()) {
        (0, _) => return output::remark(&format!("no back-off entry for {what} on the nodes that answered")),
        (1, _) => "1 other entry".to_owned(),
        (all, shown) if all > shown => format!("more than {shown} other entries"),
        (all, _) => format!("{all} other entries"),
    };
    output::remark(&format!("no back-off entry for {what} on the nodes that answered. {others}:"));
    if !quiet {
        known_failures::table(shown).lines(&Look::of_width(None)).iter().for_each(|line| output::remark(&format!("  {line}")));
        if known.len() > shown.len() {
            output::remark("  ... `fleetpull backoff list` shows all");
        }
        output::remark(
            "hint: name an image, an ID of `fleetpull status`, or a key of a shared entry: `fleetpull backoff list -o wide` shows the keys",
        );
    }
}
