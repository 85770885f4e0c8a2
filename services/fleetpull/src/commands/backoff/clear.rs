//! `fleetpull backoff clear`

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::backoff_tracker::{BackoffCleared, ClearBackoff, ListBackoffs};
use serde_json::json;

use super::{Told, by, explain, named};
use crate::cli::{BackoffClearArgs, OutputFormat};
use crate::exit::{Exit, UsageError};
use crate::fleet::{FleetClient, ask_fleet};
use crate::output;
use crate::output::known::Known;

/// A clear reaches the fleet as fast as knowledge does, in milliseconds; who has not heard of it by then is told by name.
const SPREADS_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at who has heard of it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What came of it.
#[derive(Default)]
struct Cleared {
    still_binding: BTreeSet<String>,
    refused: Vec<(NodeName, String)>,
}

pub(super) fn carry_out(args: &BackoffClearArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let told = Told::by(&client, &nodes, &named(&args.what)).await;
        // What an agent of an older version has no room to tell may have that name.
        if told.known.is_empty() && told.most_left_out() == 0 {
            explain::say_what_is_there(&client, &args.what, &told, args.asked.question.output.quiet).await;
            return Ok(Exit::Failure);
        }
        let command = ClearBackoff { what: what_to_clear(&args.what, &told.known)?, by: by() };
        let cleared = clear(&client, &told, &named(&args.what), &command).await?;
        print(args.asked.question.output.format, &told.known, &cleared);
        Ok(if cleared.refused.is_empty() { told.exit } else { Exit::Failure })
    })
}

/// The whole key where its beginning was given, else the image.
fn what_to_clear(what: &str, named: &[Known]) -> Result<String> {
    let by_key: Vec<&Known> =
        named.iter().filter(|known| known.is_shared() && known.entry.key.starts_with(&what.to_ascii_lowercase())).collect();
    match by_key.as_slice() {
        [] => Ok(what.to_owned()),
        [one] => Ok(one.entry.key.clone()),
        several => {
            let keys: Vec<&str> = several.iter().map(|known| known.entry.key.as_str()).collect();
            Err(UsageError(format!("{what} is the beginning of several keys: {}", keys.join(", "))).into())
        }
    }
}

/// One node that shares tells the fleet; who holds it all the same after a moment, because it shares with nobody, is told itself.
async fn clear(client: &FleetClient, told: &Told, list: &ListBackoffs, command: &ClearBackoff) -> Result<Cleared> {
    let mut cleared = Cleared::default();
    let holders: Vec<NodeName> = holders(&told.known);
    let sharing: BTreeSet<&NodeName> =
        told.members.iter().filter(|member| member.share != "off" && !member.alone).map(|member| &member.node).collect();
    let first = holders.iter().find(|node| sharing.contains(node)).or(holders.first()).or(told.members.first().map(|member| &member.node));
    let Some(first) = first.cloned() else { bail!("no node answered") };
    tell(client, std::slice::from_ref(&first), command, &mut cleared).await;
    let mut left = holders;
    let looks = SPREADS_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        let now = Told::by(client, &left, list).await.known;
        left = self::holders(&now.into_iter().filter(|known| is_older(known, &told.known)).collect::<Vec<_>>());
        if left.is_empty() {
            return Ok(cleared);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    left.retain(|node| *node != first);
    tell(client, &left, command, &mut cleared).await;
    Ok(cleared)
}

/// Whether an entry is one of those that were to go, and not a newer failure of the same kind.
fn is_older(known: &Known, named: &[Known]) -> bool {
    named
        .iter()
        .any(|old| old.entry.key == known.entry.key && old.is_shared() == known.is_shared() && known.entry.since_ms >= old.entry.since_ms)
}

async fn tell(client: &FleetClient, nodes: &[NodeName], command: &ClearBackoff, cleared: &mut Cleared) {
    for (node, answer) in client.ask_each(nodes, command).await {
        match answer {
            Ok(BackoffCleared { still_binding, .. }) => cleared.still_binding.extend(still_binding),
            Err(silence) => cleared.refused.push((node, silence)),
        }
    }
}

fn holders(known: &[Known]) -> Vec<NodeName> {
    let nodes: BTreeSet<NodeName> = known.iter().flat_map(|known| known.nodes.iter().cloned()).collect();
    nodes.into_iter().collect()
}

fn print(format: OutputFormat, named: &[Known], cleared: &Cleared) {
    for known in named {
        match format {
            OutputFormat::Json => output::json(&json!({
                "kind": "cleared", "key": known.entry.key, "about": known.entry.about, "class": known.entry.class, "node_count": known.nodes.len(),
            })),
            OutputFormat::Text => {
                let nodes = if known.nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", known.nodes.len()) };
                output::fact(&format!("cleared  {}  {}  on {nodes}", output::one_line(&known.entry.about), known.entry.class));
            }
        }
    }
    for still in &cleared.still_binding {
        match format {
            OutputFormat::Json => output::json(&json!({ "kind": "still_binding", "why": still })),
            OutputFormat::Text => output::fact(&format!("still binds  {}", output::one_line(still))),
        }
    }
    for (node, why) in &cleared.refused {
        output::remark(&format!("{node}: {why}"));
    }
}
