//! Spans of calls to the runtime. The trace is sent as metadata, so that containerd's own spans become children.

use std::path::Path;

use contract::headers;
use spans::{Kind, Span};
use tonic::{Request, Status};

use crate::failure;
use crate::keyring::Secrets;
use crate::port::PullRequest;

/// The protocol's name of the call that pulls.
const PULL: &str = "runtime.v1.ImageService/PullImage";

pub(super) fn call_span(request: &PullRequest, socket: &Path) -> Span {
    let span = Span::start(PULL, Kind::Client, request.trace, None);
    if span.is_some() {
        span.set("rpc.system.name", "grpc");
        span.set("rpc.method", PULL);
        span.set("server.address", socket.display().to_string());
    }
    span
}

/// Adds the trace to a call, even without an exporter here: the runtime may have one.
pub(super) fn send_along<T>(call: &mut Request<T>, request: &PullRequest, span: &Span) {
    let traceparent = span.context().unwrap_or(request.trace).traceparent();
    let carried = request.carried.as_ref();
    let state = carried.map(|carried| carried.tracestate.as_str()).unwrap_or_default();
    let baggage = carried.map(|carried| carried.baggage.as_str()).unwrap_or_default();
    for (name, value) in [(headers::TRACEPARENT, traceparent.as_str()), (headers::TRACESTATE, state), (headers::BAGGAGE, baggage)] {
        if let Some(value) = Some(value).filter(|value| !value.is_empty()).and_then(|value| value.parse().ok()) {
            call.metadata_mut().insert(name, value);
        }
    }
}

pub(super) fn end(span: &Span, status: Option<&Status>, secrets: &Secrets) {
    let Some(status) = status else { return span.set("rpc.response.status_code", "OK") };
    if span.is_some() {
        let code = format!("{:?}", status.code());
        span.set("rpc.response.status_code", code.clone());
        span.fail(code, &failure::scrub(&secrets.redact(status.message())));
    }
}
