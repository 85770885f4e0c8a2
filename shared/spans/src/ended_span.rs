//! The record of an ended span.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use contract::TraceContext;
use opentelemetry::{KeyValue, Value};

/// The most attributes, events and links of one span each; OpenTelemetry's default.
const EACH_MAX: usize = 128;

/// How many attributes the span of a request has, without the late ones; other spans have one or two.
pub(crate) const ATTRIBUTES_OF_A_REQUEST: usize = 6;

/// OpenTelemetry's kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step within this process.
    Internal,
    /// Answers a request of another process.
    Server,
    /// Asks another process.
    Client,
    /// Sends a message.
    Producer,
}

/// The parent of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its id, in the same trace.
    pub span_id: u64,
    /// It belongs to another process.
    pub is_remote: bool,
}

/// A span that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The name, of low cardinality.
    pub name: Cow<'static, str>,
    /// The kind.
    pub kind: Kind,
    /// Its ids.
    pub ids: TraceContext,
    /// The parent; none: it is a root.
    pub parent: Option<Parent>,
    /// The request's `tracestate` header; empty: none.
    pub state: String,
    /// When it began, as time since 1970.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// Attributes, events, links and status.
    pub content: Content,
}

/// The attributes, events, links and status of a span.
#[derive(Debug, Default)]
pub struct Content {
    /// The attributes, one for each key.
    pub attributes: Vec<KeyValue>,
    /// The events: time since 1970, name and attributes.
    pub events: Vec<(Duration, &'static str, Vec<KeyValue>)>,
    /// Links to other spans.
    pub links: Vec<Link>,
    /// The description of the failure; none: it did not fail.
    pub failed: Option<String>,
    /// Export the trace whatever the sampler decided.
    pub keep: bool,
    /// How long it took, if it ended before its last clone was dropped.
    pub took: Option<Duration>,
    /// How many attributes, events and links were dropped, because there were too many.
    pub dropped: [u32; 3],
    /// Attributes that are made only if the span is exported.
    pub(crate) late: Option<Late>,
}

/// Makes attributes when a span is exported.
pub(crate) struct Late(pub(crate) Box<dyn FnOnce() -> Vec<KeyValue> + Send>);

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Late")
    }
}

/// A link to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The span.
    pub to: TraceContext,
    /// One of [`crate::links`].
    pub what: &'static str,
}

impl Content {
    /// Makes the late attributes. Call it once the span is to be exported. Attributes that were set already win.
    pub fn make_late_attributes(&mut self) {
        let Some(Late(make)) = self.late.take() else { return };
        for KeyValue { key, value, .. } in std::mem::replace(&mut self.attributes, make()) {
            match self.attributes.iter_mut().find(|attribute| attribute.key == key) {
                Some(attribute) => attribute.value = value,
                None => push(&mut self.attributes, KeyValue::new(key, value), &mut self.dropped[0]),
            }
        }
    }

    pub(crate) fn set(&mut self, key: &'static str, value: Value) {
        match self.attributes.iter_mut().find(|attribute| attribute.key.as_str() == key) {
            Some(attribute) => attribute.value = value,
            None => push(&mut self.attributes, KeyValue::new(key, value), &mut self.dropped[0]),
        }
    }

    pub(crate) fn add_event(&mut self, at: Duration, name: &'static str, attributes: Vec<KeyValue>) {
        push(&mut self.events, (at, name, attributes), &mut self.dropped[1]);
    }

    pub(crate) fn link(&mut self, link: Link) {
        // Most spans with links have one.
        if self.links.is_empty() {
            self.links.reserve_exact(1);
        }
        push(&mut self.links, link, &mut self.dropped[2]);
    }
}

fn push<T>(those: &mut Vec<T>, one: T, dropped: &mut u32) {
    if those.len() < EACH_MAX {
        those.push(one);
    } else {
        *dropped = dropped.saturating_add(1);
    }
}
