//! `fleetpull backoff pause` and `resume`

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::backoff_tracker::{ListBackoffs, Pause, PauseSharing};
use contract::policy::registry_name;
use serde_json::json;

use crate::cli::{BackoffPauseArgs, BackoffResumeArgs, OutputFormat, QuestionArgs};
use crate::commands::user_at_host::user_at_host;
use crate::exit::{Exit, UsageError};
use crate::fleet::{ANSWER_WITHIN, FleetClient, ask_fleet};
use crate::output::{self, units};

/// Agents that are asked before the command fails. Any agent accepts a pause, because it is for the whole fleet.
const TRIED: usize = 3;

pub(super) fn pause(args: &BackoffPauseArgs) -> Result<Exit> {
    let registry = args.registry.as_deref().map(registry).transpose()?;
    let for_ms = u64::try_from(args.lasting.as_millis()).unwrap_or(u64::MAX);
    ask_fleet(&args.question, "error", async |client| {
        let nodes = asked(&client, &args.question).await?;
        let pauses = send_pause(&client, &nodes, PauseSharing { registry: registry.clone(), for_ms, by: user_at_host() }).await?;
        print(args.question.output.format, &pauses);
        Ok(Exit::Success)
    })
}

pub(super) fn resume(args: &BackoffResumeArgs) -> Result<Exit> {
    let registry = args.registry.as_deref().map(registry).transpose()?;
    ask_fleet(&args.question, "error", async |client| {
        let nodes = asked(&client, &args.question).await?;
        let before = in_force(&client, &nodes).await?;
        if !before.iter().any(|pause| pause.registry == registry) {
            output::remark(&format!(
                "{} is not paused",
                registry.as_deref().map_or("sharing of all registries".to_owned(), |name| format!("sharing of {name}"))
            ));
            before.iter().for_each(|pause| output::remark(&format!("  {}", line(pause))));
            return Ok(Exit::Failure);
        }
        let left = send_pause(&client, &nodes, PauseSharing { registry: registry.clone(), for_ms: 0, by: user_at_host() }).await?;
        match args.question.output.format {
            OutputFormat::Json => output::json(&json!({ "kind": "resumed", "registry": registry })),
            OutputFormat::Text => output::fact(&format!("resumed  {}", registry.as_deref().unwrap_or("all registries"))),
        }
        print(args.question.output.format, &left);
        Ok(Exit::Success)
    })
}

/// Agents to ask. A pause is for the whole fleet, so a selector is refused.
async fn asked(client: &FleetClient, question: &QuestionArgs) -> Result<Vec<NodeName>> {
    if question.fleet.selector.is_some() {
        return Err(UsageError("a pause is for every node of the fleet: leave out --selector".to_owned()).into());
    }
    let mut nodes: Vec<NodeName> = client.answering(None).await?.into_iter().map(|node| node.node).collect();
    nodes.truncate(TRIED);
    Ok(nodes)
}

async fn in_force(client: &FleetClient, nodes: &[NodeName]) -> Result<Vec<Pause>> {
    let mut last = String::new();
    for node in nodes {
        match client.ask(node, ListBackoffs { limit: Some(0), ..ListBackoffs::default() }, ANSWER_WITHIN).await {
            Ok(list) => return Ok(list.pauses),
            Err(error) => last = format!("{node}: {}", client.explain_silence(node, &error).await),
        }
    }
    bail!("no agent says which pauses are in force: {last}")
}

async fn send_pause(client: &FleetClient, nodes: &[NodeName], command: PauseSharing) -> Result<Vec<Pause>> {
    let mut last = String::new();
    for node in nodes {
        match client.ask(node, command.clone(), ANSWER_WITHIN).await {
            Ok(paused) => {
                if let Some(why) = paused.only_here {
                    output::remark(&format!(
                        "only {node} has the pause: {why}; {node} publishes it to the other nodes when its bus is back"
                    ));
                }
                return Ok(paused.pauses);
            }
            Err(error) => last = format!("{node}: {}", client.explain_silence(node, &error).await),
        }
    }
    bail!("no agent accepted the request: {last}")
}

/// A registry's name in the form of the views.
pub(super) fn registry(text: &str) -> Result<String> {
    let unknown = || UsageError(format!("{text:?} is no registry: name it as images do, like registry.example or localhost:5000"));
    Ok(registry_name(text).ok_or_else(unknown)?)
}

fn print(format: OutputFormat, pauses: &[Pause]) {
    for pause in pauses {
        match format {
            OutputFormat::Json => {
                output::json(&json!({ "kind": "pause", "registry": pause.registry, "left_ms": pause.left_ms, "by": pause.by }));
            }
            OutputFormat::Text => output::fact(&line(pause)),
        }
    }
}

/// Describes a pause in one line.
pub(in crate::commands) fn line(pause: &Pause) -> String {
    let of = pause.registry.as_ref().map_or_else(|| "of all registries".to_owned(), |registry| format!("of {registry}"));
    format!("paused: sharing {of}, for {} more, by {}", units::age(pause.left_ms), output::one_line(&pause.by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_names_its_registries_and_its_time() {
        let pause = |registry: Option<&str>, left_ms| Pause { registry: registry.map(str::to_owned), left_ms, by: "me@here".to_owned() };
        assert_eq!(
            [pause(None, 60_000), pause(Some("r.example"), 5_100)].map(|pause| line(&pause)),
            ["paused: sharing of all registries, for 60s more, by me@here", "paused: sharing of r.example, for 5s more, by me@here"]
        );
    }
}
