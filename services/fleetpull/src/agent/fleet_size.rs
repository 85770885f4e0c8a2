//! Keeps the fleet's size over restarts: agents that restart together spread their first connections by it.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bus::BusRef;
use contract::messages::registrar::FleetSeen;
use tokio::sync::watch;
use tracing::debug;

/// The size assumed if none is stored: the first connection waits at most 0.42 s.
const ASSUMED: u64 = 50;
/// Reads at most this much of the file. A size has at most 20 digits.
const MAX_BYTES: u64 = 32;
/// A size that differs by less than a tenth from the stored one is not written.
const TENTHS: u64 = 10;

/// The stored size, or [`ASSUMED`] if there is none.
pub(super) fn read(path: &Path) -> u64 {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(ASSUMED)
}

/// Stores the fleet's size in this file and passes it to the bus, until the node's view of the fleet ends.
pub(super) async fn keep(path: PathBuf, bus: BusRef, mut seen: watch::Receiver<FleetSeen>) {
    let mut kept = read(&path);
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
        let path = path.clone();
        let written = tasks::blocking("keep-fleet-size", move || write(&path, alive)).await;
        if let Err(error) = written {
            debug!(%error, "the fleet's size is not kept: after a restart the first connection spreads as before");
        }
    }
}

/// Writes a new file and renames it, so that no reader sees a partial file.
fn write(path: &Path, size: u64) -> std::io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{size}\n"))?;
    std::fs::rename(&new, path)
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
        let path = folder.path().join("fleet-size");
        assert_eq!(read(&path), ASSUMED, "nothing is there");
        for (text, size) in [("7000\n", 7_000), ("", ASSUMED), ("many", ASSUMED), ("-1", ASSUMED), (&"9".repeat(100), ASSUMED)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path), size, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_size_is_kept_when_it_differs_by_a_tenth() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet-size");
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        for (alive, kept) in [(0, ASSUMED), (1_000, 1_000), (1_099, 1_000), (1_101, 1_101), (3, 3)] {
            let (seen_sender, seen) = watch::channel(FleetSeen::default());
            let keeping = tokio::spawn(keep(path.clone(), Arc::new(MemoryBus::new(clock.clone())), seen));
            seen_sender.send_replace(FleetSeen { place: Place { alive, ..Place::default() }, digest: None });
            drop(seen_sender);
            keeping.await.unwrap();
            assert_eq!(read(&path), kept, "{alive} alive");
        }
    }
}
