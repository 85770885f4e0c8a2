//! Failures of the disk.

use clock::Random;
use contract::{EventReason, EventSequence};

use super::*;

fn batch(number: u64) -> Batch {
    let event = crate::core::test_event(&mut Random::seeded(number), "app:v1", EventReason::Failed, 0);
    let sequence = Some(EventSequence { incarnation: "first".to_owned(), number });
    Batch { put: vec![Arc::new(PullEvent { sequence, ..event })], ..Batch::default() }
}

fn open(dir: &Path) -> SqliteStore {
    let origin = Origin { boot: "boot".to_owned(), new_incarnation: "first".to_owned() };
    SqliteStore::open_file(&dir.join(OUTBOX_FILE), &origin).unwrap_or_else(|error| panic!("{}", error.why)).store
}

/// A log that cannot be synced, because it is a device.
fn no_disk() -> Arc<File> {
    Arc::new(File::open("/dev/null").unwrap())
}

#[test]
fn batch_whose_write_fails_is_not_stored_if_only_the_sync_failed() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut store = open(dir.path());
    store.log = no_disk();
    assert!(store.write(&batch(1)).is_err());
    assert_eq!(store.load(0, 10).unwrap(), []);
}

/// Before that sync, a power failure would leave the mark of the orderly stop.
#[test]
fn first_event_after_an_orderly_stop_is_not_stored_without_a_sync() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut store = open(dir.path());
    store.write(&batch(1)).unwrap();
    store.close().unwrap();
    drop(store);
    let mut store = open(dir.path());
    let log = std::mem::replace(&mut store.log, no_disk());
    assert!(store.write(&batch(2)).is_err());
    store.log = log;
    assert_eq!(store.write(&batch(2)), Ok(()));
}

#[test]
fn number_of_an_unstored_event_is_remembered_whatever_fails_after_it() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut store = open(dir.path());
    store.connection.execute_batch("DROP TABLE events").unwrap();
    for failing in [batch(9), Batch { remove: vec![1], ..Batch::default() }, batch(7)] {
        assert!(store.write(&failing).is_err());
        assert_eq!(open_unstored(&dir.path().join(UNSTORED_FILE)).1, 9);
    }
}
