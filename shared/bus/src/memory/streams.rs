//! Streams in memory.
//!
//! Nothing reads a stream back over the port, so only what decides an answer is kept: the sequence, and the message ids of
//! the window. The limits of age and size have nothing to act on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::routes::Routes;
use crate::port::{Appended, StreamSpec};

/// All streams of a hub.
#[derive(Default)]
pub(super) struct Streams {
    by_name: BTreeMap<String, StoredStream>,
}

struct StoredStream {
    subjects: Routes,
    duplicate_window: Duration,
    sequence: u64,
    /// The sequence of each message id of the window.
    ids: BTreeMap<String, u64>,
    /// When each of them leaves the window, earliest first.
    leaving: VecDeque<(Duration, String)>,
}

impl Streams {
    /// Makes a stream, or adds subjects to one that is there.
    pub(super) fn open(&mut self, spec: &StreamSpec) {
        let stream = self.by_name.entry(spec.name.clone()).or_insert_with(|| StoredStream {
            subjects: Routes::default(),
            duplicate_window: spec.duplicate_window,
            sequence: 0,
            ids: BTreeMap::new(),
            leaving: VecDeque::new(),
        });
        for subject in &spec.subjects {
            stream.subjects.insert(subject, 0);
        }
    }

    /// Stores a message in the streams of its subject; none if there is no such stream.
    pub(super) fn store(&mut self, subject: &str, message_id: Option<&str>, now: Duration) -> Option<Appended> {
        let stream = self.by_name.values_mut().find_map(|stream| {
            let stores = !stream.subjects.reached_by(subject).is_empty();
            stores.then_some(stream)
        });
        stream.map(|stream| stream.store(message_id, now))
    }
}

impl StoredStream {
    fn store(&mut self, message_id: Option<&str>, now: Duration) -> Appended {
        while let Some((_, id)) = self.leaving.pop_front_if(|(at, _)| *at <= now) {
            self.ids.remove(&id);
        }
        if let Some(sequence) = message_id.and_then(|id| self.ids.get(id)) {
            return Appended { sequence: *sequence, duplicate: true };
        }
        self.sequence += 1;
        if let Some(id) = message_id {
            self.ids.insert(id.to_owned(), self.sequence);
            self.leaving.push_back((now + self.duplicate_window, id.to_owned()));
        }
        Appended { sequence: self.sequence, duplicate: false }
    }
}
