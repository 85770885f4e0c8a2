//! Compares the links of refusals with the spans in the tracing backend.
//!
//! A refusal names the trace of the attempt that failed, and its span links to that attempt's span, on any node; so does its event. A
//! refusal that waited in vain for clearance or the budget names none, because nothing has failed. A span waits in its agent until a batch
//! is exported, so `kill -9` loses spans that ended shortly before it. A span may therefore be missing only if its agent was killed after
//! the span's request was made, and at most [`EXPORTED_WITHIN`] after that request had ended: the span ends with the request at the latest.
//! Each call has a trace of its own, so the call of a trace is known.
//!
//! The number of attempts that may be missing follows from the kills: an agent does not try a missing tag again for 9 s, the first step of
//! an entry less its jitter, so a kill loses at most one attempt of each missing tag; the troubled registry fails [`TROUBLE`] attempts in
//! all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::StoredMessage;
use contract::messages::pull_coordinator::OutcomeKind;
use e2e::spans::Spans;
use e2e::{Watch, until_within};
use serde_json::Value;
use support::otlp::Span;

use super::callers::Call;
use super::{BAD, Kill, TROUBLE};

/// The time from the end of a span's request until the backend has the span, on a machine under load: agents wait 50 ms for a batch
/// ([`Spans::place`]).
const EXPORTED_WITHIN: Duration = Duration::from_millis(1_500);
/// The time from the export until the backend shows the span: Jaeger has a queue of its own.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// Parts of the message to a caller that has waited in vain for clearance or for the fleet's budget.
const WAITED_IN_VAIN: [&str; 2] = ["no clearance within", "the fleet's budget for"];
/// The span of a request.
const REQUEST: &str = "pull-coordinator.EnsureImage";

/// The results of the check.
#[derive(Default)]
struct Found {
    /// Traces of attempts that refusals link to and that the backend has.
    attempts: BTreeSet<String>,
    /// Traces of attempts that a kill may have lost.
    lost_attempts: BTreeSet<String>,
    /// Refusals whose own span a kill may have lost.
    lost_refusals: usize,
    wrong: Vec<String>,
}

/// All calls by trace, all kills, and the spans that have arrived.
struct Evidence<'a> {
    calls: BTreeMap<&'a str, &'a Call>,
    kills: &'a [Kill],
    spans: BTreeMap<String, Vec<Span>>,
}

