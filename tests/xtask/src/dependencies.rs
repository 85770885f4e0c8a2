//! `lint`: checks external crates: their licences, their sources, and their numbers of versions.
//!
//! It reads cargo's metadata of the locked tree on Linux, so it needs neither network nor another program. Decision record 0003 describes
//! what it cannot find: known vulnerabilities.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::command;

/// Licences that require only that their text comes with the program.
const LICENCES: [&str; 8] =
    ["Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause", "CDLA-Permissive-2.0", "ISC", "MIT", "Unicode-3.0", "Zlib"];
/// The only source of external crates.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Crates in several versions: how many, and why that cannot be changed here.
const DUPLICATES: [(&str, usize, &str); 12] = [
    ("base64", 2, "reqwest and pem are a version ahead of async-nats and tonic"),
    ("cpufeatures", 2, "sha2 0.10 and chacha20 0.10"),
    ("foldhash", 2, "petgraph, which builds the CRI messages, is behind"),
    ("getrandom", 3, "one for each rand"),
    ("hashbrown", 2, "petgraph, which builds the CRI messages, is behind"),
    ("rand", 3, "nkeys is behind ours, async-nats ahead"),
    ("rand_chacha", 2, "one for each rand"),
    ("rand_core", 3, "one for each rand"),
    ("syn", 2, "half of the derive macros have moved on"),
    ("synstructure", 2, "one for each syn"),
    ("unicode-width", 2, "miette, which builds the CRI messages, is behind"),
    ("winnow", 2, "toml and its parser differ"),
];

/// Checks the locked tree.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let arguments = ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let metadata = command::output(command::cargo(root).args(arguments))?;
    let crates = read(&serde_json::from_str(&metadata).context("cargo metadata is not JSON")?)?;
    let wrong: Vec<String> = crates.iter().flat_map(Foreign::wrong).chain(duplicates(&crates, &DUPLICATES)).collect();
    for line in &wrong {
        println!("     {line}");
    }
    if !wrong.is_empty() {
        bail!("{} violations of the rules for dependencies", wrong.len());
    }
    println!("{} crates: licences, sources and versions are as allowed", crates.len());
    Ok(())
}

/// An external crate.
#[derive(Debug)]
struct Foreign {
    name: String,
    version: String,
    licence: String,
    source: String,
}

/// All crates of the resolved tree except the workspace's own.
fn read(metadata: &Value) -> anyhow::Result<Vec<Foreign>> {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let used: BTreeSet<String> =
        array(&metadata["resolve"]["nodes"]).iter().filter_map(|node| Some(node["id"].as_str()?.to_owned())).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = array(&metadata["packages"]);
    let own: BTreeSet<String> = array(&metadata["workspace_members"]).iter().map(text).collect();
    let foreign = packages.iter().filter(|package| used.contains(&text(&package["id"])) && !own.contains(&text(&package["id"])));
    let of = |package: &Value| Foreign {
        name: text(&package["name"]),
        version: text(&package["version"]),
        licence: text(&package["license"]),
        source: text(&package["source"]),
    };
    let crates: Vec<Foreign> = foreign.map(of).collect();
    anyhow::ensure!(!crates.is_empty(), "cargo names no crate that the workspace depends on");
    Ok(crates)
}

impl Foreign {
    fn wrong(&self) -> Vec<String> {
        let Self { name, version, licence, source } = self;
        let mut wrong = Vec::new();
        if !allows(licence) {
            wrong.push(format!("{name} {version}: licence {licence:?} is not among {}", LICENCES.join(", ")));
        }
        if source != REGISTRY {
            wrong.push(format!("{name} {version}: comes from {source:?} and not from crates.io"));
        }
        wrong
    }
}

