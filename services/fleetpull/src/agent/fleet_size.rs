//! Keeps the fleet's size over restarts: agents that restart together spread their first connections by it.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use bus::BusRef;
use contract::messages::registrar::FleetSeen;
use safe_dir::SafeDir;
use tokio::sync::watch;
use tracing::debug;

/// The file with the size, in the state directory.
const FILE: &str = "fleet-size";
/// The file that replaces it.
const NEW_FILE: &str = "fleet-size.new";
/// The mode of both: the directory's mode decides who reads them.
const FILE_MODE: u32 = 0o644;
/// The size assumed if none is stored: the first connection waits at most 0.42 s.
const ASSUMED: u64 = 50;
/// Reads at most this much of the file. A size has at most 20 digits.
const MAX_BYTES: u64 = 32;
/// A size that differs by less than a tenth from the stored one is not written.
const TENTHS: u64 = 10;

/// The size stored in this state directory, or [`ASSUMED`] if there is none.
pub(super) fn read(state_dir: &Path) -> u64 {
    let mut text = String::new();
    let opened = SafeDir::open(state_dir).and_then(|dir| dir.open_file(FILE));
    let read = opened.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(ASSUMED)
}

/// Stores the fleet's size in this state directory and passes it to the bus, until the node's view of the fleet ends.
pub(super) async fn keep(state_dir: PathBuf, bus: BusRef, mut seen: watch::Receiver<FleetSeen>) {
    let mut kept = read(&state_dir);
    while seen.changed().await.is_ok() {
        let alive = seen.borrow_and_update().place.alive;
        if alive == 0 {
            continue;
        }
        bus.set_fleet_size(alive);
        if alive.abs_diff(kept).saturating_mul(TENTHS) < kept.max(1) {
            continue;
        }
        kept = alive;
        let state_dir = state_dir.clone();
        let written = tasks::blocking("keep-fleet-size", move || write(&state_dir, alive)).await;
        if let Err(error) = written {
            debug!(%error, "the fleet's size is not kept: after a restart the first connection spreads as before");
        }
    }
}

/// Writes a new file and renames it, so that no reader sees a partial file.
fn write(state_dir: &Path, size: u64) -> io::Result<()> {
    let dir = SafeDir::open(state_dir)?;
    let mut new = dir.open_to_write(NEW_FILE, FILE_MODE)?;
    new.set_len(0)?;
    writeln!(new, "{size}")?;
    dir.rename(NEW_FILE, &dir, FILE)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::registrar::Place;

    use super::*;

    #[test]
    fn unreadable_size_file_gives_default() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), ASSUMED, "nothing is there");
        for (text, size) in [("7000\n", 7_000), ("", ASSUMED), ("many", ASSUMED), ("-1", ASSUMED), (&"9".repeat(100), ASSUMED)] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(read(folder.path()), size, "{text:?}");
        }
    }

    #[test]
    fn link_in_place_of_a_size_file_is_neither_read_nor_written_through() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        std::fs::write(other.path(), "7000").unwrap();
        for name in [FILE, NEW_FILE] {
            std::os::unix::fs::symlink(other.path(), folder.path().join(name)).unwrap();
        }
        assert_eq!(read(folder.path()), ASSUMED);
        assert!(write(folder.path(), 3).is_err());
        assert_eq!(std::fs::read_to_string(other.path()).unwrap(), "7000");
    }

    #[tokio::test]
    async fn a_size_is_kept_when_it_differs_by_a_tenth() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        for (alive, kept) in [(0, ASSUMED), (1_000, 1_000), (1_099, 1_000), (1_101, 1_101), (3, 3)] {
            let (seen_sender, seen) = watch::channel(FleetSeen::default());
            let keeping = tokio::spawn(keep(folder.path().to_owned(), Arc::new(MemoryBus::new(clock.clone())), seen));
            seen_sender.send_replace(FleetSeen { place: Place { alive, ..Place::default() }, digest: None });
            drop(seen_sender);
            keeping.await.unwrap();
            assert_eq!(read(folder.path()), kept, "{alive} alive");
        }
    }
}
