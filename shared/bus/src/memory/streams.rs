//! Streams in memory. Age and size are bounded as on a server; the oldest message is removed first.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::Now;

use super::routes::Routes;
use super::transform::transformed;
use crate::event_log::{Appended, StoredMessage, StreamPage, StreamQuery, StreamSpec, StreamStart, StreamStatus, SubjectTransform};
use crate::message::Message;

/// The header of the id by which a message is stored once.
pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The limit of a stream that sets none, because it is held in this process's memory.
const BYTES_MOST: u64 = 64 * 1024 * 1024;

/// All streams of a hub.
#[derive(Default)]
pub(super) struct Streams {
    by_name: BTreeMap<String, StoredStream>,
}

struct StoredStream {
    /// Unique for each stream that is made.
    number: u64,
    subjects: Routes,
    transform: Option<SubjectTransform>,
    duplicate_window: Duration,
    max_age: Option<Duration>,
    max_bytes: u64,
    sequence: u64,
    messages: VecDeque<StoredMessage>,
    bytes: u64,
    /// The sequence of each message id in the window.
    ids: BTreeMap<String, u64>,
    /// When each id leaves the window, earliest first.
    leaving: VecDeque<(Duration, String)>,
}

impl Streams {
    /// Makes a stream, or adds subjects to an existing one.
    pub(super) fn open(&mut self, spec: &StreamSpec, number: u64) -> StreamStatus {
        let stream = self.by_name.entry(spec.name.clone()).or_insert_with(|| StoredStream {
            number,
            subjects: Routes::default(),
            transform: None,
            duplicate_window: spec.duplicate_window,
            max_age: spec.max_age,
            max_bytes: spec.max_bytes.unwrap_or(BYTES_MOST),
            sequence: 0,
            messages: VecDeque::new(),
            bytes: 0,
            ids: BTreeMap::new(),
            leaving: VecDeque::new(),
        });
        for subject in &spec.subjects {
            stream.subjects.insert(subject, 0);
        }
        if stream.transform.is_none() {
            stream.transform.clone_from(&spec.transform);
        }
        StreamStatus { created: stream.number.to_string(), last_sequence: stream.sequence }
    }

    pub(super) fn lose(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Stores a message in the stream of its subject; none if there is no such stream.
    pub(super) fn store(&mut self, message: &Message, now: Now) -> Option<Appended> {
        let stream = self.by_name.values_mut().find_map(|stream| {
            let stores = !stream.subjects.reached_by(&message.subject).is_empty();
            stores.then_some(stream)
        });
        stream.map(|stream| stream.store(message, now))
    }

    /// Reads one page of a stream; none if there is no such stream.
    pub(super) fn read(&mut self, query: &StreamQuery, now: Duration) -> Option<StreamPage> {
        let stream = self.by_name.get_mut(&query.stream)?;
        stream.forget_old(now);
        let mut wanted = Routes::default();
        query.subjects.iter().for_each(|subject| wanted.insert(subject, 0));
        let begins = |stored: &&StoredMessage| match query.from {
            StreamStart::Sequence(sequence) => stored.sequence >= sequence,
            StreamStart::Time(time) => stored.stored_at >= time,
        };
        let mut found = stream.messages.iter().filter(begins).filter(|stored| !wanted.reached_by(&stored.message.subject).is_empty());
        let messages: Vec<StoredMessage> = found.by_ref().take(query.limit.max(1)).cloned().collect();
        let next = messages.last().map(|last| last.sequence + 1).filter(|_| found.next().is_some());
        Some(StreamPage { messages, next })
    }
}

impl StoredStream {
    fn store(&mut self, message: &Message, now: Now) -> Appended {
        while let Some((_, id)) = self.leaving.pop_front_if(|(at, _)| *at <= now.monotonic) {
            self.ids.remove(&id);
        }
        let id = message.headers.get(MESSAGE_ID);
        if let Some(sequence) = id.and_then(|id| self.ids.get(id)) {
            return Appended { sequence: *sequence, duplicate: true };
        }
        self.sequence += 1;
        if let Some(id) = id {
            self.ids.insert(id.to_owned(), self.sequence);
            self.leaving.push_back((now.monotonic + self.duplicate_window, id.to_owned()));
        }
        let mut message = message.clone();
        if let Some(subject) = self.transform.as_ref().and_then(|transform| transformed(transform, &message.subject)) {
            message.subject = subject;
        }
        self.bytes += message.wire_bytes() as u64;
        self.messages.push_back(StoredMessage { sequence: self.sequence, stored_at: now.wall, message });
        self.forget_old(now.wall);
        Appended { sequence: self.sequence, duplicate: false }
    }

    fn forget_old(&mut self, now: Duration) {
        let (max_age, max_bytes) = (self.max_age, self.max_bytes);
        while self.messages.front().is_some_and(|first| self.bytes > max_bytes || max_age.is_some_and(|age| first.stored_at + age < now)) {
            let Some(first) = self.messages.pop_front() else { return };
            self.bytes -= first.message.wire_bytes() as u64;
        }
    }
}
