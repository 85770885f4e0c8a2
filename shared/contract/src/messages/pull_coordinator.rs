//! What the pull coordinator answers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{UnknownText, open_text};
use crate::{ClassCounts, Command, FailureClass, PodRef, Reason, Service, View, WishId};

/// When to ask the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PullPolicy {
    /// Always.
    Always,
    /// Only if the image is not on the node.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// The word as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for PullPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Always, Self::IfNotPresent, Self::Never]
            .into_iter()
            .find(|policy| policy.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("{text:?} is not a pull policy; it is one of Always, IfNotPresent, Never"))
    }
}

/// Make sure that an image is on this node. The answer comes when it is known, however long that takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureImage {
    /// The image as asked for.
    pub image: String,
    /// None: as Kubernetes sets it (Always for `latest`, else IfNotPresent).
    #[serde(default)]
    pub policy: Option<PullPolicy>,
    /// `os/arch[/variant]`; none for the node's own.
    #[serde(default)]
    pub platform: Option<String>,
    /// For whom. Without one, all callers on a node are one nameless pod.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// How long the caller waits; its time-out ends only its own wait.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The wish stands on the node for so long, in milliseconds, until the image is there: failures and refusals do not end it. None:
    /// the answer is kubelet's, at once.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// The id of a standing wish, chosen by the asker, to ask for it again after a lost answer and to cancel it; none: the agent chooses.
    #[serde(default)]
    pub wish: Option<WishId>,
    /// Answer as soon as the wish is kept, instead of when it is over.
    #[serde(default)]
    pub detach: bool,
}

impl Command for EnsureImage {
    type Reply = PullOutcome;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "ensure";
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutcomeKind {
    /// Pulled just now.
    Pulled,
    /// It was there already.
    Present,
    /// It was tried, or could not be tried.
    #[default]
    Failed,
    /// Not tried: too soon after a failure.
    Backoff,
    /// What a newer version wrote.
    Unknown(UnknownText),
}

open_text!(OutcomeKind);

impl OutcomeKind {
    /// Every kind that this version writes.
    pub const ALL: [Self; 4] = [Self::Pulled, Self::Present, Self::Failed, Self::Backoff];

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pulled => "pulled",
            Self::Present => "present",
            Self::Failed => "failed",
            Self::Backoff => "backoff",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

/// The answer to [`EnsureImage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullOutcome {
    /// How it ended.
    pub outcome: OutcomeKind,
    /// Kubelet's word; none on success and on a time-out.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Kubelet's message, letter for letter; empty after a successful pull.
    pub message: String,
    /// What the failure is about; none on success.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// The runtime's name for the image; empty on failure.
    #[serde(default)]
    pub image_ref: String,
    /// The manifest's digest, if the runtime says it.
    #[serde(default)]
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if the runtime says it.
    #[serde(default)]
    pub platform: Option<String>,
    /// The image's size; 0 when unknown.
    #[serde(default)]
    pub size_bytes: u64,
    /// How long the pull itself took.
    #[serde(default)]
    pub duration_ms: u64,
    /// How long it waited before that.
    #[serde(default)]
    pub waiting_ms: u64,
    /// Milliseconds until the next try is allowed, after a failure.
    #[serde(default)]
    pub next_try_ms: Option<u64>,
    /// Which login was used, by its entry and file, never its user; empty when none was needed.
    #[serde(default)]
    pub auth: String,
    /// 32 hex digits.
    #[serde(default)]
    pub trace_id: String,
    /// The caller's time was over first. The pull goes on if somebody else wants it.
    #[serde(default)]
    pub timed_out: bool,
    /// On a refusal, which node found out; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
    /// The standing wish that was kept, if it was one.
    #[serde(default)]
    pub wish: Option<WishId>,
    /// The wish is kept and stands, and this is all that was to be waited for: `outcome` says nothing. Only after `detach`.
    #[serde(default)]
    pub stands: bool,
}

/// What is in flight and queued on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPulls {}

impl Command for ListPulls {
    type Reply = PullList;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "list";
}

/// The answer to [`ListPulls`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullList {
    /// In the order in which they began.
    pub pulls: Vec<PullStatus>,
    /// How the requests ended that were answered since start.
    #[serde(default)]
    pub answered: AnswerCounts,
}

/// How many requests ended in which way since start; a standing wish that nobody waits for any more counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounts {
    /// The image was pulled.
    pub pulled_total: u64,
    /// It was there already.
    pub present_total: u64,
    /// It failed, the caller's time-out aside.
    pub failed_total: u64,
    /// It was too soon after a failure.
    pub backoff_total: u64,
    /// The caller's time was over first.
    pub timed_out_total: u64,
    /// The caller had gone before there was an answer.
    #[serde(default)]
    pub abandoned_total: u64,
    /// Of those that failed, by class.
    #[serde(default)]
    pub failed: ClassCounts,
}

