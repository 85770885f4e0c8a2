//! A real Jaeger, stopped when the test ends.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::otlp::{Link, Span};
use tempfile::TempDir;

use crate::until;

/// The variable with the path of the program.
pub const JAEGER: &str = "FLEETPULL_JAEGER";
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The most traces of one search.
const TRACES_MAX: usize = 200;

/// A running Jaeger that keeps traces in memory.
pub struct Jaeger {
    otlp: u16,
    query: u16,
    child: Child,
    _folder: TempDir,
}

/// The program that the variable names.
///
/// # Errors
/// The variable is not set, or there is no such file.
pub fn named_program() -> Result<PathBuf, String> {
    let named = std::env::var_os(JAEGER).map(PathBuf::from).filter(|program| program.is_file());
    named.ok_or_else(|| format!("{JAEGER} names no Jaeger: run `cargo xtask e2e jaeger`"))
}

impl Jaeger {
    /// Starts Jaeger and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start(program: PathBuf) -> Self {
        let folder = TempDir::with_prefix("jaeger-").expect("a folder can be made");
        let [otlp, query, query_grpc, http] = free_ports();
        let config = folder.path().join("jaeger.yaml");
        std::fs::write(&config, configuration(otlp, http, query, query_grpc)).expect("a file can be written");
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("Jaeger can be run");
        let jaeger = Self { otlp, query, child, _folder: folder };
        until("Jaeger answers", || jaeger.get("/api/services"));
        until("Jaeger takes spans", || TcpStream::connect(("127.0.0.1", jaeger.otlp)).ok());
        jaeger
    }

    /// The URL of its OTLP receiver over gRPC.
    #[must_use]
    pub fn otlp_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.otlp)
    }

    pub(super) fn trace(&self, trace_id: &str) -> Vec<Span> {
        self.get(&format!("/api/traces/{trace_id}")).map(|answer| spans_of(&answer)).unwrap_or_default()
    }

    pub(super) fn search(&self, key: &str, value: &str) -> Vec<Span> {
        let tags = format!("%7B%22{key}%22%3A%22{value}%22%7D");
        let path = format!("/api/traces?service=fleetpull&limit={TRACES_MAX}&lookback=1h&tags={tags}");
        let spans = self.get(&path).map(|answer| spans_of(&answer)).unwrap_or_default();
        spans.into_iter().filter(|span| span.attribute(key) == value).collect()
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.query)).ok()?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: jaeger\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        if head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200") { serde_json::from_str(body).ok() } else { None }
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports() -> [u16; 4] {
    let held: [TcpListener; 4] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a port can be had"));
    held.map(|listener| listener.local_addr().expect("it listens").port())
}

fn configuration(otlp: u16, http: u16, query: u16, query_grpc: u16) -> String {
    format!(
        "service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces:
      receivers: [otlp]
      processors: [batch]
      exporters: [jaeger_storage_exporter]
  telemetry:
    metrics:
      level: none
    logs:
      level: error
extensions:
  jaeger_storage:
    backends:
      mem:
        memory:
          max_traces: 100000
  jaeger_query:
    storage:
      traces: mem
    http:
      endpoint: 127.0.0.1:{query}
    grpc:
      endpoint: 127.0.0.1:{query_grpc}
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:{otlp}
      http:
        endpoint: 127.0.0.1:{http}
processors:
  batch:
    timeout: 50ms
exporters:
  jaeger_storage_exporter:
    trace_storage: mem
"
    )
}

/// The spans of an answer, in the receiver's form.
fn spans_of(answer: &Value) -> Vec<Span> {
    let traces = answer["data"].as_array().cloned().unwrap_or_default();
    traces.iter().flat_map(|trace| trace["spans"].as_array().into_iter().flatten().map(|span| span_of(span, &trace["processes"]))).collect()
}

fn span_of(span: &Value, processes: &Value) -> Span {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let tags = |tags: &Value| {
        let tags = tags.as_array().cloned().unwrap_or_default();
        tags.iter().map(|tag| (text(&tag["key"]), text(&tag["value"]))).collect::<std::collections::BTreeMap<_, _>>()
    };
    let attributes = tags(&span["tags"]);
    let references = span["references"].as_array().cloned().unwrap_or_default();
    let of_kind = |kind: &str| references.iter().filter(|reference| reference["refType"] == kind).cloned().collect::<Vec<_>>();
    let parent = of_kind("CHILD_OF").first().map(|parent| text(&parent["spanID"])).unwrap_or_default();
    let link = |link: &Value| Link { trace_id: text(&link["traceID"]), span_id: text(&link["spanID"]), what: String::new() };
    let microseconds = |value: &Value| value.as_u64().unwrap_or_default() * 1000;
    let began = microseconds(&span["startTime"]);
    Span {
        name: text(&span["operationName"]),
        trace_id: text(&span["traceID"]),
        span_id: text(&span["spanID"]),
        parent_id: parent,
        kind: attributes.get("span.kind").map(|kind| kind.to_uppercase()).unwrap_or_default(),
        events: span["logs"].as_array().into_iter().flatten().map(|log| text(&log["fields"][0]["value"])).collect(),
        links: of_kind("FOLLOWS_FROM").iter().map(link).collect(),
        failed: attributes.get("error").is_some_and(|error| error == "true"),
        description: attributes.get("otel.status_description").cloned().unwrap_or_default(),
        trace_state: String::new(),
        resource: tags(&processes[span["processID"].as_str().unwrap_or_default()]["tags"]),
        attributes,
        began,
        ended: began + microseconds(&span["duration"]),
    }
}
