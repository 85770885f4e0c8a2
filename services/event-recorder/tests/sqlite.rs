//! The store on a real disk: a written batch outlives the process, and an unreadable file does not stop the node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use clock::Random;
use contract::{EventReason, EventSequence, MessageId, PullEvent, Repeats, TraceContext};
use event_recorder::core::{Batch, StreamMark};
use event_recorder::store::OpenedStore;
use event_recorder::store::sqlite::{OUTBOX_FILE, Origin, SqliteStore};
use support::requirement::met;
use support::small_disk::SmallDisk;
use tempfile::TempDir;

fn event(number: u64) -> Arc<PullEvent> {
    let mut random = Random::seeded(number);
    Arc::new(PullEvent {
        image: format!("image-{number}"),
        sequence: Some(EventSequence { incarnation: "inc".to_owned(), number }),
        ..PullEvent::new(
            MessageId::random(&mut random),
            number * 1_000,
            "n1".parse().expect("a name"),
            if number.is_multiple_of(2) { EventReason::BackOff } else { EventReason::Failed },
            "m".repeat(300),
            TraceContext::root(&mut random),
        )
    })
}

fn open_after(dir: &Path, boot: &str) -> OpenedStore {
    SqliteStore::open(dir, &Origin { boot: boot.to_owned(), new_incarnation: "inc".to_owned() }).expect("it opens")
}

fn open(dir: &Path) -> OpenedStore {
    open_after(dir, "boot-1")
}

fn put(numbers: std::ops::RangeInclusive<u64>) -> Batch {
    Batch { put: numbers.map(event).collect(), ..Batch::default() }
}

#[test]
fn written_events_outlive_a_restart() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    assert_eq!((first.incarnation.as_str(), first.recovered.next_number), ("inc", 1));
    first.store.write(&put(1..=5)).unwrap();
    let repeat = Arc::new(PullEvent { repeats: Some(Repeats { count: 3, first_ms: 1 }), ..PullEvent::clone(&event(9)) });
    let mark = StreamMark { created: "2026-01-01T00:00:00Z".to_owned(), sequence: 77 };
    let folds = [(4, Some(Arc::clone(&repeat))), (5, Some(event(8)))].into();
    first.store.write(&Batch { remove: vec![1, 3], folds, mark: Some(mark.clone()), ..Batch::default() }).unwrap();
    first.store.write(&Batch { folds: [(5, None)].into(), ..Batch::default() }).unwrap();
    drop(first);
    let mut second = SqliteStore::open(dir.path(), &Origin { boot: "boot-1".to_owned(), new_incarnation: "other".to_owned() }).unwrap();
    assert_eq!((second.incarnation.as_str(), second.recovered.next_number), ("inc", 6), "the directory keeps its incarnation");
    let slots: Vec<(u64, bool)> = second.recovered.slots.iter().map(|slot| (slot.number, slot.is_refusal)).collect();
    assert_eq!(slots, [(2, true), (4, true), (5, false)]);
    assert_eq!(second.recovered.folds, [(4, PullEvent::clone(&repeat))]);
    assert_eq!((second.recovered.mark, second.recovered.lost), (mark, None));
    assert_eq!(second.store.load(2, 10).unwrap(), [event(4), event(5)]);
    assert_eq!(second.store.newest(2).unwrap(), [event(4), event(5)]);
    assert_eq!(second.store.load(0, 1).unwrap(), [event(2)]);
}

#[test]
fn numbers_of_deleted_events_are_not_reused() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(1..=5)).unwrap();
    first.store.write(&Batch { remove: (1..=5).collect(), ..Batch::default() }).unwrap();
    drop(first);
    assert_eq!(open(dir.path()).recovered.next_number, 6);
}

#[test]
fn numbers_of_unstored_events_are_not_reused_and_the_loss_is_reported() {
    let disk = TempDir::new().unwrap();
    let Some(small) = met(SmallDisk::mount(disk.path(), 1024 * 1024)) else { return };
    let mut first = open(disk.path());
    first.store.write(&put(1..=5)).unwrap();
    small.fill();
    let refused = first.store.write(&put(6..=900)).unwrap_err();
    assert!(refused.to_string().contains("full"), "{refused}");
    // The process is killed; the disk has space again.
    drop(first);
    small.free();
    let second = open(disk.path());
    assert_eq!(second.recovered.next_number, 901);
    let lost = second.recovered.lost.as_deref().unwrap();
    assert!(lost.contains("up to number 900"), "{lost}");
    drop(second);
    assert_eq!(open(disk.path()).recovered.next_number, 901, "the number stays until an event uses it");
}

#[test]
fn numbering_goes_on_above_the_reserved_numbers_after_a_power_failure() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(1..=5)).unwrap();
    drop(first);
    let second = open_after(dir.path(), "boot-2");
    assert!(second.recovered.next_number > 10_000, "{}", second.recovered.next_number);
    let lost = second.recovered.lost.as_deref().unwrap();
    assert!(lost.contains("numbers 6 to"), "{lost}");
    let next = second.recovered.next_number;
    drop(second);
    assert_eq!(open_after(dir.path(), "boot-2").recovered.next_number, next, "also if no event was stored since");
    // After an orderly stop nothing is lost.
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(1..=5)).unwrap();
    first.store.close().unwrap();
    drop(first);
    let second = open_after(dir.path(), "boot-2");
    assert_eq!((second.recovered.next_number, second.recovered.lost), (6, None));
}

