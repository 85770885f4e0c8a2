//! The server: a bus behind a socket file.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::address::Address;
use super::frame::{ToClient, ToServer, codec, decode, encode};
use crate::error::BusError;
use crate::message::Message;
use crate::messaging::MessagingRef;

/// The most clients at a time: people and scripts on one machine. The next one gets an error and is closed.
pub const MAX_CONNECTIONS: usize = 64;

/// The most open requests of one client: a command line with as many images. The next one fails.
pub const MAX_OUTSTANDING: usize = 1024;

/// The most subscriptions of one client: an inbox for each question to all nodes, and events.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// The most frames that wait for a slow client. Then its answers wait, and the bus drops messages of its subscriptions.
const OUTBOX_FRAMES: usize = 64;

/// The pause after a connection could not be accepted, because the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The most connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The mode of the socket: only the agent's own user may connect.
const SOCKET_MODE: u32 = 0o600;

/// A served socket. Dropping it closes all connections and removes the file.
#[derive(Debug)]
pub struct SocketServer {
    path: PathBuf,
    _accepting: AbortOnDropHandle<()>,
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // Another program may have removed it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves a bus behind a socket file, which only this user may open. An existing socket is taken for a left-over and removed, because the
/// caller holds a lock that rules out another server. When this returns, clients can connect. Needs a tokio runtime.
///
/// # Errors
/// The file cannot be made, or an existing file is not a socket.
pub fn serve_socket(path: &Path, bus: MessagingRef) -> io::Result<SocketServer> {
    remove_left_over(path)?;
    let address = Address::of(path)?;
    let socket = UnixSocket::new_stream()?;
    // Before the socket has a file: on Linux the file gets the socket's mode, so that at no moment another user may connect.
    File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(SOCKET_MODE))?;
    socket.bind(address.path())?;
    let listener = socket.listen(BACKLOG)?;
    let accepting = AbortOnDropHandle::new(tasks::spawn("socket-accept", accept(listener, bus)));
    Ok(SocketServer { path: path.to_owned(), _accepting: accepting })
}

fn remove_left_over(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket lies there: move it away")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

async fn accept(listener: UnixListener, bus: MessagingRef) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut clients = tokio::task::JoinSet::new();
    // Repeats of each are logged ever more rarely.
    let (mut failed, mut refused, unreadable) = (0, 0_u64, Arc::new(AtomicU64::new(0)));
    loop {
        while clients.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                log_not_accepted(&error, &mut failed);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let (bus, unreadable) = (Arc::clone(&bus), Arc::clone(&unreadable));
                let client = async move {
                    serve_client(stream, bus, &unreadable).await;
                    drop(place);
                };
                tasks::spawn_in(&mut clients, "socket-client", client);
            }
            Err(_) => {
                refused += 1;
                if refused.is_power_of_two() {
                    warn!(limit = MAX_CONNECTIONS, refused, "a connection to the socket was refused: too many");
                }
                refuse(&stream);
            }
        }
    }
}

fn log_not_accepted(error: &io::Error, failed: &mut u64) {
    *failed += 1;
    if failed.is_power_of_two() {
        warn!(%error, failed = *failed, "a connection to the socket could not be accepted");
    }
}

/// Refuses a client because there is no place. The buffer of a new connection takes the few bytes at once.
fn refuse(stream: &UnixStream) {
    let reason = format!("{MAX_CONNECTIONS} clients are connected to the agent's socket already: try again later");
    let Ok(frame) = encode(&ToClient::Refused { reason }) else { return };
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes();
    // A disconnected client needs no answer.
    let _ = stream.try_write(&[&length, frame.as_ref()].concat());
}

/// Serves a client until it disconnects. A client that sends an unreadable frame is counted in `unreadable`.
async fn serve_client(stream: UnixStream, bus: MessagingRef, unreadable: &AtomicU64) {
    let (reader, writer) = stream.into_split();
    let (outbox, frames) = mpsc::channel(OUTBOX_FRAMES);
    let _writing = AbortOnDropHandle::new(tasks::spawn("socket-writer", write_all(writer, frames)));
    let mut client = Client { bus, outbox, requests: Tasks::new(), subscriptions: Tasks::new() };
    match client.read_all(FramedRead::new(reader, codec())).await {
        Ok(()) => debug!("a client of the socket has disconnected"),
        Err(error) => {
            let clients = unreadable.fetch_add(1, Ordering::Relaxed) + 1;
            if clients.is_power_of_two() {
                warn!(%error, clients, "a client of the socket sent an unreadable frame, and was disconnected");
            }
        }
    }
}

