//! `tools`: gets the servers that tests use.

mod debian;
mod nats;

use std::path::Path;

/// A server, and its state on this machine.
pub(crate) struct Part {
    name: &'static str,
    /// The tests that use it.
    used_for: &'static str,
    /// Its path, or why it is missing and how to get it.
    found: Result<String, String>,
}

impl Part {
    /// One line: the program, and its path or how to get it.
    fn line(&self) -> String {
        match &self.found {
            Ok(place) => format!("have    {}: {place}", self.name),
            Err(why) => format!("MISSING {} ({}): {why}", self.name, self.used_for),
        }
    }
}

/// Gets the missing parts and prints all parts. Fails if a part is still missing.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let missing = ensure(root)?;
    anyhow::ensure!(missing.is_empty(), "{} of the programs could not be installed; the tests that need them do not run", missing.len());
    Ok(())
}

/// Gets Docker Engine and Compose, which only `e2e image` needs. Fails if they are still missing.
pub(crate) fn docker() -> anyhow::Result<()> {
    let missing: Vec<String> = debian::docker().iter().filter(|part| part.found.is_err()).map(Part::line).collect();
    anyhow::ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

/// Gets the missing parts; returns a line for each part that is still missing.
pub(crate) fn ensure(root: &Path) -> anyhow::Result<Vec<String>> {
    let tools = root.join(".tools");
    std::fs::create_dir_all(&tools)?;
    // First, because on a new machine it updates the package lists that the next step needs.
    let mut parts = debian::servers();
    parts.extend([nats::current(&tools), nats::oldest(&tools), nats::too_old(&tools)]);
    for part in &parts {
        eprintln!("{}", part.line());
    }
    Ok(parts.iter().filter(|part| part.found.is_err()).map(Part::line).collect())
}
