//! How many bytes each node would fetch: one node of each platform asks the registry what the image consists of, and every node
//! is asked how much of that it lacks. So a thousand nodes cost the registry a request or two.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::pull_coordinator::{ExplainImage, Explanation, ImageWeight, PullPolicy};

use crate::fleet::FleetClient;

/// How many nodes of a platform are asked in turn to ask the registry: the first may be too old for it, or fall silent.
const ASKED_IN_TURN: usize = 3;
/// How long a node may take for that: it gives its registry 20 s.
const WEIGHED_WITHIN: Duration = Duration::from_secs(25);

/// What one node would fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToFetch {
    /// So many bytes.
    Bytes(u64),
    /// No more than these: the node's runtime does not say which layers it has.
    UpTo(u64),
    /// That is not known, because of this.
    Unknown(String),
}

impl ToFetch {
    /// In bytes, if it is known.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::UpTo(bytes) => Some(*bytes),
            Self::Unknown(_) => None,
        }
    }
}

/// What `command` would fetch on each node that has said what it would do.
pub(super) async fn weigh(client: &FleetClient, command: &ExplainImage, said: &[(&NodeName, &Explanation)]) -> BTreeMap<NodeName, ToFetch> {
    let (mut known, mut lacking) = (BTreeMap::new(), BTreeMap::<&str, Vec<(&NodeName, &Explanation)>>::new());
    for (node, said) in said {
        match (without_asking(said), &said.platform) {
            (Some(settled), _) => {
                known.insert((*node).clone(), settled);
            }
            (None, Some(platform)) => lacking.entry(platform).or_default().push((node, said)),
            (None, None) => {
                known.insert((*node).clone(), ToFetch::Unknown("its agent is of a version that does not say".to_owned()));
            }
        }
    }
    for nodes in lacking.into_values() {
        match of_registry(client, command, &nodes).await {
            Err(reason) => known.extend(nodes.iter().map(|(node, _)| ((*node).clone(), ToFetch::Unknown(reason.clone())))),
            Ok(weight) => known.extend(of_nodes(client, command, &nodes, &weight).await),
        }
    }
    known
}

/// What is there is asked for again by the policy Always alone.
fn without_asking(said: &Explanation) -> Option<ToFetch> {
    let always = said.policy == PullPolicy::Always.as_str();
    match said.present {
        _ if said.policy == PullPolicy::Never.as_str() => Some(ToFetch::Bytes(0)),
        Some(true) if !always => Some(ToFetch::Bytes(0)),
        None if !always => Some(ToFetch::Unknown("its runtime cannot say whether the image is there".to_owned())),
        _ => None,
    }
}

/// What the image consists of, for the platform of these nodes; or why that is not known.
async fn of_registry(client: &FleetClient, command: &ExplainImage, nodes: &[(&NodeName, &Explanation)]) -> Result<ImageWeight, String> {
    let mut free = nodes.iter().filter(|(_, said)| said.next_try_ms.is_none()).map(|(node, _)| *node).peekable();
    if free.peek().is_none() {
        let cause = nodes.iter().find_map(|(_, said)| said.cause.as_deref()).unwrap_or("an earlier failure");
        return Err(format!("no node may ask its registry now, because of {cause}"));
    }
    let command = ExplainImage { weigh: true, ..command.clone() };
    let mut reason = String::new();
    for node in free.take(ASKED_IN_TURN) {
        match client.ask(node, command.clone(), WEIGHED_WITHIN).await {
            Ok(Explanation { weight: Some(weight), .. }) => return Ok(weight),
            // A registry may have been asked: another node would ask the same again.
            Ok(Explanation { weigh_error: Some(error), .. }) => return Err(format!("{node}: {error}")),
            Ok(_) => reason = format!("{node}: its runtime asks no registry by itself"),
            Err(error) => reason = format!("{node}: {}", client.explain_silence(node, &error)),
        }
    }
    Err(reason)
}

async fn of_nodes(
    client: &FleetClient,
    command: &ExplainImage,
    nodes: &[(&NodeName, &Explanation)],
    weight: &ImageWeight,
) -> Vec<(NodeName, ToFetch)> {
    let is_the_same = |said: &Explanation| said.present == Some(true) && said.digest.is_some() && said.digest == weight.digest;
    let (same, lacking): (Vec<_>, Vec<_>) = nodes.iter().partition(|(_, said)| is_the_same(said));
    let lacking: Vec<NodeName> = lacking.into_iter().map(|(node, _)| (*node).clone()).collect();
    let command = ExplainImage { blobs: weight.blobs.clone(), ..command.clone() };
    let told = client.ask_each(&lacking, &command).await.into_iter().map(|(node, told)| {
        let to_fetch = match told {
            Ok(Explanation { missing_bytes: Some(bytes), .. }) => ToFetch::Bytes(bytes),
            Ok(_) => ToFetch::UpTo(weight.blobs.iter().map(|blob| blob.bytes).fold(0, u64::saturating_add)),
            Err(silence) => ToFetch::Unknown(silence),
        };
        (node, to_fetch)
    });
    let same = same.into_iter().map(|(node, _)| ((*node).clone(), ToFetch::Bytes(0)));
    told.chain(same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_weighed_for_the_policy_always_alone() {
        let unknown = Some(ToFetch::Unknown("its runtime cannot say whether the image is there".to_owned()));
        let nothing = Some(ToFetch::Bytes(0));
        for (policy, present, expected) in [
            ("IfNotPresent", Some(true), nothing.clone()),
            ("IfNotPresent", Some(false), None),
            ("IfNotPresent", None, unknown),
            ("Always", Some(true), None),
            ("Always", Some(false), None),
            ("Always", None, None),
            ("Never", Some(false), nothing.clone()),
            ("Never", Some(true), nothing),
        ] {
            let said = Explanation { policy: policy.to_owned(), present, ..Explanation::default() };
            assert_eq!(without_asking(&said), expected, "{policy} {present:?}");
        }
    }
}
