//! A gRPC connection for short calls: the call is one write, and its answer wakes the caller directly.
//!
//! tonic's `Channel` hands a call to a worker task, the worker to the connection, and the connection sends the call's head before it looks
//! at the body: three wake-ups here and two at the runtime. Before every pull the runtime is asked whether the image is present, mostly
//! with no other work after it, so this call uses this connection. If it fails, the caller repeats it through the channel.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, client};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tower::{BoxError, Service};

use super::endpoint::HEADERS_MAX_BYTES;

/// HTTP/2's window: how many bytes of an answer may be sent before they are read. A description of an image has a few KiB.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// Connects with the first call, and again after the connection was lost. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct DirectConnection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    connection: Mutex<Option<SendRequest<Bytes>>>,
}

impl DirectConnection {
    pub(super) fn to(socket: &Path) -> Self {
        Self(Arc::new(Shared { socket: socket.to_owned(), connection: Mutex::new(None) }))
    }

    async fn connection(&self) -> Result<SendRequest<Bytes>, BoxError> {
        // Locked while connecting, so that all concurrent callers share the one connection.
        let mut kept = self.0.connection.lock().await;
        if let Some(known) = kept.clone()
            && let Ok(known) = known.ready().await
        {
            return Ok(known);
        }
        let stream = UnixStream::connect(&self.0.socket).await?;
        let mut settings = client::Builder::new();
        settings.enable_push(false).max_header_list_size(HEADERS_MAX_BYTES);
        settings.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
        let (requests, connection) = settings.handshake(stream).await?;
        // Ends with the runtime's connection, or with the last clone of `requests`.
        let carrying = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the runtime was lost");
            }
        };
        tasks::spawn("runtime-connection", carrying);
        Ok(kept.insert(requests.ready().await?).clone())
    }

    async fn ask(self, request: http::Request<tonic::body::Body>) -> Result<http::Response<Answer>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut connection = self.connection().await?;
        let (answer, mut rest) = connection.send_request(http::Request::from_parts(head, ()), false)?;
        // Before the connection's task runs, so that it writes head and body at once.
        rest.send_data(body, true)?;
        Ok(answer.await?.map(|stream| Answer { stream, is_read: false }))
    }
}

impl Service<http::Request<tonic::body::Body>> for DirectConnection {
    type Response = http::Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.clone().ask(request))
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    stream: RecvStream,
    /// The body was read; only the trailers may be left.
    is_read: bool,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_read {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_read = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(context)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)))
    }
}
