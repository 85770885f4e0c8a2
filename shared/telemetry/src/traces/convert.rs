//! Converts spans for the exporter.

use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use spans::{Content, Ended, Kind, TraceContext};

/// The SDK's record of a span; every exported span counts as sampled.
pub(crate) fn span_data(span: Ended, scope: &InstrumentationScope) -> SpanData {
    let Ended { name, kind, ids, parent, state, began, took, mut content } = span;
    content.make_late_attributes();
    let Content { attributes, events, links, failed, dropped, .. } = content;
    let state = if state.is_empty() { TraceState::NONE } else { TraceState::from_str(&state).unwrap_or_default() };
    let start_time = at(began);
    let mut of_span = SpanEvents::default();
    of_span.events = events.into_iter().map(|(when, name, attributes)| Event::new(name, at(when), attributes, 0)).collect();
    of_span.dropped_count = dropped[1];
    let mut linked = SpanLinks::default();
    linked.links = links.into_iter().map(link).collect();
    linked.dropped_count = dropped[2];
    SpanData {
        span_context: context(ids, false, state),
        parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span_id)),
        parent_span_is_remote: parent.is_some_and(|parent| parent.is_remote),
        span_kind: kind_of(kind),
        name,
        start_time,
        end_time: start_time + took,
        attributes,
        dropped_attributes_count: dropped[0],
        events: of_span,
        links: linked,
        status: failed.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

pub(crate) fn kind_of(kind: Kind) -> SpanKind {
    match kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
        Kind::Producer => SpanKind::Producer,
    }
}

fn link(link: spans::Link) -> Link {
    Link::new(context(link.to, true, TraceState::NONE), vec![KeyValue::new("fleetpull.link", link.what)], 0)
}

fn context(ids: TraceContext, is_remote: bool, state: TraceState) -> SpanContext {
    SpanContext::new(TraceId::from(ids.trace_id), SpanId::from(ids.span_id), TraceFlags::SAMPLED, is_remote, state)
}

fn at(since_1970: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + since_1970
}
