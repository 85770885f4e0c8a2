//! Awaited replies. All requests share one subscription, and an abandoned request leaves nothing behind (the client library's own keeps an
//! entry for ever).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Client, Message, Subscriber};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::caller_state::{CallerState, PROBE_HEADER};

/// The answers to a probe.
const WAITING: &[u8] = b"waiting";
const ABANDONED: &[u8] = b"abandoned";

/// The most forbidden subjects that are remembered once callers got the error: a fleet's buckets, and some more.
const NOTIFIED_MAX: usize = 64;

/// The requests that wait for an answer.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    pending: BTreeMap<u64, Pending>,
    /// Subjects whose callers got the error that publishing is forbidden. The first refusal answers all of them.
    notified: BTreeSet<String>,
}

struct Pending {
    /// The subject of the request.
    subject: String,
    /// Takes the answer; none: the request is forbidden.
    reply: oneshot::Sender<Option<Message>>,
}

impl Waiting {
    /// Records that the server forbids this login to publish to the subject, so its callers need not wait. Returns whether a caller gets
    /// the error, or has got it.
    pub(super) fn forbid(&self, subject: &str) -> bool {
        let mut asked = self.asked();
        let forbidden = asked.pending.extract_if(.., |_, one| one.subject == subject).map(|(_, one)| one).collect::<Vec<_>>();
        if !forbidden.is_empty() && asked.notified.len() < NOTIFIED_MAX {
            asked.notified.insert(subject.to_owned());
        }
        let notified = !forbidden.is_empty() || asked.notified.contains(subject);
        for pending in forbidden {
            // The caller may have given up just now.
            let _ = pending.reply.send(None);
        }
        notified
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replies that are awaited on one connection.
pub(super) struct Replies {
    /// The prefix of reply subjects; the number of the request follows.
    prefix: String,
    waiting: Waiting,
    last: AtomicU64,
    reader: AbortHandle,
}

/// One awaited reply. Dropping it ends the wait.
pub(super) struct Awaited<'a> {
    pub(super) subject: String,
    /// None: the server does not let this login publish there.
    pub(super) reply: oneshot::Receiver<Option<Message>>,
    number: u64,
    replies: &'a Replies,
}

impl Replies {
    /// Reads a subscription to `<inbox>.*` and passes replies to their requests.
    pub(super) fn new(inbox: &str, subscriber: Subscriber, waiting: Waiting, client: Client) -> Self {
        let prefix = format!("{inbox}.");
        let reader = tasks::spawn("bus-replies", read(subscriber, prefix.len(), waiting.clone(), client)).abort_handle();
        Self { prefix, waiting, last: AtomicU64::new(0), reader }
    }

    /// Waits for the reply to a message to `subject`, on a subject of its own.
    pub(super) fn awaited(&self, subject: &str) -> Awaited<'_> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.asked().pending.insert(number, Pending { subject: subject.to_owned(), reply: sender });
        Awaited { subject: format!("{}{number}", self.prefix), reply, number, replies: self }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.replies.waiting.asked().pending.remove(&self.number);
    }
}

async fn read(mut subscriber: Subscriber, prefix_len: usize, waiting: Waiting, client: Client) {
    while let Some(message) = subscriber.next().await {
        let number = message.subject.as_str().get(prefix_len..).and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        if is_probe(&message) {
            let awaited = waiting.asked().pending.contains_key(&number);
            answer_probe(&client, message, awaited);
            continue;
        }
        let pending = waiting.asked().pending.remove(&number);
        if let Some(pending) = pending {
            // The caller may have given up just now.
            let _ = pending.reply.send(Some(message));
        }
    }
}

fn is_probe(message: &Message) -> bool {
    message.headers.as_ref().is_some_and(|headers| headers.get(PROBE_HEADER).is_some())
}

/// Answers a probe if there is room for the answer now. Otherwise later replies would have to wait; a probe without an answer does no harm.
fn answer_probe(client: &Client, probe: Message, awaited: bool) {
    if let Some(reply_to) = probe.reply {
        let answer = if awaited { WAITING } else { ABANDONED };
        drop(client.publish(reply_to, answer.into()).now_or_never());
    }
}

/// Reads a caller's answer to a probe.
pub(super) fn read_probe_answer(answer: &Message) -> CallerState {
    match answer.payload.as_ref() {
        WAITING => CallerState::Waiting,
        ABANDONED => CallerState::Abandoned,
        _ => CallerState::Unknown,
    }
}
