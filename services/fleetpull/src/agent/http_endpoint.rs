//! `metrics.address`: metrics and health over HTTP, for Prometheus and Kubernetes. Off until the address is set.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use clock::Clock;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use settings::Settings;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use super::actor::Agent;
use super::exposition::Expose;
use super::health::ReadHealth;

/// Connections at a time; the kernel queues further ones. Two Prometheus servers, kubelet and a person need one each.
const CONNECTIONS_MAX: usize = 64;
/// The least time between two answers. It limits all answers to less than 1 % of a core, so that frequent scraping does not slow down
/// pulls.
const ANSWERS_APART: Duration = Duration::from_millis(5);
/// A connection without a request for this long is closed. A scraper with longer intervals reconnects.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// The longest life of a connection, so that a client that reads one byte a second does not hold a slot for ever.
const CONNECTION_FOR: Duration = Duration::from_secs(300);
/// How long an answer waits for the agent's actor, which answers within milliseconds if it runs.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest request head in bytes.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// The pause after a failed accept.
const NO_ROOM_FOR: Duration = Duration::from_millis(100);

/// A bound address that serves no requests yet.
pub(super) struct HttpEndpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// The running endpoint. Dropping it closes all connections.
#[derive(Debug)]
pub(super) struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpEndpoint {
    /// Binds the configured address, if there is one.
    ///
    /// # Errors
    /// The address cannot be bound: another process has it, it does not belong to this machine, or it needs privileges.
    pub(super) async fn bind(settings: &Settings) -> Result<Option<Self>> {
        let Some(set) = &settings.metrics.address else { return Ok(None) };
        let advice = "choose another one (FLEETPULL_METRICS_ADDRESS), or leave it empty to serve none";
        let listener = TcpListener::bind(set).await.with_context(|| format!("metrics.address = {set} cannot be listened on: {advice}"))?;
        let address = listener.local_addr().context("metrics.address cannot be read back")?;
        Ok(Some(Self { listener, address }))
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to answer.
    pub(super) fn serve(self, agent: Addr<Agent>, clock: Clock) -> Serving {
        let site = Arc::new(Site { agent, turns: Turns::new(clock) });
        Serving(tasks::spawn("metrics-endpoint", accept(self.listener, site)))
    }
}

/// The state that all connections share.
struct Site {
    agent: Addr<Agent>,
    turns: Turns,
}

/// Puts [`ANSWERS_APART`] between two answers.
struct Turns {
    clock: Clock,
    /// The earliest time of the next answer, on the monotonic clock. The request whose turn is next holds the lock while it waits: if its
    /// client disconnects, the time is left to the next one.
    next: Mutex<Duration>,
}

impl Turns {
    fn new(clock: Clock) -> Self {
        Self { clock, next: Mutex::default() }
    }

    /// Waits until the next answer may be given.
    async fn wait(&self) {
        let mut next = self.next.lock().await;
        let now = self.clock.monotonic();
        if *next > now {
            tokio::time::sleep(*next - now).await;
        }
        *next = self.clock.monotonic() + ANSWERS_APART;
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut failed = 0;
    loop {
        let Ok(taken) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                tasks::contained_in(&mut connections, "metrics-connection", async move {
                    // A connection that breaks or lasts too long is the client's problem: the result is ignored.
                    let _ = tokio::time::timeout(CONNECTION_FOR, answer_all(stream, site)).await;
                    drop(taken);
                });
            }
            Err(error) => {
                log_not_taken(&error, &mut failed);
                tokio::time::sleep(NO_ROOM_FOR).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Logs that a connection was not taken. Repeats are logged ever more rarely: without a free file descriptor, each attempt fails.
fn log_not_taken(error: &io::Error, failed: &mut u64) {
    *failed += 1;
    if failed.is_power_of_two() {
        warn!(%error, failed = *failed, "a connection to metrics.address was not taken");
    }
}

async fn answer_all(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let site = Arc::clone(&site);
        async move { Ok::<_, std::convert::Infallible>(site.answer(&request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(SILENT_FOR).max_buf_size(HEAD_MAX_BYTES);
    // The server answers a malformed request with 400 and closes the connection.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

impl Site {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        self.turns.wait().await;
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(wants_open_metrics(request)).await,
            "/livez" => self.livez().await,
            "/readyz" => self.readyz(request.uri().query().is_some_and(is_verbose)).await,
            _ => text(StatusCode::NOT_FOUND, "there is /metrics, /livez and /readyz?verbose\n"),
        }
    }

    async fn metrics(&self, open: bool) -> Response<Full<Bytes>> {
        match tokio::time::timeout(ANSWER_WITHIN, self.agent.send(Expose)).await {
            Ok(Ok(Ok(exposed))) => {
                let (body, kind) =
                    if open { (exposed.open.clone(), metrics::OPEN_METRICS) } else { (exposed.plain.clone(), metrics::PLAIN) };
                of_kind(StatusCode::OK, body, kind)
            }
            _ => no_answer(),
        }
    }

    async fn livez(&self) -> Response<Full<Bytes>> {
        match tokio::time::timeout(ANSWER_WITHIN, self.agent.send(ReadHealth)).await {
            Ok(Ok(_)) => text(StatusCode::OK, "ok\n"),
            _ => no_answer(),
        }
    }

    async fn readyz(&self, verbose: bool) -> Response<Full<Bytes>> {
        match tokio::time::timeout(ANSWER_WITHIN, self.agent.send(ReadHealth)).await {
            Ok(Ok(health)) => {
                let status = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                text(status, health.readyz(verbose))
            }
            _ => no_answer(),
        }
    }
}

/// True if the scraper accepts OpenMetrics. Otherwise it gets the plain format, which every scraper reads.
fn wants_open_metrics<B>(request: &Request<B>) -> bool {
    let accepts = request.headers().get_all(ACCEPT);
    accepts.iter().any(|accepts| accepts.to_str().is_ok_and(|accepts| accepts.contains("application/openmetrics-text")))
}

fn is_verbose(query: &str) -> bool {
    query.split('&').any(|part| part.split('=').next() == Some("verbose"))
}

fn no_answer() -> Response<Full<Bytes>> {
    text(StatusCode::SERVICE_UNAVAILABLE, "the agent's actor does not answer\n")
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    of_kind(status, body.into(), "text/plain; charset=utf-8")
}

fn of_kind(status: StatusCode, body: Bytes, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use support::counted_log::CountedLog;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_whose_client_disconnects_delays_no_other() {
        let clock = Clock::simulated(Duration::ZERO);
        let turns = Turns::new(clock.clone());
        turns.wait().await;
        // Fewer than tokio lets one task take locks before it must yield.
        for _ in 0..100 {
            assert!(turns.wait().now_or_never().is_none(), "it waits when its client disconnects");
        }
        turns.wait().await;
        let waited = clock.monotonic();
        assert!((ANSWERS_APART..=2 * ANSWERS_APART).contains(&waited), "{waited:?}");
    }

    #[test]
    fn connections_that_are_not_taken_are_logged_ever_more_rarely() {
        let log = CountedLog::down_to(tracing::Level::WARN);
        let _logging = tracing::subscriber::set_default(log.clone());
        let mut failed = 0;
        for _ in 0..9 {
            log_not_taken(&io::Error::other("no descriptor is free"), &mut failed);
        }
        assert_eq!(log.lines(), 4, "the first, the second, the fourth and the eighth");
    }

    #[test]
    fn a_scraper_that_names_open_metrics_gets_it() {
        let request = |accept: &str| Request::builder().header(ACCEPT, accept).body(()).expect("a request");
        for (accept, open) in [
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2", true),
            ("text/plain;version=0.0.4", false),
            ("*/*", false),
        ] {
            assert_eq!(wants_open_metrics(&request(accept)), open, "{accept}");
        }
        assert!(!wants_open_metrics(&Request::new(())));
    }

    #[test]
    fn verbose_is_asked_for_as_kubernetes_does() {
        for (query, verbose) in [("verbose", true), ("verbose=true", true), ("exclude=x&verbose", true), ("verbosely", false), ("", false)]
        {
            assert_eq!(is_verbose(query), verbose, "{query}");
        }
    }
}
