//! The sources of names: the agents that answer, and the store of this machine.

use std::cmp::Reverse;
use std::sync::mpsc::Sender;
use std::time::Duration;

use actors::{Patience, gather};
use anyhow::Result;
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::messages::backoff_tracker::ListBackoffs;
use contract::messages::pull_coordinator::{ListPulls, ListStandingPulls};

use super::typed::Typed;
use crate::cli::RuntimeArgs;
use crate::commands::store::Store;
use crate::configuration::Configuration;
use crate::fleet::{FleetClient, connect, connect_here};
use crate::node::root_envelope;

/// How long agents are waited for. Agents of a large fleet or behind a slow network may be left out, so that a shell responds in time.
const PATIENCE: Patience = Patience { limit: Duration::from_millis(200), quiet: Duration::from_millis(50) };
/// Agents that are asked for images, because all agents have the same shared entries.
const ASKED: usize = 3;
/// Entries that each of them sends.
const ENTRIES_MOST: u64 = 200;

pub(super) fn nodes(typed: &Typed, found: &Sender<Vec<String>>) {
    of_fleet(typed, async |client| {
        let names = described(&client).await?.into_iter().map(|node| node.node.to_string()).collect();
        let _ = found.send(names);
        Ok(())
    });
}

pub(super) fn images_of_fleet(typed: &Typed, found: &Sender<Vec<String>>) {
    of_fleet(typed, async |client| {
        let mut nodes = described(&client).await?;
        nodes.retain(|node| [node.backoff, node.pulling, node.waiting, node.standing].iter().any(|count| *count > 0));
        nodes.sort_by_key(|node| Reverse(node.backoff.saturating_add(node.standing)));
        let nodes: Vec<_> = nodes.into_iter().take(ASKED).map(|node| node.node).collect();
        let list = ListBackoffs { limit: Some(ENTRIES_MOST), ..ListBackoffs::default() };
        for (_, list) in client.replies_of(&nodes, &list).await {
            let images = list.entries.into_iter().map(|entry| entry.key_parts.image);
            let _ = found.send(images.filter(|image| !image.is_empty()).collect());
        }
        for (_, list) in client.replies_of(&nodes, &ListStandingPulls {}).await {
            let _ = found.send(list.standing_pulls.into_iter().map(|status| status.image).collect());
        }
        for (_, list) in client.replies_of(&nodes, &ListPulls {}).await {
            let _ = found.send(list.pulls.into_iter().map(|pull| pull.image).collect());
        }
        Ok(())
    });
}

pub(super) fn images_of_store(typed: &Typed, found: &Sender<Vec<String>>) {
    let place = RuntimeArgs { store: typed.store.clone(), ..RuntimeArgs::default() };
    let images = || -> Result<Vec<String>> {
        let configuration = Configuration::read(&typed.settings, place.flags())?;
        let Some(upkeep) = Store::of(&configuration)?.upkeep else { return Ok(Vec::new()) };
        Ok(upkeep.images()?.into_iter().filter_map(|image| image.name).collect())
    };
    let _ = found.send(images().unwrap_or_default());
}

/// Runs `work` with the agents that the typed words, the environment and the settings select, or with the agent of this host.
fn of_fleet(typed: &Typed, work: impl AsyncFnOnce(FleetClient) -> Result<()>) {
    let Ok(configuration) = Configuration::read(&typed.settings, typed.fleet.nats.flags()) else { return };
    // On an error nothing is offered.
    let _ = actix::System::new().block_on(async {
        let client = match connect_here(&typed.fleet, &configuration, true).await? {
            Some(client) => client,
            None => connect(&typed.fleet, &configuration).await?,
        };
        work(client).await
    });
}

async fn described(client: &FleetClient) -> Result<Vec<NodeDescription>> {
    Ok(gather(&client.messaging(), client.fleet(), root_envelope(DescribeNode {}), PATIENCE, client.clock()).await?)
}
