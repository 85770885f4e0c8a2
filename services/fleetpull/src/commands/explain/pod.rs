//! `fleetpull explain pod`: explains each image of a pod like `fleetpull explain IMAGE`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use contract::messages::backoff_tracker::{BackoffList, ListBackoffs};
use contract::messages::pull_coordinator::{ExplainImage, ListPulls, ListStandingPulls, PullList, PullState, StandingPullList};
use contract::{NodeName, PodRef};
use image::Reference;

use super::{Findings, Verdict, ask, client, give_advice, json, print_unreadable, text};
use crate::cli::{ExplainArgs, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::fleet::{FleetClient, connect};
use crate::output::{self, silent, standing_pull};

/// The most images that are explained. A pod has fewer containers.
const IMAGES_MOST: usize = 100;

/// The state in which an agent knows an image of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// The runtime is pulling it.
    Pulling,
    /// A pull of it waits before its attempt.
    Waiting,
    /// It has a standing pull.
    Standing,
    /// It failed, and its next attempt is not due yet.
    Backoff,
    /// It failed, and its next attempt is due but not made.
    Failed,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pulling => "pulling",
            Self::Waiting => "waiting",
            Self::Standing => "standing",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
        }
    }
}

/// An image of a pod.
pub(super) struct Wanted {
    image: String,
    /// The pod with its uid, as the agents know it.
    pub(super) pod: PodRef,
    nodes: BTreeMap<NodeName, BTreeSet<State>>,
}

impl Wanted {
    pub(super) fn states_on(&self, node: &NodeName) -> impl Iterator<Item = State> {
        self.nodes.get(node).into_iter().flatten().copied()
    }
}

/// The agents' answers about one pod.
struct Search<'a> {
    pod: &'a PodRef,
    found: BTreeMap<(String, PodRef), BTreeMap<NodeName, BTreeSet<State>>>,
    unanswered: Vec<String>,
}

impl<'a> Search<'a> {
    fn of(pod: &'a PodRef) -> Self {
        Self { pod, found: BTreeMap::new(), unanswered: Vec::new() }
    }

    fn add(&mut self, node: &NodeName, image: &str, pod: &PodRef, state: State) {
        if pod.has_name_of(self.pod) {
            let nodes = self.found.entry((image.to_owned(), pod.clone())).or_default();
            nodes.entry(node.clone()).or_default().insert(state);
        }
    }

    fn add_pulls(&mut self, node: &NodeName, list: &PullList) {
        for pull in &list.pulls {
            let state = if pull.state == PullState::Pulling { State::Pulling } else { State::Waiting };
            pull.pods.iter().for_each(|pod| self.add(node, &pull.image, pod, state));
        }
    }

    fn add_standing_pulls(&mut self, node: &NodeName, list: &StandingPullList) {
        for status in &list.standing_pulls {
            status.pod.iter().for_each(|pod| self.add(node, &status.image, pod, State::Standing));
        }
    }

    fn add_backoffs(&mut self, node: &NodeName, list: &BackoffList) {
        for entry in &list.entries {
            let state = if entry.next_attempt_ms > 0 { State::Backoff } else { State::Failed };
            entry.key_parts.pod.iter().for_each(|pod| self.add(node, &entry.key_parts.image, pod, state));
        }
    }

    fn wanted(self) -> Vec<Wanted> {
        self.found.into_iter().map(|((image, pod), nodes)| Wanted { image, pod, nodes }).collect()
    }
}

/// Explains every image of a pod that agents know.
pub(super) async fn explain(args: &ExplainArgs, configuration: &Configuration, pod: &PodRef) -> Result<Exit> {
    let client = match client(args, configuration).await? {
        Some(client) => client,
        None => connect(&args.asked.question.fleet, configuration).await?,
    };
    let (answering, involved) = nodes(&client, args).await?;
    let mut search = Search::of(pod);
    gather(&client, &involved, &mut search).await;
    search.unanswered.iter().for_each(|silence| output::remark(silence));
    silent::sentence(&client.silent_of(&args.asked, &answering).await).iter().for_each(|sentence| output::remark(sentence));
    let mut exit = if search.unanswered.is_empty() { Exit::Success } else { Exit::Failure };
    let wanted = search.wanted();
    if wanted.is_empty() {
        output::remark(&nothing_known(pod));
        return Ok(Exit::Failure);
    }
    for wanted in wanted.iter().take(IMAGES_MOST) {
        if !explain_one(&client, args, wanted).await {
            exit = Exit::Failure;
        }
    }
    if wanted.len() > IMAGES_MOST {
        output::remark(&format!("{} more images of {pod} are left out: --node NAME asks one node alone", wanted.len() - IMAGES_MOST));
    }
    Ok(exit)
}