impl AnswerCounts {
    /// Counts one answer; that a wish stands is none yet.
    pub fn count(&mut self, outcome: &PullOutcome) {
        let counter = match outcome.outcome {
            _ if outcome.stands => return,
            _ if outcome.timed_out => &mut self.timed_out_total,
            OutcomeKind::Pulled => &mut self.pulled_total,
            OutcomeKind::Present => &mut self.present_total,
            OutcomeKind::Failed => {
                self.failed.count(outcome.class.unwrap_or_default());
                &mut self.failed_total
            }
            OutcomeKind::Backoff => &mut self.backoff_total,
            OutcomeKind::Unknown(_) => return,
        };
        *counter += 1;
    }

    /// These and those.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pulled_total: self.pulled_total + other.pulled_total,
            present_total: self.present_total + other.present_total,
            failed_total: self.failed_total + other.failed_total,
            backoff_total: self.backoff_total + other.backoff_total,
            timed_out_total: self.timed_out_total + other.timed_out_total,
            abandoned_total: self.abandoned_total + other.abandoned_total,
            failed: self.failed.and(other.failed),
        }
    }
}

/// How far one pull is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStatus {
    /// The image as first asked for.
    pub image: String,
    /// `waiting` for its turn or `pulling`.
    pub state: PullState,
    /// For how long it is in this state.
    pub since_ms: u64,
    /// How many callers wait for it.
    pub callers: u32,
    /// Bytes there by now.
    pub done_bytes: u64,
    /// Bytes in all; 0 while unknown.
    pub total_bytes: u64,
    /// Each layer: digest, bytes there, bytes in all.
    #[serde(default)]
    pub layers: Vec<LayerStatus>,
}

/// What a pull is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// It waits for its turn.
    Waiting,
    /// The runtime is at work.
    Pulling,
    /// What a newer version does.
    Unknown(UnknownText),
}

open_text!(PullState);

impl PullState {
    /// Every state that this version writes.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Pulling];

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Waiting => "waiting",
            Self::Pulling => "pulling",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

/// How far one layer is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStatus {
    /// Its digest.
    pub digest: String,
    /// Bytes there by now.
    pub done_bytes: u64,
    /// Bytes in all; 0 while unknown.
    pub total_bytes: u64,
}

/// The wishes that stand on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListWishes {}

impl Command for ListWishes {
    type Reply = WishList;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "wishes";
}

/// The answer to [`ListWishes`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishList {
    /// The oldest first.
    pub wishes: Vec<WishStatus>,
}

/// How one standing wish stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishStatus {
    /// Names it in `cancel`.
    pub wish: WishId,
    /// The image as asked for.
    pub image: String,
    /// For whom.
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// Which platform, if one was named.
    #[serde(default)]
    pub platform: Option<String>,
    /// What it is doing.
    #[serde(default)]
    pub state: WishState,
    /// For how long it stands.
    #[serde(default)]
    pub since_ms: u64,
    /// For how long it still stands.
    #[serde(default)]
    pub left_ms: u64,
    /// How many callers wait for it; a wish goes on without any.
    #[serde(default)]
    pub callers: u32,
    /// How often it was tried or refused so far.
    #[serde(default)]
    pub tries: u64,
    /// What holds it, held it last, or why its last try failed: `<reason>: <message>`. Without a class, what it waits for in words;
    /// empty while it waits for nothing but its node.
    #[serde(default)]
    pub cause: String,
    /// The class of that cause.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Milliseconds until the next try, by whomever.
    #[serde(default)]
    pub next_try_ms: Option<u64>,
    /// Which node found out; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
}

/// What a standing wish is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WishState {
    /// A failure holds it back.
    Held,
    /// The runtime is at work.
    Pulling,
    /// It waits for its turn, and whatever a newer version does.
    #[default]
    #[serde(other)]
    Waiting,
}

/// End standing wishes. Their callers are answered; the pull goes on if somebody else wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelWish {
    /// The id of a wish, or an image: all its wishes.
    pub what: String,
    /// Who ends them, `user@host`; empty: an older version does not say.
    #[serde(default)]
    pub by: String,
}

impl Command for CancelWish {
    type Reply = WishesCancelled;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "cancel";
}

/// The answer to [`CancelWish`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishesCancelled {
    /// As they stood; empty: nothing matched.
    pub cancelled: Vec<WishStatus>,
}

/// What would happen to a pull now. Nothing is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainImage {
    /// The image as it would be asked for.
    pub image: String,
    /// As in [`EnsureImage`].
    #[serde(default)]
    pub policy: Option<PullPolicy>,
    /// As in [`EnsureImage`].
    #[serde(default)]
    pub pod: Option<PodRef>,
    /// As in [`EnsureImage`].
    #[serde(default)]
    pub platform: Option<String>,
    /// Ask the registry for the manifest, to say what the image consists of: one request, and one more for each list of manifests.
    /// It is not asked where a pull would not ask it now. What comes of it is no knowledge of the fleet's.
    #[serde(default)]
    pub weigh: bool,
    /// What the image consists of, as another node learned it: how much of it is missing here? At most [`BLOBS_MOST`].
    #[serde(default)]
    pub blobs: Vec<BlobSize>,
}

