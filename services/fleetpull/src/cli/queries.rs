//! The commands that query: events, explain, nodes, pulls, cancel, config, demo, completions.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use contract::messages::pull_coordinator::PullPolicy;
use contract::{EventReason, EventType, NodeName, PodRef};

use super::groups::{NodesQuestionArgs, OutputArgs, QuestionArgs, RuntimeArgs, SettingsArgs};
use super::image::image;
use super::list::{ColourChoice, ListArgs, ListFormat};
use super::pod;
use super::pull::policy;
use crate::completion;
use crate::exit::UsageError;

/// Show what happened.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull events --nats nats://nats:4222             what agents still keep
  fleetpull events --since 2h --reason Failed,BackOff  of gone nodes as well
  fleetpull events --tail 20                           the newest 20
  fleetpull events --since 7d --until 6d --tail 100    100 events of that day
  fleetpull events --follow --reason Failed -o json    new failures as they come
  fleetpull events --follow --tail 10                  after the last 10
  fleetpull events --type Warning --since 1h           what went wrong
  fleetpull events --for pod/web-0 -n shop             of one pod
  fleetpull events --agent unix:///var/lib/fleetpull/state/n1/agent.sock

Anyone with a plain NATS client reads the same: nats sub 'fleetpull.v1.evt.>'

Exit status: 1 when an agent that was asked did not answer.")]
pub struct EventsArgs {
    /// New ones as they come, until Ctrl-C; with --since or --tail, older ones first.
    #[arg(short, long)]
    pub follow: bool,
    /// Only with these reasons, with commas between them: Pulling, Pulled, BackOff, Failed, InspectFailed, ErrImageNeverPull,
    /// SharingPaused, SharingResumed, BackoffCleared, EventsDropped, BackoffOpened, BackoffProbed, BackoffReleased, Throttled,
    /// RateLowered, RateRaised, RegistryUnavailable, RegistryRecovered, AgentStarted, AgentStopped, AgentDegraded or AgentRecovered.
    #[arg(
        long = "reason",
        value_name = "REASON[,REASON...]",
        value_parser = reason(),
        value_delimiter = ',',
        hide_possible_values = true,
        ignore_case = true
    )]
    pub reasons: Vec<EventReason>,
    /// Only of this type: Normal or Warning.
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type(), hide_possible_values = true, ignore_case = true)]
    pub event_type: Option<EventType>,
    /// Only of this pod, as with kubectl: pod/NAME with -n, or pod/NAMESPACE/NAME.
    #[arg(long = "for", value_name = "pod/NAME", value_parser = pod_name)]
    pub pod: Option<String>,
    /// The namespace of the pod.
    #[arg(short, long, value_name = "NAMESPACE", requires = "pod")]
    pub namespace: Option<String>,
    /// Only of this image, as it was asked for.
    #[arg(long, value_name = "IMAGE", value_parser = image, add = completion::images_of_fleet())]
    pub image: Option<String>,
    /// Only of this registry: a host, with its port if it has one.
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// From the fleet's stream, or the agents' outboxes where there is none: what happened since then (2h, 7d, or a time as
    /// 2026-01-31T12:00:00Z).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Moment>,
    /// From the fleet's stream: only what happened before that.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Moment>,
    /// From the fleet's stream: only the newest of these events, this many; with --follow, before the new ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub tail: Option<u32>,
    /// Without the line of column names.
    #[arg(long)]
    pub no_headers: bool,
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_possible_values = true)]
    pub color: ColourChoice,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}

impl EventsArgs {
    /// True if the fleet's stream is read instead of the agents' own stores.
    #[must_use]
    pub fn is_history(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.tail.is_some()
    }

    /// The given pod, if any.
    ///
    /// # Errors
    /// The pod has no namespace, or two.
    pub fn selected_pod(&self) -> Result<Option<PodRef>, UsageError> {
        self.pod.as_deref().map(|name| pod::in_namespace(name, self.namespace.as_deref())).transpose()
    }
}

/// A time, or a time before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This long before now.
    Ago(Duration),
    /// This long after 1970-01-01.
    At(Duration),
}

impl Moment {
    /// The time since 1970-01-01, given the current one.
    #[must_use]
    pub fn at(self, now: Duration) -> Duration {
        match self {
            Self::Ago(span) => now.saturating_sub(span),
            Self::At(time) => time,
        }
    }
}

/// Reads the time of a flag.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| format!("{text} is before 1970"))?;
        return Ok(Moment::At(since));
    }
    let span = humantime::parse_duration(text);
    span.map(Moment::Ago).map_err(|_| format!("{text:?} is no time: 30m, 2h, 7d (so long ago), or 2026-01-31T12:00:00Z"))
}