/// Whether allowed licences alone satisfy an SPDX expression. `/` is an old form of `OR`; parentheses are supported around `OR` only.
fn allows(expression: &str) -> bool {
    let mut terms: Vec<String> = vec![String::new()];
    let mut depth = 0_usize;
    for word in expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ").split_whitespace() {
        match word {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "AND" if depth == 0 => terms.push(String::new()),
            "OR" if depth == 0 && terms.len() > 1 => return false,
            _ => terms.last_mut().into_iter().for_each(|term| {
                term.push_str(word);
                term.push(' ');
            }),
        }
    }
    terms.iter().all(|term| term.split(" OR ").any(|licence| LICENCES.contains(&licence.trim())))
}

/// Crates with more versions than known, and known ones that have no duplicates any more.
fn duplicates(crates: &[Foreign], known: &[(&str, usize, &str)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    crates.iter().for_each(|one| {
        versions.entry(&one.name).or_default().insert(&one.version);
    });
    let expected = |name: &str| known.iter().find(|(of, ..)| *of == name).map_or(1, |(_, count, _)| *count);
    let more = versions.iter().filter(|(name, versions)| versions.len() != expected(name));
    let more = more.map(|(name, versions)| format!("{name}: {} versions {versions:?}, {} expected", versions.len(), expected(name)));
    let obsolete =
        known.iter().filter(|(name, ..)| !versions.contains_key(name)).map(|(name, ..)| format!("{name}: it is not there any more"));
    more.chain(obsolete).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(name: &str, version: &str, licence: &str, source: &str) -> Foreign {
        Foreign { name: name.to_owned(), version: version.to_owned(), licence: licence.to_owned(), source: source.to_owned() }
    }

    #[test]
    fn an_expression_is_met_by_allowed_licences_alone() {
        let table = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("Unlicense OR MIT", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 AND ISC", true),
            ("MIT AND (GPL-3.0 OR ISC)", true),
            ("GPL-3.0", false),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("Apache-2.0 WITH Other-exception", false),
            // An `OR` after an `AND` without parentheses is refused: no crate has such a licence so far.
            ("MIT AND ISC OR GPL-3.0", false),
            ("", false),
        ];
        for (expression, expected) in table {
            assert_eq!(allows(expression), expected, "{expression}");
        }
    }

    #[test]
    fn another_licence_source_or_version_is_found() {
        assert_eq!(foreign("a", "1.0.0", "MIT", REGISTRY).wrong(), Vec::<String>::new());
        assert_eq!(foreign("a", "1.0.0", "GPL-3.0", REGISTRY).wrong().len(), 1);
        assert_eq!(foreign("a", "1.0.0", "MIT", "git+https://example.org/a").wrong().len(), 1);
        assert_eq!(foreign("a", "1.0.0", "", "").wrong().len(), 2);
        let crates = ["1.0.0", "2.0.0"].map(|version| foreign("a", version, "MIT", REGISTRY));
        assert_eq!(duplicates(&crates, &[("a", 2, "why")]), Vec::<String>::new());
        assert_eq!(duplicates(&crates, &[]).len(), 1);
        assert_eq!(duplicates(&crates[..1], &[("a", 2, "why")]).len(), 1, "a crate that is not used any more needs no exception");
        assert_eq!(duplicates(&crates, &[("a", 2, "why"), ("b", 2, "why")]).len(), 1);
    }

    #[test]
    fn dependencies_of_this_workspace_are_allowed() {
        run(&crate::workspace_root().unwrap()).unwrap();
    }

    #[test]
    fn metadata_of_cargo_is_read() {
        let package =
            |id: &str, name: &str| serde_json::json!({ "id": id, "name": name, "version": "1.0.0", "license": "MIT", "source": REGISTRY });
        let metadata = serde_json::json!({
            "packages": [package("1", "own"), package("2", "used"), package("3", "of-another-platform")],
            "workspace_members": ["1"], "resolve": { "nodes": [{ "id": "1" }, { "id": "2" }] },
        });
        let names: Vec<String> = read(&metadata).unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["used"]);
        assert!(read(&serde_json::json!({})).is_err());
    }
}
