//! Compares the answers to callers with the events in the stream.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::StoredMessage;
use contract::messages::pull_coordinator::OutcomeKind;
use serde_json::Value;

use super::NODES;
use super::callers::Call;

/// The fields of an event that are compared.
struct Event {
    id: String,
    node: String,
    image: String,
    reason: String,
    trace_id: String,
    /// The node and its incarnation.
    source: String,
    number: u64,
    /// How many repeats it represents.
    count: u64,
    /// Its sequence in the stream, and when it was stored.
    stored: (u64, Duration),
}

/// Panics with the first differences between answers and events.
pub(super) fn hold(calls: &[Call], stored: &[StoredMessage]) {
    let events: Vec<Event> = stored.iter().map(read).collect();
    let of_kind = |kind: &OutcomeKind| calls.iter().filter(|call| answered_with(call, kind)).count();
    let kinds: Vec<String> = OutcomeKind::ALL.iter().map(|kind| format!("{} {}", of_kind(kind), kind.as_str())).collect();
    let unanswered = calls.iter().filter(|call| call.answer.is_none()).count();
    eprintln!("answered: {}; without an answer: {unanswered}; events in the stream: {}", kinds.join(", "), events.len());
    let mut wrong = doubled(&events);
    wrong.extend(gaps(&events));
    wrong.extend(pulled(calls, &events));
    wrong.extend(counted(calls, &events, &OutcomeKind::Failed, "Failed"));
    wrong.extend(counted(calls, &events, &OutcomeKind::Backoff, "BackOff"));
    wrong.extend(out_of_order(calls, &events));
    assert!(wrong.is_empty(), "{} differences, such as\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
}

fn read(stored: &StoredMessage) -> Event {
    let event: Value = serde_json::from_slice(&stored.message.payload).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let data = &event["data"];
    Event {
        id: text(&event["id"]),
        node: text(&data["node"]),
        image: text(&data["image"]),
        reason: text(&data["reason"]),
        trace_id: text(&event["traceparent"]).split('-').nth(1).unwrap().to_owned(),
        source: text(&event["source"]),
        number: text(&event["sequence"]).parse().unwrap(),
        count: data["count"].as_u64().unwrap_or(1),
        stored: (stored.sequence, stored.stored_at),
    }
}

/// Finds events that are stored more than once.
fn doubled(events: &[Event]) -> Vec<String> {
    let mut by_id: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    events.iter().for_each(|event| by_id.entry(&event.id).or_default().push(event));
    let doubled = by_id.into_values().filter(|same| same.len() > 1);
    doubled
        .map(|same| {
            let places: Vec<String> = same.iter().map(|event| format!("{} at {:.3?}", event.stored.0, event.stored.1)).collect();
            format!("{} of {}, number {}, is stored as {}", same[0].reason, same[0].node, same[0].number, places.join(" and "))
        })
        .collect()
}

/// Checks that the numbers of each node count from 1 without a gap or a duplicate.
fn gaps(events: &[Event]) -> Vec<String> {
    let mut by_source: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    events.iter().for_each(|event| by_source.entry(&event.source).or_default().push(event.number));
    let mut wrong = Vec::new();
    if by_source.len() != NODES {
        wrong.push(format!("events come from {:?}", by_source.keys()));
    }
    for (source, mut numbers) in by_source {
        numbers.sort_unstable();
        let first = numbers.iter().zip(1..).find(|(number, expected)| *number != expected);
        wrong.extend(first.map(|(number, expected)| format!("{source}: number {number} where {expected} is expected")));
    }
    wrong
}

/// Checks that each answered pull has one Pulled event, and that no call with another outcome has one.
fn pulled(calls: &[Call], events: &[Event]) -> Vec<String> {
    let mut by_trace: BTreeMap<&str, u64> = BTreeMap::new();
    events.iter().filter(|event| event.reason == "Pulled").for_each(|event| *by_trace.entry(&event.trace_id).or_default() += 1);
    let mut wrong = Vec::new();
    for call in calls {
        let (found, is_pulled) =
            (by_trace.get(call.trace_id.as_str()).copied().unwrap_or_default(), answered_with(call, &OutcomeKind::Pulled));
        if (is_pulled && found != 1) || found > 1 || (found > 0 && call.answer.is_some() && !is_pulled) {
            wrong.push(format!("{found} Pulled of {call:?}"));
        }
    }
    wrong
}

/// Checks the number of events for each node and image: at least the answers of this kind, and at most those and the calls without an
/// answer.
fn counted(calls: &[Call], events: &[Event], kind: &OutcomeKind, reason: &str) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), (u64, u64, u64)> = BTreeMap::new();
    for call in calls {
        let (answered, unanswered, _) = counts.entry((&call.node, &call.image)).or_default();
        *answered += u64::from(answered_with(call, kind));
        *unanswered += u64::from(call.answer.is_none());
    }
    for event in events.iter().filter(|event| event.reason == reason) {
        if let Some((.., found)) = counts.get_mut(&(event.node.as_str(), event.image.as_str())) {
            *found += event.count;
        }
    }
    let is_wrong = |(_, (answered, unanswered, found)): &(_, (u64, u64, u64))| found < answered || *found > answered + unanswered;
    let wrong = counts.into_iter().filter(is_wrong);
    wrong
        .map(|((node, image), (answered, unanswered, found))| {
            format!("{node} {image}: {found} {reason} of {answered} answered and {unanswered} without an answer")
        })
        .collect()
}

/// Checks for each node: if a pull was answered before another call was made, its event has the lower number.
fn out_of_order(calls: &[Call], events: &[Event]) -> Vec<String> {
    let pulled = events.iter().filter(|event| event.reason == "Pulled");
    let numbers: BTreeMap<&str, u64> = pulled.map(|event| (event.trace_id.as_str(), event.number)).collect();
    // Questions and answers by their position. An answer raises the highest number so far; the event of a later question must have a higher
    // number.
    let mut moments: BTreeMap<u64, (&Call, bool)> = BTreeMap::new();
    for call in calls.iter().filter(|call| numbers.contains_key(call.trace_id.as_str())) {
        moments.insert(call.asked, (call, false));
        moments.extend(call.answer.as_ref().map(|(_, at)| (*at, (call, true))));
    }
    let (mut highest_so_far, mut wrong): (BTreeMap<&str, u64>, _) = (BTreeMap::new(), Vec::new());
    for (call, is_answer) in moments.into_values() {
        let number = numbers[call.trace_id.as_str()];
        let highest = highest_so_far.entry(&call.node).or_default();
        if is_answer {
            *highest = number.max(*highest);
        } else if number <= *highest {
            wrong.push(format!("{number}, of a pull that was asked for after {highest} was answered: {call:?}"));
        }
    }
    wrong
}

fn answered_with(call: &Call, kind: &OutcomeKind) -> bool {
    call.answer.as_ref().is_some_and(|(answer, _)| answer == kind)
}
