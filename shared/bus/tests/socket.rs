//! A bus through a unix socket: what it carries, and what it protects the bus behind it from.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::memory::MemoryBus;
use bus::socket::{MAX_CONNECTIONS, MAX_FRAME_BYTES, MAX_OUTSTANDING, MAX_SUBSCRIPTIONS, SocketBus, SocketServer, serve_socket};
use bus::{BusError, BusHealth, MAX_PAYLOAD_BYTES, Message, Messaging, MessagingRef};
use clock::Clock;
use futures::StreamExt;
use support::counted_log::CountedLog;
use tempfile::TempDir;
use tracing::Level;

/// The time limit of a step, longer than any takes.
const LIMIT: Duration = Duration::from_secs(20);

struct Place {
    folder: TempDir,
    bus: MessagingRef,
    server: Option<SocketServer>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bus: MessagingRef = Arc::new(MemoryBus::new(Clock::host()));
        let server = serve_socket(&folder.path().join("a.sock"), Arc::clone(&bus)).unwrap();
        Self { folder, bus, server: Some(server) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("a.sock")
    }

    async fn client(&self) -> SocketBus {
        SocketBus::connect(&self.path()).await.unwrap()
    }

    /// Answers each question on `subject` with its own payload.
    async fn echo(&self, subject: &str) {
        let mut questions = self.bus.subscribe(subject, None).await.unwrap();
        let bus = Arc::clone(&self.bus);
        tokio::spawn(async move {
            while let Some(question) = questions.next().await {
                let mut answer = Message::new(question.reply_to.unwrap(), question.payload);
                answer.headers = question.headers;
                bus.publish(answer).await.unwrap();
            }
        });
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it happens in time")
}

#[tokio::test]
async fn a_request_is_answered_with_headers_and_payload() {
    let place = Place::new();
    place.echo("a.b").await;
    let client = place.client().await;
    let mut question = Message::new("a.b", vec![7; 500_000]);
    question.headers.set("traceparent", "00-1");
    let answer = within(client.request(question, LIMIT)).await.unwrap();
    assert_eq!(answer.payload, vec![7; 500_000]);
    assert_eq!(answer.headers.get("traceparent"), Some("00-1"));
    assert_eq!(answer.headers.get(bus::DEADLINE_HEADER), Some("20000"));
}

#[tokio::test]
async fn failures_of_the_bus_come_through_as_they_are() {
    let place = Place::new();
    let _silent = place.bus.subscribe("silent", None).await.unwrap();
    let client = place.client().await;
    let nobody = within(client.request(Message::new("nobody", ""), LIMIT)).await.unwrap_err();
    assert_eq!(nobody, BusError::NoResponders { subject: "nobody".to_owned() });
    let timeout = Duration::from_millis(20);
    let silent = within(client.request(Message::new("silent", ""), timeout)).await.unwrap_err();
    assert_eq!(silent, BusError::TimedOut { subject: "silent".to_owned(), timeout });
    let wildcard = within(client.publish(Message::new("a.*", ""))).await.unwrap_err();
    assert_eq!(wildcard, BusError::BadSubject { subject: "a.*".to_owned() });
    let large = within(client.publish(Message::new("a", vec![0; MAX_PAYLOAD_BYTES + 1]))).await.unwrap_err();
    assert!(matches!(large, BusError::TooLarge { .. }), "{large}");
}

#[tokio::test]
async fn the_largest_message_passes_in_both_directions() {
    let place = Place::new();
    place.echo("a.b").await;
    let question = Message::new("a.b", vec![1; MAX_PAYLOAD_BYTES - 64]);
    let answer = within(place.client().await.request(question, LIMIT)).await.unwrap();
    assert_eq!(answer.payload.len(), MAX_PAYLOAD_BYTES - 64);
}

#[tokio::test]
async fn one_question_to_everybody_collects_answers_in_an_inbox() {
    let place = Place::new();
    place.echo("all").await;
    place.echo("all").await;
    let client = place.client().await;
    let inbox = within(client.subscribe("_INBOX.x", None)).await.unwrap();
    let mut question = Message::new("all", "who?");
    question.reply_to = Some("_INBOX.x".to_owned());
    within(client.publish(question)).await.unwrap();
    let answers: Vec<_> = within(inbox.take(2).collect()).await;
    assert!(answers.iter().all(|answer| answer.payload == "who?"), "{answers:?}");
}

#[tokio::test]
async fn dropped_request_is_cancelled_on_server() {
    let place = Place::new();
    let client = place.client().await;
    let inbox = within(client.subscribe("inbox", None)).await.unwrap();
    drop(inbox);
    let asking = Arc::clone(&place.bus);
    within(async {
        // When this request finds no subscriber, the end of the wait has reached the bus.
        while asking.request(Message::new("inbox", ""), Duration::from_millis(1)).await
            != Err(BusError::NoResponders { subject: "inbox".to_owned() })
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn requests_and_subscriptions_beyond_the_limit_fail() {
    let place = Place::new();
    let _silent = place.bus.subscribe("silent", None).await.unwrap();
    let client = place.client().await;
    let asked = (0..=MAX_OUTSTANDING).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.request(Message::new("silent", ""), LIMIT).await })
    });
    // Nobody answers, so the first request to end is the one beyond the limit.
    let (ended, _, standing) = within(futures::future::select_all(asked)).await;
    let Ok(Err(BusError::Other { reason })) = ended else { panic!("{ended:?}") };
    assert!(reason.contains("1024 requests"), "{reason}");
    standing.iter().for_each(tokio::task::JoinHandle::abort);
    let mut held = Vec::new();
    for _ in 0..MAX_SUBSCRIPTIONS {
        held.push(within(client.subscribe("a", None)).await.unwrap());
    }
    let Err(refused) = within(client.subscribe("a", None)).await else { panic!("one too many") };
    assert!(refused.to_string().contains("64 subscriptions"), "{refused}");
}