/// Lists the values in completions.
fn reason() -> impl TypedValueParser<Value = EventReason> {
    PossibleValuesParser::new(EventReason::ALL.iter().map(EventReason::as_str)).try_map(|text| text.parse::<EventReason>())
}

/// Lists the values in completions.
fn event_type() -> impl TypedValueParser<Value = EventType> {
    let read = |text: String| if text.eq_ignore_ascii_case(EventType::Warning.as_str()) { EventType::Warning } else { EventType::Normal };
    PossibleValuesParser::new([EventType::Normal, EventType::Warning].map(EventType::as_str)).map(read)
}

/// The name after `pod/`.
fn pod_name(text: &str) -> Result<String, String> {
    pod::name_of(text).map(str::to_owned).ok_or_else(|| "events are of pods: write pod/NAME -n NAMESPACE; for an image, --image".to_owned())
}

/// The answer of `fleetpull explain` if nothing is named.
const NOTHING_NAMED: &str = "\
explain needs an image, a pod or the ID of a row; one of these comes next:
  fleetpull status                      all causes that hold pulls back
  fleetpull explain IMAGE               one image
  fleetpull explain pod NAMESPACE/NAME  all images that a pod waits for
  fleetpull explain ID                  a row of the status";

/// Explain why an image, a pod or a row of `status` waits.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull explain busybox                      its full name; if it is here
  fleetpull explain app:v2 --node n1 --nats ...  why it waits on n1
  fleetpull explain 7f3a                         a row of `fleetpull status`
  fleetpull explain registry.example             all rows about a registry
  fleetpull explain pod shop/web-0               all images that a pod waits for
  fleetpull explain pod/web-0 -n shop            the same

If the fleet holds the image back, explain shows the cause, since when, which
node found it by which attempt and trace, when the next attempt is due, its
prober if it has begun, and the view of the registry. It also shows the parsed
reference.

Without a fleet, or with --store or another option of the runtime, it looks at
the store and the logins of this process.

Of a pod, agents know the images that are being pulled, wait, stand or are in
back-off for it: pulls that were asked for with --pod.

`fleetpull status` shows all causes that hold pulls back in the fleet.

