//! Options that several commands share.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use contract::NodeName;
use settings::Kind;

use super::selector::Selector;
use crate::completion;

/// No help heading: the option is listed among the command's own options, even after a group with a heading.
pub(super) const OWN: Option<&str> = None;

/// A settings key and its value, as a flag gives them.
pub(super) type Flag = (String, String);

/// The values of a setting, for the completion of its flag.
fn choices(name: &str) -> PossibleValuesParser {
    let words: &[&str] = match settings::keys().iter().find(|key| key.name == name).map(|key| &key.kind) {
        Some(Kind::Choice(words)) => words,
        _ => &[],
    };
    words.iter().collect::<Vec<_>>().into()
}

/// How facts are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, and nothing else on stdout.
    Json,
}

/// The output formats of a kind of command.
pub trait Format: ValueEnum + Copy + Default + std::fmt::Debug + Send + Sync + 'static {
    /// The description of the formats in the help.
    const HELP: &'static str;
}

impl Format for OutputFormat {
    const HELP: &'static str = "How facts are written to stdout: text, or json for one object a line and nothing else";
}

/// How facts are written.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputArgs<F: Format = OutputFormat> {
    /// In which form.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT", help = F::HELP, hide_possible_values = true, help_heading = OWN)]
    pub format: F,
    /// Facts only: no progress and no hints.
    #[arg(short, long, help_heading = OWN)]
    pub quiet: bool,
}

/// Where settings come from.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Read settings from this file [default: /etc/fleetpull/config.toml, if it is there].
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub config: Option<PathBuf>,
}

/// The log on stderr.
#[derive(Clone, Debug, Default, Args)]
pub struct LogArgs {
    /// The least level that is logged to stderr: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", help_heading = "Settings", value_parser = choices("log.level"), hide_possible_values = true)]
    pub log_level: Option<String>,
    /// How: text, or json for one object a line.
    #[arg(long, value_name = "FORMAT", help_heading = "Settings", value_parser = choices("log.format"), hide_possible_values = true)]
    pub log_format: Option<String>,
}

/// How the fleet's NATS server is reached.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "NATS (also FLEETPULL_NATS_..., then the nats CLI's NATS_URL, NATS_CREDS, ...)")]
pub struct NatsArgs {
    /// Server URLs, comma separated: nats://host:4222,tls://other:4222.
    #[arg(long, value_name = "URL[,URL...]")]
    pub nats: Option<String>,
    /// A .creds file with the user's JWT and seed.
    #[arg(long, value_name = "FILE")]
    pub nats_creds: Option<PathBuf>,
    /// A file with an nkey seed.
    #[arg(long, value_name = "FILE")]
    pub nats_nkey: Option<PathBuf>,
    /// A file with a token: a projected service-account token, for nats-auth.
    #[arg(long, value_name = "FILE")]
    pub nats_token_file: Option<PathBuf>,
    /// Prefix of reply subjects (inboxes).
    #[arg(long, value_name = "PREFIX")]
    pub nats_inbox_prefix: Option<String>,
    /// PEM: the authority that signed the server's certificate.
    #[arg(long, value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
    /// PEM: this client's certificate.
    #[arg(long, value_name = "FILE")]
    pub nats_cert: Option<PathBuf>,
    /// PEM: this client's key.
    #[arg(long, value_name = "FILE")]
    pub nats_key: Option<PathBuf>,
    /// A context of the nats CLI.
    #[arg(long, value_name = "NAME")]
    pub nats_context: Option<String>,
    /// Which fleet on that server; two fleets never mix.
    #[arg(long, value_name = "NAME")]
    pub fleet: Option<String>,
}