#[tokio::test]
async fn one_client_too_many_gets_an_error_and_a_free_place_is_reused() {
    let place = Place::new();
    place.echo("a").await;
    let mut clients = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let client = place.client().await;
        within(client.request(Message::new("a", ""), LIMIT)).await.unwrap();
        clients.push(client);
    }
    let refused = within(place.client().await.request(Message::new("a", ""), LIMIT)).await.unwrap_err();
    assert!(refused.to_string().contains("64 clients are connected"), "{refused}");
    clients.pop();
    within(async { while place.client().await.request(Message::new("a", ""), LIMIT).await.is_err() {} }).await;
}

#[tokio::test]
async fn malformed_frame_closes_only_its_own_connection_and_repeats_are_logged_ever_more_rarely() {
    let log = CountedLog::down_to(Level::WARN);
    let _logging = tracing::subscriber::set_default(log.clone());
    let place = Place::new();
    place.echo("a").await;
    let client = place.client().await;
    let too_long = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes();
    for rubbish in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 2, 0xff, 0xff], &[0, 0, 0, 0], &too_long, &[0, 0, 0, 3, 0x81, 0xa1, 0x78]] {
        let mut stream = UnixStream::connect(place.path()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let rubbish = rubbish.to_vec();
        let closed = tokio::task::spawn_blocking(move || {
            stream.write_all(&rubbish).unwrap();
            // The connection ended, or was reset because not all was read.
            stream.read(&mut [0; 16]).map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |read| read == 0)
        });
        assert!(within(closed).await.unwrap());
    }
    within(client.request(Message::new("a", ""), LIMIT)).await.unwrap();
    assert_eq!(log.lines(), 3, "the first, the second and the fourth of five");
}

#[tokio::test]
async fn waiting_callers_get_an_error_when_the_agent_ends() {
    let mut place = Place::new();
    let _silent = place.bus.subscribe("silent", None).await.unwrap();
    let client = place.client().await;
    let inbox = within(client.subscribe("inbox", None)).await.unwrap();
    let asking = client.clone();
    let standing = tokio::spawn(async move { asking.request(Message::new("silent", ""), LIMIT * 2).await });
    within(client.publish(Message::new("a", ""))).await.unwrap();
    place.server = None;
    let error = within(standing).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the agent has closed its socket"), "{error}");
    assert_eq!(within(inbox.count()).await, 0);
    assert!(matches!(client.health(), BusHealth::Disconnected { .. }));
    assert!(matches!(client.publish(Message::new("a", "")).await, Err(BusError::Disconnected { .. })));
    assert!(!place.path().exists());
}

#[tokio::test]
async fn the_file_is_for_its_user_alone_and_a_left_over_is_replaced() {
    let mut place = Place::new();
    assert_eq!(std::fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
    place.server = None;
    // A killed agent leaves the socket like this.
    drop(std::os::unix::net::UnixListener::bind(place.path()).unwrap());
    let Err(error) = SocketBus::connect(&place.path()).await else { panic!("nobody listens") };
    assert!(error.to_string().contains("the agent that made it has ended"), "{error}");
    place.server = Some(serve_socket(&place.path(), Arc::clone(&place.bus)).unwrap());
    place.client().await;
    let Err(error) = SocketBus::connect(Path::new("/nowhere/a.sock")).await else { panic!("nothing is there") };
    assert!(error.to_string().contains("start one"), "{error}");
    std::fs::write(place.folder.path().join("file"), "precious").unwrap();
    assert!(serve_socket(&place.folder.path().join("file"), Arc::clone(&place.bus)).is_err());
}

#[tokio::test]
async fn a_path_longer_than_the_kernel_takes_will_do() {
    let place = Place::new();
    place.echo("a").await;
    let deep = place.folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let path = deep.join("agent.sock");
    let server = serve_socket(&path, Arc::clone(&place.bus)).unwrap();
    let client = SocketBus::connect(&path).await.unwrap();
    within(client.request(Message::new("a", ""), LIMIT)).await.unwrap();
    drop(server);
    assert!(!path.exists());
}
