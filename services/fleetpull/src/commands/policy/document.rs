//! The fleet policy as a file in TOML or JSON. Unknown keys are errors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context as _, Result, bail};
use contract::policy::{Caps, FleetPolicy, ShareAtMost};
use serde::Deserialize;

use crate::exit::UsageError;
use crate::output;

/// The largest document that is read, many times the largest policy that can be stored.
const MAX_BYTES: u64 = 64 * 1024;
/// The file name that means stdin.
const STDIN: &str = "-";

/// The document. An unknown key is an error, because a mistyped cap would otherwise be ignored.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    share: Option<ShareAtMost>,
    budget: DocumentCaps,
    registry: BTreeMap<String, DocumentCaps>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table of caps")]
struct DocumentCaps {
    pulls_per_second: Option<f64>,
    pulls_at_once: Option<u64>,
}

impl From<DocumentCaps> for Caps {
    fn from(DocumentCaps { pulls_per_second, pulls_at_once }: DocumentCaps) -> Self {
        Self { pulls_per_second, pulls_at_once }
    }
}

/// Reads a file, or stdin.
///
/// # Errors
/// The document cannot be read, or is no policy.
pub(super) fn read(file: &str) -> Result<FleetPolicy, UsageError> {
    let name = if file == STDIN { "stdin" } else { file };
    let text = match file {
        STDIN => bounded(io::stdin().lock()),
        file => File::open(file).map_err(Into::into).and_then(bounded),
    };
    let text = text.with_context(|| format!("the policy cannot be read from {name}"));
    let policy = text.and_then(|text| parse(&text).with_context(|| format!("{name} is no fleet policy")));
    policy.map_err(|error| UsageError(in_words(&error)))
}

/// The error with words in place of Rust's types.
fn in_words(error: &anyhow::Error) -> String {
    output::error_text(error)
        .replace("expected f64", "expected a number")
        .replace("expected u64", "expected a whole number")
        .replace("expected a map", "expected a table of registries")
}

fn bounded(from: impl Read) -> Result<String> {
    let mut text = String::new();
    let bytes = from.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if bytes as u64 > MAX_BYTES {
        bail!("it has more than {MAX_BYTES} bytes, and a policy of a hundred registries has some 8,000");
    }
    Ok(text)
}

fn parse(text: &str) -> Result<FleetPolicy> {
    // A line of TOML never starts with a brace.
    let document: Document = if text.trim_start().starts_with('{') { serde_json::from_str(text)? } else { toml::from_str(text)? };
    let registry = document.registry.into_iter().map(|(name, caps)| (name, caps.into())).collect();
    let policy = FleetPolicy { share: document.share, budget: document.budget.into(), registry };
    policy.check()?;
    Ok(policy)
}

/// The policy in the form that `policy set` reads.
pub(super) fn written(policy: &FleetPolicy) -> Result<String> {
    toml::to_string(policy).context("the policy cannot be written as TOML")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    const DOCUMENT: &str =
        "share = \"observe\"\n[budget]\npulls_per_second = 200\n[registry.\"docker.io\"]\npulls_per_second = 0.5\npulls_at_once = 20\n";

    fn refused(text: &str) -> String {
        in_words(&parse(text).expect_err(text))
    }

    #[test]
    fn toml_and_json_are_equivalent_and_the_printed_document_is_read_back() {
        let policy = parse(DOCUMENT).expect("a policy");
        let json = serde_json::to_string(&policy).expect("serialises");
        assert_eq!(parse(&json).expect("a policy"), policy);
        assert_eq!(parse(&written(&policy).expect("writes")).expect("a policy"), policy);
        assert!(policy.observes());
        assert_eq!(policy.caps_of("docker.io"), Caps { pulls_per_second: Some(0.5), pulls_at_once: Some(20) });
        assert_eq!(policy.caps_of("ghcr.io"), Caps { pulls_per_second: Some(200.0), pulls_at_once: None });
        for empty in ["", "\n", "{}", "# nothing\n"] {
            assert_eq!(parse(empty).expect("a policy"), FleetPolicy::default(), "{empty:?}");
        }
    }

    #[test]
    fn invalid_document_is_refused_with_what_to_write() {
        for (text, refusal) in [
            ("[budget]\npulls_per_secnd = 1\n", "unknown field `pulls_per_secnd`"),
            ("[budgets]\n", "unknown field `budgets`"),
            ("share = \"off\"\n", "unknown variant `off`, expected `enforce` or `observe`"),
            ("[budget]\npulls_per_second = 0\n", "budget.pulls_per_second is 0: set 0.01 to 100000"),
            ("[budget]\npulls_per_second = nan\n", "budget.pulls_per_second is NaN"),
            ("[budget]\npulls_per_second = -3.0\n", "budget.pulls_per_second is -3"),
            ("[budget]\npulls_per_second = 1e9\n", "budget.pulls_per_second is 1000000000"),
            ("[budget]\npulls_at_once = 0\n", "set 1 to 1000000, or leave it out"),
            ("[budget]\npulls_at_once = -1\n", "-1"),
            ("[budget]\npulls_per_second = \"many\"\n", "expected a number"),
            ("[budget]\npulls_at_once = 1.5\n", "expected a whole number"),
            ("{\"budget\": {\"pulls_at_once\": \"many\"}}", "expected a whole number"),
            ("budget = 3\n", "expected a table of caps"),
            ("{\"budget\": 3}", "expected a table of caps"),
            ("[registry]\n\"docker.io\" = 3\n", "expected a table of caps"),
            ("registry = 3\n", "expected a table of registries"),
            ("{\"registry\": 3}", "expected a table of registries"),
            ("[registry.docker.io]\npulls_at_once = 1\n", "unknown field `io`"),
            ("[registry.\"index.docker.io\"]\n", "is \"docker.io\" in images"),
            ("[registry.\"https://ghcr.io\"]\n", "name it as images do"),
            ("[registry.\"ghcr.io\"]\npulls_at_once = 1\n[registry.\"ghcr.io\"]\n", "duplicate key"),
            ("{\"budget\": {\"pulls_per_second\": 0}}", "budget.pulls_per_second is 0"),
            ("not a policy", "TOML parse error at line 1"),
        ] {
            let refused = refused(text);
            assert!(refused.contains(refusal), "{text:?}: {refused}");
        }
        let many: String = (0..10_000).map(|number| format!("[registry.\"r{number}.example\"]\n")).collect();
        assert!(refused(&many).contains("it names 10000 registries, and 100 are the most"));
        let long = refused(&format!("[registry.\"{}\"]\n", "a".repeat(4_000)));
        assert!(long.len() < 300 && long.contains("name it as images do"), "{long}");
    }

    #[test]
    fn a_document_without_an_end_is_not_read_to_it() {
        let error = bounded(io::repeat(b'#')).expect_err("it is too large");
        assert!(error.to_string().contains("more than 65536 bytes"), "{error}");
        let error = read("/nonexistent/policy.toml").expect_err("it is not there");
        assert!(error.to_string().contains("/nonexistent/policy.toml"), "{error}");
        assert_eq!(Exit::of_error(&error.into()), Exit::Usage);
    }
}
