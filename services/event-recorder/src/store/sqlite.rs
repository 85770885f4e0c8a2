//! The store in a SQLite database in WAL mode. A batch is one `write`, which outlives the process; [`OutboxStore::syncer`] syncs the log to
//! the disk. A damaged database is set aside, after its readable events were copied.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::PullEvent;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, params};

use super::{OpenedStore, OutboxStore, StoreError, Syncer};
use crate::core::{Batch, Recovered, Slot, StreamMark, text_bytes};

/// The database's file in the state directory.
pub const OUTBOX_FILE: &str = "outbox.db";
/// The file in the state directory with the highest number of an event that could not be stored. It gets its full size at the start, so
/// that it can be written on a full disk.
const UNSTORED_FILE: &str = "outbox.unstored";
/// The digits of the number in that file.
const UNSTORED_DIGITS: usize = 20;
/// The version of the tables. An older program sets a newer database aside.
const VERSION: u32 = 1;
/// How many numbers are reserved on the disk at a time. After a power failure numbering goes on above the reserved ones.
const CEILING_STEP: u64 = 10_000;
/// The most damaged databases that are kept; beyond it the first one is replaced.
const SET_ASIDE_MOST: u32 = 3;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, time_ms INTEGER NOT NULL,
        is_refusal INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS folds (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;";

/// An open database.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    log: Arc<File>,
    /// The file `UNSTORED_FILE`; none: it could not be opened.
    unstored: Option<File>,
    /// The highest reserved number.
    ceiling: u64,
    last_number: u64,
}

/// Ids that distinguish starts of the machine and incarnations of the node.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The machine's boot id, or a new value at each start if it cannot be read.
    pub boot: String,
    /// The incarnation for a state directory that has none yet.
    pub new_incarnation: String,
}

impl SqliteStore {
    /// Opens the database of a state directory; creates it if it is missing.
    ///
    /// # Errors
    /// It can neither be opened nor created.
    pub fn open(dir: &Path, origin: &Origin) -> Result<OpenedStore, StoreError> {
        let path = dir.join(OUTBOX_FILE);
        match Self::open_file(&path, origin) {
            Ok(opened) => Ok(opened),
            Err(error) if path.exists() => Self::replace(&path, origin, &error),
            Err(error) => Err(error),
        }
    }

    fn open_file(path: &Path, origin: &Origin) -> Result<OpenedStore, StoreError> {
        let mut connection = connect(path).map_err(failed("the outbox cannot be opened"))?;
        let version: u32 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed("the outbox cannot be read"))?;
        if version > VERSION {
            return Err(StoreError(format!("the outbox was written by a newer version ({version}, this program reads {VERSION})")));
        }
        let made = connection.execute_batch(&format!("{TABLES} PRAGMA user_version = {VERSION};"));
        made.map_err(failed("the outbox cannot be set up"))?;
        let (mut recovered, incarnation, ceiling) = recover(&mut connection, origin).map_err(failed("the outbox cannot be read"))?;
        let log = File::open(log_of(path)).map_err(|error| StoreError(format!("the outbox's log cannot be opened: {error}")))?;
        let (unstored, last_unstored) = open_unstored(&path.with_file_name(UNSTORED_FILE));
        if last_unstored >= recovered.next_number {
            let unstored_lost = format!("events could not be stored before the agent ended: up to number {last_unstored} they may be lost");
            recovered.next_number = last_unstored + 1;
            recovered.lost = Some(recovered.lost.map_or_else(|| unstored_lost.clone(), |lost| format!("{lost}; {unstored_lost}")));
        }
        let last_number = recovered.next_number - 1;
        let store = Self { connection, log: Arc::new(log), unstored, ceiling, last_number };
        Ok(OpenedStore { store: Box::new(store), incarnation, recovered })
    }

    /// Sets a damaged database aside, and goes on in a new one with its readable events.
    fn replace(path: &Path, origin: &Origin, why: &StoreError) -> Result<OpenedStore, StoreError> {
        let (events, incarnation) = salvage(path);
        let kept = set_aside(path).map_err(|error| StoreError(format!("{why}, and it cannot be set aside: {error}")))?;
        let incarnation = incarnation.unwrap_or_else(|| origin.new_incarnation.clone());
        let mut opened = Self::open_file(path, &Origin { new_incarnation: incarnation, ..origin.clone() })?;
        let number = |event: &Arc<PullEvent>| event.sequence.as_ref().map_or(0, |sequence| sequence.number);
        let (found, last) = (events.len(), events.iter().map(number).max().unwrap_or_default());
        opened.store.write(&Batch { put: events.clone(), ..Batch::default() })?;
        opened.recovered.slots = events.iter().map(slot_of).collect();
        // Numbers above the last readable one may have been used, and must not be used again.
        opened.recovered.next_number = last + CEILING_STEP + 1;
        opened.recovered.lost =
            Some(format!("{why}: {found} events were read from it, others may be lost; the file was kept as {}", kept.display()));
        Ok(opened)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // EXCLUSIVE: one process, so no shared memory file. NORMAL: the log is synced before a checkpoint, so that the database stays
    // consistent after a power failure.
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2048;
         PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 16777216;",
    )?;
    Ok(connection)
}

