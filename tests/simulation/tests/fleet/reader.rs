//! Reading reports, each once for all nodes: an agent is a process and reads each report once, but the nodes of a simulated fleet would
//! each read it and keep a copy.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use backoff_tracker::{KnownKeys, ReadReport, ReadsReports, read_report};
use bytes::Bytes;
use contract::know::ReportKey;

/// Reports remembered; for one more, the oldest is forgotten.
const REMEMBERED: usize = 1_024;

/// Reports read, by the address of their bytes. The bytes are kept, so that the address is not reused.
#[derive(Default)]
struct Memory {
    read: HashMap<(usize, usize), (Bytes, ReportKey, ReadReport)>,
    order: VecDeque<(usize, usize)>,
}

/// Reads the same bytes once.
pub fn remembering() -> ReadsReports {
    let memory = Mutex::new(Memory::default());
    Arc::new(move |key: ReportKey, value: &Bytes, known: &KnownKeys<'_>| {
        memory.lock().unwrap_or_else(PoisonError::into_inner).read(key, value, known)
    })
}

impl Memory {
    fn read(&mut self, key: ReportKey, value: &Bytes, known: &KnownKeys<'_>) -> Option<ReadReport> {
        let place = (value.as_ptr() as usize, value.len());
        if let Some((_, _, read)) = self.read.get(&place).filter(|(_, of, _)| *of == key) {
            return Some(read.clone());
        }
        let read = read_report(key.clone(), value, known)?;
        if self.read.insert(place, (value.clone(), key, read.clone())).is_none() {
            self.order.push_back(place);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.read.remove(&oldest);
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
    use contract::know::{Found, KeyKind, StoredKeyInView, StoredReport, encode};
    use contract::{AttemptId, View};

    use super::*;

    fn report() -> (ReportKey, Bytes) {
        let in_view = KeyInView::Reference { reference: "a:1".to_owned(), scope: String::new(), mirrored: false };
        let backoff_key = BackoffKey::new(View::default(), in_view);
        let stored = StoredReport {
            view: View::default(),
            in_view: StoredKeyInView { kind: KeyKind::Reference, reference: "a:1".to_owned(), ..StoredKeyInView::default() },
            attempt: AttemptId::from(1),
            trace: None,
            found: Found::Succeeded,
            message: String::new(),
            step: 0,
            retry_after_ms: None,
            repository: String::new(),
            in_a_row: 0,
            failing_for_ms: 0,
            for_all_ago_ms: 0,
            succeeded_ago_ms: None,
            age_ms: 7,
            written_ms: None,
        };
        let key = ReportKey { node: "n1".parse().unwrap(), class: Some(backoff_key.class()), backoff_key: backoff_key.id().0 };
        (key, encode(&stored).unwrap().into())
    }

    #[test]
    fn the_same_bytes_are_read_once_and_under_another_key_again() {
        let (key, value) = report();
        let reads = remembering();
        let read = |key: &ReportKey, value: &Bytes| reads(key.clone(), value, &|_| None).map(|read| read.report);
        let first = read(&key, &value).unwrap();
        assert!(Arc::ptr_eq(&first, &read(&key, &value.clone()).unwrap()));
        assert!(!Arc::ptr_eq(&first, &read(&key, &Bytes::copy_from_slice(&value)).unwrap()), "at another address");
        let other = ReportKey { backoff_key: key.backoff_key ^ 1, ..key.clone() };
        assert_eq!(read(&other, &value), None, "a replay under a key that is not its own");
        let of_another = ReportKey { node: "n2".parse().unwrap(), ..key };
        assert_eq!(read(&of_another, &value).unwrap().reporter.as_str(), "n2");
    }

    #[test]
    fn the_number_of_remembered_reports_is_bounded() {
        let (key, value) = report();
        let mut memory = Memory::default();
        let many: Vec<Bytes> = (0..2 * REMEMBERED).map(|_| Bytes::copy_from_slice(&value)).collect();
        for copy in &many {
            memory.read(key.clone(), copy, &|_| None).unwrap();
        }
        assert_eq!((memory.read.len(), memory.order.len()), (REMEMBERED, REMEMBERED));
    }
}
