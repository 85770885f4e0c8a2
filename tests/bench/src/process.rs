//! The costs of processes, as the kernel counts them.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clock::Clock;
use tokio::process::Command;

/// The pause between two reads of a process's peak memory. The kernel keeps the peak, so only the growth in the last moments of a process
/// can be missed.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How much of a failed program's output is shown.
const OUTPUT_MAX_BYTES: usize = 2_000;

/// The cost of a process from its start to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) peak_bytes: u64,
}

/// Runs a program to its end.
///
/// # Errors
/// It failed; the error has its output.
pub(crate) async fn run(command: &mut Command, clock: &Clock) -> Result<Cost> {
    let mut output = tempfile::tempfile().context("no temporary file can be made")?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output.try_clone().context("a file cannot be opened twice")?);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let start = clock.now().monotonic;
    let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
    let id = child.id().context("a child has no id")?;
    let mut peak_bytes = 0;
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            _ = looks.tick() => peak_bytes = peak_bytes.max(memory(id, "VmHWM").unwrap_or_default()),
        }
    };
    let wall = clock.now().monotonic.saturating_sub(start);
    if !status.success() {
        let mut text = String::new();
        output.rewind()?;
        output.read_to_string(&mut text)?;
        bail!("{command:?}: {status}: {}", &text[text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_MAX_BYTES))..]);
    }
    Ok(Cost { wall, peak_bytes })
}

/// The present memory of a process, in bytes.
pub(crate) fn resident_bytes(process: u32) -> Result<u64> {
    memory(process, "VmRSS").with_context(|| format!("process {process} has ended"))
}

/// The processor time of all threads that a process has now.
pub(crate) fn cpu_time(process: u32) -> Result<Duration> {
    let (mut nanoseconds, mut threads) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{process}/task")).with_context(|| format!("process {process} has ended"))? {
        // A thread may end between the two reads.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or_default();
        threads += 1;
    }
    ensure!(threads > 0, "this kernel does not count the time of threads");
    Ok(Duration::from_nanos(nanoseconds))
}

fn memory(process: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read() {
        let own = std::process::id();
        assert!(resident_bytes(own).unwrap() > 100_000);
        assert!(memory(own, "VmHWM").unwrap() >= resident_bytes(own).unwrap() / 2);
        assert!(cpu_time(own).unwrap() > Duration::ZERO);
    }
}
