//! Finds the agent on this host by its socket, so that a command on the same host does not need the path of the agent's state.

use std::path::PathBuf;

use anyhow::Result;
use bus::MessagingRef;
use settings::Settings;

use super::connection::connect_agent;
use crate::configuration::Configuration;
use crate::exit::UsageError;

/// The socket in the state directory on which an agent answers this host.
pub const SOCKET_FILE: &str = "agent.sock";
/// State directories that are searched. A host has one agent, and a test host a few.
const DIRECTORIES_MAX: usize = 64;

/// An agent on this host.
#[derive(Clone)]
pub struct LocalAgent {
    /// The URL of its socket.
    pub url: String,
    /// The connection to the agent.
    pub bus: MessagingRef,
}

/// The agent that answers in a state directory of this host: `state.dir`, else that of `node.name`, else the only agent below the store.
/// None if no agent answers, or if this user may not connect to it.
///
/// # Errors
/// Several agents answer: one has to be given.
pub async fn local_agent(configuration: &Configuration) -> Result<Option<LocalAgent>> {
    let mut agents = Vec::new();
    for socket in sockets(configuration) {
        let url = format!("unix://{}", socket.display());
        // A socket that does not connect was left by a killed agent, or belongs to another user.
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

/// The possible sockets of this host's agents, sorted by name.
fn sockets(configuration: &Configuration) -> Vec<PathBuf> {
    let Settings { store, state, node, .. } = configuration.settings();
    // A host without a path for images has no agent with default paths either.
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
