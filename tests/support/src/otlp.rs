//! An OTLP collector that receives traces over gRPC and HTTP and keeps them.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

mod kept;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

pub use kept::{Link, Span, tree};

/// The longest a test waits for spans.
const WAIT_AT_MOST: Duration = Duration::from_secs(20);
/// The time between two checks for spans.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A collector, with everything that it received.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    got: Arc<Mutex<Got>>,
}

#[derive(Debug, Default)]
struct Got {
    spans: Vec<Span>,
    headers: Vec<(String, String)>,
    bodies: Vec<u8>,
}

impl Collector {
    /// Starts a collector for OTLP over gRPC; returns its URL too.
    pub async fn grpc() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url(&listener);
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (collector, url)
    }

    /// Starts a collector for OTLP over HTTP at `/v1/traces`; returns its URL too.
    pub async fn http() -> (Self, String) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url(&listener);
        let taking = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let taking = taking.clone();
                let service = service_fn(move |request| answer(taking.clone(), request));
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        (collector, url)
    }

    /// The spans received so far, in the order in which they arrived.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.lock().spans.clone()
    }

    /// Deletes everything received so far.
    pub fn clear(&self) {
        *self.lock() = Got::default();
    }

    /// The value of a header or of gRPC metadata of the received exports.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        self.lock().headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    /// All received exports as bytes, including what [`Span`] leaves out.
    #[must_use]
    pub fn bodies(&self) -> Vec<u8> {
        self.lock().bodies.clone()
    }

    /// Waits until the received spans satisfy `enough`.
    pub async fn until(&self, enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let waiting = async {
            loop {
                let spans = self.spans();
                if enough(&spans) {
                    return spans;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        match tokio::time::timeout(WAIT_AT_MOST, waiting).await {
            Ok(spans) => spans,
            Err(_) => panic!("the spans did not come; what came:\n{}", tree(&self.spans())),
        }
    }

    fn take(&self, request: ExportTraceServiceRequest, headers: impl Iterator<Item = (String, String)>) {
        let mut got = self.lock();
        got.bodies.extend(request.encode_to_vec());
        got.spans.extend(kept::spans_of(request));
        got.headers.extend(headers);
    }

    fn lock(&self) -> MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(&self, request: Request<ExportTraceServiceRequest>) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let (request, headers) = (request.into_inner(), pairs(&headers));
        self.take(request, headers.into_iter());
        Ok(Response::new(ExportTraceServiceResponse { partial_success: None }))
    }
}

async fn answer(collector: Collector, request: hyper::Request<Incoming>) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let is_traces = request.uri().path() == "/v1/traces";
    let headers = pairs(request.headers());
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let status = match ExportTraceServiceRequest::decode(body) {
        Ok(request) if is_traces => {
            collector.take(request, headers.into_iter());
            200
        }
        _ => 400,
    };
    Ok(hyper::Response::builder().status(status).body(Full::default()).unwrap())
}

fn pairs(headers: &hyper::HeaderMap) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned())).collect()
}

fn url(listener: &TcpListener) -> String {
    let address: SocketAddr = listener.local_addr().unwrap();
    format!("http://{address}")
}