/// The nodes that answer, and those among them that may know an image of a pod.
async fn nodes(client: &FleetClient, args: &ExplainArgs) -> Result<(Vec<NodeName>, Vec<NodeName>)> {
    if !args.asked.nodes.is_empty() {
        let named = client.selected_nodes(&args.asked).await?;
        return Ok((named.clone(), named));
    }
    let answering = client.answering(args.asked.question.fleet.selector.as_ref()).await?;
    let involved = answering.iter().filter(|node| [node.pulling, node.waiting, node.standing, node.backoff].iter().any(|count| *count > 0));
    let involved = involved.map(|node| node.node.clone()).collect();
    Ok((answering.into_iter().map(|node| node.node).collect(), involved))
}

async fn gather(client: &FleetClient, nodes: &[NodeName], search: &mut Search<'_>) {
    let (mut answering, mut with_standing_pulls) = (Vec::new(), BTreeSet::new());
    let on_answer = |node: NodeName, answer: Result<PullList, String>| match answer {
        Ok(list) => {
            search.unanswered.extend(standing_pull::pulls_left_out(&node, &list));
            search.add_pulls(&node, &list);
            if list.standing > 0 {
                with_standing_pulls.insert(node.clone());
            }
            answering.push(node);
        }
        Err(silence) => search.unanswered.push(format!("{node}: {silence}")),
    };
    client.for_each_answer(nodes, &ListPulls {}, on_answer).await;
    let on_answer = |node: NodeName, answer: Result<StandingPullList, String>| match answer {
        Ok(list) => {
            search.unanswered.extend(standing_pull::left_out(&node, &list));
            search.add_standing_pulls(&node, &list);
        }
        Err(silence) if with_standing_pulls.contains(&node) => {
            search.unanswered.push(format!("{node}: its standing pulls are not listed: {silence}"));
        }
        // The node has none, or is of an older version.
        Err(_) => {}
    };
    client.for_each_answer(&answering, &ListStandingPulls {}, on_answer).await;
    let own = ListBackoffs { pod: Some(search.pod.clone()), shared_by_key: true, ..ListBackoffs::default() };
    let on_answer = |node: NodeName, answer: Result<BackoffList, String>| match answer {
        Ok(list) => search.add_backoffs(&node, &list),
        Err(silence) => search.unanswered.push(format!("{node}: its back-off entries are not listed: {silence}")),
    };
    client.for_each_answer(&answering, &own, on_answer).await;
}

/// Asks the nodes that know the image like `fleetpull explain IMAGE`, for the pod. Returns true if all of them have a good explanation.
async fn explain_one(client: &FleetClient, args: &ExplainArgs, wanted: &Wanted) -> bool {
    let reference = match Reference::parse(&wanted.image) {
        Ok(reference) => reference,
        Err(error) => {
            print_unreadable(args, &wanted.image, &error);
            return false;
        }
    };
    let nodes: Vec<NodeName> = wanted.nodes.keys().cloned().collect();
    let (image, pod) = (wanted.image.clone(), Some(wanted.pod.clone()));
    let mut findings = ask(client, &nodes, &ExplainImage { image, policy: args.policy, pod, ..ExplainImage::default() }).await;
    // Entries of other pods that are not shared do not delay this pod.
    let is_own = |pod: &PodRef| pod.has_name_of(&wanted.pod);
    findings.known.retain(|known| known.is_shared() || known.entry.key_parts.pod.as_ref().is_some_and(is_own));
    show(client, args, wanted, &reference, &findings);
    findings.verdicts.iter().all(Verdict::is_good)
}

