//! What a span was, once it has ended.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use contract::TraceContext;
use opentelemetry::{KeyValue, Value};

/// The most attributes, events and links of one span, each: as OpenTelemetry has it.
const EACH_MAX: usize = 128;

/// As many as the span of a request has, the late ones aside; others have one or two.
pub(crate) const ATTRIBUTES_OF_A_REQUEST: usize = 6;

/// What the span is to its parent, as OpenTelemetry counts kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step within this process.
    Internal,
    /// Answers a request of another process.
    Server,
    /// Asks another process.
    Client,
    /// Hands a message on.
    Producer,
}

/// The span above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its id, in the same trace.
    pub span_id: u64,
    /// It is another process's.
    pub is_remote: bool,
}

/// A span that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Low in cardinality.
    pub name: Cow<'static, str>,
    /// What it is to its parent.
    pub kind: Kind,
    /// Its ids.
    pub ids: TraceContext,
    /// None: it is a root.
    pub parent: Option<Parent>,
    /// The header `tracestate` that came with the request; empty: none.
    pub state: String,
    /// When it began, as time since 1970.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// What was said of it.
    pub said: Said,
}

/// What is said of a span while it lasts.
#[derive(Debug, Default)]
pub struct Said {
    /// One of each key.
    pub attributes: Vec<KeyValue>,
    /// When, as time since 1970, and what happened.
    pub events: Vec<(Duration, &'static str, Vec<KeyValue>)>,
    /// The spans that it has to do with.
    pub links: Vec<Link>,
    /// For people; none: it did not fail.
    pub failed: Option<String>,
    /// Its trace is exported whatever the sampler decided.
    pub keep: bool,
    /// How long it took, if it was over before that was all.
    pub took: Option<Duration>,
    /// How many attributes, events and links there was no room for.
    pub dropped: [u32; 3],
    /// What is said only if the span is exported.
    pub(crate) late: Option<Late>,
}

/// Attributes that are made when a span is exported.
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

impl Said {
    /// Makes the attributes that are made only for a span that is exported. To be called once it is known that this one is. What was set
    /// besides goes before.
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

    pub(crate) fn happened(&mut self, at: Duration, name: &'static str, attributes: Vec<KeyValue>) {
        push(&mut self.events, (at, name, attributes), &mut self.dropped[1]);
    }

    pub(crate) fn link(&mut self, link: Link) {
        // Most spans with a link have one.
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
