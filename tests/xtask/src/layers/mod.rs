//! `layers`: the architecture invariants, checked on the manifests and the sources.
//!
//! Each rule is a function of a [`Workspace`], so that its test can plant a violation.

mod cores;
mod credentials;
mod dependencies;
mod examples;
mod listing;
mod sources;
mod test_files;
mod workspace;

use std::path::Path;

use anyhow::bail;

use self::workspace::Workspace;

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    place: String,
    what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

/// A rule over the whole workspace.
type Rule = fn(&Workspace) -> Vec<Violation>;

/// Each rule with its description.
const RULES: [(&str, Rule); 10] = [
    ("the top level holds services, shared, config, deploy, tests and the files of the workspace", listing::top_level),
    ("services know each other by subject and message only", dependencies::services_apart),
    ("nothing that ships depends on a crate under tests/", dependencies::tests_outside),
    (
        "only shared/bus knows NATS, only shared/runtimes container runtimes and registries, only shared/telemetry collectors of traces",
        dependencies::homes,
    ),
    ("only shared/image parses references", sources::references),
    ("subjects are spelled only in shared/contract", sources::subjects),
    ("clocks are read only in shared/clock", sources::clocks),
    ("no credential derives Debug or Serialize", credentials::hidden),
    ("the integration tests of a crate are one executable, and every file is part of it", test_files::one_executable),
    ("examples in the documentation run", examples::tested),
];

/// Checks every rule, then compiles each core alone.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let workspace = Workspace::read(root)?;
    let mut broken = 0;
    for (promise, rule) in RULES {
        let violations = rule(&workspace);
        println!("{} {promise}", if violations.is_empty() { "ok  " } else { "FAIL" });
        for violation in &violations {
            println!("     {}: {}", violation.place, violation.what);
        }
        broken += usize::from(!violations.is_empty());
    }
    broken += usize::from(!cores::run(root)?);
    if broken > 0 {
        bail!("{broken} of {} architecture invariants do not hold", RULES.len() + 1);
    }
    Ok(())
}
