//! The export of traces with a real receiver:
//! - spans arrive over gRPC and over HTTP, with their ids, parents, links, resource and headers;
//! - an unsampled trace arrives only if it failed, was kept or took too long, and then completely and as its own root;
//! - a collector that is down, hangs or gives invalid answers costs counted spans, and neither a span nor a flush waits for it;
//! - a panic of the export costs one batch;
//! - a log line within a span carries its ids, whatever the level of the log.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::TraceContext;
use spans::{Entry, Kind, Span, links};
use support::otlp::{Collector, tree};
use telemetry::traces::{Counts, Exporting, Options};
use tokio::net::TcpListener;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

const LIMIT: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(10);

fn options(url: &str, more: &[(&str, &str)]) -> Options {
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_EXPORTER_OTLP_TIMEOUT", "300"), ("OTEL_BSP_SCHEDULE_DELAY", "20")];
    let value = |name: &str| more.iter().chain(&variables).find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let reading = Options::read(value);
    assert_eq!(reading.warnings, Vec::<String>::new());
    reading.options.unwrap()
}

/// Serialises the tests: `tracing` caches interest for the whole process, and each test sets its own subscriber.
static ONE_TEST: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn export(url: &str, more: &[(&str, &str)], keep_slow: Duration) -> (Exporting, tracing::subscriber::DefaultGuard) {
    let attributes = vec![("host.name", "n1".to_owned())];
    let exporting = Exporting::start(options(url, more), attributes, keep_slow).unwrap();
    let layer = exporting.layer().with_filter(filter_fn(|metadata| metadata.target() == spans::TARGET));
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    (exporting, guard)
}

fn ids(trace_id: u128, span_id: u64, sampled: bool) -> TraceContext {
    TraceContext { trace_id, span_id, sampled }
}

fn enter(caller: TraceContext) -> (Span, TraceContext) {
    spans::enter("request", Kind::Server, Entry { own: ids(7, 1, caller.sampled), own_root: ids(8, 1, false), caller, carried: None })
}

async fn flushed(exporting: &Exporting) -> bool {
    let exporting = exporting.clone();
    tokio::task::spawn_blocking(move || exporting.flush(LIMIT)).await.unwrap()
}

async fn spans_arrive(collector: Collector, url: String, protocol: &str) {
    let more = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=eu"),
    ];
    let (exporting, _guard) = export(&url, &more, SLOW);
    let carried = contract::Carried::of(Some("vendor=1"), None);
    let caller = ids(7, 99, true);
    let entry = Entry { own: ids(7, 1, true), own_root: ids(8, 1, false), caller, carried: carried.as_deref() };
    let (root, context) = spans::enter("request", Kind::Server, entry);
    assert_eq!(context, ids(7, 1, true));
    let attempt = Span::start("attempt", Kind::Internal, context, Some(ids(7, 2, true)));
    let request = Span::start("GET", Kind::Client, attempt.context().unwrap(), None);
    request.set("http.request.method", "GET");
    attempt.link(ids(3, 4, true), links::FAILED_ATTEMPT);
    attempt.fail("not_found", "no such tag");
    drop((request, attempt, root));
    assert!(flushed(&exporting).await);
    let spans = collector.spans();
    assert_eq!(tree(&spans), "(its parent is missing) request\n  attempt ERROR ->failed_attempt\n    GET\n");
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (request, attempt, get) = (named("request"), named("attempt"), named("GET"));
    assert_eq!((request.trace_id.as_str(), request.span_id.as_str()), (&*format!("{:032x}", 7), &*format!("{:016x}", 1)));
    assert_eq!((request.parent_id.as_str(), attempt.span_id.as_str()), (&*format!("{:016x}", 99), &*format!("{:016x}", 2)));
    assert_eq!((request.kind.as_str(), get.kind.as_str(), request.trace_state.as_str()), ("SERVER", "CLIENT", "vendor=1"));
    assert_eq!((attempt.attribute("error.type"), attempt.description.as_str()), ("not_found", "no such tag"));
    for (key, value) in [("service.name", "fleetpull"), ("host.name", "n1"), ("k8s.cluster.name", "eu")] {
        assert_eq!(request.resource.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(collector.header("x-team").as_deref(), Some("a"));
    assert_eq!(exporting.counts(), Counts { exported: 3, ..Counts::default() });
}

#[tokio::test]
async fn spans_arrive_over_grpc() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::grpc().await;
    spans_arrive(collector, url, "grpc").await;
}

