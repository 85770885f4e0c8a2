//! Estimates how many bytes each node would fetch: one node of each platform asks the registry for the parts of the image, and every node
//! reports how much of them it lacks. So 1000 nodes cost the registry one or two requests.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::pull_coordinator::{ExplainImage, Explanation, ImageSizeEstimate, PullPolicy};

use crate::fleet::FleetClient;

/// Nodes of a platform that are asked one after another to ask the registry, because the first may be too old or silent.
const ASKED_IN_TURN: usize = 3;
/// How long a node may take for a size estimate. It waits up to 20 s for its registry.
const ESTIMATED_WITHIN: Duration = Duration::from_secs(25);

/// The bytes that one node would fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToFetch {
    /// This number of bytes.
    Bytes(u64),
    /// At most this number, because the node's runtime does not report its layers.
    UpTo(u64),
    /// Unknown, for this reason.
    Unknown(String),
}

impl ToFetch {
    /// The number of bytes, if known.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::UpTo(bytes) => Some(*bytes),
            Self::Unknown(_) => None,
        }
    }
}

/// Estimates the bytes that `command` would fetch on each node that has answered.
pub(super) async fn estimate(
    client: &FleetClient,
    command: &ExplainImage,
    explanations: &[(&NodeName, &Explanation)],
) -> BTreeMap<NodeName, ToFetch> {
    let (mut known, mut lacking) = (BTreeMap::new(), BTreeMap::<&str, Vec<(&NodeName, &Explanation)>>::new());
    for (node, explanation) in explanations {
        match (without_asking(explanation), &explanation.platform) {
            (Some(settled), _) => {
                known.insert((*node).clone(), settled);
            }
            (None, Some(platform)) => lacking.entry(platform).or_default().push((node, explanation)),
            (None, None) => {
                known.insert((*node).clone(), ToFetch::Unknown("its agent is of a version that does not report its platform".to_owned()));
            }
        }
    }
    for nodes in lacking.into_values() {
        match of_registry(client, command, &nodes).await {
            Err(reason) => known.extend(nodes.iter().map(|(node, _)| ((*node).clone(), ToFetch::Unknown(reason.clone())))),
            Ok(estimate) => known.extend(of_nodes(client, command, &nodes, &estimate).await),
        }
    }
    known
}

/// The answer that needs no registry. Only the policy Always requests an image that is present.
fn without_asking(explanation: &Explanation) -> Option<ToFetch> {
    let always = explanation.policy == PullPolicy::Always.as_str();
    match explanation.present {
        _ if explanation.policy == PullPolicy::Never.as_str() => Some(ToFetch::Bytes(0)),
        Some(true) if !always => Some(ToFetch::Bytes(0)),
        None if !always => Some(ToFetch::Unknown("its runtime cannot report if the image is there".to_owned())),
        _ => None,
    }
}

/// The parts of the image for the platform of these nodes, or why they are unknown.
async fn of_registry(
    client: &FleetClient,
    command: &ExplainImage,
    nodes: &[(&NodeName, &Explanation)],
) -> Result<ImageSizeEstimate, String> {
    let may_ask = |explanation: &Explanation| explanation.next_attempt_ms.unwrap_or_default() == 0 && explanation.budget_hold.is_none();
    let mut free = nodes.iter().filter(|(_, explanation)| may_ask(explanation)).map(|(node, _)| *node).peekable();
    if free.peek().is_none() {
        let budget = |explanation: &'_ Explanation| explanation.budget_hold.as_ref().map(|hold| format!("its budget: {}", hold.cause));
        let cause = nodes.iter().find_map(|(_, explanation)| explanation.cause.clone().or_else(|| budget(explanation)));
        let cause = cause.unwrap_or_else(|| "an earlier failure".to_owned());
        return Err(format!("no node may ask its registry now, because of {cause}"));
    }
    let command = ExplainImage { estimate_size: true, ..command.clone() };
    let mut reason = String::new();
    for node in free.take(ASKED_IN_TURN) {
        match client.ask(node, command.clone(), ESTIMATED_WITHIN).await {
            Ok(Explanation { size_estimate: Some(estimate), .. }) => return Ok(estimate),
            // This node may already have asked the registry, and another node would repeat the request.
            Ok(Explanation { estimate_error: Some(error), .. }) => return Err(format!("{node}: {error}")),
            Ok(_) => reason = format!("{node}: its runtime asks no registry by itself"),
            Err(error) => reason = format!("{node}: {}", client.explain_silence(node, &error).await),
        }
    }
    Err(reason)
}

