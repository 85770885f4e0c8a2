//! `fleetpull events`

mod printer;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clock::Clock;
use contract::messages::event_recorder::ListEvents;
use contract::{EventReason, EventType, NodeName, PodRef, PullEvent};
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::history::{History, Ordered, nodes_meant};
use super::outboxes;
use crate::cli::EventsArgs;
use crate::exit::{Exit, UsageError};
use crate::fleet::{ANSWER_WITHIN, ASKED_AT_ONCE, FleetClient, ask_fleet};
use crate::output::{self, silent};
use printer::{Printer, published};

/// How often an agent is polled for new events through its socket, which has no subscriptions.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The most events of outboxes that are listed, the newest. They take a few hundred MB, and a large fleet keeps millions.
const LISTED_MOST: usize = 100_000;

/// The filter for events.
struct Wanted {
    /// None selects all nodes.
    nodes: Option<Vec<NodeName>>,
    /// Empty selects all reasons.
    reasons: Vec<EventReason>,
    event_type: Option<EventType>,
    pod: Option<String>,
    image: Option<String>,
    registry: Option<String>,
}

impl Wanted {
    fn of(args: &EventsArgs, nodes: Option<Vec<NodeName>>) -> Result<Self, UsageError> {
        let pod = args.selected_pod()?.map(|pod| pod.to_string());
        let (image, registry) = (args.image.clone(), args.registry.clone());
        Ok(Self { nodes, reasons: args.reasons.clone(), event_type: args.event_type, pod, image, registry })
    }

    fn takes(&self, event: &Value) -> bool {
        let data = &event["data"];
        let is = |name: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| data[name] == wanted.as_str());
        self.nodes.as_ref().is_none_or(|nodes| nodes.iter().any(|node| data["node"] == node.as_str()))
            && (self.reasons.is_empty() || self.reasons.iter().any(|reason| data["reason"] == reason.as_str()))
            && self.event_type.is_none_or(|event_type| data["type"] == event_type.as_str())
            && is("pod", &self.pod)
            && is("image", &self.image)
            && is("registry", &self.registry)
    }

    /// The node, if exactly one is selected: it has its own subject.
    fn one_node(&self) -> Option<&NodeName> {
        match self.nodes.as_deref() {
            Some([one]) => Some(one),
            _ => None,
        }
    }
}

/// The reason, if exactly one is given: agents and the stream select by one.
fn one_reason(args: &EventsArgs) -> Option<EventReason> {
    if let [one] = args.reasons.as_slice() { Some(*one) } else { None }
}

/// Lists the events in the agents' outboxes, lists those in the fleet's stream, or follows new ones.
pub(super) fn carry_out(args: &EventsArgs) -> Result<Exit> {
    let question = &args.asked.question;
    let _: Option<PodRef> = args.selected_pod()?;
    // While the command follows, it logs each loss of the bus.
    ask_fleet(question, if args.follow { "warn" } else { "error" }, async |client| match (args.follow, client.bus().is_some()) {
        (false, _) if args.is_history() => show_history(args, &client, &mut Printer::of(args)).await,
        (false, _) => list(args, &client).await,
        (true, true) => follow(args, &client).await,
        (true, false) => follow_by_asking(args, &client).await,
    })
}

async fn list(args: &EventsArgs, client: &FleetClient) -> Result<Exit> {
    let wanted = Wanted::of(args, None)?;
    let mut exit = Exit::Success;
    let (mut newest, mut taken) = (Ordered::new(Some(LISTED_MOST)), 0_u64);
    let ask = |node: NodeName| async move { (kept(args, client, &node, 0).await, node) };
    let nodes = client.selected_nodes(&args.asked).await?;
    let mut answers = stream::iter(nodes.clone()).map(ask).buffered(ASKED_AT_ONCE);
    while let Some((kept, node)) = answers.next().await {
        match kept {
            Ok((kept, _)) => {
                let events = kept.iter().filter_map(|event| Some((event.time_ms, published(event)?)));
                for (time_ms, event) in events.filter(|(_, event)| wanted.takes(event)) {
                    taken += 1;
                    newest.push(Duration::from_millis(time_ms), taken, event, &mut |_| ());
                }
            }
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
        }
    }
    let mut printer = Printer::of(args);
    let shown = newest.end(&mut |event| printer.print(event));
    if shown == 0 && exit == Exit::Success {
        print_that_none_came(args);
    }
    let older = taken - shown as u64;
    if older > 0 {
        output::warn(&format!("{older} older events are left out: --since lists them too"));
    }
    if !args.asked.question.output.quiet {
        silent::sentence(&client.silent_of(&args.asked, &nodes).await).iter().for_each(|sentence| output::remark(sentence));
    }
    Ok(exit)
}

