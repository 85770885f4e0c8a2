//! Explanations as JSON. The names and their meaning are an interface.

use contract::messages::pull_coordinator::{EndpointLogins, Explanation, ImageSizeEstimate};
use contract::{FailureClass, NodeName};
use image::Reference;
use serde::Serialize;

use super::pod::{State, Wanted};
use super::{Findings, Verdict};
use crate::output::known_failures::{JsonView, Known};
use crate::output::silent::milliseconds;
use crate::output::{self, given, trace_link, units};

/// How a reference is parsed, and how one node, or this process, explains a pull.
#[derive(Serialize)]
struct JsonRow<'a, K> {
    image: &'a str,
    repository: &'a str,
    tag: Option<&'a str>,
    digest: Option<String>,
    registry: &'a str,
    runtime_reference: &'a str,
    node: Option<&'a NodeName>,
    /// The pod, if a pod is explained.
    pod: Option<String>,
    /// The states in which that node knows the image of the pod.
    known_as: Vec<&'static str>,
    pull: Option<JsonPull<'a>>,
    /// Why there is no explanation.
    pull_error: Option<&'a str>,
    /// All back-off entries of the node that concern the image.
    backoff: Vec<K>,
}

/// The explanation of a pull.
#[derive(Serialize)]
struct JsonPull<'a> {
    policy: &'a str,
    present: Option<bool>,
    inspect_error: Option<&'a str>,
    in_flight: bool,
    verdict: &'a str,
    next_attempt_ms: Option<u64>,
    /// Why the pull would wait for its registry's budget.
    budget_cause: Option<&'a str>,
    budget_wait_ms: Option<u64>,
    cause: Option<&'a str>,
    class: Option<FailureClass>,
    learned_by: Option<&'a str>,
    learned_at: Option<String>,
    learned_trace_id: Option<&'a str>,
    /// The link to that trace, if `traces.link` is set.
    trace_link: Option<String>,
    view: Option<JsonView<'a>>,
    since_ms: Option<u64>,
    binds: Option<&'a str>,
    probed_by: Option<&'a str>,
    platform: Option<&'a str>,
    digest: Option<&'a str>,
    size_estimate: Option<&'a ImageSizeEstimate>,
    estimate_error: Option<&'a str>,
    missing_bytes: Option<u64>,
    logins: &'a [EndpointLogins],
}

impl<'a> JsonPull<'a> {
    fn of(explanation: &'a Explanation, now_ms: u64) -> Self {
        Self {
            policy: &explanation.policy,
            present: explanation.present,
            inspect_error: explanation.inspect_error.as_deref(),
            in_flight: explanation.in_flight,
            verdict: &explanation.verdict,
            next_attempt_ms: explanation.next_attempt_ms,
            budget_cause: explanation.budget_hold.as_ref().map(|hold| hold.cause.as_str()),
            budget_wait_ms: explanation.budget_hold.as_ref().and_then(|hold| hold.wait_ms),
            cause: explanation.cause.as_deref().and_then(given),
            class: explanation.class,
            learned_by: explanation.learned_by.as_deref(),
            learned_at: explanation.learned_ms_ago.map(|ago| units::rfc_3339(now_ms.saturating_sub(ago))),
            learned_trace_id: explanation.learned_trace_id.as_deref(),
            trace_link: explanation.learned_trace_id.as_deref().and_then(trace_link::of),
            view: explanation.view.as_ref().map(JsonView::of),
            since_ms: explanation.since_ms,
            binds: explanation.binds.as_deref(),
            probed_by: explanation.probed_by.as_deref(),
            platform: explanation.platform.as_deref(),
            digest: explanation.digest.as_deref(),
            size_estimate: explanation.size_estimate.as_ref(),
            estimate_error: explanation.estimate_error.as_deref(),
            missing_bytes: explanation.missing_bytes,
            logins: &explanation.logins,
        }
    }
}

impl<'a, K> JsonRow<'a, K> {
    /// A row with the parsed reference.
    fn of(image: &'a str, reference: &'a Reference) -> Self {
        Self {
            image,
            repository: reference.repository(),
            tag: reference.tag(),
            digest: reference.digest().map(ToString::to_string),
            registry: reference.registry(),
            runtime_reference: reference.runtime_reference(),
            node: None,
            pod: None,
            known_as: Vec::new(),
            pull: None,
            pull_error: None,
            backoff: Vec::new(),
        }
    }
}

/// Writes a row for each node. For an image of a pod it includes the node's states of the image.
pub(super) fn print(image: &str, reference: &Reference, findings: &Findings, wanted: Option<&Wanted>, now_ms: u64) {
    for Verdict { node, explanation } in &findings.verdicts {
        let of_node = |known: &&Known| node.as_ref().is_some_and(|node| known.nodes.contains(node));
        output::json(&JsonRow {
            node: node.as_ref(),
            pod: wanted.map(|wanted| wanted.pod.to_string()),
            known_as: wanted
                .zip(node.as_ref())
                .map(|(wanted, node)| wanted.states_on(node).map(State::as_str).collect())
                .unwrap_or_default(),
            pull: explanation.as_ref().ok().map(|explanation| JsonPull::of(explanation, now_ms)),
            pull_error: explanation.as_ref().err().map(String::as_str),
            backoff: node.iter().flat_map(|node| findings.known.iter().filter(of_node).map(|known| known.json_of(node, now_ms))).collect(),
            ..JsonRow::of(image, reference)
        });
    }
    for silent in &findings.silent {
        let error = format!("known to the fleet, but silent for {}", units::age(milliseconds(silent.ago)));
        output::json(&JsonRow::<()> { node: Some(&silent.node), pull_error: Some(&error), ..JsonRow::of(image, reference) });
    }
}
