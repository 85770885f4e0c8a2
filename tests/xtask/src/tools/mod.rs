//! `tools`: gets the servers that tests talk to.

mod debian;
mod nats;

use std::path::Path;

/// A server, and whether it is here.
pub(crate) struct Part {
    name: &'static str,
    /// What is tested with it.
    used_for: &'static str,
    /// Where it is, or why it is not here and what to do.
    found: Result<String, String>,
}

impl Part {
    /// One line: what, where, or what to do.
    fn line(&self) -> String {
        match &self.found {
            Ok(place) => format!("have    {}: {place}", self.name),
            Err(why) => format!("MISSING {} ({}): {why}", self.name, self.used_for),
        }
    }
}

/// Gets what is missing and says what is there. Fails if a part could not be had.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let missing = ensure(root)?;
    anyhow::ensure!(missing.is_empty(), "{} of the parts could not be had; the tests that need them do not run", missing.len());
    Ok(())
}

/// Gets Docker Engine and Compose, which `e2e image` alone needs. Fails if they could not be had.
pub(crate) fn docker() -> anyhow::Result<()> {
    let missing: Vec<String> = debian::docker().iter().filter(|part| part.found.is_err()).map(Part::line).collect();
    anyhow::ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

/// Gets what is missing; returns a line for each part that could not be had.
pub(crate) fn ensure(root: &Path) -> anyhow::Result<Vec<String>> {
    let tools = root.join(".tools");
    std::fs::create_dir_all(&tools)?;
    // First, because on a new machine it brings the lists of packages that the next one reads.
    let mut parts = debian::servers();
    parts.extend([nats::current(&tools), nats::oldest(&tools), nats::too_old(&tools)]);
    for part in &parts {
        eprintln!("{}", part.line());
    }
    Ok(parts.iter().filter(|part| part.found.is_err()).map(Part::line).collect())
}
