//! Awaited replies: one subscription for all, so that a request costs no subscription of its own, and one that is given up
//! leaves nothing behind (the client library's own keeps an entry for ever).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Client, Message, Subscriber};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::asker::{Asker, PROBE_HEADER};

/// The answers to a probe.
const WAITS: &[u8] = b"waits";
const GONE: &[u8] = b"gone";

type Waiting = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Message>>>>;

/// The replies that are awaited on one connection.
pub(super) struct Replies {
    /// Before the number of the request in its reply subject.
    prefix: String,
    waiting: Waiting,
    last: AtomicU64,
    reader: AbortHandle,
}

/// One awaited reply. Dropping it means that nobody waits any more.
pub(super) struct Awaited<'a> {
    pub(super) subject: String,
    pub(super) reply: oneshot::Receiver<Message>,
    number: u64,
    replies: &'a Replies,
}

impl Replies {
    /// Reads from a subscription of `<inbox>.*`.
    pub(super) fn new(inbox: &str, subscriber: Subscriber, client: Client) -> Self {
        let waiting = Waiting::default();
        let prefix = format!("{inbox}.");
        let reader = tokio::spawn(read(subscriber, prefix.len(), Arc::clone(&waiting), client)).abort_handle();
        Self { prefix, waiting, last: AtomicU64::new(0), reader }
    }

    /// Waits for a reply on a subject of its own.
    pub(super) fn awaited(&self) -> Awaited<'_> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
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
        self.replies.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

async fn read(mut subscriber: Subscriber, prefix_len: usize, waiting: Waiting, client: Client) {
    while let Some(message) = subscriber.next().await {
        let number = message.subject.as_str().get(prefix_len..).and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        if is_probe(&message) {
            let awaited = waiting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number);
            answer_probe(&client, message, awaited);
            continue;
        }
        let asker = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some(asker) = asker {
            // The asker may have given up this moment.
            let _ = asker.send(message);
        }
    }
}

fn is_probe(message: &Message) -> bool {
    message.headers.as_ref().is_some_and(|headers| headers.get(PROBE_HEADER).is_some())
}

/// Answers a probe if there is room for it now: the replies behind it do not wait, and a probe without an answer harms nobody.
fn answer_probe(client: &Client, probe: Message, awaited: bool) {
    if let Some(reply_to) = probe.reply {
        let answer = if awaited { WAITS } else { GONE };
        drop(client.publish(reply_to, answer.into()).now_or_never());
    }
}

/// What an asker has answered to a probe.
pub(super) fn read_probe_answer(answer: &Message) -> Asker {
    match answer.payload.as_ref() {
        WAITS => Asker::Waits,
        GONE => Asker::Gone,
        _ => Asker::Unknown,
    }
}