Exit status: 1 when the reference cannot be read, a node did not answer, nothing
is known of the pod, or a pull in this process would fail before any registry is
asked; 2 when nothing is named.")]
pub struct ExplainArgs {
    /// The reference, also as docker://registry.example/app:v2; or the ID or the registry of a row of `fleetpull status`; or the word
    /// `pod`.
    #[arg(value_name = "IMAGE|ID|pod", value_parser = image, default_value = "", hide_default_value = true, add = completion::images())]
    pub image: String,
    /// The pod, behind the word `pod`.
    #[arg(value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,
    /// The namespace of the pod, if NAMESPACE/NAME has none.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The policy to assume: Always, IfNotPresent or Never.
    #[arg(long, value_name = "POLICY", value_parser = policy(), hide_possible_values = true, ignore_case = true)]
    pub policy: Option<PullPolicy>,
    /// Runtime, for a question to this process's own store.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}

impl ExplainArgs {
    /// The given pod: `pod shop/web-0`, `pod web-0 -n shop` or `pod/web-0 -n shop`. None if an image is given, even one with the name
    /// pod/web-0.
    ///
    /// # Errors
    /// The words name neither a pod nor an image, or there are none.
    pub fn selected_pod(&self) -> Result<Option<PodRef>, UsageError> {
        let namespace = self.namespace.as_deref();
        if self.image.is_empty() {
            return Err(UsageError(NOTHING_NAMED.to_owned()));
        }
        let name = match (&self.pod, namespace) {
            (Some(name), _) if pod::is_kind(&self.image) => name,
            (Some(_), _) => return Err(UsageError("explain takes one image, or `pod NAMESPACE/NAME`".to_owned())),
            (None, Some(_)) => {
                pod::name_of(&self.image).ok_or_else(|| UsageError("-n is for a pod: write explain pod NAME -n NAMESPACE".to_owned()))?
            }
            (None, None) => return Ok(None),
        };
        pod::in_namespace(name, namespace).map(Some)
    }
}

/// List nodes, or describe one node.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull nodes --nats nats://nats:4222
  fleetpull nodes --watch --sort-by age           the youngest first
  fleetpull nodes -o wide --show-labels
  fleetpull nodes -o name -l zone=a               names alone, for scripts
  fleetpull nodes n1 --nats nats://nats:4222      all of n1
  fleetpull nodes n1 --counters                   all counters of n1
  fleetpull nodes n1 --metrics                    as Prometheus scrapes them

RUNNING and WAITING count pulls; BLOCKED counts the back-offs that hold the node
back. A node that is silent is known to the fleet and does not answer. ZONE is
the setting node.zone, and not the label zone. With -o json each node is one
object, on a line of its own.

Exit status: 1 when the node to describe did not answer.")]
pub struct NodesArgs {
    /// Describe this node: its state, labels, socket, settings that are not their defaults, registries and standing
    /// pulls.
    #[arg(value_name = "NAME", conflicts_with = "selector", add = completion::nodes())]
    pub node: Option<NodeName>,
    /// Print all counters of this node.
    #[arg(long, requires = "node")]
    pub counters: bool,
    /// Print the metrics of this node as text (OpenMetrics), as at /metrics of its metrics.address.
    #[arg(long, requires = "node", conflicts_with_all = ["format", "counters"])]
    pub metrics: bool,
    /// Show the labels of each node in the last column.
    #[arg(long, conflicts_with = "node")]
    pub show_labels: bool,
    /// How the list is shown.
    #[command(flatten)]
    pub list: ListArgs,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub question: QuestionArgs<ListFormat>,
}

/// List running, queued and standing pulls of every node.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull pulls --nats nats://nats:4222             on every node
  fleetpull pulls --node n1 --nats nats://nats:4222   on n1 alone
  fleetpull pulls --watch --sort-by age               refreshed every 2 s
  fleetpull pulls -o wide                             with ids and callers
  fleetpull pulls --agent unix:///var/lib/fleetpull/state/n1/agent.sock

Each pull has one row. That of a standing pull (pull --wait) says `standing`
while it waits, and what for; -o wide shows its id in full, which `fleetpull
cancel` takes as it takes the image, and -o name prints it. With -o json each
line has a kind: pull, standing_pull (also where its pull has a line), or node
for one that is silent.

Exit status: 1 when a node did not answer.")]
pub struct PullsArgs {
    /// How the list is shown.
    #[command(flatten)]
    pub list: ListArgs,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs<ListFormat>,
}

/// Cancel standing pulls and what they have begun.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull cancel app:v2 --nats nats://nats:4222     on every node
  fleetpull cancel 4bf92f3577b34da6a3ce929d0e0e4736   those of one command

What runs for a cancelled standing pull is stopped, and its callers get an error
that names who cancelled it. A pull that other callers wait for goes on (a pull
without --wait, or another standing pull): the command prints on which node, and
for how many callers.

Exit status: 0 when what was named is cancelled; 1 when there was no such
standing pull, a node did not answer, or a pull of the named image goes on.")]
pub struct CancelArgs {
    /// The id of a standing pull, as `pull --detach` and `pulls` print it, or an image as it was asked for.
    #[arg(value_name = "ID|IMAGE", value_parser = image, add = completion::images_of_fleet())]
    pub what: String,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}

/// Print or check the settings.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull config print                           values in force, and why
  fleetpull config validate --config ./node.toml   everything that is wrong

validate also reads the files that the settings name (key, NATS login), as the
user who asks: an agent's files may need sudo.

A value comes from the first of: a flag, FLEETPULL_<KEY> in the environment
(FLEETPULL_STORE_FSYNC for store.fsync), the file, for nats.* the nats CLI's
own NATS_<KEY>, the default. An agent reads its settings when it starts.")]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `config` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting in force, each with where it came from.
    Print(ConfigSources),
    /// Check the settings and name every error: file, key and allowed values.
    Validate(ConfigSources),
}

/// Where the settings come from.
#[derive(Clone, Debug, Args)]
pub struct ConfigSources {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// See the main job with nothing installed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull demo           some 17 s, nothing is left behind
  fleetpull demo --keep    the three stores are kept, to be looked at
  fleetpull demo -o json   one object a line for each fact

Each fact says whether it is measured, simulated or shortened (in JSON: source),
and has its figures as numbers.")]
pub struct DemoArgs {
    /// Keep the stores of the three nodes and print where they are.
    #[arg(long)]
    pub keep: bool,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Print completions for a shell.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull completions fish --to ~/.config/fish/completions/fleetpull.fish
  source <(fleetpull completions bash)             in ~/.bashrc
  source <(fleetpull completions zsh)              in ~/.zshrc, after compinit

Regenerate the script after an upgrade.

The script asks fleetpull for each word. Nodes, and images that are held back,
come from the fleet that the words before, the environment and the settings
name, or from the agent of this machine; other images from the store. A source
that needs more than 0.3 s is not used.")]
pub struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}
