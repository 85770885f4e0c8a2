//! Calls of the runtime as spans, and the trace that goes out with them as metadata: containerd's own spans hang below it.

use std::path::Path;

use contract::headers;
use spans::{Kind, Span};
use tonic::{Request, Status};

use crate::failure;
use crate::keyring::Secrets;
use crate::port::PullRequest;

/// The call that pulls, as its protocol names it.
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

/// Sends the trace along, with or without an exporter of ours: the runtime may have one.
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
        span.fail(code, &failure::scrub(&secrets.left_out_of(status.message())));
    }
}