#[tokio::test]
async fn spans_arrive_over_http() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    spans_arrive(collector, url, "http/protobuf").await;
}

#[tokio::test]
async fn unsampled_trace_is_exported_only_if_it_matters() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], SLOW);
    let run = |keep: bool| {
        let (root, context) = enter(ids(5, 0, false));
        let child = Span::start("attempt", Kind::Internal, context, None);
        assert_eq!((context.sampled, child.context().map(|ids| ids.sampled)), (false, Some(false)));
        if keep {
            child.keep();
        }
        drop(child);
        drop(Span::start("image.verify", Kind::Internal, context, None));
        drop(root);
    };
    run(false);
    assert!(flushed(&exporting).await);
    assert_eq!(collector.spans(), vec![]);
    run(true);
    assert!(flushed(&exporting).await);
    let spans = collector.spans();
    assert_eq!(tree(&spans), "request\n  attempt\n  image.verify\n");
}

#[tokio::test]
async fn span_that_outlives_its_request_is_exported_with_it_if_it_matters() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], SLOW);
    let run = |keep: bool| {
        let (root, context) = enter(ids(5, 0, false));
        let attempt = Span::start("attempt", Kind::Internal, context, None);
        drop(Span::start("image.inspect", Kind::Internal, context, None));
        drop(root);
        drop(Span::start("GET", Kind::Client, attempt.context().unwrap(), None));
        attempt.end();
        if keep {
            attempt.keep();
        }
    };
    run(false);
    run(true);
    assert!(flushed(&exporting).await);
    assert_eq!(tree(&collector.spans()), "request\n  attempt\n    GET\n  image.inspect\n");
}

#[tokio::test]
async fn overfull_buffer_drops_the_oldest_traces_but_no_failure() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], SLOW);
    let enter = |trace_id| {
        let own = ids(trace_id, 1, false);
        spans::enter("request", Kind::Server, Entry { own, own_root: own, caller: ids(trace_id, 0, false), carried: None })
    };
    let open: Vec<_> = (1..=1_001).map(enter).collect();
    for (root, context) in [&open[0], &open[1]] {
        drop(Span::start("image.inspect", Kind::Internal, *context, None));
        root.keep();
    }
    drop(open);
    assert!(flushed(&exporting).await);
    assert_eq!(tree(&collector.spans()), "request\nrequest\n  image.inspect\n");
}

#[tokio::test]
async fn detached_work_is_a_root_with_a_link_and_excess_content_is_counted() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], SLOW);
    let span = Span::linked_root("send event", Kind::Producer, ids(3, 4, true), links::RECORDED);
    for _ in 0..200 {
        span.event("refused", Vec::new());
        span.set("fleetpull.entry.id", "1");
    }
    drop(span);
    assert!(flushed(&exporting).await);
    let spans = collector.spans();
    assert_eq!(tree(&spans), "send event ->recorded\n");
    assert_eq!((spans[0].kind.as_str(), spans[0].events.len(), spans[0].attributes.len()), ("PRODUCER", 128, 1));
}

#[tokio::test]
async fn code_that_runs_within_a_span_finds_it_and_keeps_it() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[], SLOW);
    let (span, context) = enter(ids(7, 99, true));
    let within = span.as_tracing();
    drop(span);
    assert_eq!(collector.spans(), vec![]);
    within.in_scope(|| {
        assert_eq!(Span::current().context(), Some(context));
        Span::current().set("fleetpull.present", true);
    });
    assert!(!Span::current().is_some());
    drop(within);
    assert!(flushed(&exporting).await);
    assert_eq!(collector.spans()[0].attribute("fleetpull.present"), "true");
}

#[tokio::test]
async fn slow_trace_is_exported() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[("OTEL_TRACES_SAMPLER", "always_off")], Duration::ZERO);
    drop(enter(ids(5, 0, false)));
    assert!(flushed(&exporting).await);
    assert_eq!(tree(&collector.spans()), "request\n");
}