/// Panics with the first links that have no target.
pub(super) fn hold(calls: &[Call], stored: &[StoredMessage], kills: &[Kill], backend: &Spans) {
    let refusals: Vec<&Call> =
        calls.iter().filter(|call| call.answer.as_ref().is_some_and(|(kind, _)| *kind == OutcomeKind::Backoff)).collect();
    let (naming, silent): (Vec<&Call>, Vec<&Call>) = refusals.into_iter().partition(|call| call.learned_trace_id.is_some());
    let events = refusals_of(stored);
    let of_events = named_by_events(&events);
    let (by_trace, watch) = (calls.iter().map(|call| (call.trace_id.as_str(), call)).collect::<BTreeMap<_, _>>(), Watch::start());
    let found = until_within("refusals are looked up", SHOWN_WITHIN * 10, || {
        let evidence = Evidence { calls: by_trace.clone(), kills, spans: spans_of(&naming, &of_events, backend) };
        let found = evidence.look_up(&naming, &of_events);
        (found.wrong.is_empty() || watch.elapsed() >= SHOWN_WITHIN).then_some(found)
    });
    eprintln!(
        "refusals that name an attempt: {}, and {} that waited in vain; attempts that they or events name: {} are there, {} were lost by {} kills; {} \
         refusals' own spans were lost so",
        naming.len(),
        silent.len(),
        found.attempts.len(),
        found.lost_attempts.len(),
        kills.len(),
        found.lost_refusals
    );
    let mut wrong = found.wrong;
    let waited = |call: &Call| call.learned_by.is_none() && WAITED_IN_VAIN.iter().any(|text| call.message.contains(text));
    wrong.extend(silent.iter().filter(|call| !waited(call)).map(|call| format!("something has failed, and no attempt is named: {call:?}")));
    wrong.extend(unlike_their_events(&naming, &events));
    assert!(wrong.is_empty(), "{} differences, such as\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
    assert!(!found.attempts.is_empty(), "no refusal names an attempt");
    let lost_most = kills.len() * BAD + usize::try_from(TROUBLE).unwrap();
    assert!(found.lost_attempts.len() <= lost_most, "{} kills lost {:?}", kills.len(), found.lost_attempts);
}

/// The events of refusals.
fn refusals_of(stored: &[StoredMessage]) -> Vec<Value> {
    let events = stored.iter().map(|stored| serde_json::from_slice::<Value>(&stored.message.payload).unwrap());
    events.filter(|event| event["data"]["reason"] == "BackOff").collect()
}

/// The traces of attempts that events of refusals name.
fn named_by_events(events: &[Value]) -> BTreeSet<String> {
    events.iter().filter_map(|event| event["data"]["learned_trace_id"].as_str().map(str::to_owned)).collect()
}

/// Events of refusals that name another attempt than the answer to their caller does, or none.
fn unlike_their_events(refusals: &[&Call], events: &[Value]) -> Vec<String> {
    let by_trace: BTreeMap<&str, &Call> = refusals.iter().map(|call| (call.trace_id.as_str(), *call)).collect();
    let other = |event: &&Value| {
        let call_of_event = event["traceparent"].as_str().and_then(|parent| by_trace.get(parent.split('-').nth(1)?));
        call_of_event.is_some_and(|call| event["data"]["learned_trace_id"].as_str() != call.learned_trace_id.as_deref())
    };
    events.iter().filter(other).map(|event| format!("the answer to its caller names another attempt: {event}")).collect()
}

/// The spans of refusals, and of the traces that they and their events name or link to.
fn spans_of(refusals: &[&Call], of_events: &BTreeSet<String>, backend: &Spans) -> BTreeMap<String, Vec<Span>> {
    let of_call = |call: &&Call| [Some(call.trace_id.clone()), call.learned_trace_id.clone()];
    let named: BTreeSet<String> = refusals.iter().flat_map(of_call).flatten().chain(of_events.iter().cloned()).collect();
    let mut spans = backend.traces(&named);
    let links = spans.values().flatten().flat_map(|span| &span.links).map(|link| link.trace_id.clone());
    let more = links.filter(|trace_id| !named.contains(trace_id)).collect();
    spans.extend(backend.traces(&more));
    spans
}

impl Evidence<'_> {
    fn look_up(&self, refusals: &[&Call], of_events: &BTreeSet<String>) -> Found {
        let mut found = Found::default();
        refusals.iter().for_each(|refusal| self.refusal(refusal, &mut found));
        of_events.iter().for_each(|learned| self.attempt(learned, "an event of a refusal", &mut found));
        found
    }

    fn refusal(&self, refusal: &Call, found: &mut Found) {
        let (learned, described) = (refusal.learned_trace_id.as_deref().unwrap_or_default(), format!("{refusal:?}"));
        self.attempt(learned, &described, found);
        let finder = refusal.learned_by.as_ref().unwrap_or(&refusal.node);
        if self.calls.get(learned).is_some_and(|owner| owner.node != *finder) {
            found.wrong.push(format!("the attempt is not of {finder}: {described}"));
        }
        let of_request = |span: &&Span| span.name == REQUEST && span.kind == "SERVER";
        let Some(own) = self.of(&refusal.trace_id).iter().find(of_request) else {
            if self.is_lost(refusal) {
                found.lost_refusals += 1;
            } else {
                found.wrong.push(format!("its own span is missing: {described}"));
            }
            return;
        };
        if !own.links.iter().any(|link| link.trace_id == learned) {
            found.wrong.push(format!("its span links to {:?}, and not to the attempt that the answer names: {described}", own.links));
        }
        for link in &own.links {
            let is_there = self.of(&link.trace_id).iter().any(|span| span.span_id == link.span_id);
            if !is_there && !self.calls.get(link.trace_id.as_str()).is_some_and(|owner| self.is_lost(owner)) {
                found.wrong.push(format!("its span links to {link:?}, which is missing: {described}"));
            }
        }
    }

    /// Checks that a failed attempt of this trace has arrived, or that a kill may have lost it.
    fn attempt(&self, learned: &str, described: &str, found: &mut Found) {
        let owner = self.calls.get(learned);
        if self.of(learned).iter().any(|span| span.name == "attempt" && span.failed) {
            found.attempts.insert(learned.to_owned());
        } else if owner.is_some_and(|owner| self.is_lost(owner)) {
            found.lost_attempts.insert(learned.to_owned());
        } else {
            found.wrong.push(format!("there is no failed attempt in {learned}, of {owner:?}: {described}"));
        }
    }

    fn of(&self, trace_id: &str) -> &[Span] {
        self.spans.get(trace_id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a kill may have lost the spans of a call.
    fn is_lost(&self, call: &Call) -> bool {
        let (asked, ended) = call.lasted;
        self.kills.iter().any(|kill| kill.node == call.node && kill.at.1 >= asked && kill.at.0 <= ended + EXPORTED_WITHIN)
    }
}