async fn of_nodes(
    client: &FleetClient,
    command: &ExplainImage,
    nodes: &[(&NodeName, &Explanation)],
    estimate: &ImageSizeEstimate,
) -> Vec<(NodeName, ToFetch)> {
    let is_the_same = |explanation: &Explanation| {
        explanation.present == Some(true) && explanation.digest.is_some() && explanation.digest == estimate.digest
    };
    let (same, lacking): (Vec<_>, Vec<_>) = nodes.iter().partition(|(_, explanation)| is_the_same(explanation));
    let lacking: Vec<NodeName> = lacking.into_iter().map(|(node, _)| (*node).clone()).collect();
    let command = ExplainImage { blobs: estimate.blobs.clone(), ..command.clone() };
    let lacking = client.ask_each(&lacking, &command).await.into_iter().map(|(node, answer)| {
        let to_fetch = match answer {
            Ok(Explanation { missing_bytes: Some(bytes), .. }) => ToFetch::Bytes(bytes),
            Ok(_) => ToFetch::UpTo(estimate.blobs.iter().map(|blob| blob.bytes).fold(0, u64::saturating_add)),
            Err(silence) => ToFetch::Unknown(silence),
        };
        (node, to_fetch)
    });
    let same = same.into_iter().map(|(node, _)| ((*node).clone(), ToFetch::Bytes(0)));
    lacking.chain(same).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::pull_coordinator::BlobSize;
    use contract::subject::Fleet;

    use super::*;

    /// The nodes that were asked to ask the registry.
    type Asked = Rc<RefCell<Vec<String>>>;

    /// An agent with fixed answers.
    struct Agent {
        node: NodeName,
        /// The registry's answer. None if the runtime cannot ask.
        size_estimate: Option<ImageSizeEstimate>,
        missing: Option<u64>,
        asked: Asked,
    }

    impl Actor for Agent {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ExplainImage>> for Agent {
        type Result = MessageResult<Ask<ExplainImage>>;

        fn handle(&mut self, Ask(ask): Ask<ExplainImage>, _: &mut Self::Context) -> Self::Result {
            if ask.body.estimate_size {
                self.asked.borrow_mut().push(self.node.to_string());
                return MessageResult(Ok(Explanation { size_estimate: self.size_estimate.clone(), ..Explanation::default() }));
            }
            let missing_bytes = self.missing.filter(|_| !ask.body.blobs.is_empty());
            MessageResult(Ok(Explanation { missing_bytes, ..Explanation::default() }))
        }
    }

    fn size_estimate() -> ImageSizeEstimate {
        let blob = |digest: &str, bytes| BlobSize { digest: digest.to_owned(), bytes };
        ImageSizeEstimate { digest: Some("sha256:top".to_owned()), blobs: vec![blob("sha256:a", 1_000), blob("sha256:b", 24)] }
    }

    fn lacking(platform: &str) -> Explanation {
        Explanation { policy: "Always".to_owned(), present: Some(false), platform: Some(platform.to_owned()), ..Explanation::default() }
    }

    #[test]
    fn a_thousand_nodes_cost_the_registry_a_question_for_each_platform() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let (asked, mut served, mut nodes) = (Asked::default(), Vec::new(), Vec::new());
            for number in 0..1_000 {
                let node: NodeName = format!("n{number:03}").parse().expect("a name");
                let platform = if number < 100 { "linux/arm64" } else { "linux/amd64" };
                let explanation = match number {
                    // This node is in back-off.
                    0 => Explanation { next_attempt_ms: Some(5_000), ..lacking(platform) },
                    998 => Explanation { present: Some(true), digest: Some("sha256:top".to_owned()), ..lacking(platform) },
                    999 => Explanation { platform: None, ..lacking(platform) },
                    _ => lacking(platform),
                };
                // The second node has a runtime that cannot ask; every tenth does not report what it lacks.
                let (size_estimate, missing) = ((number != 1).then(size_estimate), (number % 10 != 3).then_some(number));
                let agent = Agent { node: node.clone(), size_estimate, missing, asked: asked.clone() }.start();
                served.push(actors::serve::<ExplainImage>(&client.wiring(&node), agent.recipient()).await.expect("the bus is open"));
                nodes.push((node, explanation));
            }
            let explanations: Vec<(&NodeName, &Explanation)> = nodes.iter().map(|(node, explanation)| (node, explanation)).collect();
            let command = ExplainImage { image: "a:1".to_owned(), ..ExplainImage::default() };
            let known = estimate(&client, &command, &explanations).await;
            assert_eq!(*asked.borrow(), ["n100", "n001", "n002"], "one for each platform, and one that could not");
            let of = |node: &str| known[&node.parse::<NodeName>().expect("a name")].clone();
            assert_eq!((known.len(), of("n000"), of("n517")), (1_000, ToFetch::Bytes(0), ToFetch::Bytes(517)));
            assert_eq!((of("n513"), of("n998")), (ToFetch::UpTo(1_024), ToFetch::Bytes(0)));
            assert_eq!(of("n999").bytes(), None);
        });
    }

    #[test]
    fn size_estimate_asks_no_registry_if_every_node_is_in_back_off() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let cause = Some("ErrImagePull: gone".to_owned());
            let explanation = Explanation { next_attempt_ms: Some(1), cause, ..lacking("linux/amd64") };
            let node: NodeName = "n1".parse().expect("a name");
            let known = estimate(&client, &ExplainImage::default(), &[(&node, &explanation)]).await;
            let reason = "no node may ask its registry now, because of ErrImagePull: gone".to_owned();
            assert_eq!(known[&node], ToFetch::Unknown(reason));
        });
    }

    #[test]
    fn present_image_is_estimated_only_for_the_policy_always() {
        let unknown = Some(ToFetch::Unknown("its runtime cannot report if the image is there".to_owned()));
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
            let explanation = Explanation { policy: policy.to_owned(), present, ..Explanation::default() };
            assert_eq!(without_asking(&explanation), expected, "{policy} {present:?}");
        }
    }
}