#[tokio::test]
async fn unsampled_caller_gets_a_link_from_a_new_root() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[], SLOW);
    let caller = ids(5, 6, false);
    let (root, context) = enter(caller);
    assert_eq!(context, ids(8, 1, false));
    root.keep();
    drop(root);
    assert!(flushed(&exporting).await);
    let spans = collector.spans();
    assert_eq!(tree(&spans), "request ->caller\n");
    assert_eq!((spans[0].parent_id.as_str(), spans[0].links[0].span_id.as_str()), ("", &*format!("{:016x}", 6)));
}

/// The address of a server that is no collector.
async fn invalid_collector() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let garbage = vec![b'x'; 1 << 20];
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &garbage).await;
            });
        }
    });
    url
}

/// The address of a server that accepts connections and never answers.
async fn silent_collector() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn failing_collector_costs_counted_spans_and_no_time() {
    let _alone = ONE_TEST.lock().await;
    let (_kept, silent) = silent_collector().await;
    let closed = { silent_collector().await.1 };
    for url in [invalid_collector().await, silent, closed] {
        for protocol in ["grpc", "http/protobuf"] {
            let more =
                [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_BSP_MAX_QUEUE_SIZE", "10"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")];
            let (exporting, _guard) = export(&url, &more, SLOW);
            let clock = clock::Clock::host();
            let began = clock.now().monotonic;
            for _ in 0..1000 {
                drop(enter(ids(7, 99, true)));
            }
            let took = clock.now().monotonic - began;
            // If spans waited for the collector, every ten would take 0.3 s.
            assert!(took < LIMIT, "{url} {protocol}: {took:?} for 1000 spans: they wait for the collector");
            assert!(flushed(&exporting).await, "{url} {protocol}");
            let counts = exporting.counts();
            assert_eq!((counts.exported, counts.failed + counts.dropped), (0, 1000), "{url} {protocol}: {counts:?}");
        }
    }
}

#[tokio::test]
async fn panic_of_the_export_costs_one_batch() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let (exporting, _guard) = export(&url, &[], SLOW);
    let (span, _) = enter(ids(7, 99, true));
    span.set_if_exported(|| panic!("on purpose"));
    drop(span);
    assert!(flushed(&exporting).await);
    drop(enter(ids(7, 99, true)));
    assert!(flushed(&exporting).await);
    assert_eq!(exporting.counts(), Counts { exported: 1, failed: 1, ..Counts::default() });
    assert_eq!(collector.spans().len(), 1);
}

#[tokio::test]
async fn flush_ends_within_its_limit() {
    let _alone = ONE_TEST.lock().await;
    let (_kept, url) = silent_collector().await;
    let (exporting, _guard) = export(&url, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")], SLOW);
    drop(enter(ids(7, 99, true)));
    assert!(!exporting.flush(Duration::from_millis(50)));
    assert_eq!(exporting.counts().waiting, 1);
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn log_line_within_a_span_has_its_ids_even_if_only_errors_are_logged() {
    let _alone = ONE_TEST.lock().await;
    let (collector, url) = Collector::http().await;
    let exporting = Exporting::start(options(&url, &[]), Vec::new(), SLOW).unwrap();
    let lines = Lines::default();
    let (written, waiting) = (lines.clone(), exporting.clone());
    telemetry::log_and_export("error", true, move || written.clone(), exporting);
    let (span, _) = enter(ids(7, 99, true));
    span.as_tracing().in_scope(|| {
        tracing::error!(target: "runtimes", image = "busybox", "it failed");
        tracing::info!(target: "runtimes", "not logged");
    });
    tracing::error!(target: "runtimes", "outside");
    drop(span);
    assert!(flushed(&waiting).await);
    assert_eq!(tree(&collector.spans()), "(its parent is missing) request\n");
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(
        (lines[0]["trace_id"].as_str(), lines[0]["span_id"].as_str()),
        (Some(&*format!("{:032x}", 7)), Some(&*format!("{:016x}", 1)))
    );
    assert_eq!((&lines[0]["image"], &lines[0]["message"], lines[1].get("trace_id")), (&"busybox".into(), &"it failed".into(), None));
}