/// Shows events from the fleet's stream or, if there is none, from the agents' outboxes.
async fn show_history(args: &EventsArgs, client: &FleetClient, printer: &mut Printer) -> Result<Exit> {
    let wanted = Wanted::of(args, nodes_meant(&args.asked, client).await?)?;
    let now = Clock::host().now();
    let history = History {
        since: args.since.map(|since| since.at(now.wall)).unwrap_or_default(),
        until: args.until.map(|until| until.at(now.wall)),
        limit: args.tail.and_then(|tail| usize::try_from(tail).ok()),
        reason: one_reason(args),
        node: wanted.one_node(),
    };
    match history.show(client, |event| wanted.takes(event), |event| printer.print(event), |_| ()).await? {
        Some(0) => print_that_none_came(args),
        Some(_) => {}
        None => {
            print_that_outboxes_are_read(args, client);
            let nodes = client.selected_nodes(&args.asked).await?;
            let shown = outboxes::show(&history, client, nodes, |event| wanted.takes(event), |event| printer.print(event)).await;
            shown.silent.iter().for_each(|(node, silence)| output::remark(&format!("{node}: {silence}")));
            if shown.has_none() {
                print_that_none_came(args);
            }
            return Ok(if shown.silent.is_empty() { Exit::Success } else { Exit::Failure });
        }
    }
    Ok(Exit::Success)
}

/// Says that the events are those of the agents' outboxes. Behind a socket this is no problem.
fn print_that_outboxes_are_read(args: &EventsArgs, client: &FleetClient) {
    if client.bus().is_some() {
        output::warn("the fleet's stream of events cannot be read: the events in the agents' outboxes are shown instead");
    } else if !args.asked.question.output.quiet {
        output::remark("these events are from the agent's outbox: its socket reaches no others");
    }
}

/// Says that there is no matching event.
fn print_that_none_came(args: &EventsArgs) {
    if !args.asked.question.output.quiet {
        output::remark(if args.since.is_some() || args.until.is_some() { "no events in this time" } else { "no events" });
    }
}

/// All pages of a node's events after `after`, and the cursor for the next read.
async fn kept(args: &EventsArgs, client: &FleetClient, node: &NodeName, mut after: u64) -> Result<(Vec<PullEvent>, u64), String> {
    let mut events = Vec::new();
    loop {
        let question = ListEvents { reason: one_reason(args), image: args.image.clone(), after, ..ListEvents::default() };
        let page = match client.ask(node, question, ANSWER_WITHIN).await {
            Ok(page) => page,
            Err(error) => return Err(client.explain_silence(node, &error).await),
        };
        events.extend(page.events);
        // Stops if an agent repeats the same page.
        let has_more = page.more && page.next_after > after;
        after = page.next_after;
        if !has_more {
            return Ok((events, after));
        }
    }
}

async fn follow(args: &EventsArgs, client: &FleetClient) -> Result<Exit> {
    // One node has its own subjects; the events of several nodes are filtered here.
    let (one, selected_nodes) = match (args.asked.nodes.as_slice(), &args.asked.question.fleet.selector) {
        ([], None) => (None, None),
        ([one], _) => (Some(one), None),
        _ => (None, Some(client.selected_nodes(&args.asked).await?)),
    };
    let wanted = Wanted::of(args, selected_nodes)?;
    // Pulled events of images that were already present have their own subject.
    let subject = client.fleet().events(one_reason(args).filter(|reason| *reason != EventReason::Pulled), one);
    let mut events = client.messaging().subscribe(&subject, None).await.context("the events cannot be subscribed to")?;
    let mut printer = Printer::of(args);
    if args.is_history() {
        show_history(args, client, &mut printer).await?;
    }
    print_that_it_follows(args);
    loop {
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(message) => print_published(&mut printer, &wanted, &message.payload),
                None => return Ok(Exit::Failure),
            },
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Success),
        }
    }
}

