//! Awaited replies: one subscription for all, so that a request costs no subscription of its own, and one that is given up
//! leaves nothing behind (the client library's own keeps an entry for ever).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Client, Message, Subscriber};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::asker::{Asker, PROBE_HEADER};

/// The answers to a probe.
const WAITS: &[u8] = b"waits";
const GONE: &[u8] = b"gone";

/// The most subjects of which is remembered that callers were told that they are forbidden: a fleet's buckets, and some more.
const TOLD: usize = 64;

/// The requests that wait for an answer.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    pending: BTreeMap<u64, Pending>,
    /// Where callers were told that they may not publish. Of several at once the first refusal tells all.
    told: BTreeSet<String>,
}

struct Pending {
    /// What it asked on.
    subject: String,
    /// Takes the answer; none: it was forbidden to ask.
    reply: oneshot::Sender<Option<Message>>,
}

impl Waiting {
    /// The server does not let this login publish to that subject: a caller there need not wait. Whether a caller is told, or was.
    pub(super) fn forbid(&self, subject: &str) -> bool {
        let mut asked = self.asked();
        let forbidden = asked.pending.extract_if(.., |_, asker| asker.subject == subject).map(|(_, asker)| asker).collect::<Vec<_>>();
        if !forbidden.is_empty() && asked.told.len() < TOLD {
            asked.told.insert(subject.to_owned());
        }
        let told = !forbidden.is_empty() || asked.told.contains(subject);
        for asker in forbidden {
            // The asker may have given up this moment.
            let _ = asker.reply.send(None);
        }
        told
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    /// None: the server does not let this login publish there.
    pub(super) reply: oneshot::Receiver<Option<Message>>,
    number: u64,
    replies: &'a Replies,
}

impl Replies {
    /// Reads from a subscription of `<inbox>.*` for those that wait.
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
        let asker = waiting.asked().pending.remove(&number);
        if let Some(asker) = asker {
            // The asker may have given up this moment.
            let _ = asker.reply.send(Some(message));
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