async fn write_all(writer: OwnedWriteHalf, mut frames: mpsc::Receiver<Bytes>) {
    let mut writer = FramedWrite::new(writer, codec());
    while let Some(frame) = frames.recv().await {
        if writer.send(frame).await.is_err() {
            // The reading side detects it too, and ends the client.
            return;
        }
    }
}

/// The tasks of a client, by the client's ids. Dropping a task ends it.
type Tasks = BTreeMap<u64, AbortOnDropHandle<()>>;

/// One client.
struct Client {
    bus: MessagingRef,
    outbox: mpsc::Sender<Bytes>,
    requests: Tasks,
    subscriptions: Tasks,
}

impl Client {
    async fn read_all(&mut self, mut frames: FramedRead<OwnedReadHalf, LengthDelimitedCodec>) -> io::Result<()> {
        while let Some(frame) = frames.next().await {
            self.handle(decode(&frame?)?).await;
        }
        Ok(())
    }

    async fn handle(&mut self, frame: ToServer) {
        for tasks in [&mut self.requests, &mut self.subscriptions] {
            tasks.retain(|_, task| !task.is_finished());
        }
        match frame {
            ToServer::Request { id, timeout, message } => {
                if self.requests.len() >= MAX_OUTSTANDING {
                    return fail(&self.outbox, id, too_many(MAX_OUTSTANDING, "requests")).await;
                }
                let work = ask(Arc::clone(&self.bus), self.outbox.clone(), id, timeout, message.into());
                self.requests.insert(id, AbortOnDropHandle::new(tasks::spawn("socket-request", work)));
            }
            ToServer::Subscribe { id, subject, queue } => {
                if self.subscriptions.len() >= MAX_SUBSCRIPTIONS {
                    return fail(&self.outbox, id, too_many(MAX_SUBSCRIPTIONS, "subscriptions")).await;
                }
                let work = forward(Arc::clone(&self.bus), self.outbox.clone(), id, subject, queue);
                self.subscriptions.insert(id, AbortOnDropHandle::new(tasks::spawn("socket-subscription", work)));
            }
            ToServer::Publish { id, message } => match self.bus.publish(message.into()).await {
                Ok(()) => send_frame(&self.outbox, &ToClient::Done { id }).await,
                Err(error) => fail(&self.outbox, id, error).await,
            },
            ToServer::End { id } => {
                self.requests.remove(&id);
                self.subscriptions.remove(&id);
            }
        }
    }
}

async fn ask(bus: MessagingRef, outbox: mpsc::Sender<Bytes>, id: u64, timeout: Duration, message: Message) {
    match bus.request(message, timeout).await {
        Ok(reply) => send_frame(&outbox, &ToClient::Reply { id, message: reply.into() }).await,
        Err(error) => fail(&outbox, id, error).await,
    }
}

async fn forward(bus: MessagingRef, outbox: mpsc::Sender<Bytes>, id: u64, subject: String, queue: Option<String>) {
    let mut messages = match bus.subscribe(&subject, queue.as_deref()).await {
        Ok(messages) => messages,
        Err(error) => return fail(&outbox, id, error).await,
    };
    send_frame(&outbox, &ToClient::Done { id }).await;
    while let Some(message) = messages.next().await {
        send_frame(&outbox, &ToClient::Delivered { id, message: message.into() }).await;
    }
}

fn too_many(limit: usize, what: &str) -> BusError {
    BusError::Other { reason: format!("{limit} {what} of this connection are open already: wait until some are answered") }
}

async fn fail(outbox: &mpsc::Sender<Bytes>, id: u64, error: BusError) {
    send_frame(outbox, &ToClient::Failed { id, error }).await;
}

async fn send_frame(outbox: &mpsc::Sender<Bytes>, frame: &ToClient) {
    match encode(frame) {
        // A disconnected client needs no answer.
        Ok(bytes) => drop(outbox.send(bytes).await),
        Err(error) => warn!(%error, "a frame for a client of the socket cannot be written"),
    }
}

#[cfg(test)]
mod tests {
    use support::counted_log::CountedLog;
    use tracing::Level;

    use super::*;

    /// Without a free file descriptor, each attempt to accept fails.
    #[test]
    fn connections_that_cannot_be_accepted_are_logged_ever_more_rarely() {
        let log = CountedLog::down_to(Level::WARN);
        let _logging = tracing::subscriber::set_default(log.clone());
        let mut failed = 0;
        for _ in 0..9 {
            log_not_accepted(&io::Error::other("no descriptor is free"), &mut failed);
        }
        assert_eq!(log.lines(), 4, "the first, the second, the fourth and the eighth");
    }
}
