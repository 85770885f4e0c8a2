//! The span of a command, and the trace context of its requests.
//!
//! Without an exporter the command has no span: its requests carry `TRACEPARENT` unchanged, or nothing, and then the node makes the root
//! span.

use std::cell::RefCell;
use std::sync::Arc;

use clock::Random;
use contract::{Carried, Command, Envelope, Meta, TraceContext};
use spans::{Entry, Kind, Span};

use crate::exit::Exit;

/// The trace of one command.
#[derive(Debug)]
pub struct CommandTrace {
    span: RefCell<Span>,
    /// The parent of the requests' spans.
    above: TraceContext,
    carried: Option<Arc<Carried>>,
}

impl CommandTrace {
    /// Starts the span `name`. The variables `TRACEPARENT`, `TRACESTATE` and `BAGGAGE` give its parent.
    #[must_use]
    pub fn begin(name: &str) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let carried = Carried::of(variable("TRACESTATE").as_deref(), variable("BAGGAGE").as_deref());
        let random = &mut Random::from_system();
        let caller = variable("TRACEPARENT").and_then(|text| {
            let caller = TraceContext::parse(text.trim());
            if caller.is_none() {
                tracing::warn!("TRACEPARENT is ignored: it is no trace context of the W3C (00-<32 hex digits>-<16 hex digits>-01)");
            }
            caller
        });
        let caller = caller.unwrap_or_else(|| TraceContext::fresh(random));
        if !spans::enabled() {
            return Self { span: RefCell::new(Span::none()), above: caller, carried };
        }
        let (own, own_root) = (caller.child(random), TraceContext::root(random));
        let (span, above) = spans::enter(name.to_owned(), Kind::Internal, Entry { own, own_root, caller, carried: carried.as_deref() });
        Self { span: RefCell::new(span), above, carried }
    }

    /// A request, and a span that lasts until its answer.
    pub fn request<C: Command>(&self, body: C) -> (Envelope<C>, Span) {
        let mut meta = Meta::root(&mut Random::from_system());
        let span = if self.span.borrow().is_some() {
            Span::start(request_name(C::SERVICE.name(), C::VERB), Kind::Client, self.above, None)
        } else {
            Span::none()
        };
        span.set("rpc.system.name", "nats");
        span.set("rpc.method", format!("{}/{}", C::SERVICE.name(), C::VERB));
        meta.trace = span.context().unwrap_or(if self.above.has_span() { self.above } else { meta.trace });
        meta.carried = self.carried.clone();
        (Envelope { meta, body }, span)
    }

    /// Ends the span with the exit status. Later calls have no effect.
    pub fn end(&self, exit: Option<Exit>) {
        let span = self.span.replace(Span::none());
        if let Some(exit) = exit {
            span.set("process.exit.code", i64::from(exit.code()));
        }
        if exit != Some(Exit::Success) {
            span.fail(exit.map_or_else(|| "error".to_owned(), |exit| format!("exit_{}", exit.code())), "");
            span.keep();
        }
    }

    /// Ends the span of an interrupted command, and exports it now.
    pub fn interrupted(&self) {
        self.end(None);
        telemetry::end(crate::FLUSH_WITHIN);
    }
}

/// The name of a request's span is that of its receiver's span.
fn request_name(service: &str, verb: &str) -> &'static str {
    match (service, verb) {
        ("pull-coordinator", "ensure") => "pull-coordinator.EnsureImage",
        _ => "request",
    }
}