/// Says that the command follows new events, because none may come for hours.
fn print_that_it_follows(args: &EventsArgs) {
    if !args.asked.question.output.quiet {
        output::remark("following new events; Ctrl-C ends it");
    }
}

/// Follows events through the socket: polls for those after the last answer.
async fn follow_by_asking(args: &EventsArgs, client: &FleetClient) -> Result<Exit> {
    let wanted = Wanted::of(args, None)?;
    let nodes = client.selected_nodes(&args.asked).await?;
    let node = nodes.first().context("the agent does not answer on its socket")?;
    let (_, mut after) = kept(args, client, node, 0).await.map_err(anyhow::Error::msg)?;
    let mut printer = Printer::of(args);
    if args.is_history() {
        show_history(args, client, &mut printer).await?;
    }
    print_that_it_follows(args);
    let mut ask = tokio::time::interval(ASK_EVERY);
    loop {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Success),
            _ = ask.tick() => {
                let (events, next) = kept(args, client, node, after).await.map_err(anyhow::Error::msg)?;
                after = next;
                events.iter().filter_map(published).filter(|event| wanted.takes(event)).for_each(|event| printer.print_new(&event));
            }
        }
    }
}

/// Prints an event that came over the bus, if it is wanted.
fn print_published(printer: &mut Printer, wanted: &Wanted, json: &[u8]) {
    match serde_json::from_slice::<Value>(json) {
        Ok(event) if wanted.takes(&event) => printer.print_new(&event),
        Ok(_) => {}
        Err(_) => output::warn("something that is no CloudEvent was published among the events; it is left out"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clap::Parser as _;
    use contract::messages::event_recorder::EventList;
    use contract::subject::Fleet;
    use tokio::time::timeout;

    use super::*;
    use crate::cli::{Cli, Command};

    /// A recorder whose pages always say that there are more, up to this cursor.
    struct Recorder {
        last: u64,
        asked: Rc<Cell<u64>>,
    }

    impl Actor for Recorder {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListEvents>> for Recorder {
        type Result = MessageResult<Ask<ListEvents>>;

        fn handle(&mut self, Ask(list): Ask<ListEvents>, _: &mut Self::Context) -> Self::Result {
            self.asked.set(self.asked.get() + 1);
            MessageResult(Ok(EventList { events: Vec::new(), next_after: self.last.min(list.body.after + 1), more: true }))
        }
    }

    fn args(given: &[&str]) -> EventsArgs {
        let command = Cli::try_parse_from([&["fleetpull", "events"][..], given].concat()).expect("a command line").command;
        let Command::Events(args) = command else { panic!("another command") };
        args
    }

    #[test]
    fn several_reasons_select_the_events_with_any_of_them() {
        for (given, one, taken) in [
            (&[] as &[&str], None, [true, true, true]),
            (&["--reason", "failed"][..], Some(EventReason::Failed), [true, false, false]),
            (&["--reason", "Failed,BackOff"][..], None, [true, true, false]),
            (&["--reason", "Failed", "--reason", "BackOff"][..], None, [true, true, false]),
        ] {
            let args = args(given);
            let wanted = Wanted::of(&args, None).expect("no pod");
            let takes = ["Failed", "BackOff", "Pulled"].map(|reason| wanted.takes(&serde_json::json!({ "data": { "reason": reason } })));
            assert_eq!((one_reason(&args), takes), (one, taken), "{given:?}");
        }
        assert!(Cli::try_parse_from(["fleetpull", "events", "--reason", "Failed,Nonsense"]).is_err());
    }

    #[test]
    fn agent_that_repeats_its_last_page_is_not_asked_for_ever() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let (node, asked): (NodeName, _) = ("n1".parse().expect("a name"), Rc::new(Cell::new(0)));
            let recorder = Recorder { last: 3, asked: asked.clone() }.start();
            let _serving = actors::serve::<ListEvents>(&client.wiring(&node), recorder.recipient()).await.expect("open");
            let args = args(&[]);
            let kept = timeout(Duration::from_secs(10), kept(&args, &client, &node, 0)).await.expect("it ends");
            assert_eq!(kept.map(|(events, after)| (events.len(), after)), Ok((0, 3)));
            assert_eq!(asked.get(), 4, "the last page is asked for twice");
        });
    }
}