/// How a fleet is reached, or this machine's agent when the bus is gone.
#[derive(Clone, Debug, Default, Args)]
pub struct FleetArgs {
    /// NATS.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Ask the agent on this machine through its socket instead: unix:///path/agent.sock [default: where nothing names a NATS server,
    /// the one agent that answers below the store's state directory].
    #[arg(long, value_name = "unix://PATH", conflicts_with_all = ["nats", "nats_context"], help_heading = OWN)]
    pub agent: Option<String>,
    /// Only nodes with these labels, as kubectl selects: 'zone in (a, b),disk!=hdd,gpu,!edge'.
    ///
    /// Conditions with commas between them, of which all must hold: key=value (or ==), key!=value, key in (a, b), key notin (a, b),
    /// key (it is there), !key (it is not), key>3, key<3. As with kubectl, != and notin also mean nodes without the key.
    #[arg(short = 'l', long, value_name = "LABELS", help_heading = OWN)]
    pub selector: Option<Selector>,
}

/// What every question to the fleet takes.
#[derive(Clone, Debug, Default, Args)]
pub struct QuestionArgs<F: Format = OutputFormat> {
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs<F>,
    /// Fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What a question takes that some nodes are asked.
#[derive(Clone, Debug, Default, Args)]
pub struct NodesQuestionArgs<F: Format = OutputFormat> {
    /// Ask this node alone; may be given several times [default: every node that answers].
    #[arg(long = "node", value_name = "NAME", conflicts_with = "selector", help_heading = OWN, add = completion::nodes())]
    pub nodes: Vec<NodeName>,
    /// The rest.
    #[command(flatten)]
    pub question: QuestionArgs<F>,
}

impl<F: Format> QuestionArgs<F> {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        [self.fleet.nats.flags(), self.log.flags()].concat()
    }
}

/// Which runtime, and where images lie.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Runtime")]
pub struct RuntimeArgs {
    /// What pulls: oci-layout (Fleetpull itself, into --store) or cri (containerd, CRI-O).
    #[arg(long, value_name = "KIND", value_parser = choices("runtime.kind"), hide_possible_values = true)]
    pub runtime: Option<String>,
    /// The OCI image layout that oci-layout pulls into [default: /var/lib/fleetpull as root, else ~/.local/share/fleetpull].
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// The CRI socket [default: containerd's or CRI-O's, whichever is there].
    #[arg(long, value_name = "unix://PATH")]
    pub runtime_endpoint: Option<String>,
    /// A config.json or auth.json with registry logins [default: REGISTRY_AUTH_FILE, else the usual places].
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
}

/// How registries are spoken to, for one pull.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Registry (this pull only)")]
pub struct RegistryArgs {
    /// Use plain HTTP for all registries (always used for localhost).
    #[arg(long)]
    pub plain_http: bool,
    /// Whether certificates are checked.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub tls_verify: bool,
}

impl Default for RegistryArgs {
    fn default() -> Self {
        Self { plain_http: false, tls_verify: true }
    }
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The given flags as settings.
fn given<const N: usize>(pairs: [(&str, Option<String>); N]) -> Vec<Flag> {
    pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

impl LogArgs {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        given([("log.level", self.log_level.clone()), ("log.format", self.log_format.clone())])
    }
}

impl NatsArgs {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        given([
            ("nats.url", self.nats.clone()),
            ("nats.creds", self.nats_creds.as_deref().map(text)),
            ("nats.nkey", self.nats_nkey.as_deref().map(text)),
            ("nats.token_file", self.nats_token_file.as_deref().map(text)),
            ("nats.inbox_prefix", self.nats_inbox_prefix.clone()),
            ("nats.ca", self.nats_ca.as_deref().map(text)),
            ("nats.cert", self.nats_cert.as_deref().map(text)),
            ("nats.key", self.nats_key.as_deref().map(text)),
            ("nats.context", self.nats_context.clone()),
            ("fleet.name", self.fleet.clone()),
        ])
    }
}

impl RuntimeArgs {
    /// True if any of these options was given: the command is about this machine then.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.runtime.is_some() || self.store.is_some() || self.runtime_endpoint.is_some() || self.authfile.is_some()
    }

    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        given([
            ("runtime.kind", self.runtime.clone()),
            ("store.dir", self.store.as_deref().map(text)),
            ("runtime.endpoint", self.runtime_endpoint.clone()),
            ("auth.file", self.authfile.as_deref().map(text)),
        ])
    }
}
