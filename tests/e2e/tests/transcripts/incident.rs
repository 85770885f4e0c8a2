//! A fleet of three agents in an incident, and the commands that ask it.

use e2e::{Agent, Registry, Size, Terminal, Workplace, until};
use memory_registry::MadeImage;
use support::faulty_link::FaultyLink;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The repository of the image that every node has, and of the incident's image.
pub(crate) const REPOSITORY: &str = "shop/web";

/// The fleet before the incident.
pub(crate) struct Fleet<'a> {
    pub(crate) place: &'a Workplace,
    pub(crate) nats: NatsServer,
    /// The connection of n3 to the server.
    pub(crate) bus_link: FaultyLink,
    pub(crate) registry: Registry,
    pub(crate) agents: Vec<Agent<'a>>,
}

/// The folder in which agents run. A failure delays the next attempt for 98 s, so that all screens can be taken meanwhile.
pub(crate) fn place() -> Workplace {
    Workplace::new().with("FLEETPULL_BACKOFF_INITIAL", "98s")
}

impl<'a> Fleet<'a> {
    /// Three agents that know each other, and a registry that has `v1`; none if there is no nats-server.
    pub(crate) fn start(place: &'a Workplace) -> Option<Self> {
        met(current_program())?;
        let (nats, registry) = (NatsServer::start(NatsConfig::default()), Registry::new());
        registry.add_image(REPOSITORY, "v1", &MadeImage::of_layers([4_000]));
        let bus_link = FaultyLink::from(&nats.address(), std::time::Duration::ZERO);
        let start = |node: &str| {
            let url = if node == "n3" { format!("nats://{}", bus_link.address()) } else { nats.url() };
            Agent::start(place, node, &["--nats", &url])
        };
        let agents: Vec<Agent<'_>> = NODES.map(start).into_iter().map(Agent::ready).collect();
        let fleet = Self { place, nats, bus_link, registry, agents };
        until("the fleet knows itself", || {
            fleet.agents.iter().all(|agent| agent.counter("presence_alive") == NODES.len() as u64).then_some(())
        });
        Some(fleet)
    }

    pub(crate) fn image(&self, tag: &str) -> String {
        self.registry.image(&format!("{REPOSITORY}:{tag}"))
    }

    /// Pulls the image on n1, before the incident.
    pub(crate) fn has_pulled(&self, image: &str) {
        let _ = self.place.run(&["pull", image, "--node", "n1", "-q", "--nats", &self.nats.url()]).expect(0);
    }

    /// Lets n1 and then n2 find the failure: from then on all nodes are refused.
    pub(crate) fn finds_out_twice(&self, image: &str) {
        let url = self.nats.url();
        // The second node waits until it may confirm the failure.
        for (reporters, (node, wait)) in [("n1", "1s"), ("n2", "8s")].into_iter().enumerate() {
            let _ = self.place.run(&["pull", image, "--node", node, "--wait", wait, "-q", "--nats", &url]);
            until(&format!("all know that {node} reports it"), || {
                let knows = |agent: &Agent<'_>| {
                    let entries = agent.asked(&["backoff", "list", "-o", "json"]).objects();
                    entries.iter().any(|entry| entry["shared"] == true && entry["reporter_count"] == reporters as u64 + 1)
                };
                self.agents.iter().all(knows).then_some(())
            });
        }
    }

    /// Starts the command that pulls an image on every node.
    pub(crate) fn wanting(self, image: String) -> Incident<'a> {
        let url = self.nats.url();
        // Only errors are logged, because the places of other log lines vary.
        let wanted = ["pull", &image, "--all-nodes", "--wait", "20m", "--log-level", "error", "--nats", &url];
        let live = self.place.on_a_terminal(&wanted, (super::LIVE_ROWS, super::WIDTHS[0]));
        Incident { fleet: self, image, through: Through::Nats, live }
    }
}

/// The connection that commands use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    Nats,
    /// The socket of n1.
    Agent,
}

/// A fleet in an incident.
pub(crate) struct Incident<'a> {
    pub(crate) fleet: Fleet<'a>,
    image: String,
    through: Through,
    /// The command that pulls the image on every node.
    pub(crate) live: Terminal,
}

impl Incident<'_> {
    /// Makes commands use this connection.
    pub(crate) fn through(self, through: Through) -> Self {
        Self { through, ..self }
    }

    /// The arguments of the commands, in order.
    pub(crate) fn commands(&self) -> Vec<Vec<&str>> {
        let lists = [vec!["nodes"], vec!["pulls"], vec!["status"], vec!["backoff", "list"], vec!["budget", "list"]];
        // Events come first and lists after them, because lists settle with time.
        [vec!["events"]].into_iter().chain(lists).chain([vec!["explain", &self.image]]).collect()
    }

    /// Starts a command on a terminal of its own.
    pub(crate) fn start(&self, arguments: &[&str], size: Size) -> Terminal {
        let (option, value) = match self.through {
            Through::Nats => ("--nats", self.fleet.nats.url()),
            Through::Agent => ("--agent", self.fleet.agents[0].url()),
        };
        self.fleet.place.on_a_terminal(&[arguments, &[option, &value]].concat(), size)
    }

    /// The command line as in a golden file.
    pub(crate) fn prompt(&self, command: &str) -> String {
        let agent = if self.through == Through::Agent { " --agent unix://..." } else { "" };
        format!("fleetpull {}{agent}", command.replace(self.fleet.registry.host(), "127.0.0.1:ppppp"))
    }

    /// The command line of the pull as in a golden file.
    pub(crate) fn live_prompt(&self) -> String {
        let image = self.image.replace(self.fleet.registry.host(), "127.0.0.1:ppppp");
        format!("fleetpull pull {image} --all-nodes --wait 20m    # while it runs")
    }
}
