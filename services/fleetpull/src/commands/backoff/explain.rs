//! `fleetpull backoff explain`, and the same part of `fleetpull explain`.

use anyhow::Result;

use super::Told;
use crate::cli::{BackoffExplainArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output;
use crate::output::known::{self, Known};

/// How many entries fit on a screen.
const SHOWN: usize = 5;

pub(super) fn carry_out(args: &BackoffExplainArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let told = Told::by(&client, &nodes).await;
        let named: Vec<Known> = told.known().into_iter().filter(|known| known.is_named_by(&args.what)).collect();
        if named.is_empty() {
            say_what_is_there(&args.what, &told, args.asked.question.output.quiet);
            return Ok(Exit::Failure);
        }
        match args.asked.question.output.format {
            OutputFormat::Json => named.iter().for_each(|known| output::json(&known.json())),
            OutputFormat::Text => show(&named, client.clock().now().wall_ms()),
        }
        Ok(told.exit)
    })
}

/// What of all that nodes know holds an image back, shared or not.
pub(in crate::commands) async fn of_image(client: &FleetClient, nodes: &[contract::NodeName], image: &str) -> Vec<Known> {
    Told::by(client, nodes).await.known().into_iter().filter(|known| known.is_named_by(image)).collect()
}

/// Writes everything about a few entries.
pub(in crate::commands) fn show(named: &[Known], now_ms: u64) {
    for known in named.iter().take(SHOWN) {
        known.told(now_ms).iter().for_each(|line| output::fact(line));
    }
    if named.len() > SHOWN {
        output::fact(&format!("and {} more: `fleetpull backoff list` shows them", named.len() - SHOWN));
    }
}

/// Nothing has that name: what has, so that a typing error is seen.
pub(super) fn say_what_is_there(what: &str, told: &Told, quiet: bool) {
    let known = told.known();
    if told.lists.is_empty() {
        return;
    }
    if known.is_empty() {
        return output::remark(&format!("nothing holds {what} back: nothing is held back at all"));
    }
    let others = if known.len() == 1 { "1 other is".to_owned() } else { format!("{} others are", known.len()) };
    output::remark(&format!("nothing of that name is held back: {what}. {others}:"));
    if !quiet {
        let shown = known.get(..SHOWN * 2).unwrap_or(&known);
        known::columns(shown).iter().for_each(|line| output::remark(&format!("  {line}")));
        if known.len() > shown.len() {
            output::remark("  ... `fleetpull backoff list` shows all");
        }
    }
}