fn recover(connection: &mut Connection, origin: &Origin) -> rusqlite::Result<(Recovered, String, u64)> {
    let slots: Vec<Slot> = connection
        .prepare("SELECT number, bytes, time_ms, is_refusal FROM events ORDER BY number")?
        .query_map([], |row| {
            let (number, bytes, time_ms): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Slot { number: unsigned(number), bytes: unsigned(bytes), time_ms: unsigned(time_ms), is_refusal: row.get(3)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let folds: Vec<(u64, PullEvent)> = connection
        .prepare("SELECT id, body FROM folds ORDER BY id")?
        .query_map([], |row| Ok((unsigned(row.get(0)?), row.get::<_, Vec<u8>>(1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?
        .into_iter()
        .filter_map(|(id, body)| Some((id, decode(&body)?)))
        .collect();
    let transaction = connection.transaction()?;
    let incarnation = fact(&transaction, "incarnation")?.unwrap_or_else(|| origin.new_incarnation.clone());
    let ceiling = fact(&transaction, "ceiling")?.and_then(|text| text.parse().ok()).unwrap_or(0);
    let last: i64 = transaction.query_row("SELECT coalesce(max(number), 0) FROM events", [], |row| row.get(0))?;
    let last = unsigned(last).max(fact(&transaction, "last_number")?.and_then(|text| text.parse().ok()).unwrap_or(0));
    let (booted, closed) = (fact(&transaction, "boot")?, fact(&transaction, "closed")?);
    let may_be_lost = last > 0 && closed.is_none() && booted.as_deref() != Some(origin.boot.as_str());
    let next_number = if may_be_lost { ceiling.max(last) + 1 } else { last + 1 };
    let lost = may_be_lost.then(|| {
        format!(
            "the machine stopped without warning: events that happened just before may be lost; numbers {} to {} are not used",
            last + 1,
            next_number - 1
        )
    });
    let mark = fact(&transaction, "mark")?.and_then(|text| {
        let (sequence, created) = text.split_once(' ')?;
        Some(StreamMark { created: created.to_owned(), sequence: sequence.parse().ok()? })
    });
    set_fact(&transaction, "incarnation", &incarnation)?;
    set_fact(&transaction, "boot", &origin.boot)?;
    transaction.execute("DELETE FROM facts WHERE name = 'closed'", [])?;
    transaction.commit()?;
    Ok((Recovered { next_number, slots, folds, mark: mark.unwrap_or_default(), lost }, incarnation, ceiling))
}

impl OutboxStore for SqliteStore {
    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let number = |event: &Arc<PullEvent>| event.sequence.as_ref().map_or(0, |sequence| sequence.number);
        let last = batch.put.iter().map(number).max().unwrap_or(0).max(self.last_number);
        let written = self.reserve(last).and_then(|()| self.transact(batch, last).map_err(failed("events cannot be stored")));
        match written {
            Ok(()) => self.last_number = last,
            Err(_) => self.remember_unstored(last),
        }
        written
    }

    fn load(&mut self, after: u64, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
        let read = read_events(&self.connection, "SELECT body FROM events WHERE number > ?1 ORDER BY number", signed(after), limit);
        read.map_err(failed("stored events cannot be read"))
    }

    fn newest(&mut self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError> {
        let read = read_events(&self.connection, "SELECT body FROM events WHERE number > ?1 ORDER BY number DESC", 0, limit);
        let mut events = read.map_err(failed("stored events cannot be read"))?;
        events.reverse();
        Ok(events)
    }

    fn syncer(&self) -> Syncer {
        let log = Arc::clone(&self.log);
        Arc::new(move || log.sync_data())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let closed = self.connection.execute("INSERT OR REPLACE INTO facts VALUES ('closed', '1')", []);
        closed.map_err(failed("the outbox cannot be closed"))?;
        self.log.sync_data().map_err(|error| StoreError(format!("the outbox cannot be synced to the disk: {error}")))
    }
}

impl SqliteStore {
    /// Notes the highest number of an event that could not be stored: it may be published, so no number up to it may be used again.
    fn remember_unstored(&self, last: u64) {
        let Some(file) = &self.unstored else { return };
        if let Err(error) = file.write_all_at(format!("{last:0UNSTORED_DIGITS$}").as_bytes(), 0) {
            tracing::warn!(%error, "the number of an event that could not be stored cannot be kept");
        }
    }

    /// Reserves the numbers up to `last` and further ones on the disk, before an event with such a number is stored.
    fn reserve(&mut self, last: u64) -> Result<(), StoreError> {
        if last <= self.ceiling {
            return Ok(());
        }
        let ceiling = last + CEILING_STEP;
        let reserved = self.connection.execute("INSERT OR REPLACE INTO facts VALUES ('ceiling', ?1)", [ceiling.to_string()]);
        reserved.map_err(failed("numbers of events cannot be reserved"))?;
        self.log.sync_data().map_err(|error| StoreError(format!("numbers of events cannot be synced to the disk: {error}")))?;
        self.ceiling = ceiling;
        Ok(())
    }

    fn transact(&mut self, batch: &Batch, last: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for event in &batch.put {
                let slot = slot_of(event);
                put.execute(params![signed(slot.number), signed(slot.bytes), signed(slot.time_ms), slot.is_refusal, encode(event)])?;
            }
            let mut remove = transaction.prepare_cached("DELETE FROM events WHERE number = ?1")?;
            for number in &batch.remove {
                remove.execute([signed(*number)])?;
            }
            for (id, event) in &batch.folds {
                match event {
                    Some(event) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO folds VALUES (?1, ?2)")?
                        .execute(params![signed(*id), encode(event)])?,
                    None => transaction.prepare_cached("DELETE FROM folds WHERE id = ?1")?.execute([signed(*id)])?,
                };
            }
        }
        if last > self.last_number {
            set_fact(&transaction, "last_number", &last.to_string())?;
        }
        if let Some(StreamMark { created, sequence }) = &batch.mark {
            set_fact(&transaction, "mark", &format!("{sequence} {created}"))?;
        }
        transaction.commit()
    }
}

fn fact(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<Option<String>> {
    transaction.prepare_cached("SELECT value FROM facts WHERE name = ?1")?.query_row([name], |row| row.get(0)).optional()
}

fn set_fact(transaction: &Transaction<'_>, name: &str, value: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT OR REPLACE INTO facts VALUES (?1, ?2)")?.execute([name, value]).map(|_| ())
}

/// At most `limit` readable events. Rows are read one by one, so the query needs no limit, which would count unreadable events too.
fn read_events(connection: &Connection, query: &str, after: i64, limit: usize) -> rusqlite::Result<Vec<Arc<PullEvent>>> {
    let mut query = connection.prepare(query)?;
    let bodies = query.query_map([after], |row| row.get::<_, Vec<u8>>(0))?;
    bodies.filter_map(|body| body.map(|body| decode(&body).map(Arc::new)).transpose()).take(limit).collect()
}

/// The readable events of a damaged database: up to the damage from both ends.
fn salvage(path: &Path) -> (Vec<Arc<PullEvent>>, Option<String>) {
    let Ok(connection) = connect(path) else { return (Vec::new(), None) };
    let incarnation = connection.query_row("SELECT value FROM facts WHERE name = 'incarnation'", [], |row| row.get(0)).ok();
    let mut found = std::collections::BTreeMap::new();
    for order in ["ASC", "DESC"] {
        let Ok(mut query) = connection.prepare(&format!("SELECT number, body FROM events ORDER BY number {order}")) else { continue };
        let Ok(mut rows) = query.query([]) else { continue };
        while let Ok(Some(row)) = rows.next() {
            let (Ok(number), Ok(body)) = (row.get::<_, i64>(0), row.get::<_, Vec<u8>>(1)) else { break };
            let event = decode(&body).filter(|event| event.sequence.as_ref().is_some_and(|sequence| sequence.number == unsigned(number)));
            found.extend(event.map(|event| (number, Arc::new(event))));
        }
    }
    (found.into_values().collect(), incarnation)
}

/// Renames a database and its log.
fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let place = |number: u32| path.with_file_name(format!("outbox.damaged-{number}.db"));
    let free = (1..=SET_ASIDE_MOST).map(place).find(|place| !place.exists()).unwrap_or_else(|| place(1));
    std::fs::rename(path, &free)?;
    match std::fs::rename(log_of(path), log_of(&free)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(free),
    }
}

/// Opens the file, and reads its number; 0: none.
fn open_unstored(path: &Path) -> (Option<File>, u64) {
    let open = || {
        if path.is_symlink() {
            return Err(std::io::Error::other("it is a link"));
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut digits = [0; UNSTORED_DIGITS];
        if file.read_exact_at(&mut digits, 0).is_err() {
            digits = [b'0'; UNSTORED_DIGITS];
            file.write_all_at(&digits, 0)?;
        }
        let number = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
        Ok::<_, std::io::Error>((file, number.unwrap_or_default()))
    };
    match open() {
        Ok((file, number)) => (Some(file), number),
        Err(error) => {
            tracing::warn!(%error, file = %path.display(), "numbers of events that cannot be stored are not kept");
            (None, 0)
        }
    }
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

fn slot_of(event: &Arc<PullEvent>) -> Slot {
    Slot {
        number: event.sequence.as_ref().map_or(0, |sequence| sequence.number),
        bytes: text_bytes(event) as u64 + crate::core::EVENT_OVERHEAD_BYTES,
        time_ms: event.time_ms,
        is_refusal: event.reason == contract::EventReason::BackOff,
    }
}

fn encode(event: &PullEvent) -> Vec<u8> {
    let mut body = Vec::with_capacity(text_bytes(event) + crate::core::EVENT_OVERHEAD_BYTES as usize);
    // Encoding an event never fails.
    let _ = rmp_serde::encode::write_named(&mut body, event);
    body
}

fn decode(body: &[u8]) -> Option<PullEvent> {
    rmp_serde::from_slice(body).ok()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError(format!("{doing}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use clock::Random;
    use contract::{EventReason, EventSequence};

    use super::*;

    #[test]
    fn batch_whose_write_fails_is_not_stored_if_only_the_sync_failed() {
        let dir = tempfile::TempDir::new().unwrap();
        let connection = connect(&dir.path().join(OUTBOX_FILE)).unwrap();
        connection.execute_batch(TABLES).unwrap();
        // A device cannot be synced.
        let log = Arc::new(File::open("/dev/null").unwrap());
        let mut store = SqliteStore { connection, log, unstored: None, ceiling: 0, last_number: 0 };
        let event = crate::core::test_event(&mut Random::seeded(1), "app:v1", EventReason::Failed, 0);
        let sequence = Some(EventSequence { incarnation: "first".to_owned(), number: 1 });
        let batch = Batch { put: vec![Arc::new(PullEvent { sequence, ..event })], ..Batch::default() };
        assert!(store.write(&batch).is_err());
        assert_eq!(store.load(0, 10).unwrap(), []);
    }
}