fn show(client: &FleetClient, args: &ExplainArgs, wanted: &Wanted, reference: &Reference, findings: &Findings) {
    if args.asked.question.output.format == OutputFormat::Json {
        return json::print(&wanted.image, reference, findings, Some(wanted), client.clock().now().wall_ms());
    }
    output::fact(&format!("pod:                {}", wanted.pod));
    output::fact(&format!("image:              {}", wanted.image));
    for node in wanted.nodes.keys() {
        let states: Vec<&str> = wanted.states_on(node).map(State::as_str).collect();
        output::fact(&format!("known as:           {} on {node}", states.join(", ")));
    }
    text::print(reference, findings);
    give_advice(args, findings);
}

fn nothing_known(pod: &PodRef) -> String {
    let PodRef { namespace, name, .. } = pod;
    format!(
        "no agent that answers has a pull or a back-off entry for the pod {pod}: agents know the pod of a pull if it was requested with \
         --pod {pod}, and `fleetpull events --for pod/{name} -n {namespace} --since 24h` shows the pulls that have ended"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::backoff_tracker::{BackoffEntry, EntryKind, KeyParts};
    use contract::subject::Fleet;
    use serde_json::{from_value, json};

    use super::*;

    fn pod(name: &str, uid: &str) -> PodRef {
        PodRef { namespace: "shop".to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    /// An agent with this many standing pulls, which it does not list.
    struct Late(u64);

    impl Actor for Late {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListPulls>> for Late {
        type Result = MessageResult<Ask<ListPulls>>;

        fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
            MessageResult(Ok(PullList { standing: self.0, ..PullList::default() }))
        }
    }

    #[test]
    fn lists_that_a_node_does_not_give_are_reported() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            for (node, standing, expected) in [("n1", 0, vec!["back-off entries"]), ("n2", 2, vec!["standing pulls", "back-off entries"])] {
                let node: NodeName = node.parse().expect("a name");
                let _serving = actors::serve::<ListPulls>(&client.wiring(&node), Late(standing).start().recipient()).await.expect("open");
                let pod = pod("web-0", "");
                let mut search = Search::of(&pod);
                gather(&client, std::slice::from_ref(&node), &mut search).await;
                assert_eq!(search.unanswered.len(), expected.len(), "{:?}", search.unanswered);
                for (unanswered, list) in search.unanswered.iter().zip(expected) {
                    assert!(unanswered.starts_with(&format!("{node}: its {list} are not listed: ")), "{unanswered}");
                }
            }
        });
    }

    #[test]
    fn a_pods_images_are_found_in_pulls_standing_pulls_and_back_offs_whatever_its_uid() {
        let (asked, web, other) = (pod("web-0", ""), pod("web-0", "u-1"), pod("web-1", "u-2"));
        let node: NodeName = "n1".parse().expect("a name");
        let pull = |image: &str, state: &str, pods: &[&PodRef]| json!({ "image": image, "state": state, "since_ms": 1, "callers": 3, "done_bytes": 0, "total_bytes": 0, "pods": pods });
        let pulls =
            json!({ "pulls": [pull("a:1", "waiting", &[&other, &web]), pull("b:1", "pulling", &[&other]), pull("c:1", "pulling", &[])] });
        let standing = json!({ "standing_pull": "4bf92f3577b34da6a3ce929d0e0e4736", "image": "a:1", "pod": web });
        let own = |pod: &PodRef, next_attempt_ms| BackoffEntry {
            next_attempt_ms,
            key_parts: KeyParts { image: "d:1".to_owned(), pod: Some(pod.clone()), ..KeyParts::of(EntryKind::NodeImage, "docker.io") },
            ..BackoffEntry::default()
        };
        let mut search = Search::of(&asked);
        search.add_pulls(&node, &from_value(pulls).expect("a list"));
        search.add_standing_pulls(&node, &from_value(json!({ "standing_pulls": [standing] })).expect("a list"));
        // An older agent sends all its entries.
        search
            .add_backoffs(&node, &BackoffList { entries: vec![own(&web, 0), own(&web, 9_000), own(&other, 0)], ..BackoffList::default() });
        let wanted = search.wanted();
        let known: Vec<(&str, &str, Vec<&str>)> = wanted
            .iter()
            .map(|wanted| (wanted.image.as_str(), wanted.pod.uid.as_str(), wanted.states_on(&node).map(State::as_str).collect()))
            .collect();
        assert_eq!(known, [("a:1", "u-1", vec!["waiting", "standing"]), ("d:1", "u-1", vec!["backoff", "failed"])]);
    }
}
