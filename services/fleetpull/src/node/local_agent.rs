//! The agent on this host, found by its socket, so that a command on the agent's host need not know where the agent's state lies.

use std::path::PathBuf;

use anyhow::Result;
use bus::MessagingRef;
use settings::Settings;

use super::connection::connect_agent;
use crate::configuration::Configuration;
use crate::exit::UsageError;

/// The socket on which an agent answers its host, in its state directory.
pub const SOCKET_FILE: &str = "agent.sock";
/// How many state directories are looked into: a host has one agent, and a test host a few.
const DIRECTORIES_MAX: usize = 64;

/// An agent on this host.
#[derive(Clone)]
pub struct LocalAgent {
    /// The URL of its socket.
    pub url: String,
    /// What it is asked through.
    pub bus: MessagingRef,
}

/// The agent that answers in the state directory of this host: `state.dir`, else that of `node.name`, else the only agent below the store.
/// None if no agent answers there or this user may not ask it.
///
/// # Errors
/// Several agents answer: one is to be named.
pub async fn local_agent(configuration: &Configuration) -> Result<Option<LocalAgent>> {
    let mut agents = Vec::new();
    for socket in sockets(configuration) {
        let url = format!("unix://{}", socket.display());
        // Left behind by an agent that was killed, or another user's.
        if let Ok(bus) = connect_agent(&url).await {
            agents.push(LocalAgent { url, bus });
        }
    }
    if agents.len() > 1 {
        let urls: Vec<&str> = agents.iter().map(|agent| agent.url.as_str()).collect();
        return Err(
            UsageError(format!("{} agents answer on this host: give one of them with --agent: {}", urls.len(), urls.join(", "))).into()
        );
    }
    Ok(agents.pop())
}

/// Where the sockets of this host's agents may lie, in the order of their names.
fn sockets(configuration: &Configuration) -> Vec<PathBuf> {
    let Settings { store, state, node, .. } = configuration.settings();
    // A host that says nowhere to keep images has no agent with default places either.
    let Ok(store) = store.dir_on(&configuration.host) else { return Vec::new() };
    let directories = match (state.parent_on(&store), &node.name) {
        (Some(parent), None) => below(parent),
        (_, name) => vec![state.dir_on(&store, name.as_deref().unwrap_or_default())],
    };
    let directories = directories.into_iter().map(|directory| std::path::absolute(&directory).unwrap_or(directory));
    directories.map(|directory| directory.join(SOCKET_FILE)).filter(|socket| socket.exists()).collect()
}

fn below(parent: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut directories: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).take(DIRECTORIES_MAX).collect();
    directories.sort();
    directories
}