/// The most blobs that one question may name: a thousand layers, as many as an image may have, and its config.
pub const BLOBS_MOST: usize = 1_001;

/// Content of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobSize {
    /// By its digest.
    pub digest: String,
    /// How long it is.
    pub bytes: u64,
}

/// What an image consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWeight {
    /// What the reference was resolved to.
    #[serde(default)]
    pub digest: Option<String>,
    /// Config and layers, each once.
    pub blobs: Vec<BlobSize>,
}

impl Command for ExplainImage {
    type Reply = Explanation;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "explain";
}

/// Which logins a pull would show to one endpoint, in words without a secret or a user's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointLogins {
    /// `host:port`, or the container runtime that is given the logins.
    pub endpoint: String,
    /// By entry and file, in the order in which they are tried: `login for registry.example in /root/.docker/config.json`.
    #[serde(default)]
    pub logins: Vec<String>,
    /// Why there is none, if so.
    #[serde(default)]
    pub none_because: Option<String>,
}

/// Why a pull would wait for its registry's budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetHold {
    /// For how long, in milliseconds, if that is known.
    pub wait_ms: Option<u64>,
    /// In words: `0 of 100 left, anew in 52.0 s`.
    pub cause: String,
}

/// The answer to [`ExplainImage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy that would apply.
    pub policy: String,
    /// Whether the image is on the node; none if the runtime could not say.
    pub present: Option<bool>,
    /// Why the runtime could not say.
    #[serde(default)]
    pub inspect_error: Option<String>,
    /// Milliseconds until a try is allowed, if it is too soon now.
    #[serde(default)]
    pub next_try_ms: Option<u64>,
    /// A pull without `--wait` waits for that attempt instead of being refused: the failure is unconfirmed, and the attempt comes within
    /// the time that such a pull waits for the fleet.
    #[serde(default)]
    pub waits: bool,
    /// What the wait comes from.
    #[serde(default)]
    pub cause: Option<String>,
    /// The class of that cause.
    #[serde(default)]
    pub class: Option<FailureClass>,
    /// Which node found out; none: this one.
    #[serde(default)]
    pub learned_by: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub learned_ms_ago: Option<u64>,
    /// The trace of the attempt that failed, 32 hex digits.
    #[serde(default)]
    pub learned_trace_id: Option<String>,
    /// The node's view of the registry, if it shares what it knows.
    #[serde(default)]
    pub view: Option<View>,
    /// For how long that failure stands, in milliseconds, if the fleet knows of it.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// Whom it binds, as in the list of back-offs.
    #[serde(default)]
    pub binds: Option<String>,
    /// Who is finding out now whether it is over, if somebody is.
    #[serde(default)]
    pub probed_by: Option<String>,
    /// Which platform would be pulled: `os/arch[/variant]`.
    #[serde(default)]
    pub platform: Option<String>,
    /// The digest of what is there under this name, if the runtime says it.
    #[serde(default)]
    pub digest: Option<String>,
    /// What the image consists of, if that was asked and the registry said so.
    #[serde(default)]
    pub weight: Option<ImageWeight>,
    /// Why that is not known, if it was asked.
    #[serde(default)]
    pub weigh_error: Option<String>,
    /// How much of the blobs named would be fetched, in bytes; none if the runtime cannot say.
    #[serde(default)]
    pub missing_bytes: Option<u64>,
    /// On whose budget the fleet counts a pull of it, as budgets are listed, if this node shares.
    #[serde(default)]
    pub budget: Option<String>,
    /// What that budget holds a pull back by. Left open by the node: whoever asks knows it from the budget's leader.
    #[serde(default)]
    pub budget_hold: Option<BudgetHold>,
    /// Which logins a pull would show, endpoint by endpoint; empty if the runtime does not say.
    #[serde(default)]
    pub logins: Vec<EndpointLogins>,
    /// Whether the runtime is pulling the image at this moment.
    pub in_flight: bool,
    /// What would happen, in one sentence.
    pub verdict: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_counted_once_and_a_time_out_as_nothing_else() {
        let mut counts = AnswerCounts::default();
        for outcome in [OutcomeKind::Pulled, OutcomeKind::Present, OutcomeKind::Failed, OutcomeKind::Backoff] {
            counts.count(&PullOutcome { outcome, ..PullOutcome::default() });
        }
        counts.count(&PullOutcome { timed_out: true, ..PullOutcome::default() });
        assert_eq!(
            counts,
            AnswerCounts {
                pulled_total: 1,
                present_total: 1,
                failed_total: 1,
                backoff_total: 1,
                timed_out_total: 1,
                abandoned_total: 0,
                failed: ClassCounts { unknown: 1, ..ClassCounts::default() }
            }
        );
    }
}
