//! Reading reports, each once for all agents of one process.
//!
//! An agent is a process and reads each report once. A fleet that is simulated in one process would read each report once per node, and
//! keep as many copies.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use contract::know::ReportKey;

use crate::core::knowledge::{BackoffKey, BackoffKeyId, Input};
use crate::stored::{self, Read, Stored};

/// Reports remembered; for one more, the oldest is forgotten.
const REMEMBERED: usize = 1_024;

/// Reads reports. By default it remembers none.
#[derive(Clone, Default)]
pub struct Reader(Option<Arc<Mutex<Memory>>>);

/// Reports read, by the address of their bytes. The bytes are kept, so that the address is not reused.
#[derive(Default)]
struct Memory {
    read: HashMap<(usize, usize), (Bytes, ReportKey, Read)>,
    order: VecDeque<(usize, usize)>,
}

impl Reader {
    /// A reader that remembers what it has read: its copies read the same bytes once.
    #[must_use]
    pub fn remembering() -> Self {
        Self(Some(Arc::default()))
    }

    /// Reads the value of a key of the reports bucket, like [`stored::read_input`].
    pub(crate) fn read_input(
        &self,
        key: ReportKey,
        value: &Bytes,
        stored: Stored,
        known: impl Fn(BackoffKeyId) -> Option<Arc<BackoffKey>>,
    ) -> Option<Input> {
        let Some(memory) = self.0.as_ref().filter(|_| key.class.is_some()) else { return stored::read_input(key, value, stored, known) };
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (value.as_ptr() as usize, value.len());
        if let Some((_, _, read)) = memory.read.get(&place).filter(|(_, of, _)| *of == key) {
            return Some(read.clone().into_input(stored));
        }
        let read = stored::read(key.clone(), value, known)?;
        memory.keep(place, (value.clone(), key, read.clone()));
        Some(read.into_input(stored))
    }
}

impl Memory {
    fn keep(&mut self, place: (usize, usize), read: (Bytes, ReportKey, Read)) {
        if self.read.insert(place, read).is_none() {
            self.order.push_back(place);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.read.remove(&oldest);
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Reader(remembering)" } else { "Reader" })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use std::time::Duration;

    use contract::know::{Found, KeyKind, StoredKeyInView, StoredReport, encode};
    use contract::{AttemptId, View};

    use super::*;
    use crate::core::knowledge::{KeyInView, Report};

    const AT_ONCE: Stored = Stored { age: Duration::ZERO, at: None };

    fn report(image: &str) -> (ReportKey, Bytes) {
        let in_view = KeyInView::Reference { reference: image.to_owned(), scope: String::new(), mirrored: false };
        let backoff_key = BackoffKey::new(View::default(), in_view);
        let stored = StoredReport {
            view: View::default(),
            in_view: StoredKeyInView { kind: KeyKind::Reference, reference: image.to_owned(), ..StoredKeyInView::default() },
            attempt: AttemptId::from(1),
            trace: None,
            found: Found::Succeeded,
            message: String::new(),
            step: 0,
            retry_after_ms: None,
            repository: String::new(),
            in_a_row: 0,
            failing_for_ms: 0,
            succeeded_ago_ms: None,
            age_ms: 7,
            written_ms: None,
        };
        let key = ReportKey { node: "n1".parse().unwrap(), class: Some(backoff_key.class()), backoff_key: backoff_key.id().0 };
        (key, encode(&stored).unwrap().into())
    }

    fn read(reader: &Reader, key: &ReportKey, value: &Bytes, stored: Stored) -> Option<(Arc<Report>, Duration)> {
        match reader.read_input(key.clone(), value, stored, |_| None) {
            Some(Input::ReportReceived { report, age }) => Some((report, age)),
            _ => None,
        }
    }

    #[test]
    fn copies_that_remember_read_the_same_bytes_once_and_compute_each_age() {
        let (key, value) = report("a:1");
        let reader = Reader::remembering();
        let (first, age) = read(&reader, &key, &value, AT_ONCE).unwrap();
        let later = Stored { age: Duration::from_secs(1), at: None };
        let (again, older) = read(&reader.clone(), &key, &value.clone(), later).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!((age, older), (Duration::from_millis(7), Duration::from_millis(1_007)));
        // The same bytes at another address are read again, and a reader that remembers nothing reads all again.
        let (elsewhere, _) = read(&reader, &key, &Bytes::copy_from_slice(&value), AT_ONCE).unwrap();
        let (anew, _) = read(&Reader::default(), &key, &value, AT_ONCE).unwrap();
        assert!(!Arc::ptr_eq(&first, &elsewhere) && !Arc::ptr_eq(&first, &anew));
        assert_eq!((&*elsewhere, &*anew), (&*first, &*first));
    }

    #[test]
    fn the_same_bytes_under_another_key_are_read_again() {
        let ((key, value), (other, _)) = (report("a:1"), report("b:1"));
        let reader = Reader::remembering();
        assert!(read(&reader, &key, &value, AT_ONCE).is_some());
        assert_eq!(read(&reader, &other, &value, AT_ONCE), None, "a replay under a key that is not its own");
        let of_another = ReportKey { node: "n2".parse().unwrap(), ..key };
        assert_eq!(read(&reader, &of_another, &value, AT_ONCE).unwrap().0.reporter.as_str(), "n2");
    }

    #[test]
    fn the_number_of_remembered_reports_is_bounded() {
        let (key, value) = report("a:1");
        let reader = Reader::remembering();
        let (first, _) = read(&reader, &key, &value, AT_ONCE).unwrap();
        let many: Vec<Bytes> = (0..REMEMBERED).map(|_| Bytes::copy_from_slice(&value)).collect();
        for copy in &many {
            read(&reader, &key, copy, AT_ONCE).unwrap();
        }
        assert_eq!(reader.0.as_ref().unwrap().lock().unwrap().read.len(), REMEMBERED);
        assert!(!Arc::ptr_eq(&first, &read(&reader, &key, &value, AT_ONCE).unwrap().0), "forgotten");
    }
}
