//! Received spans in a simple form, and their tree as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

/// One span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The name.
    pub name: String,
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// 16 hex digits; empty for a root span.
    pub parent_id: String,
    /// The kind, such as `SERVER` or `CLIENT`.
    pub kind: String,
    /// The attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the resource, which describes the process, as text.
    pub resource: BTreeMap<String, String>,
    /// The names of the events.
    pub events: Vec<String>,
    /// The links.
    pub links: Vec<Link>,
    /// Whether the status is an error.
    pub failed: bool,
    /// The message of the status.
    pub description: String,
    /// The `tracestate`.
    pub trace_state: String,
    /// In nanoseconds since 1970.
    pub began: u64,
    /// In nanoseconds since 1970.
    pub ended: u64,
}

/// A link to another span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// The relation of the other span to this one: the attribute `fleetpull.link`.
    pub what: String,
}

impl Span {
    /// An attribute as text; empty if the span does not have it.
    #[must_use]
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map(String::as_str).unwrap_or_default()
    }

    /// Whether this span links to `other`.
    #[must_use]
    pub fn links_to(&self, other: &Self) -> bool {
        self.links.iter().any(|link| (&link.trace_id, &link.span_id) == (&other.trace_id, &other.span_id))
    }
}

pub(super) fn spans_of(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_process in request.resource_spans {
        let resource = of_process.resource.map(|resource| texts(resource.attributes)).unwrap_or_default();
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let link = |link: opentelemetry_proto::tonic::trace::v1::span::Link| Link {
                trace_id: hex(&link.trace_id),
                span_id: hex(&link.span_id),
                what: texts(link.attributes).remove("fleetpull.link").unwrap_or_default(),
            };
            let kind = span.kind().as_str_name().trim_start_matches("SPAN_KIND_").to_owned();
            let status = span.status.unwrap_or_default();
            spans.push(Span {
                name: span.name,
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                kind,
                attributes: texts(span.attributes),
                resource: resource.clone(),
                events: span.events.into_iter().map(|event| event.name).collect(),
                links: span.links.into_iter().map(link).collect(),
                failed: status.code() == StatusCode::Error,
                description: status.message,
                trace_state: span.trace_state,
                began: span.start_time_unix_nano,
                ended: span.end_time_unix_nano,
            });
        }
    }
    spans
}

/// The spans as text, a line each, children below their parents, in the order in which they began.
#[must_use]
pub fn tree(spans: &[Span]) -> String {
    let mut text = String::new();
    let mut sorted: Vec<&Span> = spans.iter().collect();
    sorted.sort_by_key(|span| span.began);
    let is_known = |id: &str| sorted.iter().any(|span| span.span_id == id);
    for span in sorted.iter().filter(|span| !is_known(&span.parent_id)) {
        branch(&sorted, span, 0, &mut text);
    }
    text
}

fn branch(all: &[&Span], span: &Span, depth: usize, text: &mut String) {
    let orphan = if depth == 0 && !span.parent_id.is_empty() { "(its parent is missing) " } else { "" };
    let failed = if span.failed { " ERROR" } else { "" };
    let links: String = span.links.iter().map(|link| format!(" ->{}", link.what)).collect();
    let _ = writeln!(text, "{}{orphan}{}{failed}{links}", "  ".repeat(depth), span.name);
    for child in all.iter().filter(|child| child.parent_id == span.span_id && child.trace_id == span.trace_id) {
        branch(all, child, depth + 1, text);
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, attribute.value.map(text).unwrap_or_default())).collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(truth)) => truth.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