#[test]
fn readable_events_of_a_damaged_file_are_kept_and_the_file_set_aside() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(OUTBOX_FILE);
    let mut first = open(dir.path());
    for hundred in 0..20 {
        first.store.write(&put(hundred * 100 + 1..=hundred * 100 + 100)).unwrap();
    }
    drop(first);
    // As after a torn write of a page in the middle. The log was merged when the store was dropped.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 4_096].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let mut second = open(dir.path());
    let lost = second.recovered.lost.clone().unwrap();
    assert!(lost.contains("outbox.damaged-1.db"), "{lost}");
    let kept = second.recovered.slots.len();
    assert!((1_000..2_000).contains(&kept), "{kept} of 2,000 were read");
    assert!(second.recovered.next_number > 2_000, "{}", second.recovered.next_number);
    assert_eq!(second.incarnation, "inc");
    second.store.write(&Batch { put: vec![event(second.recovered.next_number)], ..Batch::default() }).unwrap();
    assert!(dir.path().join("outbox.damaged-1.db").exists());
    drop(second);
    assert_eq!(open(dir.path()).recovered.slots.len(), kept + 1);
}

#[test]
fn unreadable_event_does_not_end_a_page() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(1..=6)).unwrap();
    drop(first);
    let path = dir.path().join(OUTBOX_FILE);
    rusqlite::Connection::open(path).unwrap().execute("UPDATE events SET body = x'c1' WHERE number IN (2, 5)", []).unwrap();
    let mut second = open(dir.path());
    for (after, limit, loaded) in [
        (0, 2, vec![event(1), event(3)]),
        (1, 1, vec![event(3)]),
        (3, 2, vec![event(4), event(6)]),
        (0, 10, vec![event(1), event(3), event(4), event(6)]),
        (6, 2, vec![]),
    ] {
        assert_eq!(second.store.load(after, limit).unwrap(), loaded, "{limit} after {after}");
    }
    assert_eq!(second.store.newest(3).unwrap(), [event(3), event(4), event(6)]);
}

#[test]
fn file_that_is_no_database_or_of_a_newer_version_is_set_aside() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(OUTBOX_FILE);
    std::fs::write(&path, "this is not a database").unwrap();
    let opened = open(dir.path());
    assert!(opened.recovered.lost.as_deref().unwrap().contains("0 events were read"), "{:?}", opened.recovered.lost);
    drop(opened);
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let opened = open(dir.path());
    let lost = opened.recovered.lost.as_deref().unwrap();
    assert!(lost.contains("newer version (99, this program reads 1)") && lost.contains("outbox.damaged-2.db"), "{lost}");
}

#[test]
fn outbox_survives_any_number_of_starts_on_a_full_disk() {
    let disk = TempDir::new().unwrap();
    let Some(small) = met(SmallDisk::mount(disk.path(), 1024 * 1024)) else { return };
    let mut first = open(disk.path());
    first.store.write(&put(1..=5)).unwrap();
    drop(first);
    small.fill();
    for _ in 0..6 {
        drop(SqliteStore::open(disk.path(), &Origin { boot: "boot-1".to_owned(), new_incarnation: "other".to_owned() }));
    }
    small.free();
    let opened = open(disk.path());
    assert_eq!((opened.incarnation.as_str(), opened.recovered.slots.len(), opened.recovered.lost), ("inc", 5, None));
}

#[test]
fn file_that_cannot_be_opened_now_stays_for_a_later_start() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(1..=5)).unwrap();
    drop(first);
    // Where SQLite expects its log.
    let in_the_way = dir.path().join(format!("{OUTBOX_FILE}-wal"));
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(SqliteStore::open(dir.path(), &Origin { boot: "boot-1".to_owned(), new_incarnation: "other".to_owned() }).is_err());
    std::fs::remove_dir(in_the_way).unwrap();
    assert_eq!(open(dir.path()).recovered.slots.len(), 5);
}

#[test]
fn numbers_of_deleted_events_are_not_reused_after_a_file_was_set_aside() {
    let dir = TempDir::new().unwrap();
    let mut first = open(dir.path());
    first.store.write(&put(50_001..=50_010)).unwrap();
    first.store.write(&Batch { remove: (50_001..=50_010).collect(), ..Batch::default() }).unwrap();
    drop(first);
    let path = dir.path().join(OUTBOX_FILE);
    rusqlite::Connection::open(path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let second = open(dir.path());
    let next = second.recovered.next_number;
    assert!(next > 50_010, "{next}");
    drop(second);
    assert_eq!(open(dir.path()).recovered.next_number, next, "also if no event was stored since");
}

#[test]
fn symlink_in_place_of_the_file_is_not_followed() {
    let dir = TempDir::new().unwrap();
    let other = dir.path().join("other.db");
    std::os::unix::fs::symlink(&other, dir.path().join(OUTBOX_FILE)).unwrap();
    let opened = SqliteStore::open(dir.path(), &Origin { boot: String::new(), new_incarnation: "inc".to_owned() });
    assert!(opened.is_err() || !other.exists(), "nothing is written through the link");
}
