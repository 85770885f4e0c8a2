//! `fleetpull cancel`

use std::collections::BTreeSet;

use anyhow::Result;
use backoff_tracker::sought::is_key;
use contract::messages::pull_coordinator::{CancelWish, ListWishes, WishStatus};
use contract::{NodeName, WishId};

use crate::cli::{CancelArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output::known::same_image;
use crate::output::{self, table, wish};

/// How many wishes are shown to somebody who meant another.
const SHOWN: usize = 10;

/// Ends standing wishes.
pub(super) fn carry_out(args: &CancelArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let (wishes, mut exit) = standing(&client, &nodes).await;
        let now_ms = client.clock().now().wall_ms();
        let (meant, others): (Vec<_>, Vec<_>) = wishes.into_iter().partition(|(_, status)| is_meant(&args.what, status));
        if meant.is_empty() {
            say_what_stands(args, &others, now_ms);
            return Ok(Exit::Failure);
        }
        let ids: BTreeSet<WishId> = meant.iter().map(|(_, status)| status.wish).collect();
        for id in ids {
            let holders: Vec<NodeName> = meant.iter().filter(|(_, status)| status.wish == id).map(|(node, _)| node.clone()).collect();
            for (node, answer) in client.ask_each(&holders, &CancelWish { what: id.to_string() }).await {
                match answer {
                    Ok(done) => done.cancelled.iter().for_each(|status| print(args, &node, status, now_ms)),
                    Err(silence) => {
                        output::remark(&format!("{node}: {silence}"));
                        exit = Exit::Failure;
                    }
                }
            }
        }
        Ok(exit)
    })
}

/// Every wish of `nodes`; says on stderr who did not answer.
async fn standing(client: &FleetClient, nodes: &[NodeName]) -> (Vec<(NodeName, WishStatus)>, Exit) {
    let (mut wishes, mut exit) = (Vec::new(), Exit::Success);
    for (node, answer) in client.ask_each(nodes, &ListWishes {}).await {
        match answer {
            Ok(list) => wishes.extend(list.wishes.into_iter().map(|status| (node.clone(), status))),
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
        }
    }
    (wishes, exit)
}

/// By the beginning of its id, or by its image however that is written.
fn is_meant(what: &str, status: &WishStatus) -> bool {
    if is_key(what) && status.wish.to_string().starts_with(&what.to_ascii_lowercase()) {
        return true;
    }
    same_image(&status.image, what)
}

fn print(args: &CancelArgs, node: &NodeName, status: &WishStatus, now_ms: u64) {
    match args.asked.question.output.format {
        OutputFormat::Json => output::json(&wish::json(node, status, now_ms)),
        OutputFormat::Text => output::fact(&format!("cancelled  {node}  {}  {}", output::one_line(&status.image), status.wish)),
    }
}

fn say_what_stands(args: &CancelArgs, others: &[(NodeName, WishStatus)], now_ms: u64) {
    if others.is_empty() {
        return output::remark(&format!("no wish for {} stands: none stands at all", args.what));
    }
    let count = if others.len() == 1 { "1 other does".to_owned() } else { format!("{} others do", others.len()) };
    output::remark(&format!("no wish for {} stands. {count}:", args.what));
    if !args.asked.question.output.quiet {
        let rows: Vec<Vec<String>> = others.iter().take(SHOWN).map(|(node, status)| wish::row(node, status, now_ms)).collect();
        table::columns(&wish::HEADER, &rows).iter().for_each(|line| output::remark(&format!("  {line}")));
        if others.len() > SHOWN {
            output::remark("  ... `fleetpull pulls` shows all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_meant_by_id_or_image() {
        let status: WishStatus =
            serde_json::from_str(r#"{"wish": "4bf92f3577b34da6a3ce929d0e0e4736", "image": "busybox"}"#).expect("a status");
        for what in ["4bf92f35", "4BF92F3577B34DA6A3CE929D0E0E4736", "busybox", "busybox:latest", "docker.io/library/busybox"] {
            assert!(is_meant(what, &status), "{what}");
        }
        for what in ["4bf92f3", "5bf92f35", "busybox:1", "", "a b"] {
            assert!(!is_meant(what, &status), "{what}");
        }
    }
}
