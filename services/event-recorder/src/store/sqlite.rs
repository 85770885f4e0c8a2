//! The store in a SQLite database in WAL mode. A batch is one `write`, which outlives the process; [`OutboxStore::syncer`] syncs the log to
//! the disk. A damaged database is set aside, after its readable events were copied.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::PullEvent;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, ffi, params};

use super::{OpenedStore, OutboxStore, StoreError, Syncer};
use crate::core::{Batch, EVENT_OVERHEAD_BYTES, Recovered, Slot, StreamMark, number_of, text_bytes};

mod damaged;

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
    /// The highest number that this process has reserved.
    ceiling: u64,
    /// The highest number that was used, also of an event that could not be stored.
    last_number: u64,
}

/// An open database and its contents.
struct Opened {
    store: SqliteStore,
    incarnation: String,
    recovered: Recovered,
}

/// Why a database is not open.
struct Unopened {
    why: StoreError,
    /// Whether its contents are at fault. If not, a later start may open it: the disk is full, or the file cannot be accessed now.
    is_damaged: bool,
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
    /// Opens the database of a state directory; creates it if it is missing. A damaged one is replaced.
    ///
    /// # Errors
    /// It can neither be opened nor created.
    pub fn open(dir: &Path, origin: &Origin) -> Result<OpenedStore, StoreError> {
        let path = dir.join(OUTBOX_FILE);
        let opened = match Self::open_file(&path, origin) {
            Ok(opened) => opened,
            Err(error) if error.is_damaged => damaged::replace(&path, origin, &error.why)?,
            Err(error) => return Err(error.why),
        };
        let Opened { store, incarnation, recovered } = opened;
        Ok(OpenedStore { store: Box::new(store), incarnation, recovered })
    }

    fn open_file(path: &Path, origin: &Origin) -> Result<Opened, Unopened> {
        let mut connection = connect(path).map_err(unopened("the outbox cannot be opened"))?;
        let version: u32 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(unopened("the outbox cannot be read"))?;
        if version > VERSION {
            let why = StoreError(format!("the outbox was written by a newer version ({version}, this program reads {VERSION})"));
            return Err(Unopened { why, is_damaged: true });
        }
        let made = connection.execute_batch(&format!("{TABLES} PRAGMA user_version = {VERSION};"));
        made.map_err(unopened("the outbox cannot be set up"))?;
        let (mut recovered, incarnation) = recover(&mut connection, origin).map_err(unopened("the outbox cannot be read"))?;
        let log = File::open(log_of(path))
            .map_err(|error| Unopened { why: StoreError(format!("the outbox's log cannot be opened: {error}")), is_damaged: false })?;
        let (unstored, last_unstored) = open_unstored(&path.with_file_name(UNSTORED_FILE));
        if last_unstored >= recovered.next_number {
            let unstored_lost = format!("events could not be stored before the agent ended: up to number {last_unstored} they may be lost");
            recovered.next_number = last_unstored + 1;
            recovered.lost = Some(recovered.lost.map_or_else(|| unstored_lost.clone(), |lost| format!("{lost}; {unstored_lost}")));
        }
        let last_number = recovered.next_number - 1;
        // Nothing counts as reserved: the first event is stored after a sync, which takes along what was written here. Otherwise a power
        // failure could leave the mark of an orderly stop, and numbers would be used again.
        let store = Self { connection, log: Arc::new(log), unstored, ceiling: last_number, last_number };
        Ok(Opened { store, incarnation, recovered })
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

fn recover(connection: &mut Connection, origin: &Origin) -> rusqlite::Result<(Recovered, String)> {
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
    // The next start of this boot, or after an orderly stop, goes on above the reserved numbers too.
    set_fact(&transaction, "last_number", &(next_number - 1).to_string())?;
    transaction.execute("DELETE FROM facts WHERE name = 'closed'", [])?;
    transaction.commit()?;
    Ok((Recovered { next_number, slots, folds, mark: mark.unwrap_or_default(), lost }, incarnation))
}

impl OutboxStore for SqliteStore {
    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let last = batch.put.iter().map(number_of).max().unwrap_or(0).max(self.last_number);
        self.write_up_to(last, batch)
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
    /// Writes a batch, after which no number up to `last` is used again.
    fn write_up_to(&mut self, last: u64, batch: &Batch) -> Result<(), StoreError> {
        let written = self.reserve(last).and_then(|()| self.transact(batch, last).map_err(failed("events cannot be stored")));
        self.last_number = last;
        if written.is_err() {
            self.remember_unstored(last);
        }
        written
    }

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
                let slot = Slot::of(event);
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
        set_fact(&transaction, "last_number", &last.to_string())?;
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

fn encode(event: &PullEvent) -> Vec<u8> {
    let mut body = Vec::with_capacity(text_bytes(event) + EVENT_OVERHEAD_BYTES);
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

fn unopened(doing: &'static str) -> impl Fn(rusqlite::Error) -> Unopened {
    move |error| Unopened { is_damaged: is_damage(&error), why: failed(doing)(error) }
}

/// Whether the contents of the database are at fault, or cannot be read from the disk.
fn is_damage(error: &rusqlite::Error) -> bool {
    // Other errors than SQLite's: a value is not of its type.
    error.sqlite_error().is_none_or(|error| {
        let is_unreadable = [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_DATA, ffi::SQLITE_IOERR_CORRUPTFS].contains(&error.extended_code);
        is_unreadable || matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
