//! The log: its filter and format.

use std::fmt;
use std::io::IsTerminal as _;

use opentelemetry::trace::TraceContextExt as _;
use tracing::{Event, Subscriber, dispatcher};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, format};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::EXPORTING;
use crate::traces::Exporting;

/// The filter for other crates: only warnings. The NATS client and the OpenTelemetry SDK are off, because they repeat each failed attempt,
/// which we log once.
const OTHERS: &str = "warn,async_nats=off,rustls_platform_verifier=off,opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off";
/// Our crates that write log lines, to which the level applies.
const OURS: [&str; 12] = [
    "fleetpull",
    "pull_coordinator",
    "backoff_tracker",
    "throttler",
    "event_recorder",
    "registrar",
    "actors",
    "bus",
    "lease",
    "runtimes",
    "tasks",
    "telemetry",
];

/// Sets up the process's log on stderr. `level` is one of `error warn info debug trace`; `json` gives one object per line. Only the first
/// call counts.
pub fn log_to_stderr(level: &str, json: bool) {
    log_through(level, json, std::io::stderr);
}

/// As [`log_to_stderr`], with a `writer` that gets each line in one piece, for a process that draws on its terminal.
pub fn log_through(level: &str, json: bool, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let ansi = wants_colours();
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    // Spans are off, so that they cost nothing without an exporter.
    let registry = tracing_subscriber::registry().with(filter(level, "off"));
    let outcome =
        if json { registry.with(layer.json().flatten_event(true)).try_init() } else { registry.with(layer.with_ansi(ansi)).try_init() };
    // If a log was set up before, as by a test, that one stays.
    drop(outcome);
}

/// As [`log_through`], with the export of spans; lines within a span carry its ids.
pub fn log_and_export(level: &str, json: bool, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, exporting: Exporting) {
    // Without the level every line of every crate, down to trace, would be checked.
    let ours = filter_fn(is_exported).with_max_level_hint(LevelFilter::INFO);
    let spans = exporting.layer().with_filter(ours);
    let registry = tracing_subscriber::registry().with(spans);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let log_filter = filter(level, "info");
    let outcome = if json {
        let json = format().json().flatten_event(true).with_current_span(false).with_span_list(false);
        let layer = layer.json().event_format(WithIds { format: json, ids: json_ids });
        registry.with(layer.with_filter(log_filter)).try_init()
    } else {
        let layer = layer.with_ansi(wants_colours()).event_format(WithIds { format: format(), ids: text_ids });
        registry.with(layer.with_filter(log_filter)).try_init()
    };
    if outcome.is_ok() {
        // It is the first, because the log was set up just now.
        let _ = EXPORTING.set(exporting);
    }
}

fn is_exported(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == spans::TARGET
}

/// A filter for the log. It must not discard spans, whatever the level is, because lines within them carry their ids.
fn filter(level: &str, spans: &str) -> EnvFilter {
    let ours: Vec<String> = OURS.iter().map(|name| format!("{name}={level}")).collect();
    EnvFilter::new(format!("{OTHERS},{}={spans},{}", spans::TARGET, ours.join(",")))
}

fn wants_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A format that appends the ids of the current span to each line.
struct WithIds<F> {
    format: F,
    /// Appends the ids to a line that ends with a line break.
    ids: fn(&mut String, &str, &str),
}

impl<S, N, F> FormatEvent<S, N> for WithIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some((trace_id, span_id)) = ids_of(context) else { return self.format.format_event(context, writer, event) };
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        (self.ids)(&mut line, &trace_id, &span_id);
        writer.write_str(&line)
    }
}

fn ids_of<S, N>(context: &FmtContext<'_, S, N>) -> Option<(String, String)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let id = context.lookup_current()?.id();
    let otel = dispatcher::get_default(|dispatch| tracing_opentelemetry::get_otel_context(&id, dispatch))?;
    let span = otel.span();
    let ids = span.span_context();
    ids.is_valid().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
}

fn text_ids(line: &mut String, trace_id: &str, span_id: &str) {
    let end = line.trim_end().len();
    line.truncate(end);
    line.push_str(&format!(" trace_id={trace_id} span_id={span_id}\n"));
}

fn json_ids(line: &mut String, trace_id: &str, span_id: &str) {
    // The position of the closing brace.
    let end = line.trim_end().len().saturating_sub(1);
    line.truncate(end);
    line.push_str(&format!(",\"trace_id\":\"{trace_id}\",\"span_id\":\"{span_id}\"}}\n"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const MACROS: [&str; 4] = ["error!(", "warn!(", "info!(", "debug!("];

    fn entries(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// True if a source file below this folder writes log lines.
    fn writes_lines(folder: &Path) -> bool {
        entries(folder).any(|path| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            MACROS.iter().any(|name| text.contains(name)) || (path.is_dir() && writes_lines(&path))
        })
    }

    #[test]
    fn the_level_applies_to_every_crate_that_writes_log_lines() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let crates = ["shared", "services"].into_iter().flat_map(|part| entries(&root.join(part)).collect::<Vec<_>>());
        let writing = crates.filter(|folder| writes_lines(&folder.join("src")));
        let names: BTreeSet<String> = writing.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().replace('-', "_"))).collect();
        assert_eq!(names, OURS.map(str::to_owned).into());
    }
}
